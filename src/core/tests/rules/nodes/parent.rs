//! Reports to a parent, and the terms that come with its supply.

use super::*;
use crate::lease::promises::Inherited;

const LONG: Millis = Millis(600_000);

fn child(kind: AlgorithmKind) -> Server {
    Server::below(Settings::new(kind, Amount::ZERO))
}

/// A child node with a supply of this capacity.
fn with(kind: AlgorithmKind, capacity: f64) -> Server {
    let mut server = child(kind);
    server.supply(capacity, LONG);
    server
}

/// Rule 5. An answer of zero would take the leases of all clients at every failover.
#[test]
fn node_without_supply_decides_nothing() {
    let wants = [Claim::of_client(Amount::clamped(40.0), 0)][..].into();
    let inherited = Inherited { total: Amount::clamped(40.0), wants, until: Millis(50_000), ..Inherited::default() };
    let settings = Settings { capacity: Amount::clamped(1e9), ..fair(0.0) };
    let mut server = Server::with_options(ResourceOptions {
        source: Source::Parent,
        inherited: Some(inherited),
        ..options(settings)
    });
    assert_eq!(server.resource.settings().capacity, Amount::ZERO, "the template's capacity is not lent yet");
    let token = Token::new(3);
    let had = ShownLease { token, capacity: Amount::clamped(40.0), expiry_time: now_at(Millis(50_000)).unix };
    for _ in 0..3 {
        assert_eq!(server.send(ask("a", 100.0, Some(had))), Answer::NotYet);
        assert_eq!(server.send(ask("b", 60.0, None)), Answer::NotYet);
        server.pass(1_000);
        assert_eq!(server.resource.take_changes(server.now).changes, None, "there is nothing new to promise");
    }
    assert_eq!((server.held(), server.counters().too_soon, server.counters().granted), (40.0, 0, 0));
    let told = server.resource.summarize(server.now);
    assert_eq!(told.outstanding.get(), 40.0, "reported to the parent");
    assert_eq!(told.claims.iter().map(|claim| claim.wants.get()).sum::<f64>(), 160.0, "the report contains all wants");
    server.supply(100.0, LONG);
    assert_eq!(server.deliver(ask("a", 100.0, Some(had))), 50.0);
    assert_eq!(server.asks("b", 60.0), 50.0);
}

/// Rule 2. The node may have lent more than its new lease, for longer than the old lease lasts.
#[test]
fn capacity_lent_by_a_node_counts_until_its_next_report() {
    let mut server = Server::new(fair(100.0));
    let node = |server: &Server, outstanding: f64| Ask {
        outstanding: Some(Amount::clamped(outstanding)),
        ..server.node_request("n", &[slice(1, 100.0, 0)])
    };
    server.deliver(node(&server, 0.0));
    server.pass(16_000);
    server.asks("a", 100.0);
    server.deliver(node(&server, 90.0));
    let first_ends = server.now.plus(Millis(46_000));
    server.now = first_ends;
    server.resource.tick(server.now);
    assert_eq!(server.leases["n"].capacity.get(), 50.0);
    assert_eq!(server.report("n").held.get(), 100.0, "the node has not confirmed the cut");
    assert_eq!(server.asks("a", 100.0), 0.0);
    server.deliver(node(&server, 50.0));
    assert_eq!(server.report("n").held.get(), 50.0);
    server.pass(6_000);
    assert_eq!(server.asks("a", 100.0), 50.0);
}

/// Rule 10: a report that increases wants is due immediately.
#[test]
fn the_parent_is_asked_early_when_demand_has_moved() {
    let mut server = with(AlgorithmKind::FairShare, 100.0);
    assert!(!server.resource.asks_early(), "there is nothing to report");
    server.asks("a", 400.0);
    assert!(server.resource.asks_early(), "the parent has no report yet");
    server.resource.summarize(server.now);
    assert!(!server.resource.asks_early());
    server.asks("b", 1.0);
    assert!(!server.resource.asks_early(), "a change of 1/400 can wait");
    server.asks("c", 3.0);
    assert!(server.resource.asks_early(), "a change of 1/100 cannot wait");
    server.resource.summarize(server.now);
    assert!(!server.resource.asks_early());
    server.release(HolderKind::Client, "a", None);
    assert!(server.resource.asks_early());
}

/// Rule 10: clients of other nodes wait for the capacity that was given up.
#[test]
fn the_parent_is_asked_early_when_holders_have_confirmed() {
    let mut server = with(AlgorithmKind::FairShare, 100.0);
    server.round(&[("a", 80.0), ("b", 80.0)]);
    server.resource.summarize(server.now);
    server.supply(60.0, LONG);
    assert!(!server.resource.asks_early(), "no client has given up anything");
    server.pass(16_000);
    assert_eq!(server.asks("a", 80.0), 30.0);
    assert!(!server.resource.asks_early(), "it has not confirmed");
    assert_eq!(server.send(server.request("a", 80.0)), Answer::TooSoon, "the confirmation counts nevertheless");
    assert!(server.resource.asks_early());
    server.resource.summarize(server.now);
    assert!(!server.resource.asks_early());
}

#[test]
fn headroom_lends_unclaimed_capacity_to_nodes_and_not_to_clients() {
    let mut server = Server::new(Settings { headroom: 0.5, ..fair(100.0) });
    server.asks("a", 20.0);
    server.node_asks("n", &[slice(2, 20.0, 0)]);
    server.pass(16_000);
    assert_eq!(
        server.node_asks("n", &[slice(2, 20.0, 0)]),
        35.0,
        "half of the headroom of 60 goes to the node with half of all wants"
    );
    assert_eq!(server.asks("a", 20.0), 20.0);
    server.pass(16_000);
    server.asks("a", 90.0);
    assert_eq!(server.node_asks("n", &[slice(2, 20.0, 0)]), 20.0, "nothing is unclaimed now");
}

#[test]
fn child_nodes_have_a_shorter_refresh_interval() {
    for (refresh, factor, below) in
        [(16_000, 0.5, 8_000), (16_000, 1.0, 16_000), (5_000, 0.5, 2_000), (1_500, 0.1, 1_000), (500, 0.5, 500)]
    {
        let settings = Settings { refresh: Millis(refresh), decay_factor: factor, ..fair(100.0) };
        let mut server = Server::new(settings.clone());
        server.node_asks("n", &[slice(1, 1.0, 0)]);
        server.asks("a", 1.0);
        assert_eq!((server.leases["n"].refresh.0, server.leases["a"].refresh.0), (refresh, refresh));
        assert_eq!(settings.of_child().refresh.0, below, "{refresh} {factor}");
    }
}

/// The server rejects such terms, too. No input from a parent may crash a node.
#[test]
fn invalid_terms_are_ignored() {
    for equal in [f64::NAN, f64::INFINITY, -1.0, -0.0] {
        let mut server = child(AlgorithmKind::ProportionalShare);
        server.supply_with(60.0, LONG, vec![(0, Terms::Share { equal, top_up: 0.5 }), (0, Terms::Level(equal))]);
        server.asks("a", 10.0);
        assert_eq!(server.asks("b", 90.0), 50.0, "{equal}: it divides by itself");
    }
}

#[test]
fn equal_share_comes_from_the_parent() {
    let mut server = child(AlgorithmKind::ProportionalShare);
    server.supply_with(60.0, LONG, vec![(0, Terms::Share { equal: 20.0, top_up: 0.25 })]);
    server.asks("a", 10.0);
    assert_eq!(server.asks("b", 140.0), 50.0, "20, and a quarter of 120");
    server.supply_with(24.0, LONG, vec![(0, Terms::Share { equal: 20.0, top_up: 0.25 })]);
    assert_eq!(
        (server.report("a").due.get(), server.report("b").due.get()),
        (10.0, 14.0),
        "not even the shares are paid for"
    );
}

/// Settings and terms arrive in one answer, and may be applied in either order.
#[test]
fn terms_survive_a_change_of_the_priority_mode() {
    let mut server = child(AlgorithmKind::ProportionalShare);
    server.supply_with(70.0, LONG, vec![(0, Terms::Share { equal: 20.0, top_up: 0.25 })]);
    server.asks("a", 10.0);
    server.asks("b", 60.0);
    server.asks("c", 140.0);
    server.change(|settings| settings.priority = Priority::Strict);
    assert_eq!(
        (server.report("b").due.get(), server.report("c").due.get()),
        (25.0, 35.0),
        "by itself it would say 26.5"
    );
}

#[test]
fn static_maximum_comes_from_the_root() {
    let mut server = child(AlgorithmKind::Static);
    server.supply_with(100.0, LONG, vec![(0, Terms::Each(Amount::clamped(30.0)))]);
    assert_eq!((server.asks("a", 80.0), server.asks("b", 20.0)), (30.0, 20.0));
    let mut top = Server::new(Settings::new(AlgorithmKind::Static, Amount::clamped(30.0)));
    let knows =
        |server: &Server| Ask { outstanding: Some(Amount::ZERO), ..server.node_request("n", &[slice(3, 200.0, 0)]) };
    assert_eq!(top.deliver(knows(&top)), 90.0, "the node limits each of its three clients");
    let mut top = Server::new(Settings::new(AlgorithmKind::Static, Amount::clamped(30.0)));
    assert_eq!(top.node_asks("n", &[slice(3, 200.0, 0)]), 30.0, "a node without terms counts as one client");
}

/// The settings of a node arrive with its lease. Granted leases stay; the next report, which is due at once, uses the
/// new settings.
#[test]
fn changed_priority_mode_is_reported_at_once() {
    let mut server = with(AlgorithmKind::FairShare, 100.0);
    let claims = |priority| [Claim { priority, ..slice(1, 100.0, 0) }];
    server.node_asks("low", &claims(2));
    server.node_asks("high", &claims(3));
    assert_eq!(
        (server.report("low").due.get(), server.report("high").due.get()),
        (50.0, 50.0),
        "priorities have no effect"
    );
    server.resource.summarize(server.now);
    assert!(!server.resource.asks_early());
    let held = server.held();
    server.change(|settings| {
        settings.priority = Priority::Strict;
        settings.capacity = Amount::clamped(7.0);
    });
    assert!(server.resource.asks_early());
    let told = server.resource.summarize(server.now);
    assert_eq!(told.claims.iter().map(|claim| claim.priority).collect::<Vec<_>>(), [2, 3]);
    assert_eq!((server.held(), told.outstanding.get()), (held, held));
    assert_eq!(server.resource.settings().capacity.get(), 100.0, "the capacity comes from the lease");
    assert_eq!(server.report("high").due.get(), 100.0);
}

fn of_priority(server: &Server, id: &str, wants: f64, priority: i16) -> Ask {
    Ask { claims: Claims::from_slice(&[slice(1, wants, priority)]), ..server.request(id, 0.0) }
}

/// Three consequences: terms apply to the node unchanged, slices of grandchildren can be merged, and a parent without
/// weights still honours them.
#[test]
fn weights_are_reported_as_numbers_of_clients() {
    let mut server = with(AlgorithmKind::FairShare, 100.0);
    server.deliver(of_priority(&server, "light", 50.0, 0));
    server.deliver(of_priority(&server, "heavy", 150.0, 3));
    server.deliver(of_priority(&server, "greedy", 120.0, 2));
    let before = server.resource.summarize(server.now).claims;
    assert_eq!(before.iter().map(|claim| claim.subclients).sum::<u32>(), 3, "the parent's weights are unknown before");
    server.change(|settings| settings.priority = Priority::Weighted);
    assert!(server.resource.asks_early(), "reported again immediately");
    let told = server.resource.summarize(server.now).claims;
    assert_eq!(told[..], [slice(4, 200.0, 1), slice(2, 120.0, 1)]);
    assert_eq!(server.resource.sums().subclients, 3, "the number of clients is known");
    for priority in [Priority::Ignore, Priority::Weighted] {
        let mut top = Server::new(Settings { priority, ..fair(70.0) });
        top.asks("alone", 70.0);
        top.node_asks("n", &told);
        assert_eq!((top.report("n").due.get(), top.report("alone").due.get()), (60.0, 10.0), "{priority:?}");
    }
    let mut region = with(AlgorithmKind::FairShare, 100.0);
    region.change(|settings| settings.priority = Priority::Weighted);
    region.node_asks("n", &told);
    region.node_asks("m", &told);
    assert_eq!(region.resource.summarize(region.now).claims[..], [slice(8, 400.0, 1), slice(4, 240.0, 1)]);
}

/// Two clients in a band that gets only its reserve, and one in a higher band.
fn with_reserve(reserve: f64, high: f64) -> Server {
    let mut server = child(AlgorithmKind::FairShare);
    server.change(|settings| (settings.priority, settings.reserve) = (Priority::Strict, reserve));
    server.supply(0.0, LONG);
    server.deliver(of_priority(&server, "high", high, 5));
    server.deliver(of_priority(&server, "a", 50.0, 0));
    server.deliver(of_priority(&server, "b", 50.0, 0));
    server
}

fn dues(server: &Server) -> [f64; 3] {
    ["high", "a", "b"].map(|id| (server.report(id).due.get() * 1e6).round() / 1e6)
}

/// The level of the reserve applies to the whole tree.
#[test]
fn terms_of_the_parent_replace_the_reserve() {
    let terms = || vec![(5, Terms::Wants), (0, Terms::Level(10.0))];
    let mut server = with_reserve(0.5, 60.0);
    server.supply_with(80.0, LONG, terms());
    assert_eq!(dues(&server), [60.0, 10.0, 10.0], "as computed by the parent");
    server.supply_with(100.0, LONG, terms());
    assert_eq!(dues(&server), [60.0, 20.0, 20.0], "the rest goes from the top band down");
    let mut server = with_reserve(0.5, 90.0);
    server.supply_with(80.0, LONG, vec![(5, Terms::Level(40.0)), (0, Terms::Level(10.0))]);
    assert_eq!(dues(&server), [60.0, 10.0, 10.0]);
    server.supply_with(80.0, LONG, Vec::new());
    assert_eq!(dues(&server), [53.333333, 13.333333, 13.333333], "without terms it uses its own reserve");
}

#[test]
fn late_or_shorter_supply_takes_effect() {
    let mut server = child(AlgorithmKind::FairShare);
    server.supply(100.0, Millis(30_000));
    server.asks("a", 60.0);
    server.supply(100.0, Millis(20_000));
    server.pass(16_000);
    server.asks("a", 60.0);
    assert_eq!(server.leases["a"].length, Millis(4_000), "no lease outlives the latest supply");
    server.pass(4_000);
    assert_eq!(server.asks("a", 60.0), 0.0);
    server.supply(80.0, Millis(19_999));
    assert_eq!(server.asks("b", 60.0), 0.0, "an expired supply lends nothing");
    server.supply(80.0, LONG);
    server.pass(6_000);
    assert_eq!(server.asks("b", 60.0), 40.0);
}

/// A child node asks early only if its own holders need the capacity.
#[test]
fn child_node_that_reports_is_never_too_soon() {
    let mut server = Server::new(fair(100.0));
    for _ in 0..3 {
        let ask = Ask { outstanding: Some(Amount::ZERO), ..server.node_request("n", &[slice(1, 10.0, 0)]) };
        assert_eq!(server.deliver(ask), 10.0);
        server.pass(10);
    }
    server.node_asks("go", &[slice(1, 10.0, 0)]);
    server.pass(10);
    assert_eq!(server.send(server.node_request("go", &[slice(1, 10.0, 0)])), Answer::TooSoon);
}

/// A parent without terms speaks only the original protocol. Under STATIC its lease is the maximum of each client.
#[test]
fn static_supply_without_terms_is_a_maximum_per_client() {
    let mut server = with(AlgorithmKind::Static, 50.0);
    assert_eq!([server.asks("a", 40.0), server.asks("b", 80.0), server.asks("c", 50.0)], [40.0, 50.0, 50.0]);
    assert_eq!(server.node_asks("n", &[slice(2, 80.0, 0)]), 50.0, "one maximum for each claim of its Doorman nodes");
    let leaf = Ask { outstanding: Some(Amount::ZERO), ..server.node_request("leaf", &[slice(2, 80.0, 0)]) };
    let Answer::Supplied(supplied) = server.send(leaf) else { panic!("it is lent something") };
    assert_eq!((supplied.lease.capacity.get(), supplied.terms), (80.0, vec![(0, Terms::Each(Amount::clamped(50.0)))]));
    server.pass(16_000);
    server.supply(30.0, LONG);
    assert_eq!([server.asks("a", 40.0), server.asks("b", 80.0)], [30.0, 30.0], "never more than the lease");
    server.pass(LONG.0);
    assert_eq!(server.asks("a", 40.0), 0.0, "zero after its end");
}
