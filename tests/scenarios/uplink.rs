//! Options of nodes with a parent.

use crate::harness::{
    config::{ConfigFile, Template},
    process::leaseway,
    server::{ANYWHERE, Server, addresses_of_its_own},
};

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
