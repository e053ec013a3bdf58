//! Nodes with the same name are distinguished by their instance ids.

use super::*;
use crate::resource::{NodeInstance, report::holder_reports};

/// A node with the name `leaf`, and its lease.
struct Namesake {
    instance: Option<NodeInstance>,
    lease: Option<Lease>,
}

impl Namesake {
    fn new(node: u64, term: u64) -> Namesake {
        Namesake { instance: NodeInstance::new(node, term), lease: None }
    }

    fn request(&self, server: &Server, wants: f64) -> Ask {
        let (instance, has) = (self.instance, self.lease.as_ref().map(has));
        let outstanding = Some(self.lease.map_or(Amount::ZERO, |lease| lease.capacity));
        Ask { instance, has, outstanding, ..server.node_request("leaf", &[slice(1, wants, 0)]) }
    }

    fn asks(&mut self, server: &mut Server, wants: f64) -> f64 {
        let lease = granted(server.send(self.request(server, wants)));
        self.lease = Some(lease);
        lease.capacity.get()
    }

    fn is_refused(&self, server: &mut Server, wants: f64) {
        assert_eq!(server.send(self.request(server, wants)), Answer::NameTaken);
    }

    fn gives_back(&mut self, server: &mut Server) {
        let token = self.lease.take().map(|lease| lease.token);
        let release =
            Release { kind: HolderKind::Node, id: "leaf".into(), token, instance: self.instance, spent: None };
        assert_eq!(one(&mut server.resource, now_at(server.now), Request::Release(release)), Answer::Released);
    }
}

fn server(capacity: f64) -> Server {
    let mut settings = fair(capacity);
    (settings.lease, settings.refresh) = (Millis::from_secs(60), Millis::from_secs(10));
    Server::new(settings)
}

/// Time after which leases of 60 s have certainly expired.
const ENDED: u64 = 62_000;

#[test]
fn first_of_two_live_nodes_keeps_the_name() {
    let mut server = server(100.0);
    let (mut first, mut second) = (Namesake::new(1, 0), Namesake::new(2, 0));
    assert_eq!(first.asks(&mut server, 70.0), 70.0);
    // It may be the same node after a loss of its data directory.
    assert_eq!(second.asks(&mut server, 70.0), 30.0, "the free capacity");
    server.pass(5000);
    assert_eq!(first.asks(&mut server, 100.0), 70.0, "the first node returns and keeps its lease");
    for _ in 0..20 {
        server.pass(5000);
        second.is_refused(&mut server, 70.0);
        first.asks(&mut server, 100.0);
        server.resource.tick(server.now);
    }
    assert_eq!(first.lease.map(|lease| lease.capacity.get()), Some(100.0), "the lease of the second has ended");
    assert_eq!(server.counters().name_taken, 20);
}

#[test]
fn second_node_gets_the_name_after_release_or_expiry() {
    for gives_back in [true, false] {
        let mut server = server(100.0);
        let (mut first, mut second) = (Namesake::new(1, 0), Namesake::new(2, 0));
        first.asks(&mut server, 100.0);
        second.asks(&mut server, 100.0);
        first.asks(&mut server, 100.0);
        second.is_refused(&mut server, 100.0);
        if gives_back {
            first.gives_back(&mut server);
        } else {
            server.pass(ENDED);
        }
        server.resource.tick(server.now);
        second.lease = None;
        assert_eq!(second.asks(&mut server, 100.0), 100.0, "gives back: {gives_back}");
        // Now the roles are reversed.
        first.lease = None;
        if !gives_back {
            assert_eq!(first.asks(&mut server, 100.0), 0.0, "the first node is forgotten");
            assert_eq!(second.asks(&mut server, 100.0), 100.0);
        }
        first.is_refused(&mut server, 100.0);
    }
}

#[test]
fn restarted_node_without_data_starts_from_free_capacity() {
    let mut server = server(100.0);
    let (mut before, mut after) = (Namesake::new(1, 0), Namesake::new(2, 0));
    assert_eq!(before.asks(&mut server, 60.0), 60.0);
    assert_eq!(after.asks(&mut server, 60.0), 40.0);
    for _ in 0..12 {
        server.pass(5500);
        after.asks(&mut server, 60.0);
        server.resource.tick(server.now);
    }
    assert_eq!(after.asks(&mut server, 60.0), 60.0);
    let (holders, _) = holder_reports(&server.resource, server.now, 0, 10);
    assert_eq!(holders.len(), 1, "the first record is removed");
    // The first instance was partitioned all the time and returns.
    server.pass(1000);
    before.lease = None;
    before.asks(&mut server, 10.0);
    after.asks(&mut server, 60.0);
    before.is_refused(&mut server, 10.0);
}

#[test]
fn new_master_of_a_node_continues_and_the_old_one_is_stale() {
    let mut server = server(100.0);
    let (mut old, mut new) = (Namesake::new(1, 7), Namesake::new(1, 8));
    assert_eq!(old.asks(&mut server, 100.0), 100.0);
    let late = old.request(&server, 1.0);
    new.lease = old.lease;
    assert_eq!(new.asks(&mut server, 100.0), 100.0);
    assert_eq!(server.send(late), Answer::Stale);
    assert_eq!(new.asks(&mut server, 100.0), 100.0);
}

#[test]
fn nodes_without_an_instance_id_share_the_record() {
    let mut server = server(100.0);
    let mut silent = Namesake { instance: None, lease: None };
    assert_eq!(silent.asks(&mut server, 80.0), 80.0);
    // The node is upgraded and now sends an instance id.
    let mut node = Namesake { instance: NodeInstance::new(1, 1), lease: silent.lease };
    assert_eq!(node.asks(&mut server, 80.0), 80.0);
    silent.lease = node.lease;
    assert_eq!(silent.asks(&mut server, 80.0), 80.0);
}

#[test]
fn release_frees_the_leases_of_its_sender_only() {
    let mut server = server(100.0);
    let (mut first, mut second) = (Namesake::new(1, 0), Namesake::new(2, 0));
    first.asks(&mut server, 60.0);
    second.asks(&mut server, 60.0);
    first.asks(&mut server, 60.0);
    assert_eq!(server.held(), 100.0);
    second.gives_back(&mut server);
    assert_eq!(server.held(), 60.0);
    second.gives_back(&mut server);
    let stranger = Namesake::new(3, 0);
    Namesake { lease: first.lease, ..stranger }.gives_back(&mut server);
    assert_eq!(server.held(), 60.0, "a stranger cannot release the lease");
    assert_eq!(first.asks(&mut server, 60.0), 60.0);
}

#[test]
fn third_node_is_refused_while_two_hold_leases() {
    let mut server = server(100.0);
    let (mut first, mut second, mut third) = (Namesake::new(1, 0), Namesake::new(2, 0), Namesake::new(3, 0));
    first.asks(&mut server, 60.0);
    second.asks(&mut server, 60.0);
    third.is_refused(&mut server, 60.0);
    server.pass(ENDED);
    server.resource.tick(server.now);
    assert_eq!(third.asks(&mut server, 60.0), 60.0);
}

#[test]
fn pool_refuses_a_second_node_at_once() {
    let mut settings = Settings::new(AlgorithmKind::PriorityPool, Amount::clamped(100.0));
    settings.lease = Millis::from_secs(60);
    let mut server = Server::new(settings);
    let (mut first, second) = (Namesake::new(1, 0), Namesake::new(2, 0));
    assert!(first.asks(&mut server, 60.0) > 0.0);
    second.is_refused(&mut server, 60.0);
}

#[test]
fn unused_names_are_forgotten() {
    let mut server = server(100.0);
    for n in 1..100 {
        let ask =
            Ask { instance: NodeInstance::new(n, 0), ..server.node_request(&format!("leaf-{n}"), &[slice(1, 1.0, 0)]) };
        server.send(ask);
    }
    server.pass(ENDED);
    while !server.resource.tick(server.now) {
        server.pass(1000);
    }
    server.resource.tick(server.now);
    assert!(server.resource.knows_no_names());
}
