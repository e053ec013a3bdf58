//! A holder that asks again and again must not cost rounds; one that has something to say must be heard.

use super::*;

#[test]
fn a_second_request_too_soon_is_ignored_and_its_lease_stays() {
    let mut server = Server::new(fair(100.0));
    assert_eq!(server.asks("a", 10.0), 10.0);
    let before = server.report("a");
    server.pass(4_999);
    assert_eq!(server.send(server.request("a", 10.0)), Answer::TooSoon);
    assert_eq!(server.report("a"), before, "neither longer nor shorter");
    assert_eq!(server.counters().too_soon, 1);
    server.pass(1);
    assert_eq!(server.asks("a", 10.0), 10.0, "an ignored request does not put off the next");
}

#[test]
fn what_an_ignored_request_confirms_is_heard() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 100.0);
    server.asks("b", 100.0);
    server.pass(16_000);
    assert_eq!((server.asks("a", 100.0), server.held()), (50.0, 100.0), "its lease of 100 may still be believed");
    server.pass(400);
    assert_eq!(server.send(server.request("a", 100.0)), Answer::TooSoon);
    assert_eq!(server.held(), 50.0, "it has shown that it knows of the 50");
    assert_eq!(server.asks("b", 100.0), 50.0, "so another client may have the rest");
}

#[test]
fn a_request_without_a_lease_is_never_too_soon() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 10.0);
    server.pass(1);
    granted(server.send(ask("a", 10.0, None)));
}

#[test]
fn a_request_that_echoes_an_older_lease_is_never_too_soon_for_its_answer_was_lost() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 10.0);
    server.pass(16_000);
    granted(server.send(server.request("a", 10.0)));
    server.pass(1);
    granted(server.send(server.request("a", 10.0)));
    assert_eq!(server.counters().too_soon, 0);
}

#[test]
fn a_request_that_changes_wants_by_more_than_a_tenth_is_never_too_soon() {
    for (was, is, ignored) in [
        (10.0, 11.0, true), // exactly a tenth is not more
        (10.0, 9.0, true),
        (10.0, 11.001, false),
        (10.0, 8.999, false),
        (0.0, 0.0, true),
        (0.0, 1e-9, false), // a client that wanted nothing wants something now
        (10.0, 0.0, false),
    ] {
        let mut server = Server::new(fair(100.0));
        server.asks("a", was);
        server.pass(1);
        let answer = server.send(server.request("a", is));
        assert_eq!(answer == Answer::TooSoon, ignored, "from {was} to {is}: {answer:?}");
    }
}

#[test]
fn small_changes_add_up_until_one_is_heard() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 10.0);
    server.pass(1);
    assert_eq!(server.send(server.request("a", 10.6)), Answer::TooSoon);
    granted(server.send(server.request("a", 11.2)));
}

#[test]
fn a_request_with_another_priority_is_never_too_soon() {
    let mut settings = fair(100.0);
    settings.max_priority = Some(3);
    let mut server = Server::new(settings);
    let with = |server: &Server, priority| Ask {
        claims: Claims::from_slice(&[slice(1, 10.0, priority)]),
        ..server.request("a", 10.0)
    };
    server.deliver(with(&server, 2));
    server.pass(1);
    server.deliver(with(&server, 9));
    server.pass(1);
    assert_eq!(server.send(with(&server, 7)), Answer::TooSoon, "both count as 3");
}

#[test]
fn a_node_with_more_clients_is_never_too_soon() {
    let mut server = Server::new(fair(100.0));
    server.node_asks("n", &[slice(2, 10.0, 0)]);
    server.pass(1);
    assert_eq!(server.send(server.node_request("n", &[slice(2, 10.5, 0)])), Answer::TooSoon);
    granted(server.send(server.node_request("n", &[slice(3, 10.0, 0)])));
}

#[test]
fn an_interval_of_zero_turns_it_off() {
    let mut settings = fair(100.0);
    settings.min_request_interval = Millis(0);
    let mut server = Server::new(settings);
    for _ in 0..3 {
        assert_eq!(server.asks("a", 10.0), 10.0);
    }
}

#[test]
fn the_interval_is_at_most_half_of_the_refresh_interval_handed_out() {
    let mut settings = fair(100.0);
    settings.refresh = Millis(4_000);
    let mut server = Server::new(settings);
    server.asks("a", 10.0);
    // A longer one configured since does not bind a holder that was told another.
    server.change(|settings| settings.refresh = Millis::from_secs(16));
    server.pass(1_999);
    assert_eq!(server.send(server.request("a", 10.0)), Answer::TooSoon);
    server.pass(1);
    server.asks("a", 10.0);
}

#[test]
fn a_refresh_interval_cut_short_by_the_nodes_own_lease_counts_as_handed_out() {
    let mut server = Server::below(fair(100.0));
    server.supply(100.0, Millis(3_000));
    server.asks("a", 10.0);
    assert_eq!(server.leases["a"].refresh, Millis(2_000));
    server.supply(100.0, Millis(60_000));
    server.pass(2_000);
    assert_eq!(server.asks("a", 10.0), 10.0, "it asks when it was told to, and its lease is about to end");
}
