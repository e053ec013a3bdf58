//! Requests that wait for the first supply of a parent.

use super::*;

fn child() -> World {
    World::new(Source::Parent, None)
}

impl World {
    fn supplied(&mut self, capacity: f64) -> Effects<u32> {
        let supply = Supply {
            capacity: Amount::clamped(capacity),
            until: self.now.plus(Millis::from_secs(300)),
            edition: 1,
            terms: Vec::new(),
        };
        let settings = Settings::new(Kind::FairShare, Amount::ZERO);
        let mut batch = std::mem::take(&mut self.batch);
        let effects = self.step(|engine, moment, effects| engine.supply(moment, supply, settings, &mut batch, effects));
        self.batch = batch;
        effects
    }
}

#[test]
fn requests_wait_for_the_supply_and_are_answered_together() {
    let mut world = child();
    let effects = world.asks("a", 60.0);
    assert!(answered(&effects).is_empty() && effects.asks_parent);
    let effects = world.asks("b", 60.0);
    assert!(answered(&effects).is_empty() && !effects.asks_parent, "it has asked");
    let effects = world.supplied(100.0);
    assert_eq!((answered(&effects), granted(&effects)), (vec![1, 2], vec![50.0, 50.0]));
    assert_eq!(answered(&world.asks("c", 1.0)), [3], "nothing waits any more");
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
    let condensed = world.step(|engine, moment, _| assert_eq!(engine.condense(moment), None));
    assert!(condensed.is_empty());
}

#[test]
fn once_condensed_the_parent_is_asked_again_only_when_something_changes() {
    let mut world = child();
    assert!(world.asks("a", 60.0).asks_parent);
    world.step(|engine, moment, _| assert!(engine.condense(moment).is_some()));
    world.supplied(100.0);
    assert!(!world.asks("a", 60.0).asks_parent);
    assert!(world.asks("b", 60.0).asks_parent);
}
