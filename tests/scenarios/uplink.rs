//! A node whose capacity comes from a parent: what the parent lends comes through, survives the node's own failures,
//! and ends when it ends. Finer questions, and larger trees, are elsewhere.

use rustix::process::Signal;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, node_request},
    process::leaseway,
    server::{ANYWHERE, Server, addresses_of_its_own},
    wait::eventually,
};

/// A parent at an address that it can have again.
struct Root {
    config: ConfigFile,
    addresses: [String; 2],
}

impl Root {
    fn sharing(template: Template<'_>) -> Root {
        Root { config: ConfigFile::of(&[template]), addresses: addresses_of_its_own() }
    }

    fn start(&self) -> Server {
        let [listen, http] = &self.addresses;
        Server::start(&["--listen", listen, "--http", http, "--threads", "2", "--config", self.config.path()], &[])
    }

    fn address(&self) -> &str {
        &self.addresses[0]
    }

    /// A server below it.
    fn leaf(&self, node: &str, flags: &[&str]) -> Server {
        Server::with_flags(&[&["--parent", self.address(), "--node", node], flags].concat())
    }
}

#[test]
fn what_the_parent_lends_comes_through_to_the_clients() {
    let root = Root::sharing(Template::fair("*", 100.0));
    let above = root.start();
    let leaf = root.leaf("leaf", &[]);
    // The first request of all: the parent was not asked before.
    assert_eq!(leaf.client("alice").ask("r", 70.0), 70.0);
    let status = leaf.status(&["r"]);
    assert_eq!((&status["uplink"]["node"], &status["uplink"]["parent"][0]), (&"leaf".into(), &root.address().into()));
    assert_eq!(status["uplink"]["master"], root.address());
    assert_eq!(
        (&status["resources"][0]["capacity"], &status["resources"][0]["supply"]["edition"]),
        (&70.0.into(), &1.into())
    );
    let holder = above.status(&["r"])["resources"][0]["holder"][0].clone();
    assert_eq!((&holder["id"], &holder["is_server"], &holder["held"]), (&"leaf".into(), &true.into(), &70.0.into()));
    let shown = leaf.cli(&["status", "r"]).stdout;
    assert!(shown.contains(&format!("node leaf, parent at {}", root.address())), "{shown}");
    assert!(shown.contains("lent by the parent for another"), "{shown}");
    assert!(leaf.page("/debug/status").contains("parent's master"));
    assert!(leaf.page("/metrics").contains("leaseway_uplink_requests_total{outcome=\"answered\"}"));
}

#[test]
fn a_node_that_is_killed_keeps_what_it_promised_and_fetches_its_share_anew() {
    let root = Root::sharing(Template::fair("*", 100.0));
    let _above = root.start();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let flags = ["--data", data.to_str().unwrap(), "--admin", ANYWHERE, "--bootstrap"];
    let start = || {
        let leaf = root.leaf("leaf", &flags);
        eventually("it is its own master", || (leaf.doorman().discovery().is_master == Some(true)).then_some(()));
        leaf
    };
    let leaf = start();
    let mut alice = leaf.client("alice");
    assert_eq!(alice.ask("r", 40.0), 40.0);
    leaf.signal(Signal::KILL);
    leaf.finish();
    let leaf = start();
    // Alice still believes in what she has; the rest is given at once, and no more than that.
    let mut bob = leaf.client("bob");
    let got = eventually("the share is there", || Some(bob.ask("r", 1000.0)).filter(|got| *got > 0.0));
    assert!(got <= 60.0, "{got} of what alice has left");
    alice.moves_to(leaf.doorman());
    assert_eq!(alice.ask("r", 40.0), 40.0);
}

#[test]
fn without_the_parent_leases_go_on_to_their_end_then_there_is_nothing_until_it_is_back() {
    let root = Root::sharing(Template { lease: 4, refresh: 1, ..Template::fair("*", 100.0) });
    let above = root.start();
    let leaf = root.leaf("leaf", &[]);
    let mut alice = leaf.client("alice");
    assert_eq!(alice.ask("r", 40.0), 40.0);
    above.stop();
    assert_eq!(alice.ask("r", 40.0), 40.0, "the lease from the parent lives");
    eventually("it has ended", || (alice.ask("r", 40.0) == 0.0).then_some(()));
    let status = leaf.status(&["r"]);
    assert_eq!(
        (&status["resources"][0]["capacity"], &status["resources"][0]["supply"]["remaining_ms"]),
        (&0.0.into(), &0.into())
    );
    assert!(status["uplink"]["failures"].as_u64().unwrap() > 0, "{status}");
    let _above = root.start();
    eventually("there is capacity again", || (alice.ask("r", 40.0) == 40.0).then_some(()));
}

#[test]
fn flags_that_make_no_sense_together_are_refused_with_what_to_do() {
    let config = ConfigFile::of(&[Template::fair("*", 100.0)]);
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let [listen, peer] = addresses_of_its_own();
    let peers = format!("a={peer}");
    let among_peers = ["--parent", "127.0.0.1:1", "--id", "a", "--peers", &peers, "--data", data.to_str().unwrap()];
    for (flags, expected) in [
        (&["--parent", "127.0.0.1:1", "--config", config.path()][..], "takes its templates from the parent"),
        (&["--parent", &listen], "cannot be its own parent"),
        (&["--parent", "nonsense"], "expected HOST:PORT"),
        (&["--node", "leaf"], "--parent"),
        (&among_peers, "--node NAME"),
    ] {
        let said = leaseway(&[&["serve", "--listen", &listen, "--http", ANYWHERE], flags].concat());
        assert_ne!(said.code, Some(0), "{said:?}");
        assert!(said.stderr.contains(expected), "{expected}: {said:?}");
    }
}

#[test]
fn a_node_with_a_parent_refuses_configurations_and_says_where_they_are() {
    let config = ConfigFile::of(&[Template::fair("*", 100.0)]);
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let [admin, parent] = addresses_of_its_own();
    let flags = ["--data", data.to_str().unwrap(), "--admin", &admin, "--bootstrap", "--parent", &parent];
    let _leaf = Server::with_flags(&flags);
    for command in [&["config", "apply", config.path()][..], &["config", "diff", config.path()], &["config", "show"]] {
        let said = leaseway(&[command, &["--admin", &admin]].concat());
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains("takes its templates from the parent"), "{said:?}");
        assert!(said.stderr.contains(&parent), "{said:?}");
    }
}

#[test]
fn a_child_node_that_asks_for_nothing_of_everything_brings_nothing_to_life() {
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", 100.0)]));
    let answer = server.doorman().get_server(node_request("child", "*", &[(1, 0.0)])).unwrap();
    assert_eq!((answer.response.len(), answer.mastership), (0, None));
    assert_eq!(server.status(&[])["resources_total"], 0);
}
