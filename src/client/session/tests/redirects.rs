//! How long redirects are followed.

use super::*;

#[test]
fn redirects_are_counted_since_a_master_answered() {
    let mut session = leased();
    let mut at = 1_000;
    // A master that moves now and then is followed each time.
    for n in 0..20 {
        session.hint(Millis(at), "r");
        let asked = session.poll(Millis(at)).expect("it asks");
        session.redirected(Millis(at), asked.number, Some(if n % 2 == 0 { "b:1" } else { "c:1" }));
        let followed = session.poll(Millis(at)).expect("it follows at once");
        session.answered(Millis(at), followed.number, vec![given("r", 40.0, n)]);
        at += 1_000;
    }
    assert_eq!(session.failures(), 0);
}

#[test]
fn what_is_wanted_again_during_its_release_is_asked_for_once_if_that_is_redirected() {
    let mut session = leased();
    session.want(Millis(100), &id("other"), wants(1.0), MODE);
    let first = session.poll(Millis(200)).expect("it asks");
    let other = Given { refresh: Millis(3_000), ..given("other", 1.0, 1) };
    assert!(session.answered(Millis(210), first.number, vec![other]));
    assert!(!session.is_due(Millis(1_000)));
    session.release("r");
    let release = session.poll(Millis(1_000)).expect("it is given back");
    session.want(Millis(1_010), &id("r"), wants(100.0), MODE);
    assert!(session.redirected(Millis(1_500), release.number, Some("b:1")));
    let ask = session.poll(Millis(1_500)).expect("it is asked for");
    assert!(session.answered(Millis(1_510), ask.number, vec![given("r", 40.0, 2)]));
    assert!(!session.is_due(Millis(1_800)), "nothing is left to be asked for");
}
