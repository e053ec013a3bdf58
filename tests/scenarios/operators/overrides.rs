//! `leaseway capacity`: an operator overrides a capacity for some time.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    http,
    peers::Peers,
    wait::eventually,
};

/// Leases shorter than the test.
fn config() -> ConfigFile {
    ConfigFile::of(&[Template { lease: 3, refresh: 1, learning: 0, ..Template::fair("*", 100.0) }])
}

fn listed(peers: &Peers, peer: usize) -> Value {
    serde_json::from_str(&peers.operated(peer, &["capacity", "--json"])).unwrap()
}

fn capacity(peers: &Peers, peer: usize, resource: &str) -> Option<f64> {
    peers.status(peer, &[resource])["resources"][0]["capacity"].as_f64()
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn an_override_survives_a_failover_and_expires() {
    let audit = tempfile::tempdir().unwrap();
    let log = audit.path().join("audit");
    let mut peers = Peers::start(3, config(), &["--audit", log.to_str().unwrap()]);
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "db1", 1000.0), 100.0);

    let set = ["capacity", "db*", "50%", "--for", "15s", "--why", "a replica is down"];
    let output = peers.operated(peers.follower(), &set);
    let expected_end = unix_ms() + 15_000;
    assert!(output.contains("db* has 50% until 2"), "{output}");
    assert!(output.contains("db1            100        50\n"), "{output}");
    let one = &listed(&peers, peers.follower())["overrides"][0];
    assert_eq!((&one["pattern"], &one["factor"]), (&"db*".into(), &0.5.into()), "{one}");
    assert_eq!((&one["by"], &one["why"]), (&"anonymous".into(), &"a replica is down".into()), "{one}");
    let until = one["until_unix_ms"].as_u64().unwrap();
    assert!(until.abs_diff(expected_end) < 5_000, "{one}");
    eventually("alice gets a smaller lease", || (alice.ask(&peers, "db1", 1000.0) == 50.0).then_some(()));

    let master = peers.master();
    for (path, says) in [
        ("/", "a replica is down"),
        ("/resource?resource=db1", "anonymous has set `db*` to 50 %"),
        ("/changes?kind=override", "`db*` is set to 50 % by anonymous: a replica is down"),
        ("/api/v1/status", r#""set_to":"50 %""#),
        ("/api/v1/resource?resource=db1", r#""template_capacity":100"#),
    ] {
        let page = http::get(peers.http(master), path).body;
        assert!(page.contains(says), "{path}: {page}");
    }
    let metrics = http::get(peers.http(master), "/metrics").body;
    assert!(metrics.contains("leaseway_resource_override_seconds{resource=\"db1\"}"), "{metrics}");
    assert!(metrics.contains("\nleaseway_overrides 1\n"), "{metrics}");
    let line = std::fs::read_to_string(&log).unwrap();
    assert!(line.contains(r#""what":"capacity_overridden","#) && line.contains("a replica is down"), "{line}");

    peers.kill(master);
    let next = peers.master();
    eventually("the next master knows the override, unless it has expired", || {
        (alice.ask(&peers, "db1", 1000.0) == 50.0 || unix_ms() >= until).then_some(())
    });
    eventually("the override has expired", || (alice.ask(&peers, "db1", 1000.0) == 100.0).then_some(()));
    assert!(unix_ms() >= until, "the override expired too early");
    assert_eq!(capacity(&peers, next, "db1"), Some(100.0));
    assert_eq!(listed(&peers, next)["overrides"].as_array().map(Vec::len), Some(0));
}
