//! Request timing: hints, shortened refresh intervals, and requests that come too soon.

use super::*;
use crate::{resource::watch_list::HintReason, types::Sum};

impl Server {
    fn listens(&mut self, id: &str) {
        assert!(self.resource.watch(HolderKind::Client, id), "{id} is a holder");
    }

    /// The holders that are hinted now, and why.
    fn hints(&mut self) -> Vec<(String, HintReason)> {
        let mut hints = Vec::new();
        self.resource.hints(self.now, usize::MAX, &mut hints);
        hints.into_iter().map(|hint| (hint.id.to_string(), hint.reason)).collect()
    }

    /// Whether it is hinted now.
    fn hinted(&mut self, id: &str) -> Option<HintReason> {
        self.hints().into_iter().find(|(hinted, _)| hinted == id).map(|(_, why)| why)
    }

    fn next_visit_in(&self) -> Option<u64> {
        self.resource.next_hints(self.now).map(|next| next.since(self.now).0)
    }
}

fn hint(id: &str, why: HintReason) -> (String, HintReason) {
    (id.to_owned(), why)
}

/// `a` has 100 and is due 50, because `b` waits. All that are named listen.
fn contended(listeners: &[&str]) -> Server {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 100.0);
    server.asks("b", 100.0);
    listeners.iter().for_each(|id| server.listens(id));
    server
}

#[test]
fn shrink_hint_needs_a_waiting_holder() {
    let mut server = contended(&["a", "b"]);
    assert_eq!(server.hints(), [hint("a", HintReason::Shrink)]);
    let mut server = contended(&["a", "b"]);
    server.release(HolderKind::Client, "b", None);
    assert_eq!(server.hints(), []);
    // The other algorithm moves capacity from b to a. a has not asked since, so it does not wait.
    let mut server = Server::new(fair(100.0));
    server.round(&[("a", 100.0), ("b", 60.0), ("c", 10.0)]);
    server.listens("b");
    server.change(|settings| settings.kind = AlgorithmKind::ProportionalShare);
    assert_eq!((server.report("b").due.get(), server.report("b").granted.get()), (40.0, 45.0));
    assert_eq!(server.hints(), []);
    server.pass(16_000);
    assert_eq!(server.asks("a", 100.0), 45.0);
    assert_eq!(server.hints(), [hint("b", HintReason::Shrink)]);
}

#[test]
fn changed_wants_start_a_pass() {
    let mut server = Server::new(fair(100.0));
    server.round(&[("a", 100.0), ("b", 100.0)]);
    server.listens("a");
    assert_eq!(server.asks("c", 0.1), 0.0);
    assert_eq!((server.hints(), server.hints()), (Vec::new(), Vec::new()), "the excess of a is below the threshold");
    assert_eq!(server.next_visit_in(), None);
    assert_eq!(server.asks("c", 30.0), 0.0);
    assert_eq!(server.hints(), [hint("a", HintReason::Shrink)]);
}

#[test]
fn waiting_holder_is_hinted_if_enough_is_free() {
    for (wants, keeps, hinted) in
        [(100.0, 99.75, false), (100.0, 99.7, true), (10.0, 99.96, false), (10.0, 99.94, true)]
    {
        let mut server = Server::new(fair(100.0));
        server.asks("a", keeps);
        server.asks("filler", 100.0 - keeps);
        server.asks("b", wants);
        server.listens("b");
        server.release(HolderKind::Client, "filler", None);
        assert_eq!(server.hinted("b").is_some(), hinted, "{} is free, it wants {wants}", 100.0 - keeps);
    }
}

#[test]
fn ignored_hint_is_repeated_with_doubling_pauses() {
    let mut server = contended(&["a"]);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert_eq!(server.hinted("a"), Some(HintReason::Shrink));
        let pause = server.next_visit_in().expect("it is repeated");
        server.pass(pause - 1);
        assert_eq!(server.hinted("a"), None);
        server.pass(1);
        pauses.push(pause);
    }
    assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 6400, 6400]);
    // After its request the pause starts again.
    server.asks("a", 100.0);
    assert_eq!(server.hinted("a"), Some(HintReason::Confirm));
    assert_eq!(server.next_visit_in(), Some(200));
}

#[test]
fn ineffective_confirm_hint_backs_off() {
    let mut server = Server::new(fair(100.0));
    server.node_asks("n", &[slice(2, 100.0, 0)]);
    server.asks("b", 50.0);
    assert!(server.resource.watch(HolderKind::Node, "n"));
    server.pass(16_000);
    // Its clients have not received the cut, so the outstanding amount stays at each request.
    let clinging = |server: &Server| Ask {
        outstanding: Some(Amount::clamped(100.0)),
        ..server.node_request("n", &[slice(2, 100.0, 0)])
    };
    let mut pauses = Vec::new();
    server.deliver(clinging(&server));
    for _ in 0..4 {
        assert_eq!(server.hinted("n"), Some(HintReason::Confirm));
        let request = clinging(&server);
        server.deliver(request);
        assert_eq!(server.hinted("n"), None);
        let pause = server.next_visit_in().expect("it is asked again");
        pauses.push(pause);
        server.pass(pause);
    }
    assert_eq!(pauses, [200, 400, 800, 1600]);
}

#[test]
fn request_after_a_hint_is_not_too_soon() {
    let mut server = contended(&["a"]);
    server.pass(1);
    assert_eq!(server.send(server.request("a", 100.0)), Answer::TooSoon, "it was not hinted");
    assert_eq!(server.hinted("a"), Some(HintReason::Shrink));
    assert_eq!(server.asks("a", 100.0), 50.0);
    assert_eq!(server.send(server.request("a", 100.0)), Answer::TooSoon, "it has been answered");
}

#[test]
fn no_more_holders_are_hinted_than_free_capacity_serves() {
    let mut server = Server::new(fair(100.0));
    server.asks("hog", 100.0);
    let waiting = ["a", "b", "c", "d"];
    for id in waiting {
        server.asks(id, 25.0);
        server.listens(id);
    }
    server.change(|settings| settings.capacity = Amount::clamped(145.0));
    // 45 are free. Each is due 25: one takes that, another what is left.
    assert_eq!(server.hints(), [hint("a", HintReason::Grow), hint("b", HintReason::Grow)]);
    assert_eq!((server.hints(), server.next_visit_in()), (Vec::new(), Some(200)));
    server.pass(200);
    assert_eq!(
        server.hints(),
        [hint("c", HintReason::Grow), hint("d", HintReason::Grow)],
        "clients that ignore hints do not keep it from others"
    );
}

#[test]
fn learning_mode_suppresses_hints() {
    let mut server = Server::with_options(ResourceOptions { learning_until: Millis(5_000), ..options(fair(100.0)) });
    server.deliver(ask(
        "a",
        100.0,
        Some(ShownLease { token: None, capacity: Amount::clamped(100.0), expiry_time: i64::MAX }),
    ));
    server.asks("b", 100.0);
    server.listens("a");
    server.listens("b");
    assert_eq!((server.hints(), server.next_visit_in()), (Vec::new(), Some(5_000)));
    server.pass(5_000);
    assert_eq!(server.next_visit_in(), Some(0));
    // Waiting holders are found by visiting them, though none has asked since.
    assert_eq!(server.hints(), [hint("a", HintReason::Shrink)]);
}

#[test]
fn unshared_capacity_is_hinted_after_configuration_changes_only() {
    for kind in [AlgorithmKind::NoAlgorithm, AlgorithmKind::Static] {
        let mut server = Server::new(Settings::new(kind, Amount::clamped(30.0)));
        server.asks("a", 100.0);
        server.asks("b", 10.0);
        server.listens("a");
        server.listens("b");
        assert_eq!(server.hints(), [], "{kind:?}");
        server.pass(16_000);
        server.asks("b", 20.0);
        assert_eq!(server.next_visit_in(), None, "{kind:?}: others' requests are nothing to look at");
        let before = server.report("a").granted.get();
        server.change(|settings| (settings.kind, settings.capacity) = (AlgorithmKind::Static, Amount::clamped(50.0)));
        let why = if before > 50.0 { HintReason::Shrink } else { HintReason::Grow };
        assert_eq!(server.hints(), [hint("a", why)], "{kind:?}");
    }
}

#[test]
fn larger_supply_causes_hints_and_longer_supply_does_not() {
    let mut server = Server::below(fair(100.0));
    server.supply(100.0, Millis(60_000));
    server.asks("a", 1000.0);
    server.listens("a");
    assert_eq!(server.hints(), []);
    server.supply(100.0, Millis(70_000));
    assert_eq!(server.next_visit_in(), None);
    server.supply(150.0, Millis(70_000));
    assert_eq!(server.hints(), [hint("a", HintReason::Grow)]);
}

#[test]
fn pass_resumes_and_visits_every_holder() {
    let mut server = Server::new(fair(100.0));
    let ids: Vec<String> = (0..10).map(|n| format!("c{n}")).collect();
    for id in &ids {
        server.asks(id, 10.0);
        server.listens(id);
    }
    server.asks("late", 100.0);
    let mut seen = Vec::new();
    for _ in 0..100 {
        let mut hints = Vec::new();
        server.resource.hints(server.now, 3, &mut hints);
        assert!(hints.len() <= 3);
        seen.extend(hints.into_iter().map(|hint| hint.id.to_string()));
        if server.next_visit_in() != Some(0) {
            break;
        }
    }
    seen.sort();
    assert_eq!(seen, ids);
    assert!(server.resource.sums().held <= Sum::from(Amount::clamped(100.0)));
}

// Unwatched holders get a shorter refresh interval while they wait, or while others wait for them.

/// Two clients that share the capacity, and a newcomer that gets nothing yet.
fn with_a_newcomer(reuse: Reuse) -> Server {
    let mut server = Server::new(Settings { reuse, ..fair(100.0) });
    server.round(&[("a", 100.0), ("b", 100.0)]);
    server.pass(16_000);
    assert_eq!(server.asks("c", 100.0), 0.0);
    server
}

fn refresh(server: &Server, id: &str) -> u64 {
    server.leases[id].refresh.0
}

#[test]
fn cut_holder_refreshes_early_once() {
    let mut server = with_a_newcomer(Reuse::Confirmed);
    server.asks("a", 100.0);
    assert_eq!(refresh(&server, "a"), 1_000);
    server.pass(1_000);
    server.asks("a", 100.0);
    assert_eq!(refresh(&server, "a"), 16_000, "it has confirmed, and the request is not too soon");
    server.pass(4_000);
    assert!(server.asks("c", 100.0) > 16.0, "the capacity is reused");
}

#[test]
fn waiting_holder_refreshes_early() {
    for reuse in [Reuse::Confirmed, Reuse::Prompt] {
        let mut server = with_a_newcomer(reuse);
        assert_eq!(refresh(&server, "c"), 5_000);
        for _ in 0..2 {
            server.pass(5_000);
            server.round(&[("a", 100.0), ("b", 100.0), ("c", 100.0)]);
        }
        assert!((server.leases["c"].capacity.get() - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(refresh(&server, "c"), 16_000);
    }
}

#[test]
fn refresh_interval_stays_without_waiting_holders() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 80.0);
    server.pass(16_000);
    server.asks("a", 80.0);
    server.pass(16_000);
    server.asks("a", 10.0);
    assert_eq!(refresh(&server, "a"), 16_000);
}

#[test]
fn holder_that_never_confirms_keeps_its_interval() {
    let mut server = Server::new(fair(100.0));
    server.deliver(ask("a", 100.0, None));
    server.pass(16_000);
    server.asks("b", 100.0);
    server.deliver(ask("a", 100.0, None));
    assert_eq!((server.leases["a"].capacity.get(), refresh(&server, "a")), (50.0, 16_000));
}

#[test]
fn watched_holder_keeps_its_interval() {
    let mut server = with_a_newcomer(Reuse::Confirmed);
    for id in ["a", "c"] {
        server.resource.watch(HolderKind::Client, id);
    }
    server.asks("a", 100.0);
    server.pass(5_000);
    server.asks("c", 100.0);
    assert_eq!((refresh(&server, "a"), refresh(&server, "c")), (16_000, 16_000));
}

#[test]
fn negligible_cut_keeps_the_interval() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 1_000.0);
    server.pass(16_000);
    server.asks("a", 1_000.0);
    server.asks("b", 0.1);
    server.pass(16_000);
    server.asks("a", 1_000.0);
    assert_eq!((server.leases["a"].capacity.get(), refresh(&server, "a")), (99.9, 16_000));
}

// A request that comes too soon is ignored, unless it contains news.

#[test]
fn too_early_request_still_confirms() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 100.0);
    server.asks("b", 100.0);
    server.pass(16_000);
    assert_eq!((server.asks("a", 100.0), server.held()), (50.0, 100.0), "its lease of 100 may still be believed");
    server.pass(400);
    assert_eq!(server.send(server.request("a", 100.0)), Answer::TooSoon);
    assert_eq!(server.held(), 50.0, "the request confirms the 50");
    assert_eq!(server.asks("b", 100.0), 50.0, "the rest is free");
}

#[test]
fn a_request_without_a_lease_is_never_too_soon() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 10.0);
    server.pass(1);
    granted(server.send(ask("a", 10.0, None)));
}

#[test]
fn retry_after_a_lost_answer_is_not_too_soon() {
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
fn min_request_interval_is_at_most_half_the_refresh_interval() {
    let mut settings = fair(100.0);
    settings.refresh = Millis(4_000);
    let mut server = Server::new(settings);
    server.asks("a", 10.0);
    // A longer interval that was configured later does not bind this holder.
    server.change(|settings| settings.refresh = Millis::from_secs(16));
    server.pass(1_999);
    assert_eq!(server.send(server.request("a", 10.0)), Answer::TooSoon);
    server.pass(1);
    server.asks("a", 10.0);
}

#[test]
fn min_request_interval_follows_the_shortened_refresh_interval() {
    let mut server = Server::below(fair(100.0));
    server.supply(100.0, Millis(3_000));
    server.asks("a", 10.0);
    assert_eq!(server.leases["a"].refresh, Millis(2_000));
    server.supply(100.0, Millis(60_000));
    server.pass(2_000);
    assert_eq!(server.asks("a", 10.0), 10.0, "it asks at its refresh time, and its lease is about to end");
}
