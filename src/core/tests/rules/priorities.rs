//! Bands of higher priority go first, if the template says so.

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
