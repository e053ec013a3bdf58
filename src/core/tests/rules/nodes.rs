//! A child node represents its clients at the parent and divides its supply among them.

mod names;
mod parent;

use super::*;
use crate::resource::report::resource_report;

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
fn equal_slices_count_twice() {
    let mut server = Server::new(fair(90.0));
    server.node_asks("n", &[slice(1, 100.0, 0), slice(1, 100.0, 0)]);
    server.asks("a", 100.0);
    assert_eq!((server.report("n").due.get(), server.report("a").due.get()), (60.0, 30.0));
    server.pass(16_000);
    server.node_asks("n", &[slice(1, 100.0, 0)]);
    assert_eq!((server.report("n").due.get(), server.report("a").due.get()), (45.0, 45.0));
}

/// Each band takes memory, so a node with a thousand bands counts as a thousand holders.
#[test]
fn every_band_of_a_node_takes_a_place() {
    let mut server = Server::with_options(ResourceOptions { max_holders: 4, ..options(fair(100.0)) });
    let bands = |n: usize| vec![slice(1, 5.0, 0); n];
    assert_eq!(server.send(server.node_request("wide", &bands(5))), Answer::Full);
    assert_eq!(server.resource.holders(), 0, "a refused node has no record");
    server.deliver(server.node_request("node", &bands(3)));
    assert_eq!(server.resource.charged_slots(), 3);
    assert_eq!(server.asks("a", 10.0), 10.0);
    assert_eq!(server.send(server.request("b", 10.0)), Answer::Full);
    assert_eq!(
        server.send(server.node_request("node", &bands(4))),
        Answer::Full,
        "a known node cannot exceed the limit either"
    );
    server.pass(16_000);
    server.deliver(server.node_request("node", &bands(2)));
    assert_eq!(server.resource.charged_slots(), 3, "unused slots are free");
    assert_eq!(server.asks("b", 10.0), 10.0);
}

// The supply bounds the amount and the length of the leases of a node.

fn lent(kind: AlgorithmKind, capacity: f64, until: u64) -> Server {
    let mut server = Server::below(Settings::new(kind, Amount::ZERO));
    supply(&mut server, capacity, until);
    server
}

/// A supply of a Leaseway parent. Under STATIC its terms say what each client may have.
fn supply(server: &mut Server, capacity: f64, until: u64) {
    let each = (0, Terms::Each(Amount::clamped(100.0)));
    let is_static = server.resource.settings().kind == AlgorithmKind::Static;
    server.supply_with(capacity, Millis(until), is_static.then_some(each).into_iter().collect());
}

#[test]
fn no_lease_outlives_the_lease_of_the_node() {
    for kind in &AlgorithmKind::ALL[..4] {
        for (left, length, refresh) in
            [(90_000, 60_000, 5_000), (60_000, 60_000, 5_000), (30_000, 30_000, 5_000), (5_000, 5_000, 4_000)]
        {
            let mut server = lent(*kind, 100.0, left);
            server.asks("a", 10.0);
            let lease = server.leases["a"];
            assert_eq!((lease.length, lease.refresh), (Millis(length), Millis(refresh)), "{kind:?}");
            invariant::lease_within_bounds(&lease, None, server.now, Some(Millis(left))).expect("within");
        }
    }
}

#[test]
fn ended_supply_leaves_zero_capacity() {
    for kind in &AlgorithmKind::ALL[..4] {
        let mut server = lent(*kind, 100.0, 30_000);
        assert_eq!(server.asks("a", 10.0), 10.0);
        server.pass(30_000);
        // The lease of `a` still counts because of the clock allowance, but it must not be renewed.
        assert_eq!(server.asks("a", 10.0), 0.0, "{kind:?}");
        assert_eq!(server.asks("b", 10.0), 0.0, "{kind:?}");
        assert_eq!(server.resource.settings().capacity, Amount::ZERO);
        server.supply(100.0, Millis(90_000));
        server.pass(5_000);
        assert_eq!(server.asks("a", 10.0), 10.0, "{kind:?}: a new lease brings it back");
    }
}

#[test]
fn learning_mode_lasts_as_long_as_the_leases_of_the_parent() {
    let mut server = Server::below(Settings::new(AlgorithmKind::FairShare, Amount::ZERO));
    assert!(!server.resource.is_learning(Millis(0)), "nothing can be granted yet");
    server.resource.learn_until(Millis(30_000));
    server.supply(100.0, Millis(90_000));
    assert_eq!(server.asks("a", 10.0), 0.0, "another client may hold the whole supply");
    assert!(server.resource.summarize(server.now).learning);
    server.pass(30_000);
    assert_eq!(server.asks("a", 10.0), 10.0);
}

#[test]
fn report_contains_the_supply() {
    let root = Server::new(Settings::new(AlgorithmKind::FairShare, Amount::clamped(100.0)));
    assert_eq!(resource_report(&root.resource, root.now).supply, None);
    let mut server = Server::below(Settings::new(AlgorithmKind::FairShare, Amount::ZERO));
    let report = |server: &Server| resource_report(&server.resource, server.now).supply.expect("it has a parent");
    assert_eq!((report(&server).version, report(&server).outstanding), (0, None));
    let terms = vec![(0, Terms::Level(7.0))];
    let (capacity, until) = (Amount::clamped(50.0), server.now.plus(Millis(30_000)));
    server
        .resource
        .supply(server.now, Supply { capacity, until, terms: terms.clone(), version: 3, ..Supply::default() });
    server.asks("a", 10.0);
    server.resource.summarize(server.now);
    let said = report(&server);
    assert_eq!((said.version, said.remaining, said.terms), (3, Millis(30_000), terms));
    assert_eq!(said.outstanding.map(Amount::get), Some(10.0));
}
