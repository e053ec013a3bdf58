//! `leaseway backup` and `leaseway restore`: clients keep their leases after the loss of all peers and directories.

use std::{
    fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    peers::Peers,
    process::leaseway,
    wait::eventually,
};

const CAPACITY: f64 = 100.0;

fn templates() -> [Template<'static>; 2] {
    let all = Template { lease: 10, refresh: 1, learning: 0, ..Template::fair("*", CAPACITY) };
    [Template { kind: "PRIORITY_POOL", glob: "searches", ..all }, all]
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The replicated state: configuration, limits, overrides and assignments.
fn facts(peers: &Peers) -> [Value; 4] {
    let peer = peers.master();
    let mut kept = json(&peers.operated(peer, &["config", "show", "-o", "json"]));
    let mut overrides = json(&peers.operated(peer, &["capacity", "-o", "json"]));
    overrides["overrides"][0]["remaining_ms"].take();
    let assigned = json(&peers.operated(peer, &["pool", "get", "acme", "searches", "-o", "json"]))["assigned"].take();
    let limits = json(&peers.operated(peer, &["limits", "list", "-o", "json"]));
    [kept.take(), limits, overrides, assigned]
}

fn restore(file: &Path, data: &Path) -> crate::harness::process::Output {
    leaseway(&["restore", file.to_str().unwrap(), "--data", data.to_str().unwrap()])
}

fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

#[test]
fn a_restored_cluster_has_the_same_state_and_grants_no_held_capacity() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("backup.jsonl");
    let mut peers = Peers::start(3, ConfigFile::of(&templates()), &[]);
    let [pool, all] = templates();
    let changed = ConfigFile::of(&[pool, Template { glob: "other", ..all }, all]);
    peers.operated(peers.follower(), &["config", "apply", changed.path(), "--yes"]);
    peers.operated(peers.follower(), &["capacity", "db*", "50%", "--for", "1h", "--why", "a test"]);
    peers.operated(peers.follower(), &["limits", "set", "tenant/acme", "--capacity", "5"]);
    peers.operated(peers.follower(), &["pool", "set", "acme", "searches", "15"]);
    let (mut alice, mut carol, mut bob) = (peers.client("alice"), peers.client("carol"), peers.client("bob"));
    let before = facts(&peers);
    let output = peers.operated(peers.follower(), &["backup", file.to_str().unwrap()]);
    assert!(output.contains("version 2 of the configuration, 1 limit, 0 declarations, 1 override"), "{output}");
    let again = peers.operate(peers.follower(), &["backup", file.to_str().unwrap()]);
    assert!(again.code == Some(1) && again.stderr.contains("--force"), "{again:?}");
    assert_eq!(fs::metadata(&file).unwrap().len() as usize, fs::read(&file).unwrap().len());
    // The restored cluster must respect leases given after the backup, too.
    let held = carol.ask(&peers, "web", 40.0) + alice.ask(&peers, "web", CAPACITY);
    assert_eq!(held, CAPACITY);
    let alice_until = alice.until().expect("alice has a lease") * 1000;

    for peer in peers.all() {
        peers.kill(peer);
    }
    let output = restore(&file, &peers.data(0));
    assert!(output.code == Some(2) && output.stderr.contains("is not empty"), "{output:?}");
    for peer in peers.all() {
        fs::remove_dir_all(peers.data(peer)).unwrap();
        let output = restore(&file, &peers.data(peer));
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stdout.contains("leaseway serve --data "), "{output:?}");
        peers.run(peer, &[]);
    }
    peers.master();
    assert_eq!(facts(&peers), before);
    // Carol refreshes, alice does not but may use her lease, and bob wants everything.
    eventually("bob has the capacity that alice held", || {
        let carols = carol.ask(&peers, "web", 40.0);
        let alices = if unix_ms() < alice_until { CAPACITY - 40.0 } else { 0.0 };
        let bobs = bob.ask(&peers, "web", CAPACITY);
        assert!(bobs + carols + alices <= CAPACITY, "{bobs} + {carols} + {alices}");
        assert_eq!(carols, 40.0, "carol keeps her lease");
        (bobs == CAPACITY - 40.0).then_some(())
    });
    assert!(unix_ms() >= alice_until, "capacity of alice was granted before her lease expired");
    assert_eq!(bob.ask(&peers, "db1", CAPACITY), CAPACITY / 2.0, "the override is in force");
    // The peer deletes the restored file after use.
    let (master, data) = (peers.master(), peers.data(peers.master()));
    eventually("the restored file is deleted", || (!data.join("restore.jsonl").exists()).then_some(()));
    peers.stop(master);
    peers.run(master, &[]);
    assert_eq!(facts(&peers), before);
}
