//! How long redirects are followed.

use super::*;

#[test]
fn redirects_are_counted_since_a_master_answered() {
    let mut session = leased();
    let mut at = 1_000;
    // A master that moves now and then, for ever, is followed each time.
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
