//! Priority modes: strict bands and weights.

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
fn max_priority_caps_clients_and_not_nodes() {
    let mut settings = strict(100.0);
    settings.max_priority = Some(3);
    let mut server = Server::new(settings);
    let client = granted(server.send(with("client", 100.0, 9)));
    assert_eq!((client.priority, server.report("client").priority), (3, 3), "the answer has the effective priority");
    assert_eq!(granted(server.send(with("modest", 1.0, 2))).priority, 2, "the cap does not raise priorities");
    let node = server.node_asks("node", &[slice(1, 60.0, 9)]);
    assert_eq!((node, server.leases["node"].priority), (0.0, 9), "nothing is free yet");
    assert_eq!((server.report("node").due.get(), server.report("client").due.get()), (60.0, 40.0));
}

fn weighted(kind: AlgorithmKind, capacity: f64) -> Settings {
    Settings { priority: Priority::Weighted, kind, ..fair(capacity) }
}

#[test]
fn weighted_priority_is_a_number_of_clients() {
    for kind in [AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare] {
        let mut server = Server::new(weighted(kind, 120.0));
        let asks = [with("none", 90.0, 0), with("below", 90.0, -7), with("one", 90.0, 1), with("three", 270.0, 3)];
        let got = server.send_all(asks).map(granted);
        assert_eq!(got.map(|lease| lease.capacity.get()), [20.0, 20.0, 20.0, 60.0], "{kind:?}");
        assert_eq!(got.map(|lease| lease.priority), [0, -7, 1, 3], "the answer has the claimed priority");
    }
}

#[test]
fn max_priority_caps_weights() {
    let mut server = Server::new(Settings { max_priority: Some(3), ..weighted(AlgorithmKind::FairShare, 80.0) });
    let asks = [with("boaster", 80.0, 100), with("plain", 80.0, 0)];
    assert_eq!(server.send_all(asks).map(|answer| granted(answer).capacity.get()), [60.0, 20.0]);
}

#[test]
fn priority_mode_can_change_at_any_time() {
    let mut server = Server::new(fair(100.0));
    server.deliver(with("low", 100.0, 1));
    server.deliver(with("high", 100.0, 3));
    let due = |server: &Server| (server.report("low").due.get(), server.report("high").due.get());
    for _ in 0..2 {
        server.change(|settings| settings.priority = Priority::Weighted);
        assert_eq!(due(&server), (25.0, 75.0));
        server.change(|settings| settings.priority = Priority::Strict);
        assert_eq!(due(&server), (0.0, 100.0));
        server.change(|settings| settings.reserve = 0.5);
        assert_eq!(due(&server), (25.0, 75.0));
        server.change(|settings| settings.reserve = 0.1);
        assert_eq!(due(&server), (5.0, 95.0));
        server.change(|settings| settings.capacity = Amount::clamped(40.0));
        assert_eq!(due(&server), (2.0, 38.0));
        server.change(|settings| settings.kind = AlgorithmKind::Static);
        assert_eq!(due(&server), (40.0, 40.0));
        server.change(|settings| *settings = fair(100.0));
        assert_eq!(due(&server), (50.0, 50.0));
    }
}

fn below(kind: AlgorithmKind) -> Server {
    Server::below(Settings::new(kind, Amount::ZERO))
}

/// A child node with a supply of this capacity.
fn lent(kind: AlgorithmKind, capacity: f64) -> Server {
    let mut server = below(kind);
    server.supply(capacity, Millis(600_000));
    server
}

/// Priorities, numbers of clients, and wants in the report to the parent.
fn told(server: &mut Server) -> Vec<(i16, u32, f64)> {
    let claims = server.resource.summarize(server.now).claims;
    claims.iter().map(|claim| (claim.priority, claim.subclients, claim.wants.get())).collect()
}

fn claiming(server: &mut Server, id: &str, wants: f64, priority: i16) -> f64 {
    server.deliver(Ask { claims: with(id, wants, priority).claims, ..server.request(id, wants) })
}

/// The parent decides what priorities mean.
#[test]
fn ignored_priorities_are_reported_to_the_parent() {
    for kind in AlgorithmKind::ALL.into_iter().take(4) {
        let mut server = lent(kind, 1e6);
        claiming(&mut server, "a", 10.0, 7);
        assert_eq!(told(&mut server), [(7, 1, 10.0)], "{kind:?}");
        claiming(&mut server, "b", 20.0, -3);
        claiming(&mut server, "c", 10.0, 7);
        assert_eq!(told(&mut server), [(-3, 1, 20.0), (7, 2, 20.0)], "{kind:?}");
        server.pass(16_000);
        claiming(&mut server, "b", 20.0, 7);
        claiming(&mut server, "c", 5.0, 0);
        server.release(HolderKind::Client, "a", None);
        assert_eq!(told(&mut server), [(0, 1, 5.0), (7, 1, 20.0)], "{kind:?}");
    }
}

/// The parent must not apply the weights again.
#[test]
fn weights_are_reported_to_the_parent_as_numbers_of_clients() {
    let mut server = below(AlgorithmKind::FairShare);
    server.change(|settings| settings.priority = Priority::Weighted);
    server.supply(1e6, Millis(600_000));
    claiming(&mut server, "a", 10.0, 0);
    claiming(&mut server, "b", 30.0, 3);
    assert_eq!(told(&mut server), [(1, 4, 40.0)]);
}

/// Bands with different terms at the parent cannot be divided by the terms of one of them.
#[test]
fn differing_terms_are_ignored_in_one_band() {
    let mut server = below(AlgorithmKind::ProportionalShare);
    let share = |equal| Terms::Share { equal, top_up: 0.0 };
    server.supply_with(60.0, Millis(600_000), vec![(0, share(0.0)), (3, share(50.0))]);
    claiming(&mut server, "a", 60.0, 0);
    claiming(&mut server, "b", 60.0, 3);
    assert_eq!((server.report("a").due.get(), server.report("b").due.get()), (30.0, 30.0));
}

/// Otherwise priorities would take effect one refresh later per level of the tree.
#[test]
fn reported_priorities_take_effect_at_once() {
    let mut root = Server::new(fair(100.0));
    let (mut one, mut other) = (below(AlgorithmKind::FairShare), below(AlgorithmKind::FairShare));
    for (server, id, priority) in [(&mut one, "low", 0), (&mut other, "high", 3)] {
        assert_eq!(server.send(with(id, 80.0, priority)), Answer::NotYet);
    }
    let (low, high) = (one.resource.summarize(Millis(0)).claims, other.resource.summarize(Millis(0)).claims);
    root.node_asks("one", &low);
    root.node_asks("other", &high);
    root.change(|settings| settings.priority = Priority::Strict);
    assert_eq!((root.report("one").due.get(), root.report("other").due.get()), (20.0, 80.0));
}

/// A Doorman server reports all of its clients at priority 1, so they would precede every client of priority 0.
#[test]
fn doorman_servers_have_a_configured_priority() {
    for (doorman_priority, due) in [(0, [50.0, 50.0]), (1, [80.0, 20.0]), (-1, [20.0, 80.0])] {
        let mut server = Server::new(Settings { priority: Priority::Strict, doorman_priority, ..fair(100.0) });
        server.node_asks("go", &[slice(1, 80.0, 1)]);
        server.asks("ann", 80.0);
        assert_eq!([server.report("go").due.get(), server.report("ann").due.get()], due, "{doorman_priority}");
    }
    // Leaseway nodes report the priorities of their clients.
    let mut server = Server::new(Settings { priority: Priority::Strict, ..fair(100.0) });
    let ours = Ask { outstanding: Some(Amount::ZERO), ..server.node_request("ours", &[slice(1, 30.0, 1)]) };
    server.deliver(ours);
    claiming(&mut server, "ben", 30.0, 1);
    server.node_asks("go", &[slice(1, 30.0, 2), slice(1, 30.0, 1)]);
    server.asks("ann", 80.0);
    let due = ["ours", "ben", "go", "ann"].map(|id| server.report(id).due.get());
    assert_eq!(due, [30.0, 30.0, 35.0, 5.0], "only claims of priority 1 are mapped");
}
