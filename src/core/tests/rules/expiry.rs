//! The server's idea of a lease's end is never earlier than its holder's.

use super::*;

#[test]
fn a_lease_is_over_a_second_and_a_thousandth_after_its_length() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 100.0);
    assert_eq!(server.report("a").end, Millis(61_060), "60 s, the rounding of the wire, a slow clock");
    server.pass(61_059);
    assert!(!server.resource.tick(server.now));
    assert_eq!(server.asks("b", 100.0), 0.0);
    assert_eq!(server.resource.next_expiry(), Some(Millis(61_100)), "ends are told apart by tenths of a second");
    server.pass(41);
    assert_eq!(server.deliver(ask("b", 100.0, None)), 100.0, "those who ask next get it");
    assert_eq!((server.counters().expired, server.resource.holders()), (1, 1));
}

#[test]
fn holders_are_forgotten_when_all_their_leases_have_ended() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 10.0);
    server.pass(30_000);
    server.asks("b", 10.0);
    server.pass(31_100);
    assert!(!server.resource.tick(server.now));
    assert_eq!((server.resource.holders(), server.held()), (1, 10.0));
    server.pass(30_000);
    assert!(server.resource.tick(server.now), "no holder is left: the resource may be retired");
    assert_eq!((server.counters().expired, server.resource.next_expiry()), (2, None));
    assert_eq!(server.resource.sums(), crate::lease::ledger::Sums::default());
}

#[test]
fn a_holder_that_refreshes_is_not_forgotten() {
    let mut server = Server::new(fair(100.0));
    for _ in 0..20 {
        assert_eq!(server.asks("a", 10.0), 10.0);
        server.pass(16_000);
        assert!(!server.resource.tick(server.now));
    }
    assert_eq!(server.counters().expired, 0);
}

/// The leak when left out: 556 of 500.
#[test]
fn a_shorter_lease_does_not_shorten_the_one_before() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 100.0);
    server.pass(1_000);
    server.change(|settings| settings.lease = Millis::from_secs(20));
    assert_eq!(server.deliver(ask("a", 40.0, None)), 40.0);
    server.pass(40_000);
    assert_eq!(server.asks("b", 100.0), 0.0, "the first lease may be believed until 61.06 s");
    server.pass(20_100);
    assert_eq!(server.deliver(ask("b", 100.0, None)), 100.0);
}

#[test]
fn beyond_the_limit_of_holders_new_ones_are_refused_and_known_ones_served() {
    let mut server = Server::born(Birth { max_holders: 2, ..birth(fair(100.0)) });
    server.asks("a", 10.0);
    server.asks("b", 10.0);
    assert_eq!(server.send(ask("c", 10.0, None)), Answer::Full);
    assert_eq!((server.counters().full, server.resource.holders(), server.held()), (1, 2, 20.0));
    server.pass(16_000);
    assert_eq!(server.asks("a", 15.0), 15.0);
    server.release(HolderKind::Client, "b", None);
    assert_eq!(server.asks("c", 10.0), 10.0);
}
