//! Requests that wait for the first supply of a parent.

use super::*;

fn child() -> World {
    World::new(Source::Parent, None)
}

impl World {
    fn supplied(&mut self, capacity: f64) -> Effects<u32> {
        self.supplied_by(capacity, Terms::Wants)
    }

    fn supplied_by(&mut self, capacity: f64, terms: Terms) -> Effects<u32> {
        let supply = Supply {
            capacity: Amount::clamped(capacity),
            until: self.now.plus(Millis::from_secs(300)),
            version: 1,
            terms: vec![(0, terms)],
        };
        let settings = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
        let mut batch = std::mem::take(&mut self.batch);
        let effects = self.step(|engine, moment, effects| engine.supply(moment, supply, settings, &mut batch, effects));
        self.batch = batch;
        effects
    }

    fn summarizes(&mut self) {
        self.step(|engine, moment, _| assert!(engine.summarize(moment).is_some()));
    }

    /// A client has all that was lent.
    fn lent_out() -> World {
        let mut world = child();
        world.asks("a", 8.0);
        world.summarizes();
        assert_eq!(granted(&world.supplied(8.0)), [8.0]);
        world
    }
}

#[test]
fn requests_wait_for_the_supply_and_are_answered_together() {
    let mut world = child();
    let effects = world.asks("a", 60.0);
    assert!(answered(&effects).is_empty() && effects.asks_parent);
    let effects = world.asks("b", 60.0);
    assert!(answered(&effects).is_empty() && !effects.asks_parent, "it has asked");
    let effects = world.supplied_by(100.0, Terms::Level(50.0));
    assert_eq!((answered(&effects), granted(&effects)), (vec![1, 2], vec![50.0, 50.0]));
    assert_eq!(answered(&world.asks("c", 1.0)), [3], "the parent has no more to lend");
}

#[test]
fn a_request_that_has_waited_for_long_enough_goes_without() {
    let mut world = child();
    let at = world.asks("a", 60.0).wake_at.expect("it will not wait for ever");
    world.pass(500);
    world.asks("b", 60.0);
    world.now = at;
    let effects = world.wake();
    assert_eq!(effects.replies, [(1, Ok(Answer::NotYet))]);
    assert_eq!(effects.wake_at, Some(at.plus(Millis(500))), "for the other");
    assert_eq!(answered(&world.supplied(100.0)), [2], "it is not answered again");
}

#[test]
fn without_mastership_no_request_waits() {
    let mut world = child();
    world.asks("a", 60.0);
    world.may_decide = false;
    assert_eq!(world.tick().replies, [(1, Err(LostMastership))]);
    let summary = world.step(|engine, moment, _| assert_eq!(engine.summarize(moment), None));
    assert!(summary.is_empty());
}

#[test]
fn once_condensed_the_parent_is_asked_again_only_when_something_changes() {
    let mut world = child();
    assert!(world.asks("a", 60.0).asks_parent);
    world.step(|engine, moment, _| assert!(engine.summarize(moment).is_some()));
    world.supplied(100.0);
    assert!(!world.asks("a", 60.0).asks_parent);
    assert!(world.asks("b", 60.0).asks_parent);
}

#[test]
fn a_client_that_has_nothing_is_answered_with_what_the_parent_lends_once_it_knows_of_it() {
    let mut world = World::lent_out();
    let effects = world.asks("b", 20.0);
    assert!(answered(&effects).is_empty() && effects.asks_parent);
    assert!(answered(&world.supplied(8.0)).is_empty(), "this answers what the parent was told before");
    world.summarizes();
    let effects = world.supplied(28.0);
    assert_eq!((answered(&effects), granted(&effects)), (vec![2], vec![20.0]));
}

#[test]
fn few_among_many_are_told_to_the_parent_at_once_too() {
    let mut world = World::lent_out();
    let effects = world.asks("b", 0.01);
    assert!(answered(&effects).is_empty() && effects.asks_parent, "it is less than what is told at once otherwise");
}

#[test]
fn it_waits_a_second_at_most_and_no_other_waits_until_the_parent_has_answered() {
    let mut world = World::lent_out();
    world.asks("b", 20.0);
    world.pass(1000);
    let effects = world.wake();
    assert_eq!((answered(&effects), granted(&effects)), (vec![2], vec![0.0]), "what there is");
    assert_eq!(granted(&world.asks("c", 20.0)), [0.0]);
    world.summarizes();
    world.supplied(8.0);
    assert!(answered(&world.asks("d", 20.0)).is_empty());
}

#[test]
fn a_client_that_has_something_does_not_wait() {
    let mut world = World::lent_out();
    assert_eq!(granted(&world.asks("a", 20.0)), [8.0]);
}

#[test]
fn no_client_waits_for_a_parent_that_had_to_divide() {
    let mut world = child();
    world.asks("a", 60.0);
    world.summarizes();
    world.supplied_by(50.0, Terms::Level(50.0));
    assert_eq!(granted(&world.asks("b", 60.0)), [0.0]);
}
