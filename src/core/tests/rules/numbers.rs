//! Amounts from the smallest to the largest are kept to the bit, and never add up to more than there is.

use super::*;

#[test]
fn the_largest_and_the_smallest_wants_are_granted_exactly() {
    // A pool gives what is of use, not what is wanted.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::PriorityPool) {
        for wants in [1e15, 1e-9, 0.1, 1.0 / 3.0, 0.0] {
            let mut desk = Desk::new(Settings::new(kind, Amount::MAX));
            assert_eq!(desk.asks("a", wants), wants, "{kind:?}");
        }
    }
}

#[test]
fn the_largest_shares_are_exact() {
    let mut desk = Desk::new(fair(1e15));
    assert_eq!(desk.round(&[("a", 1e15), ("b", 1e15)]), [5e14, 5e14]);
}

#[test]
fn very_different_amounts_never_add_up_to_more_than_there_is() {
    let mut desk = Desk::new(fair(1e15));
    assert_eq!(desk.round(&[("a", 1e-9), ("b", 1e15)])[0], 1e-9);
    // 1e15 − 1e-9 is not a float; the next smaller one is.
    assert_eq!(desk.leases["b"].capacity.get(), 1e15 - 0.125);
    assert!(desk.resource.sums().held <= Amount::MAX.into());
}

#[test]
fn wants_that_add_up_to_the_capacity_but_for_rounding_are_all_met() {
    for kind in [Kind::FairShare, Kind::ProportionalShare] {
        for tenths in 1..1000 {
            let small = f64::from(tenths) / 10.0;
            let mut desk = Desk::new(Settings::new(kind, Amount::clamped(100.0)));
            let wants = [small, 100.0 - small, 0.0];
            let got = desk.round(&[("a", wants[0]), ("b", wants[1]), ("c", wants[2])]);
            assert!(got.iter().zip(wants).all(|(got, wants)| (got - wants).abs() < 1e-12), "{wants:?} got {got:?}");
        }
        for n in 1..100 {
            let mut desk = Desk::new(Settings::new(kind, Amount::clamped(100.0)));
            let ids: Vec<String> = (0..n).map(|n| format!("c{n}")).collect();
            let each = 100.0 / f64::from(n);
            let wants: Vec<(&str, f64)> = ids.iter().map(|id| (&**id, each)).collect();
            let got = desk.round(&wants);
            assert!(got.iter().all(|got| (got - each).abs() < 1e-12), "{n} times {each} got {got:?}");
        }
    }
}

#[test]
fn whoever_wants_nothing_is_a_holder_of_nothing() {
    let mut desk = Desk::new(fair(100.0));
    assert_eq!(desk.asks("a", 0.0), 0.0);
    assert_eq!((desk.resource.holders(), desk.held()), (1, 0.0));
    assert_eq!(desk.asks("b", 1000.0), 100.0, "and takes nothing from the others");
}
