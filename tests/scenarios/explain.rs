//! `leaseway explain` says what is so, at each level of a tree.

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, Client},
    peers::Peers,
    process::leaseway,
    server::Server,
    wait::eventually,
};

#[test]
fn what_keeps_a_newcomer_from_its_due_is_named_and_what_is_said_comes_true() {
    let file = ConfigFile::of(&[Template { lease: 5, refresh: 1, ..Template::fair("*", 100.0) }]);
    let server = Server::with_config(&file);
    server.client("greedy").ask("r", 1_000.0);
    let mut newcomer = server.client("newcomer");
    assert_eq!(newcomer.ask("r", 30.0), 0.0);
    let said = server.cli(&["explain", "newcomer", "r"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for part in ["newcomer wants 30, is due 30 and has 0", "greedy 30 (until ", "at the latest, if wants stay"] {
        assert!(said.stdout.contains(part), "`{part}` is not in {}", said.stdout);
    }
    let said = server.cli(&["explain", "newcomer", "r", "--json"]);
    let levels: Value = serde_json::from_str(&said.stdout).unwrap();
    let level = &levels["levels"][0];
    assert_eq!((&level["rule"], &level["blocks"]), (&"wants".into(), &serde_json::json!(["others"])), "{level}");
    let (latest, due) = (level["latest_ms"].as_u64().unwrap(), level["standing"]["due"].as_f64().unwrap());
    assert!((1..=7_000).contains(&latest), "{latest}");
    eventually("it has what it was said to be due", || (newcomer.ask("r", 30.0) == due).then_some(()));
    assert!(server.cli(&["explain", "newcomer", "r"]).stdout.contains("is due 30: all that it wants"));
}

#[test]
fn what_is_not_known_is_said_in_words() {
    let server = Server::development();
    server.client("alice").ask("mysql", 40.0);
    for (resource, client) in [("mysql", "bob"), ("other", "alice")] {
        let said = server.cli(&["explain", client, resource]);
        assert_eq!(said.code, Some(1), "{said:?}");
        let (words, hint) =
            (format!("does not know `{client}` at `{resource}`"), format!("leaseway status {resource}"));
        assert!(said.stderr.contains(&words) && said.stderr.contains(&hint), "{}", said.stderr);
    }
}

#[test]
fn in_a_tree_each_level_says_what_it_has_to_give() {
    let config = ConfigFile::of(&[Template { refresh: 1, ..Template::fair("*", 120.0) }]);
    let root = Peers::start(1, config, &[]);
    let leaf = root.child("leaf", 1);
    Client::new(root.doorman(0).clone(), "beside").ask("r", 100.0);
    let mut ann = Client::new(leaf.doorman(0).clone(), "ann");
    eventually("the leaf has its share", || (ann.ask("r", 100.0) >= 20.0).then_some(()));
    let at = leaf.endpoints().join(",");
    let said = leaseway(&["explain", "ann", "r", "--server", &at]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let above = format!("leaf has what its parent at {} lends it:", root.endpoints()[0]);
    for part in ["ann wants 100", above.as_str(), "leaf, a node with one client, wants 100, is due 60"] {
        assert!(said.stdout.contains(part), "`{part}` is not in {}", said.stdout);
    }
}
