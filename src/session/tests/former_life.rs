//! What a former life of a client was given may still be in use.

use super::*;

#[test]
fn until_then_no_lease_is_named_and_after_that_the_newest() {
    let mut session = session();
    session.want(Millis(0), &id("r"), wants(100.0), MODE);
    session.name_from("r", Millis(11_000));
    let first = session.poll(Millis(0)).expect("it asks");
    session.answered(Millis(10), first.number, vec![given("r", 40.0, 1)]);
    assert_eq!(capacity(&session, 10, "r"), 40.0, "what it is given it may use");
    session.hint(Millis(5_000), "r");
    let second = session.poll(Millis(5_000)).expect("it was hinted");
    assert_eq!(asks(&second)[0].has, None);
    session.answered(Millis(5_010), second.number, vec![given("r", 30.0, 2)]);
    session.hint(Millis(11_000), "r");
    let third = session.poll(Millis(11_000)).expect("it was hinted");
    assert_eq!(asks(&third)[0].has.and_then(|lease| lease.token), Some(2));
}
