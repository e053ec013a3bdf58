//! A node with a parent gives out no more, and for no longer, than its own lease says.

use super::*;
use crate::Terms;

/// All but PRIORITY_POOL, which says itself how much anybody is due.
const KINDS: [Kind; 4] = [Kind::NoAlgorithm, Kind::Static, Kind::ProportionalShare, Kind::FairShare];

fn child(kind: Kind, capacity: f64, until: u64) -> Desk {
    let mut desk = Desk::below(Settings::new(kind, Amount::ZERO));
    supply(&mut desk, capacity, until);
    desk
}

/// By a parent of ours: under STATIC it says what each client may have.
fn supply(desk: &mut Desk, capacity: f64, until: u64) {
    let each = (0, Terms::Each(Amount::clamped(100.0)));
    let is_static = desk.resource.settings().kind == Kind::Static;
    desk.supply_with(capacity, Millis(until), is_static.then_some(each).into_iter().collect());
}

#[test]
fn no_lease_outlives_the_nodes_own_and_all_ask_again_before_it_ends() {
    for kind in KINDS {
        for (left, length, refresh) in
            [(90_000, 60_000, 16_000), (60_000, 60_000, 16_000), (30_000, 30_000, 16_000), (10_000, 10_000, 9_000)]
        {
            let mut desk = child(kind, 100.0, left);
            desk.asks("a", 10.0);
            let lease = desk.leases["a"];
            assert_eq!((lease.length, lease.refresh), (Millis(length), Millis(refresh)), "{kind:?}");
            invariant::lease_within_bounds(&lease, None, desk.now, Some(Millis(left))).expect("within");
        }
    }
}

#[test]
fn when_it_ends_the_capacity_is_zero() {
    for kind in KINDS {
        let mut desk = child(kind, 100.0, 30_000);
        assert_eq!(desk.asks("a", 10.0), 10.0);
        desk.pass(30_000);
        // The server still believes in the lease of `a`, by the allowance; that must not renew it.
        assert_eq!(desk.asks("a", 10.0), 0.0, "{kind:?}");
        assert_eq!(desk.asks("b", 10.0), 0.0, "{kind:?}");
        assert_eq!(desk.resource.settings().capacity, Amount::ZERO);
        desk.supply(100.0, Millis(90_000));
        desk.pass(5_000);
        assert_eq!(desk.asks("a", 10.0), 10.0, "{kind:?}: a new lease brings it back");
    }
}

#[test]
fn a_tick_notices_the_end_as_well() {
    let mut desk = child(Kind::FairShare, 100.0, 30_000);
    desk.resource.tick(Millis(29_999));
    assert_eq!(desk.resource.settings().capacity.get(), 100.0);
    desk.resource.tick(Millis(30_000));
    assert_eq!(desk.resource.settings().capacity, Amount::ZERO);
}

#[test]
fn what_is_unbounded_at_the_root_is_bounded_by_the_nodes_own_lease() {
    for (kind, first) in [(Kind::NoAlgorithm, 80.0), (Kind::Static, 80.0)] {
        let mut root = Desk::new(Settings::new(kind, Amount::clamped(100.0)));
        assert_eq!((root.asks("a", 80.0), root.asks("b", 80.0)), (80.0, 80.0));
        let mut desk = child(kind, 100.0, 30_000);
        assert_eq!((desk.asks("a", 80.0), desk.asks("b", 80.0)), (first, 20.0), "{kind:?}");
        assert_eq!(desk.held(), 100.0);
    }
}

#[test]
fn a_smaller_lease_shrinks_what_is_out_whatever_the_algorithm() {
    for kind in KINDS {
        let mut desk = child(kind, 100.0, 600_000);
        desk.round(&[("a", 50.0), ("b", 50.0)]);
        supply(&mut desk, 40.0, 600_000);
        let mut held = desk.held();
        for _ in 0..4 {
            desk.pass(16_000);
            for id in ["a", "b"] {
                assert!(desk.asks(id, 50.0) >= 0.0);
                assert!(desk.held() <= held.max(40.0), "{kind:?}");
                held = desk.held();
            }
        }
        assert!(held <= 40.0, "{kind:?} holds {held} of a lease of 40");
    }
}

#[test]
fn how_long_it_listens_is_decided_when_the_parent_has_said_how_long_leases_are() {
    let mut desk = Desk::below(Settings::new(Kind::FairShare, Amount::ZERO));
    assert!(!desk.resource.is_learning(Millis(0)), "nothing can be granted yet");
    desk.resource.listen_until(Millis(30_000));
    desk.supply(100.0, Millis(90_000));
    assert_eq!(desk.asks("a", 10.0), 0.0, "somebody else may have had it all");
    assert!(desk.resource.condense(desk.now).learning);
    desk.pass(30_000);
    assert_eq!(desk.asks("a", 10.0), 10.0);
}

#[test]
fn how_it_stands_with_the_parent_is_reported() {
    let root = Desk::new(Settings::new(Kind::FairShare, Amount::clamped(100.0)));
    assert_eq!(root.resource.report(root.now).supply, None);
    let mut desk = Desk::below(Settings::new(Kind::FairShare, Amount::ZERO));
    let report = |desk: &Desk| desk.resource.report(desk.now).supply.expect("it has a parent");
    assert_eq!((report(&desk).edition, report(&desk).told), (0, None));
    let terms = vec![(0, Terms::Level(7.0))];
    let (capacity, until) = (Amount::clamped(50.0), desk.now.plus(Millis(30_000)));
    desk.resource.supply(Supply { capacity, until, terms: terms.clone(), edition: 3 });
    desk.asks("a", 10.0);
    desk.resource.condense(desk.now);
    let said = report(&desk);
    assert_eq!((said.edition, said.remaining, said.terms), (3, Millis(30_000), terms));
    assert_eq!(said.told.map(Amount::get), Some(10.0));
}
