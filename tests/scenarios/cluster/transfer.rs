//! `leaseway transfer` moves mastership with every promise.

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    peers::Peers,
    wait::eventually,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

#[test]
fn leases_survive_a_transfer_to_the_named_master() {
    let audit = tempfile::tempdir().unwrap();
    let log = audit.path().join("audit");
    let config = ConfigFile::of(&[Template::fair("*", 100.0)]);
    let peers = Peers::start(3, config, &["--audit", log.to_str().unwrap()]);
    let (mut alice, mut bob) = (peers.client("alice"), peers.client("bob"));
    assert_eq!(alice.ask(&peers, "mysql", 100.0), 100.0);
    let (before, next) = (peers.master(), peers.follower());
    let asked = peers.all().find(|peer| ![before, next].contains(peer)).unwrap();

    let output = peers.operate(asked, &["transfer", NAMES[next], "-o", "json"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let answer: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(answer["master"], NAMES[next], "{answer}");
    assert_eq!(answer["master_grpc_address"], peers.grpc(next).to_string(), "{answer}");
    assert!(answer["took_ms"].as_u64().is_some(), "{answer}");
    assert_eq!(peers.master(), next);
    assert_eq!(bob.ask(&peers, "mysql", 100.0), 0.0, "the whole capacity is promised");
    assert_eq!(alice.ask(&peers, "mysql", 50.0), 50.0);
    eventually("bob gets the capacity that alice gave up", || {
        alice.ask(&peers, "mysql", 50.0);
        (bob.ask(&peers, "mysql", 100.0) == 50.0).then_some(())
    });
    let lines = std::fs::read_to_string(&log).unwrap();
    let line = lines
        .lines()
        .find(|line| line.contains(r#""what":"mastership_transferred""#))
        .expect("the transfer is in the audit log");
    assert!(line.contains(&format!(r#""to":"{}""#, NAMES[next])) && line.contains(r#""outcome":"done""#), "{line}");

    let refused = |peers: &Peers, to: &str, why: &str| {
        let output = peers.operate(asked, &["transfer", to]);
        assert!(output.code != Some(0) && output.stderr.contains(why), "{output:?}");
        assert_eq!(peers.master(), next);
    };
    refused(&peers, NAMES[next], "is already the master");
    refused(&peers, "x", "there is no peer \"x\"; the peers are a, b, c");
}
