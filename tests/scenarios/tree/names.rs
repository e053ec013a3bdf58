//! Two nodes with one name: the parent serves the first and refuses the second with the reason.

use rustix::process::Signal;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::Asks as _,
    server::Server,
    wait::eventually,
};

const CAPACITY: f64 = 1000.0;

fn root() -> (ConfigFile, Server) {
    let config = ConfigFile::of(&[Template { lease: 8, refresh: 1, ..Template::fair("*", CAPACITY) }]);
    let root = Server::with_config(&config);
    (config, root)
}

/// A leaf with this server id.
fn leaf(root: &Server, id: &str) -> Server {
    let parent = root.grpc().to_string();
    Server::with_flags(&["--parent", &parent, "--node", "leaf", "--id", id])
}

#[test]
fn of_two_nodes_with_one_name_the_second_is_refused_with_the_reason() {
    let (_config, root) = root();
    let (first, second) = (leaf(&root, "first"), leaf(&root, "second"));
    let (mut alice, mut bob) = (first.client("alice"), second.client("bob"));
    assert_eq!(alice.ask("r", 910.0), 910.0);
    let mut told = false;
    // The sum of the answers never exceeds the capacity.
    eventually("the second node is refused with the reason", || {
        let (one, other) = (alice.ask("r", 910.0), bob.ask("r", 910.0));
        assert_eq!(one, 910.0, "the first node keeps its lease");
        assert!(one + other <= CAPACITY, "{one} and {other}");
        let status = second.status(&["r"]);
        let error = status["uplink"]["last_error"].as_str().unwrap_or_default();
        told |= error.contains("another node with this name has leases here");
        (told && other == 0.0).then_some(())
    });
    assert!(second.log().contains("another node with this name has leases here"), "{}", second.log());
    assert!(second.cli(&["status", "r"]).stdout.contains("another node with this name has leases here"));
    assert!(root.log().contains("another node with this name has leases here"), "{}", root.log());
    assert!(root.page("/metrics").contains("leaseway_entry_problems_total{reason=\"name_taken\"}"));
    // When the first node's leases have expired, the second gets the whole capacity.
    first.signal(Signal::KILL);
    first.finish();
    eventually("the second node is served", || (bob.ask("r", 910.0) == 910.0).then_some(()));
}
