//! A node stands for the clients below it.

use super::*;

const CLIENTS: [f64; 6] = [40.0, 40.0, 40.0, 10.0, 10.0, 300.0];

/// What each client has once all have refreshed often enough.
fn settled(kind: AlgorithmKind, capacity: f64, asks: impl Fn(&Server) -> Vec<Ask>) -> Server {
    let mut server = Server::new(Settings::new(kind, Amount::clamped(capacity)));
    for _ in 0..4 {
        for ask in asks(&server) {
            server.deliver(ask);
        }
        server.pass(16_000);
    }
    server
}

#[test]
fn a_node_gets_what_its_clients_would_get_if_they_asked_themselves() {
    for kind in [AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare] {
        for capacity in [0.0, 30.0, 90.0, 120.0, 180.0, 300.0, 1000.0] {
            let direct = settled(kind, capacity, |server| {
                CLIENTS.iter().enumerate().map(|(n, wants)| server.request(&format!("c{n}"), *wants)).collect()
            });
            let tree = settled(kind, capacity, |server| {
                let slices = [slice(3, 120.0, 0), slice(2, 20.0, 0)];
                vec![server.node_request("n", &slices), server.request("c5", CLIENTS[5])]
            });
            let below: f64 = (0..5).map(|n| direct.leases[&format!("c{n}")].capacity.get()).sum();
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * capacity;
            let (node, alone) = (tree.leases["n"].capacity.get(), tree.leases["c5"].capacity.get());
            assert!(near(node, below), "{kind:?} of {capacity}: the node has {node}, its clients {below}");
            assert!(near(alone, direct.leases["c5"].capacity.get()), "{kind:?} of {capacity}");
        }
    }
}

#[test]
fn one_sum_for_clients_of_different_wants_is_not_the_same() {
    let mut server = Server::new(fair(120.0));
    let lump = [slice(5, 140.0, 0)];
    server.node_asks("n", &lump);
    server.asks("c5", 300.0);
    assert_eq!(server.report("n").due.get(), 100.0, "28 each looks like more than the level of 20");
    let sliced = [slice(3, 120.0, 0), slice(2, 20.0, 0)];
    server.node_asks("n", &sliced);
    assert_eq!(server.report("n").due.get(), 95.0, "three at the level of 25, two at their 10");
}

#[test]
fn each_slice_counts_in_the_band_of_its_priority() {
    let mut settings = fair(100.0);
    settings.priority = Priority::Strict;
    let mut server = Server::new(settings);
    server.node_asks("n", &[slice(1, 30.0, 5), slice(1, 100.0, 0)]);
    server.asks("a", 100.0);
    assert_eq!(server.report("n").due.get(), 65.0, "30 first, then half of the 70 that are left");
    assert_eq!(server.report("a").due.get(), 35.0);
    assert_eq!(server.report("n").subclients, 2);
}

#[test]
fn two_slices_that_are_alike_count_twice() {
    let mut server = Server::new(fair(90.0));
    server.node_asks("n", &[slice(1, 100.0, 0), slice(1, 100.0, 0)]);
    server.asks("a", 100.0);
    assert_eq!((server.report("n").due.get(), server.report("a").due.get()), (60.0, 30.0));
    server.pass(16_000);
    server.node_asks("n", &[slice(1, 100.0, 0)]);
    assert_eq!((server.report("n").due.get(), server.report("a").due.get()), (45.0, 45.0));
}

/// Each band takes memory: a node that reports a thousand of them counts as a thousand holders.
#[test]
fn every_band_of_a_node_takes_a_place() {
    let mut server = Server::born(Birth { max_holders: 4, ..birth(fair(100.0)) });
    let bands = |n: usize| vec![slice(1, 5.0, 0); n];
    assert_eq!(server.send(server.node_request("wide", &bands(5))), Answer::Full);
    assert_eq!(server.resource.holders(), 0, "it leaves nothing behind");
    server.deliver(server.node_request("node", &bands(3)));
    assert_eq!(server.resource.places(), 3);
    assert_eq!(server.asks("a", 10.0), 10.0);
    assert_eq!(server.send(server.request("b", 10.0)), Answer::Full);
    assert_eq!(
        server.send(server.node_request("node", &bands(4))),
        Answer::Full,
        "who is known may not grow without bound"
    );
    server.pass(16_000);
    server.deliver(server.node_request("node", &bands(2)));
    assert_eq!(server.resource.places(), 3, "what it no longer needs is free");
    assert_eq!(server.asks("b", 10.0), 10.0);
}
