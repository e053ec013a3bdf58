//! New settings take effect at once; leases stay.

use super::*;

#[test]
fn leases_stay_and_another_algorithm_takes_over_with_the_next_round() {
    let mut server = Server::new(Settings::new(AlgorithmKind::NoAlgorithm, Amount::clamped(120.0)));
    let wants = [("a", 1000.0), ("b", 50.0), ("c", 10.0)];
    assert_eq!(server.round(&wants), [1000.0, 50.0, 10.0]);
    for (kind, expected) in [
        (AlgorithmKind::FairShare, [60.0, 50.0, 10.0]),
        (AlgorithmKind::Static, [120.0, 50.0, 10.0]),
        (AlgorithmKind::ProportionalShare, [69.690_721_649, 40.309_278_351, 10.0]),
        (AlgorithmKind::FairShare, [60.0, 50.0, 10.0]),
        (AlgorithmKind::NoAlgorithm, [1000.0, 50.0, 10.0]),
    ] {
        let before = (server.held(), server.resource.holders());
        server.change(|settings| settings.kind = kind);
        assert_eq!((server.held(), server.resource.holders()), before);
        let mut got = Vec::new();
        for _ in 0..4 {
            server.pass(16_000);
            got = server.round(&wants);
        }
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-9, "{kind:?}: {got}, expected {expected}");
        }
    }
}

#[test]
fn priorities_take_effect_for_those_already_there() {
    let mut server = Server::new(fair(100.0));
    let with = |server: &Server, id: &str, priority| Ask {
        claims: Claims::from_slice(&[slice(1, 100.0, priority)]),
        ..server.request(id, 0.0)
    };
    server.deliver(with(&server, "low", 0));
    server.deliver(with(&server, "high", 1));
    let due = |server: &Server| (server.report("low").due.get(), server.report("high").due.get());
    assert_eq!(due(&server), (50.0, 50.0));
    server.change(|settings| settings.priority = Priority::Strict);
    assert_eq!(due(&server), (0.0, 100.0));
    server.change(|settings| settings.priority = Priority::Ignore);
    assert_eq!(due(&server), (50.0, 50.0));
}

#[test]
fn lengths_apply_to_leases_given_from_now_on() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 10.0);
    server.change(|settings| (settings.lease, settings.refresh) = (Millis(20_000), Millis(5_000)));
    assert_eq!(server.report("a").end, Millis(61_060));
    server.asks("b", 10.0);
    assert_eq!((server.leases["b"].length, server.leases["b"].refresh), (Millis(20_000), Millis(5_000)));
    assert_eq!(server.report("b").end, Millis(21_020));
}

#[test]
fn a_refresh_interval_as_long_as_the_lease_is_cut_so_that_holders_are_in_time() {
    let mut settings = fair(100.0);
    (settings.lease, settings.refresh) = (Millis(20_000), Millis(20_000));
    let mut server = Server::new(settings);
    server.asks("a", 10.0);
    assert_eq!(server.leases["a"].refresh, Millis(19_000));
}
