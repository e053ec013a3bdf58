//! Bands of higher priority go first or count for more, if the template says so.

use super::*;

fn strict(capacity: f64) -> Settings {
    let mut settings = fair(capacity);
    settings.priority = Priority::Strict;
    settings
}

fn with(id: &str, wants: f64, priority: i16) -> Ask {
    Ask { claims: Claims::from_slice(&[slice(1, wants, priority)]), ..ask(id, wants, None) }
}

#[test]
fn a_band_gets_what_the_bands_above_leave() {
    let mut desk = Desk::new(strict(100.0));
    let asks = [with("low", 50.0, -1), with("mid-1", 60.0, 0), with("high", 40.0, 5), with("mid-2", 60.0, 0)];
    let got = desk.send_all(asks).map(|answer| granted(answer).capacity.get());
    assert_eq!(got, [0.0, 30.0, 40.0, 30.0]);
}

#[test]
fn by_default_priorities_mean_nothing() {
    let mut desk = Desk::new(fair(100.0));
    let asks = [with("low", 100.0, -1), with("high", 100.0, 5)];
    assert_eq!(desk.send_all(asks).map(|answer| granted(answer).capacity.get()), [50.0, 50.0]);
}

#[test]
fn a_client_may_not_claim_more_than_the_template_allows_but_a_node_reports_what_was_capped_below() {
    let mut settings = strict(100.0);
    settings.max_priority = Some(3);
    let mut desk = Desk::new(settings);
    let client = granted(desk.send(with("client", 100.0, 9)));
    assert_eq!((client.priority, desk.report("client").priority), (3, 3), "the answer says what it counts as");
    assert_eq!(granted(desk.send(with("modest", 1.0, 2))).priority, 2, "a cap is no promotion");
    let node = desk.node_asks("node", &[slice(1, 60.0, 9)]);
    assert_eq!((node, desk.leases["node"].priority), (0.0, 9), "nothing is free yet");
    assert_eq!((desk.report("node").due.get(), desk.report("client").due.get()), (60.0, 40.0));
}

fn weighted(kind: Kind, capacity: f64) -> Settings {
    Settings { priority: Priority::Weighted, kind, ..fair(capacity) }
}

#[test]
fn a_client_of_priority_three_counts_as_three_and_nobody_as_less_than_one() {
    for kind in [Kind::FairShare, Kind::ProportionalShare] {
        let mut desk = Desk::new(weighted(kind, 120.0));
        let asks = [with("none", 90.0, 0), with("below", 90.0, -7), with("one", 90.0, 1), with("three", 270.0, 3)];
        let got = desk.send_all(asks).map(granted);
        assert_eq!(got.map(|lease| lease.capacity.get()), [20.0, 20.0, 20.0, 60.0], "{kind:?}");
        assert_eq!(got.map(|lease| lease.priority), [0, -7, 1, 3], "the answer says what was claimed");
    }
}

#[test]
fn whoever_wants_less_than_its_weight_gets_leaves_that_to_all_by_their_weights() {
    let mut desk = Desk::new(weighted(Kind::FairShare, 100.0));
    let asks = [with("modest", 10.0, 9), with("light", 90.0, 1), with("heavy", 90.0, 2)];
    assert_eq!(desk.send_all(asks).map(|answer| granted(answer).capacity.get()), [10.0, 30.0, 60.0]);
}

#[test]
fn a_client_may_not_weigh_more_than_the_template_allows() {
    let mut desk = Desk::new(Settings { max_priority: Some(3), ..weighted(Kind::FairShare, 80.0) });
    let asks = [with("boaster", 80.0, 100), with("plain", 80.0, 0)];
    assert_eq!(desk.send_all(asks).map(|answer| granted(answer).capacity.get()), [60.0, 20.0]);
}

#[test]
fn with_a_reserve_a_band_below_never_gets_nothing() {
    let mut desk = Desk::new(Settings { reserve: 0.3, ..strict(100.0) });
    let asks = [with("high", 200.0, 5), with("low", 50.0, -1)];
    let got = desk.send_all(asks).map(|answer| granted(answer).capacity.get());
    assert_eq!(got, [85.0, 15.0], "30 for both, 70 from the top");
    desk.deliver(with("low", 10.0, -1));
    assert_eq!(desk.report("high").due.get(), 90.0, "what is not needed of a reserve is not idle");
}

#[test]
fn what_is_made_of_priorities_can_change_at_any_time() {
    let mut desk = Desk::new(fair(100.0));
    desk.deliver(with("low", 100.0, 1));
    desk.deliver(with("high", 100.0, 3));
    let due = |desk: &Desk| (desk.report("low").due.get(), desk.report("high").due.get());
    for _ in 0..2 {
        desk.change(|settings| settings.priority = Priority::Weighted);
        assert_eq!(due(&desk), (25.0, 75.0));
        desk.change(|settings| settings.priority = Priority::Strict);
        assert_eq!(due(&desk), (0.0, 100.0));
        desk.change(|settings| settings.reserve = 0.5);
        assert_eq!(due(&desk), (25.0, 75.0));
        desk.change(|settings| settings.reserve = 0.1);
        assert_eq!(due(&desk), (5.0, 95.0));
        desk.change(|settings| settings.capacity = Amount::clamped(40.0));
        assert_eq!(due(&desk), (2.0, 38.0));
        desk.change(|settings| settings.kind = Kind::Static);
        assert_eq!(due(&desk), (40.0, 40.0));
        desk.change(|settings| *settings = fair(100.0));
        assert_eq!(due(&desk), (50.0, 50.0));
    }
}
