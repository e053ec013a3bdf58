//! Answers and what they promise.

use super::*;

fn promising() -> Harness {
    Harness::new(Source::Own, Some(Inherited::default()))
}

#[test]
fn an_answer_that_promises_more_leaves_with_its_commit_and_others_at_once() {
    let mut harness = promising();
    let effects = harness.asks("a", 10.0);
    let number = effects.changes.as_ref().expect("it is to be written").number;
    assert_eq!(answered(&effects), [0; 0], "not stored yet");
    assert!(harness.engine.awaits_commit());
    let effects = harness.step(|engine, _, effects| engine.committed(number, effects));
    assert_eq!((answered(&effects), granted(&effects)), (vec![1], vec![10.0]));
    assert!(!harness.engine.awaits_commit());
    assert_eq!(answered(&harness.releases("a")), [2], "a release promises nothing");
}

#[test]
fn rounds_go_on_while_a_commit_is_under_way() {
    let mut harness = promising();
    let first = harness.asks("a", 10.0).changes.expect("changes").number;
    let second = harness.asks("b", 40.0).changes.expect("changes").number;
    assert!(second > first);
    let effects = harness.step(|engine, _, effects| engine.committed(second, effects));
    assert_eq!(answered(&effects), [1, 2], "all up to a number are stored");
    let effects = harness.step(|engine, _, effects| engine.committed(second, effects));
    assert!(effects.is_empty(), "told twice");
}

#[test]
fn a_lost_commit_ends_the_incarnation() {
    let mut harness = promising();
    harness.asks("a", 10.0);
    let effects = harness.step(|engine, _, effects| engine.commit_lost(effects));
    assert_eq!((effects.ended, effects.replies.len()), (Some(Ended::CommitLost), 0));
}
