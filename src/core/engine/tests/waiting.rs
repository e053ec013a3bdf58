//! Requests that wait for the first supply of a parent.

use super::*;

fn child() -> Harness {
    Harness::new(Source::Parent, None)
}

impl Harness {
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
    fn lent_out() -> Harness {
        let mut harness = child();
        harness.asks("a", 8.0);
        harness.summarizes();
        assert_eq!(granted(&harness.supplied(8.0)), [8.0]);
        harness
    }
}

#[test]
fn requests_wait_for_the_supply_and_are_answered_together() {
    let mut harness = child();
    let effects = harness.asks("a", 60.0);
    assert!(answered(&effects).is_empty() && effects.asks_parent);
    let effects = harness.asks("b", 60.0);
    assert!(answered(&effects).is_empty() && !effects.asks_parent, "it has asked");
    let effects = harness.supplied_by(100.0, Terms::Level(50.0));
    assert_eq!((answered(&effects), granted(&effects)), (vec![1, 2], vec![50.0, 50.0]));
    assert_eq!(answered(&harness.asks("c", 1.0)), [3], "the parent has no more to lend");
}

#[test]
fn a_request_that_has_waited_for_long_enough_goes_without() {
    let mut harness = child();
    let at = harness.asks("a", 60.0).wake_at.expect("it will not wait for ever");
    harness.pass(500);
    harness.asks("b", 60.0);
    harness.now = at;
    let effects = harness.wake();
    assert_eq!(effects.replies, [(1, Ok(Answer::NotYet))]);
    assert_eq!(effects.wake_at, Some(at.plus(Millis(500))), "for the other");
    assert_eq!(answered(&harness.supplied(100.0)), [2], "it is not answered again");
}

#[test]
fn without_mastership_no_request_waits() {
    let mut harness = child();
    harness.asks("a", 60.0);
    harness.may_decide = false;
    assert_eq!(harness.tick().replies, [(1, Err(LostMastership))]);
    let summary = harness.step(|engine, moment, _| assert_eq!(engine.summarize(moment), None));
    assert!(summary.is_empty());
}

#[test]
fn once_summarized_the_parent_is_asked_again_only_when_something_changes() {
    let mut harness = child();
    assert!(harness.asks("a", 60.0).asks_parent);
    harness.step(|engine, moment, _| assert!(engine.summarize(moment).is_some()));
    harness.supplied(100.0);
    assert!(!harness.asks("a", 60.0).asks_parent);
    assert!(harness.asks("b", 60.0).asks_parent);
}

#[test]
fn a_client_that_has_nothing_is_answered_with_what_the_parent_lends_once_it_knows_of_it() {
    let mut harness = Harness::lent_out();
    let effects = harness.asks("b", 20.0);
    assert!(answered(&effects).is_empty() && effects.asks_parent);
    assert!(answered(&harness.supplied(8.0)).is_empty(), "this answers what the parent was told before");
    harness.summarizes();
    let effects = harness.supplied(28.0);
    assert_eq!((answered(&effects), granted(&effects)), (vec![2], vec![20.0]));
}

#[test]
fn few_among_many_are_told_to_the_parent_at_once_too() {
    let mut harness = Harness::lent_out();
    let effects = harness.asks("b", 0.01);
    assert!(answered(&effects).is_empty() && effects.asks_parent, "it is less than what is told at once otherwise");
}

#[test]
fn it_waits_a_second_at_most_and_no_other_waits_until_the_parent_has_answered() {
    let mut harness = Harness::lent_out();
    harness.asks("b", 20.0);
    harness.pass(1000);
    let effects = harness.wake();
    assert_eq!((answered(&effects), granted(&effects)), (vec![2], vec![0.0]), "what there is");
    assert_eq!(granted(&harness.asks("c", 20.0)), [0.0]);
    harness.summarizes();
    harness.supplied(8.0);
    assert!(answered(&harness.asks("d", 20.0)).is_empty());
}

#[test]
fn a_client_that_has_something_does_not_wait() {
    let mut harness = Harness::lent_out();
    assert_eq!(granted(&harness.asks("a", 20.0)), [8.0]);
}

#[test]
fn no_client_waits_for_a_parent_that_had_to_divide() {
    let mut harness = child();
    harness.asks("a", 60.0);
    harness.summarizes();
    harness.supplied_by(50.0, Terms::Level(50.0));
    assert_eq!(granted(&harness.asks("b", 60.0)), [0.0]);
}
