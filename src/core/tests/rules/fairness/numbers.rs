//! Very small and very large amounts are exact, and their sums stay within the capacity.

use super::*;

#[test]
fn the_largest_and_the_smallest_wants_are_granted_exactly() {
    // A pool grants places, not wants.
    for kind in AlgorithmKind::ALL.into_iter().take(4) {
        for wants in [1e15, 1e-9, 0.1, 1.0 / 3.0, 0.0] {
            let mut server = Server::new(Settings::new(kind, Amount::MAX));
            assert_eq!(server.asks("a", wants), wants, "{kind:?}");
        }
    }
}

#[test]
fn sums_of_very_different_amounts_stay_within_the_capacity() {
    let mut server = Server::new(fair(1e15));
    assert_eq!(server.round(&[("a", 1e-9), ("b", 1e15)])[0], 1e-9);
    // 1e15 − 1e-9 is not a float; the next smaller one is.
    assert_eq!(server.leases["b"].capacity.get(), 1e15 - 0.125);
    assert!(server.resource.sums().held <= Amount::MAX.into());
}

#[test]
fn wants_that_sum_to_the_capacity_are_met() {
    for kind in [AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare] {
        for tenths in 1..1000 {
            let small = f64::from(tenths) / 10.0;
            let mut server = Server::new(Settings::new(kind, Amount::clamped(100.0)));
            let wants = [small, 100.0 - small, 0.0];
            let got = server.round(&[("a", wants[0]), ("b", wants[1]), ("c", wants[2])]);
            assert!(got.iter().zip(wants).all(|(got, wants)| (got - wants).abs() < 1e-12), "{wants:?} got {got:?}");
        }
        for n in 1..100 {
            let mut server = Server::new(Settings::new(kind, Amount::clamped(100.0)));
            let ids: Vec<String> = (0..n).map(|n| format!("c{n}")).collect();
            let each = 100.0 / f64::from(n);
            let wants: Vec<(&str, f64)> = ids.iter().map(|id| (&**id, each)).collect();
            let got = server.round(&wants);
            assert!(got.iter().all(|got| (got - each).abs() < 1e-12), "{n} times {each} got {got:?}");
        }
    }
}

/// Whether a lease is zero or large enough to use. Doorman's Go limiter treated 3.55e-15 as unlimited.
fn is_of_use(given: f64) -> bool {
    given == 0.0 || given >= 1e-9
}

#[test]
fn dust_wants_get_nothing() {
    for kind in AlgorithmKind::ALL.into_iter().take(4) {
        let mut server = Server::new(Settings::new(kind, Amount::clamped(100.0)));
        assert_eq!(server.asks("tiny", 1e-12), 0.0, "{kind:?}");
        assert!(server.asks("one", 100.0) >= 100.0 - 1e-9, "{kind:?}");
        assert_eq!(server.report("tiny").due.get(), 0.0, "so no client has to shrink");
    }
}

proptest::proptest! {
    #[test]
    fn no_lease_is_ever_dust(
        kind in proptest::sample::select(vec![AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare, AlgorithmKind::Static, AlgorithmKind::NoAlgorithm]),
        capacity in 1e-12..1e3f64,
        prompt in proptest::bool::ANY,
        wants in proptest::collection::vec(0.0..1e3f64, 1..12),
        exponent in -15..1i32,
    ) {
        let mut settings = Settings::new(kind, Amount::clamped(capacity));
        settings.reuse = if prompt { Reuse::Prompt } else { Reuse::Confirmed };
        let mut server = Server::new(settings);
        for _ in 0..4 {
            for (n, wants) in wants.iter().enumerate() {
                // Every other client wants very little.
                let wants = if n % 2 == 0 { *wants } else { wants * 10f64.powi(exponent) };
                let given = server.asks(&format!("client {n}"), wants);
                proptest::prop_assert!(is_of_use(given), "{given}");
            }
            server.pass(16_000);
        }
    }
}
