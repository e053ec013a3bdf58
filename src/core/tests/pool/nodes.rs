//! Pools in a tree of nodes.

use super::*;

fn slice(subclients: u32, wants: f64, priority: i16) -> Claim {
    Claim::new(Amount::clamped(wants), subclients, priority)
}

fn node(server: &mut PoolServer, id: &str, slices: &[Claim]) -> f64 {
    node_with(server, id, slices, None)
}

/// A node that reports this fraction of its capacity as in use.
fn node_reports(server: &mut PoolServer, id: &str, slices: &[Claim], part: f64) -> f64 {
    let usage = Usage { recharging: part, request_cost: Amount::ZERO, interval: None };
    node_with(server, id, slices, Some(Box::new(PoolFields { key: None, usage: Some(usage) })))
}

fn node_with(server: &mut PoolServer, id: &str, slices: &[Claim], pool_fields: Option<Box<PoolFields>>) -> f64 {
    let claims = Claims::from_slice(slices);
    let ask =
        Ask { kind: HolderKind::Node, claims, outstanding: Some(Amount::ZERO), pool_fields, ..server.request(id, 0.0) };
    server.send(ask)
}

#[track_caller]
fn near(found: f64, expected: f64, why: &str) {
    assert!((found - expected).abs() < 1e-6, "{found}, expected {expected}: {why}");
}

/// An overbooked pool of ten. Each node has this number of places and uses half of its capacity.
fn overbooked(nodes: &[(&str, u32)]) -> PoolServer {
    let settings = settings(10.0, &[("max_capacity", "1000"), ("connected_bias_s", "0")]);
    let mut server = PoolServer::with_options(ResourceOptions { learning_until: Millis(1000), ..options(settings) });
    let mut total = 0.0;
    for (id, places) in nodes {
        let has = Amount::clamped(f64::from(*places));
        let has = Some(crate::lease::holder::ShownLease {
            token: None,
            capacity: has,
            expiry_time: now_at(server.now).unix + 60,
        });
        let usage = Usage { recharging: 0.5, request_cost: Amount::ZERO, interval: None };
        let claims = Claims::from_slice(&[slice(*places, f64::from(*places), 0)]);
        let pool_fields = Some(Box::new(PoolFields { key: None, usage: Some(usage) }));
        let outstanding = Some(Amount::ZERO);
        server.send(Ask { kind: HolderKind::Node, claims, has, outstanding, pool_fields, ..ask(id, 0.0, None) });
        total += f64::from(*places);
    }
    server.pass(1);
    server.tick();
    assert_eq!(server.report().total.get(), total);
    server
}

#[test]
fn node_bands_above_zero_are_priority_clients() {
    let mut server = PoolServer::new(100.0, &[("min_capacity", "2")]);
    assert_eq!(node(&mut server, "n", &[slice(3, 30.0, 2), slice(5, 5000.0, 0)]), 40.0);
    assert_eq!(node(&mut server, "m", &[slice(100, 1.0, 0)]), 60.0, "the rest of the capacity");
    assert_eq!(server.report().priority_connected.get(), 40.0);
}

#[test]
fn assignment_bounds_the_priority_clients_of_a_node() {
    let mut server = PoolServer::new(100.0, &[]);
    let assigned = Some(Assigned::Capacity(Amount::clamped(10.0)));
    server.resource.assign(server.now, HolderKind::Node, &"n".into(), assigned).expect("fits");
    assert_eq!(node(&mut server, "n", &[slice(3, 30.0, 2), slice(1, 30.0, 1), slice(5, 5.0, 0)]), 15.0);
}

#[test]
fn scarce_places_are_shared_by_number_of_clients() {
    let mut server = PoolServer::new(10.0, &[]);
    node(&mut server, "n", &[slice(30, 30.0, 0)]);
    node(&mut server, "m", &[slice(10, 10.0, 0)]);
    for _ in 0..4 {
        server.pass(5);
        node(&mut server, "n", &[slice(30, 30.0, 0)]);
        node(&mut server, "m", &[slice(10, 10.0, 0)]);
    }
    assert_eq!((server.leases["n"].capacity.get(), server.leases["m"].capacity.get()), (7.5, 2.5));
    server.asks("client", 1.0);
    assert_eq!((server.due("n"), server.due("m"), server.due("client")), (7.5, 2.5, 0.0), "41 want 10 places");
}

#[test]
fn child_pool_does_not_overbook() {
    let parameters = [("max_capacity", "40"), ("min_capacity", "2")];
    let mut server =
        PoolServer::with_options(ResourceOptions { source: Source::Parent, ..options(settings(10.0, &parameters)) });
    let until = Millis::from_secs(600);
    let supply = Supply { capacity: Amount::clamped(20.0), until, version: 1, ..Supply::default() };
    server.resource.supply(server.now, supply);
    server.assign("p", 6.0).expect("fits");
    server.reports("p", 9.0, 0.0, 0.0);
    for n in 0..9 {
        server.reports(&format!("c{n}"), 50.0, 0.0, 0.0);
    }
    // A client that claims priority without an assignment.
    let claims = Claims::from_slice(&[slice(1, 50.0, 9)]);
    let ask = Ask { claims, ..ask("claims", 50.0, None) };
    server.send(ask);
    let report = server.report();
    assert_eq!((report.total.get(), report.max.get()), (20.0, 20.0));
    let told: Vec<_> = server.resource.summarize(server.now).claims.to_vec();
    assert_eq!(told, [slice(10, 20.0, 0), slice(1, 6.0, 1)]);
    server.pass(5);
    server.tick();
    assert_eq!(server.report().total.get(), 20.0, "although usage is low");
}

/// A request that was rejected for its length would be rejected forever.
#[test]
fn excess_bands_are_merged_without_free_clients() {
    for strangers in [true, false] {
        let mut server =
            PoolServer::with_options(ResourceOptions { source: Source::Parent, ..options(settings(10.0, &[])) });
        server.resource.supply(server.now, Supply { until: Millis::from_secs(600), version: 1, ..Supply::default() });
        let mut bands: Vec<Claim> = (1..=1024).map(|priority| slice(1, 2.0, priority)).collect();
        bands.extend(strangers.then(|| slice(7, 7.0, 0)));
        node(&mut server, "n", &bands);
        let told = server.resource.summarize(server.now).claims;
        assert_eq!(told.len(), 256);
        let (heads, lowest) = told.split_at(usize::from(strangers));
        assert!(heads.iter().all(|heads| *heads == slice(7, 7.0, 0)));
        let merged = 1024 - (lowest.len() as u32 - 1);
        assert_eq!(lowest[0], slice(merged, 2.0 * f64::from(merged), 1), "no client is reported above its priority");
        assert!(lowest[1..].iter().zip(merged as i16 + 1..).all(|(told, priority)| *told == slice(1, 2.0, priority)));
    }
}

#[test]
fn new_capacity_of_a_node_counts_as_used() {
    let mut server = PoolServer::new(100.0, &[]);
    node(&mut server, "n", &[slice(10, 10.0, 0)]);
    assert_eq!(server.report().used.get(), 10.0, "the node has not reported usage");
    assert_eq!(node_reports(&mut server, "n", &[slice(20, 20.0, 0)], 0.25), 20.0);
    assert_eq!(server.report().used.get(), 12.5, "a quarter of 10, and all of the 10 that are new");
    assert_eq!(node_reports(&mut server, "n", &[slice(4, 4.0, 0)], 0.5), 4.0);
    assert_eq!(server.report().used.get(), 2.0, "half of the remaining capacity");
    node_reports(&mut server, "n", &[slice(4, 4.0, 0)], 0.25);
    assert_eq!(server.report().used.get(), 1.0);
    node(&mut server, "n", &[slice(4, 4.0, 0)]);
    assert_eq!(server.report().used.get(), 4.0, "older nodes report no usage");
}

#[test]
fn node_overload_closes_places_once() {
    let mut server = overbooked(&[("n", 15)]);
    let places = [slice(15, 15.0, 0)];
    near(node_reports(&mut server, "n", &places, 0.8), 12.5, "12 of 10 are used: a sixth has to go");
    let pool = server.report();
    near(pool.total.get(), 12.5, "the places of the victims are closed");
    near(pool.used.get(), 10.0, "the same fraction of the rest is in use");
    // The node disconnects its clients gradually; the same fraction stays in use.
    for _ in 0..3 {
        server.pass(5);
        server.tick();
        node_reports(&mut server, "n", &places, 0.8);
    }
    let pool = server.report();
    near(pool.total.get(), 12.5, "once is enough");
    assert_eq!(pool.overloads, 1);
}

#[test]
fn one_overload_cuts_nodes_once() {
    let mut server = overbooked(&[("n", 8), ("m", 7)]);
    node_reports(&mut server, "n", &[slice(8, 8.0, 0)], 1.0);
    let after_one = server.report();
    let used = after_one.used.get();
    assert!((9.5..=10.0).contains(&used), "8 and 3.5 were used of 10, now {used}");
    near(after_one.total.get(), 15.0 * 10.0 / 11.5, "a part of all places of nodes");
    assert_eq!(after_one.overloads, 1);
    for _ in 0..3 {
        server.pass(1);
        server.tick();
    }
    let later = server.report();
    assert!(
        later.total >= after_one.total && later.overloads == 1,
        "m has not confirmed yet, and no second cut is needed: {later:?}"
    );
}

#[test]
fn child_pool_reports_usage() {
    let mut server =
        PoolServer::with_options(ResourceOptions { source: Source::Parent, ..options(settings(10.0, &[])) });
    let until = Millis::from_secs(600);
    let supply = Supply { capacity: Amount::clamped(20.0), until, version: 1, ..Supply::default() };
    server.resource.supply(server.now, supply);
    let told = |server: &mut PoolServer| server.resource.summarize(server.now).usage.expect("it is a pool");
    assert_eq!(told(&mut server).used, Amount::ZERO, "nothing is held");
    for n in 0..4 {
        server.asks(&format!("c{n}"), 1.0);
    }
    assert_eq!(told(&mut server).used.get(), 4.0, "no client has reported");
    for n in 0..3 {
        server.reports(&format!("c{n}"), 1.0, 0.25, 7.0);
    }
    let usage = told(&mut server);
    assert_eq!((usage.used.get(), usage.spent), (1.75, 21.0), "three report a quarter, one does not report");
    assert_eq!((usage.part_of(20.0), usage.part_of(1.0), usage.part_of(0.0)), (0.0875, 1.0, 1.0));
    server.pass(50);
    server.tick();
    assert_eq!(told(&mut server).used.get(), 4.0, "their reports have expired");
    let mut fair = Resource::new(ResourceOptions {
        source: Source::Parent,
        ..options(Settings::new(AlgorithmKind::FairShare, Amount::ZERO))
    });
    assert_eq!(fair.summarize(server.now).usage, None, "other algorithms report no usage");
}
