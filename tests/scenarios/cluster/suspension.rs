//! Suspended machines: the clocks of their processes stop, too.

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::Asks as _,
    peers::{Peers, granted},
    server::{ANYWHERE, Server},
    suspension::Suspension,
    wait::eventually,
};

#[test]
fn a_suspended_master_decides_nothing_when_it_wakes() {
    let suspension = Suspension::new();
    let config = ConfigFile::of(&[Template { lease: 5, refresh: 1, ..Template::fair("*", 100.0) }]);
    let peers = Peers::start_within(3, config, suspension.variables());
    let master = peers.master();
    let (mut alice, bob) = (peers.client("alice"), peers.client("bob"));
    assert_eq!(alice.ask(&peers, "r", 90.0), 90.0);
    let suspended = suspension.suspend(peers.process(master));
    // Without messages from the others, the master can rely on its clocks only.
    peers.cut(master);
    let successor = peers.master_but(&[master]);
    eventually("alice's lease has expired", || {
        let got = granted(bob.try_ask(peers.doorman(successor), "r", 90.0)).map(|lease| lease.capacity());
        (got == Some(90.0)).then_some(())
    });
    suspended.wake();
    // By the master's clock alice's lease is still valid, and her request needs no further promise.
    for _ in 0..50 {
        let answer = alice.try_ask(peers.doorman(master), "r", 90.0);
        assert_eq!(granted(answer), None, "bob holds the capacity");
    }
    peers.heal(master);
}

#[test]
fn a_suspended_child_node_grants_nothing_from_an_expired_lease() {
    let suspension = Suspension::new();
    let config = ConfigFile::of(&[Template { lease: 5, refresh: 1, ..Template::fair("*", 100.0) }]);
    let root = Server::with_config(&config);
    let parent = root.grpc().to_string();
    let variables = suspension.variables();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (&**name, &**value)).collect();
    let flags = ["--listen", ANYWHERE, "--http", ANYWHERE, "--threads", "2", "--parent", &parent, "--node", "leaf"];
    let leaf = Server::start(&flags, &variables);
    let (mut alice, mut bob) = (leaf.client("alice"), root.client("bob"));
    assert_eq!(alice.ask("r", 100.0), 100.0);
    let suspended = suspension.suspend(leaf.process());
    eventually("the lease of the leaf has expired", || (bob.ask("r", 100.0) == 100.0).then_some(()));
    suspended.wake();
    assert_eq!(alice.ask("r", 100.0), 0.0, "bob holds the capacity");
}
