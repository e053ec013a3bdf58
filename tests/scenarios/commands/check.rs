//! `leaseway check` finds problems of real clusters. Unit tests of the server cover each finding.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    foreign,
    peers::Peers,
    process::{Said, leaseway},
    wait::eventually,
};

const WELL: i32 = 0;
const WARNED: i32 = 3;
const BAD: i32 = 4;

fn fair(capacity: f64) -> ConfigFile {
    ConfigFile::of(&[Template { refresh: 1, ..Template::fair("*", capacity) }])
}

fn check(servers: &str, flags: &[&str]) -> Said {
    leaseway(&[&["check", "--server", servers], flags].concat())
}

/// The verdicts as `GRADE ABOUT: FOUND`.
fn verdicts(said: &Said) -> Vec<String> {
    let read: Value = serde_json::from_str(&said.stdout).unwrap();
    let text = |verdict: &Value, field: &str| verdict[field].as_str().unwrap().to_owned();
    let line = |verdict: &Value| {
        assert!(verdict["grade"] == "ok" || !text(verdict, "next").is_empty(), "what to do is said: {verdict}");
        format!("{} {}: {}", text(verdict, "grade"), text(verdict, "about"), text(verdict, "found"))
    };
    read["verdicts"].as_array().unwrap().iter().map(line).collect()
}

/// Waits for this exit code with these verdicts, each given by its start and a part of it.
#[track_caller]
fn finds(servers: &str, code: i32, expected: &[(&str, &str)]) {
    let mut last = None;
    let found = catch_unwind(AssertUnwindSafe(|| {
        eventually(&format!("{code}, {expected:?}"), || {
            let said = last.insert(check(servers, &["--json"]));
            let lines = if said.code == Some(code) { verdicts(said) } else { return None };
            let is_said = |(start, part): &(&str, &str)| lines.iter().any(|l| l.starts_with(start) && l.contains(part));
            expected.iter().all(is_said).then_some(())
        });
    }));
    assert!(found.is_ok(), "expected {code}, {expected:?}, and found {last:?}");
}

#[test]
fn a_cluster_that_is_well_is_said_to_be_and_a_peer_that_dies_is_named() {
    let mut peers = Peers::start(3, fair(100.0), &[]);
    let first = peers.endpoints()[0].clone();
    finds(&first, WELL, &[("ok peers", "3 of 3 take part"), ("ok clocks", "3 agree")]);
    assert_eq!(check(&first, &["--quiet"]).stdout, "");
    let all = peers.endpoints().join(",");
    let gone = peers.follower();
    peers.kill(gone);
    let down = format!("{} is down or cut off", ["a", "b", "c"][gone]);
    finds(&all, WARNED, &[("ok master", "is master"), ("warn peers", &down)]);
    let master = peers.master();
    let last = peers.all().find(|peer| ![gone, master].contains(peer)).unwrap();
    peers.kill(master);
    finds(&all, BAD, &[("bad master", "1 of 3 peers answer"), ("bad peers", "there is no quorum")]);
    peers.kill(last);
    assert_eq!(check(&all, &["--timeout", "1"]).code, Some(69));
}

#[test]
fn a_disk_that_is_slow_and_the_peer_that_waits_for_it_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let (library, slow) = (foreign::preload_library(directory.path(), "slow_disk"), directory.path().join("slow"));
    let mut peers = Peers::start(3, fair(100.0), &[]);
    let other = peers.follower();
    peers.stop(other);
    let variables = [("LD_PRELOAD", library.as_str()), ("SLOW_DISK", slow.to_str().unwrap())];
    peers.run_within(other, &variables);
    let (at, name) = (peers.endpoints().join(","), ["a", "b", "c"][other]);
    finds(&at, WELL, &[("ok peers", "3 of 3 take part")]);
    // The delay outlasts the test.
    fs::write(&slow, "120000").unwrap();
    // This needs a promise that must be stored.
    peers.client("ann").ask(&peers, "r", 1.0);
    let waits = format!("{name} runs, but the master does not hear from it");
    finds(
        &at,
        WARNED,
        &[("warn peers", &waits), ("warn disks", &format!("the disk of {name} is slow: the slowest flush"))],
    );
}
