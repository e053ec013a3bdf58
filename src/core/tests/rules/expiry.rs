//! The server's idea of a lease's end is never earlier than its holder's.

use super::*;

#[test]
fn a_lease_is_over_a_second_and_a_thousandth_after_its_length() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 100.0);
    assert_eq!(desk.report("a").end, Millis(61_060), "60 s, the rounding of the wire, a slow clock");
    desk.pass(61_059);
    assert!(!desk.resource.tick(desk.now));
    assert_eq!(desk.asks("b", 100.0), 0.0);
    assert_eq!(desk.resource.next_expiry(), Some(Millis(61_100)), "ends are told apart by tenths of a second");
    desk.pass(41);
    assert_eq!(desk.deliver(ask("b", 100.0, None)), 100.0, "those who ask next get it");
    assert_eq!((desk.counters().expired, desk.resource.holders()), (1, 1));
}

#[test]
fn holders_are_forgotten_when_all_their_leases_have_ended() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 10.0);
    desk.pass(30_000);
    desk.asks("b", 10.0);
    desk.pass(31_100);
    assert!(!desk.resource.tick(desk.now));
    assert_eq!((desk.resource.holders(), desk.held()), (1, 10.0));
    desk.pass(30_000);
    assert!(desk.resource.tick(desk.now), "nobody is left: the resource may be retired");
    assert_eq!((desk.counters().expired, desk.resource.next_expiry()), (2, None));
    assert_eq!(desk.resource.sums(), crate::Sums::default());
}

#[test]
fn whoever_refreshes_is_not_forgotten() {
    let mut desk = Desk::new(fair(100.0));
    for _ in 0..20 {
        assert_eq!(desk.asks("a", 10.0), 10.0);
        desk.pass(16_000);
        assert!(!desk.resource.tick(desk.now));
    }
    assert_eq!(desk.counters().expired, 0);
}

/// The leak when left out: 556 of 500.
#[test]
fn a_shorter_lease_does_not_shorten_the_one_before() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 100.0);
    desk.pass(1_000);
    desk.change(|settings| settings.lease = Millis::from_secs(20));
    assert_eq!(desk.deliver(ask("a", 40.0, None)), 40.0);
    desk.pass(40_000);
    assert_eq!(desk.asks("b", 100.0), 0.0, "the first lease may be believed until 61.06 s");
    desk.pass(20_100);
    assert_eq!(desk.deliver(ask("b", 100.0, None)), 100.0);
}

#[test]
fn beyond_the_limit_of_holders_new_ones_are_refused_and_known_ones_served() {
    let mut desk = Desk::born(Birth { max_holders: 2, ..birth(fair(100.0)) });
    desk.asks("a", 10.0);
    desk.asks("b", 10.0);
    assert_eq!(desk.send(ask("c", 10.0, None)), Answer::Full);
    assert_eq!((desk.counters().full, desk.resource.holders(), desk.held()), (1, 2, 20.0));
    desk.pass(16_000);
    assert_eq!(desk.asks("a", 15.0), 15.0);
    desk.release(HolderKind::Client, "b", None);
    assert_eq!(desk.asks("c", 10.0), 10.0);
}
