//! `leaseway check` finds problems of real clusters. Unit tests of the server cover each kind of problem.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    foreign,
    peers::Peers,
    process::{Output, leaseway},
    wait::eventually,
};

const WELL: i32 = 0;
const WARNED: i32 = 3;
const BAD: i32 = 4;

fn fair(capacity: f64) -> ConfigFile {
    ConfigFile::of(&[Template { refresh: 1, ..Template::fair("*", capacity) }])
}

fn check(servers: &str, flags: &[&str]) -> Output {
    leaseway(&[&["check", "--server", servers], flags].concat())
}

/// The checks as `SEVERITY SUBJECT: MESSAGE`.
fn checks(output: &Output) -> Vec<String> {
    let read: Value = serde_json::from_str(&output.stdout).unwrap();
    let text = |verdict: &Value, field: &str| verdict[field].as_str().unwrap().to_owned();
    let line = |verdict: &Value| {
        assert!(
            verdict["severity"] == "ok" || !text(verdict, "remedy").is_empty(),
            "every problem has a remedy: {verdict}"
        );
        format!("{} {}: {}", text(verdict, "severity"), text(verdict, "subject"), text(verdict, "message"))
    };
    read["checks"].as_array().unwrap().iter().map(line).collect()
}

/// Waits for this exit code with these checks. Each is given as prefix and substring.
#[track_caller]
fn finds(servers: &str, code: i32, expected: &[(&str, &str)]) {
    let mut last = None;
    let found = catch_unwind(AssertUnwindSafe(|| {
        eventually(&format!("{code}, {expected:?}"), || {
            let output = last.insert(check(servers, &["--json"]));
            let lines = if output.code == Some(code) { checks(output) } else { return None };
            let is_said = |(start, part): &(&str, &str)| lines.iter().any(|l| l.starts_with(start) && l.contains(part));
            expected.iter().all(is_said).then_some(())
        });
    }));
    assert!(found.is_ok(), "expected {code}, {expected:?}; got {last:?}");
}

#[test]
fn check_reports_a_healthy_cluster_and_names_a_dead_peer() {
    let mut peers = Peers::start(3, fair(100.0), &[]);
    let first = peers.endpoints()[0].clone();
    finds(&first, WELL, &[("ok peers", "3 of 3 peers are up"), ("ok clocks", "3 agree")]);
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
fn check_finds_a_slow_disk_and_its_peer() {
    let directory = tempfile::tempdir().unwrap();
    let (library, slow) = (foreign::preload_library(directory.path(), "slow_disk"), directory.path().join("slow"));
    let mut peers = Peers::start(3, fair(100.0), &[]);
    let other = peers.follower();
    peers.stop(other);
    let variables = [("LD_PRELOAD", library.as_str()), ("SLOW_DISK", slow.to_str().unwrap())];
    peers.run_within(other, &variables);
    let (at, name) = (peers.endpoints().join(","), ["a", "b", "c"][other]);
    finds(&at, WELL, &[("ok peers", "3 of 3 peers are up")]);
    // The delay outlasts the test.
    fs::write(&slow, "120000").unwrap();
    // A new lease needs a promise, so the peer must write.
    peers.client("ann").ask(&peers, "r", 1.0);
    let waits = format!("{name} runs, but the master does not hear from it");
    finds(
        &at,
        WARNED,
        &[("warn peers", &waits), ("warn disks", &format!("the disk of {name} is slow: the slowest flush"))],
    );
}
