//! A holder that asks again and again must not cost rounds; one that has something to say must be heard.

use super::*;

#[test]
fn a_second_request_too_soon_is_ignored_and_its_lease_stays() {
    let mut desk = Desk::new(fair(100.0));
    assert_eq!(desk.asks("a", 10.0), 10.0);
    let before = desk.report("a");
    desk.pass(4_999);
    assert_eq!(desk.send(desk.request("a", 10.0)), Answer::TooSoon);
    assert_eq!(desk.report("a"), before, "neither longer nor shorter");
    assert_eq!(desk.counters().too_soon, 1);
    desk.pass(1);
    assert_eq!(desk.asks("a", 10.0), 10.0, "an ignored request does not put off the next");
}

#[test]
fn what_an_ignored_request_confirms_is_heard() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 100.0);
    desk.asks("b", 100.0);
    desk.pass(16_000);
    assert_eq!((desk.asks("a", 100.0), desk.held()), (50.0, 100.0), "its lease of 100 may still be believed");
    desk.pass(400);
    assert_eq!(desk.send(desk.request("a", 100.0)), Answer::TooSoon);
    assert_eq!(desk.held(), 50.0, "it has shown that it knows of the 50");
    assert_eq!(desk.asks("b", 100.0), 50.0, "so somebody else may have the rest");
}

#[test]
fn a_request_without_a_lease_is_never_too_soon() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 10.0);
    desk.pass(1);
    granted(desk.send(ask("a", 10.0, None)));
}

#[test]
fn a_request_that_echoes_an_older_lease_is_never_too_soon_for_its_answer_was_lost() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 10.0);
    desk.pass(16_000);
    granted(desk.send(desk.request("a", 10.0)));
    desk.pass(1);
    granted(desk.send(desk.request("a", 10.0)));
    assert_eq!(desk.counters().too_soon, 0);
}

#[test]
fn a_request_that_changes_wants_by_more_than_a_tenth_is_never_too_soon() {
    for (was, is, ignored) in [
        (10.0, 11.0, true), // exactly a tenth is not more
        (10.0, 9.0, true),
        (10.0, 11.001, false),
        (10.0, 8.999, false),
        (0.0, 0.0, true),
        (0.0, 1e-9, false), // whoever wanted nothing has changed its mind
        (10.0, 0.0, false),
    ] {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", was);
        desk.pass(1);
        let answer = desk.send(desk.request("a", is));
        assert_eq!(answer == Answer::TooSoon, ignored, "from {was} to {is}: {answer:?}");
    }
}

#[test]
fn small_changes_add_up_until_one_is_heard() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 10.0);
    desk.pass(1);
    assert_eq!(desk.send(desk.request("a", 10.6)), Answer::TooSoon);
    granted(desk.send(desk.request("a", 11.2)));
}

#[test]
fn a_request_with_another_priority_is_never_too_soon() {
    let mut settings = fair(100.0);
    settings.max_priority = Some(3);
    let mut desk = Desk::new(settings);
    let with = |desk: &Desk, priority| Ask {
        claims: Claims::from_slice(&[slice(1, 10.0, priority)]),
        ..desk.request("a", 10.0)
    };
    desk.deliver(with(&desk, 2));
    desk.pass(1);
    desk.deliver(with(&desk, 9));
    desk.pass(1);
    assert_eq!(desk.send(with(&desk, 7)), Answer::TooSoon, "both count as 3");
}

#[test]
fn a_node_with_more_clients_is_never_too_soon() {
    let mut desk = Desk::new(fair(100.0));
    desk.node_asks("n", &[slice(2, 10.0, 0)]);
    desk.pass(1);
    assert_eq!(desk.send(desk.node_request("n", &[slice(2, 10.5, 0)])), Answer::TooSoon);
    granted(desk.send(desk.node_request("n", &[slice(3, 10.0, 0)])));
}

#[test]
fn an_interval_of_zero_turns_it_off() {
    let mut settings = fair(100.0);
    settings.min_request_interval = Millis(0);
    let mut desk = Desk::new(settings);
    for _ in 0..3 {
        assert_eq!(desk.asks("a", 10.0), 10.0);
    }
}

#[test]
fn the_interval_is_at_most_half_of_the_refresh_interval_handed_out() {
    let mut settings = fair(100.0);
    settings.refresh = Millis(4_000);
    let mut desk = Desk::new(settings);
    desk.asks("a", 10.0);
    // A longer one configured since does not bind a holder that was told another.
    desk.change(|settings| settings.refresh = Millis::from_secs(16));
    desk.pass(1_999);
    assert_eq!(desk.send(desk.request("a", 10.0)), Answer::TooSoon);
    desk.pass(1);
    desk.asks("a", 10.0);
}

#[test]
fn a_refresh_interval_cut_short_by_the_nodes_own_lease_counts_as_handed_out() {
    let mut desk = Desk::below(fair(100.0));
    desk.supply(100.0, Millis(3_000));
    desk.asks("a", 10.0);
    assert_eq!(desk.leases["a"].refresh, Millis(2_000));
    desk.supply(100.0, Millis(60_000));
    desk.pass(2_000);
    assert_eq!(desk.asks("a", 10.0), 10.0, "it asks when it was told to, and its lease is about to end");
}
