//! A node with a parent gives out no more, and for no longer, than its own lease says.

use super::*;
use crate::allocation::division::Terms;

/// All but PRIORITY_POOL, which computes dues itself.
const KINDS: [AlgorithmKind; 4] =
    [AlgorithmKind::NoAlgorithm, AlgorithmKind::Static, AlgorithmKind::ProportionalShare, AlgorithmKind::FairShare];

fn child(kind: AlgorithmKind, capacity: f64, until: u64) -> Server {
    let mut server = Server::below(Settings::new(kind, Amount::ZERO));
    supply(&mut server, capacity, until);
    server
}

/// By a parent of ours: under STATIC it says what each client may have.
fn supply(server: &mut Server, capacity: f64, until: u64) {
    let each = (0, Terms::Each(Amount::clamped(100.0)));
    let is_static = server.resource.settings().kind == AlgorithmKind::Static;
    server.supply_with(capacity, Millis(until), is_static.then_some(each).into_iter().collect());
}

#[test]
fn no_lease_outlives_the_nodes_own_and_all_ask_again_before_it_ends() {
    for kind in KINDS {
        for (left, length, refresh) in
            [(90_000, 60_000, 5_000), (60_000, 60_000, 5_000), (30_000, 30_000, 5_000), (5_000, 5_000, 4_000)]
        {
            let mut server = child(kind, 100.0, left);
            server.asks("a", 10.0);
            let lease = server.leases["a"];
            assert_eq!((lease.length, lease.refresh), (Millis(length), Millis(refresh)), "{kind:?}");
            invariant::lease_within_bounds(&lease, None, server.now, Some(Millis(left))).expect("within");
        }
    }
}

#[test]
fn when_it_ends_the_capacity_is_zero() {
    for kind in KINDS {
        let mut server = child(kind, 100.0, 30_000);
        assert_eq!(server.asks("a", 10.0), 10.0);
        server.pass(30_000);
        // The server still believes in the lease of `a`, by the allowance; that must not renew it.
        assert_eq!(server.asks("a", 10.0), 0.0, "{kind:?}");
        assert_eq!(server.asks("b", 10.0), 0.0, "{kind:?}");
        assert_eq!(server.resource.settings().capacity, Amount::ZERO);
        server.supply(100.0, Millis(90_000));
        server.pass(5_000);
        assert_eq!(server.asks("a", 10.0), 10.0, "{kind:?}: a new lease brings it back");
    }
}

#[test]
fn a_tick_notices_the_end_as_well() {
    let mut server = child(AlgorithmKind::FairShare, 100.0, 30_000);
    server.resource.tick(Millis(29_999));
    assert_eq!(server.resource.settings().capacity.get(), 100.0);
    server.resource.tick(Millis(30_000));
    assert_eq!(server.resource.settings().capacity, Amount::ZERO);
}

#[test]
fn what_is_unbounded_at_the_root_is_bounded_by_the_nodes_own_lease() {
    for (kind, first) in [(AlgorithmKind::NoAlgorithm, 80.0), (AlgorithmKind::Static, 80.0)] {
        let mut root = Server::new(Settings::new(kind, Amount::clamped(100.0)));
        assert_eq!((root.asks("a", 80.0), root.asks("b", 80.0)), (80.0, 80.0));
        let mut server = child(kind, 100.0, 30_000);
        assert_eq!((server.asks("a", 80.0), server.asks("b", 80.0)), (first, 20.0), "{kind:?}");
        assert_eq!(server.held(), 100.0);
    }
}

#[test]
fn a_smaller_lease_shrinks_what_is_out_under_any_algorithm() {
    for kind in KINDS {
        let mut server = child(kind, 100.0, 600_000);
        server.round(&[("a", 50.0), ("b", 50.0)]);
        supply(&mut server, 40.0, 600_000);
        let mut held = server.held();
        for _ in 0..4 {
            server.pass(16_000);
            for id in ["a", "b"] {
                assert!(server.asks(id, 50.0) >= 0.0);
                assert!(server.held() <= held.max(40.0), "{kind:?}");
                held = server.held();
            }
        }
        assert!(held <= 40.0, "{kind:?} holds {held} of a lease of 40");
    }
}

#[test]
fn how_long_it_listens_is_decided_when_the_parent_has_said_how_long_leases_are() {
    let mut server = Server::below(Settings::new(AlgorithmKind::FairShare, Amount::ZERO));
    assert!(!server.resource.is_learning(Millis(0)), "nothing can be granted yet");
    server.resource.listen_until(Millis(30_000));
    server.supply(100.0, Millis(90_000));
    assert_eq!(server.asks("a", 10.0), 0.0, "another client may have had it all");
    assert!(server.resource.summarize(server.now).learning);
    server.pass(30_000);
    assert_eq!(server.asks("a", 10.0), 10.0);
}

#[test]
fn how_it_stands_with_the_parent_is_reported() {
    let root = Server::new(Settings::new(AlgorithmKind::FairShare, Amount::clamped(100.0)));
    assert_eq!(root.resource.report(root.now).supply, None);
    let mut server = Server::below(Settings::new(AlgorithmKind::FairShare, Amount::ZERO));
    let report = |server: &Server| server.resource.report(server.now).supply.expect("it has a parent");
    assert_eq!((report(&server).version, report(&server).told), (0, None));
    let terms = vec![(0, Terms::Level(7.0))];
    let (capacity, until) = (Amount::clamped(50.0), server.now.plus(Millis(30_000)));
    server.resource.supply(server.now, Supply { capacity, until, terms: terms.clone(), version: 3 });
    server.asks("a", 10.0);
    server.resource.summarize(server.now);
    let said = report(&server);
    assert_eq!((said.version, said.remaining, said.terms), (3, Millis(30_000), terms));
    assert_eq!(said.told.map(Amount::get), Some(10.0));
}
