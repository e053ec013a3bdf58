//! New settings take effect at once; leases stay.

use super::*;

#[test]
fn leases_stay_and_another_algorithm_takes_over_with_the_next_round() {
    let mut desk = Desk::new(Settings::new(Kind::NoAlgorithm, Amount::clamped(120.0)));
    let wants = [("a", 1000.0), ("b", 50.0), ("c", 10.0)];
    assert_eq!(desk.round(&wants), [1000.0, 50.0, 10.0]);
    for (kind, expected) in [
        (Kind::FairShare, [60.0, 50.0, 10.0]),
        (Kind::Static, [120.0, 50.0, 10.0]),
        (Kind::ProportionalShare, [69.690_721_649, 40.309_278_351, 10.0]),
        (Kind::FairShare, [60.0, 50.0, 10.0]),
        (Kind::NoAlgorithm, [1000.0, 50.0, 10.0]),
    ] {
        let before = (desk.held(), desk.resource.holders());
        desk.change(|settings| settings.kind = kind);
        assert_eq!((desk.held(), desk.resource.holders()), before);
        let mut got = Vec::new();
        for _ in 0..4 {
            desk.pass(16_000);
            got = desk.round(&wants);
        }
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-9, "{kind:?}: {got}, expected {expected}");
        }
    }
}

#[test]
fn priorities_take_effect_for_those_already_there() {
    let mut desk = Desk::new(fair(100.0));
    let with = |desk: &Desk, id: &str, priority| Ask {
        claims: Claims::from_slice(&[slice(1, 100.0, priority)]),
        ..desk.request(id, 0.0)
    };
    desk.deliver(with(&desk, "low", 0));
    desk.deliver(with(&desk, "high", 1));
    let due = |desk: &Desk| (desk.report("low").due.get(), desk.report("high").due.get());
    assert_eq!(due(&desk), (50.0, 50.0));
    desk.change(|settings| settings.priority = Priority::Strict);
    assert_eq!(due(&desk), (0.0, 100.0));
    desk.change(|settings| settings.priority = Priority::Ignore);
    assert_eq!(due(&desk), (50.0, 50.0));
}

#[test]
fn lengths_apply_to_leases_given_from_now_on() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 10.0);
    desk.change(|settings| (settings.lease, settings.refresh) = (Millis(20_000), Millis(5_000)));
    assert_eq!(desk.report("a").end, Millis(61_060));
    desk.asks("b", 10.0);
    assert_eq!((desk.leases["b"].length, desk.leases["b"].refresh), (Millis(20_000), Millis(5_000)));
    assert_eq!(desk.report("b").end, Millis(21_020));
}

#[test]
fn a_refresh_interval_as_long_as_the_lease_is_cut_so_that_holders_are_in_time() {
    let mut settings = fair(100.0);
    (settings.lease, settings.refresh) = (Millis(20_000), Millis(20_000));
    let mut desk = Desk::new(settings);
    desk.asks("a", 10.0);
    assert_eq!(desk.leases["a"].refresh, Millis(19_000));
}
