//! Sessions that must not ask for a while.

use super::*;

#[test]
fn nothing_is_asked_for_and_no_answer_counts_until_it_may_ask_again() {
    let mut session = leased();
    session.ask_until(Millis(4_000));
    session.hint(Millis(3_999), "r");
    let asked = session.poll(Millis(3_999)).expect("it may still ask");
    assert!(!session.answered(Millis(4_001), asked.number, vec![given("r", 50.0, 2)]), "the answer is too late");
    assert_eq!(session.lease(Millis(4_001), "r").and_then(|lease| lease.token), Some(1), "the lease lives on");
    assert_eq!((session.poll(Millis(30_000)), session.is_due(Millis(30_000))), (None, false));
    assert_eq!(session.wake(Millis(30_000)), Some(Millis(60_000)), "the end of the lease is all that it waits for");
    session.ask_until(Millis(34_000));
    let again = session.poll(Millis(30_000)).expect("it was due all the time");
    assert_eq!(asks(&again)[0].has.and_then(|lease| lease.token), Some(1));
    assert!(session.answered(Millis(30_010), again.number, vec![given("r", 60.0, 3)]));
    assert_eq!(capacity(&session, 30_010, "r"), 60.0);
}

#[test]
fn what_is_released_is_given_back_all_the_same() {
    let mut session = leased();
    session.ask_until(Millis(0));
    session.release("r");
    assert!(session.wake(Millis(10)).is_some_and(|at| at <= Millis(10)));
    let outgoing = session.poll(Millis(10)).expect("it gives back");
    assert_eq!(released(&outgoing), [("r", Some(1))]);
    session.failed(Millis(11), outgoing.number);
    assert!(session.poll(Millis(5_000)).is_some(), "it tries again");
}
