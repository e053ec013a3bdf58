//! `leaseway check` finds what is wrong, and says that all is well when it is.

use std::{
    fs,
    io::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
};

use leaseway_tls::Files;
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{
    authority::{Authority, Valid},
    binary,
    config::{ConfigFile, Template},
    doorman::{Asks as _, Client},
    peers::Peers,
    preload,
    process::{Said, leaseway},
    server::Server,
    tls,
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

/// As `GRADE ABOUT: FOUND`.
fn verdicts(said: &Said) -> Vec<String> {
    let read: Value = serde_json::from_str(&said.stdout).unwrap();
    let text = |verdict: &Value, field: &str| verdict[field].as_str().unwrap().to_owned();
    let line = |verdict: &Value| {
        assert!(verdict["grade"] == "ok" || !text(verdict, "next").is_empty(), "what to do is said: {verdict}");
        format!("{} {}: {}", text(verdict, "grade"), text(verdict, "about"), text(verdict, "found"))
    };
    read["verdicts"].as_array().unwrap().iter().map(line).collect()
}

/// Soon it ends with this code, and says each of these: the start of a verdict, and a part of it.
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
fn a_configuration_that_was_refused_and_one_that_cut_too_much_are_found() {
    let peers = Peers::start(1, fair(100.0), &[]);
    let mut ann = Client::new(peers.doorman(0).clone(), "ann");
    assert_eq!(ann.ask("r", 90.0), 90.0);
    let cut = fair(40.0);
    peers.operated(0, &["config", "apply", cut.path()]);
    finds(&peers.endpoints()[0], WARNED, &[("warn resources", "r (90 of 40 held) is over-committed")]);
    let server = Server::with_config(&cut);
    cut.rewrite("resources: [{identifier_glob: a, capacity: many}]\n");
    server.signal(Signal::HUP);
    let refused = ("warn configuration", "refused the newest, version 1 stays in force");
    finds(&server.grpc().to_string(), WARNED, &[refused]);
}

#[test]
fn a_parent_that_is_gone_is_found_at_the_leaf_and_above_it() {
    let mut root = Peers::start(1, fair(100.0), &[]);
    let leaf = root.child("east", 1);
    let mut ann = Client::new(leaf.doorman(0).clone(), "ann");
    assert_eq!(ann.ask("r", 40.0), 40.0);
    let at = leaf.endpoints()[0].clone();
    finds(&at, WELL, &[("ok parent", "answers"), ("ok parent", "it is a root"), ("ok resources", "1 alive")]);
    root.kill(0);
    finds(&at, BAD, &[("bad servers", "no server answers"), ("bad parent", "has not answered for")]);
}

#[test]
fn a_clock_that_is_wrong_and_a_limit_that_is_nearly_reached_are_found() {
    let flags = ["--clock-offset-ms", "-60000", "--max-resources", "5"];
    let peers = Peers::start(1, fair(100.0), &flags);
    let mut ann = Client::new(peers.doorman(0).clone(), "ann");
    for resource in ["p", "q", "r", "s"] {
        ann.ask(resource, 1.0);
    }
    let limit = ("warn limits", "a has 4 of 5 resources, which --max-resources sets");
    finds(&peers.endpoints()[0], WARNED, &[("warn clocks", "behind this machine's"), limit]);
}

#[test]
fn a_resource_that_learns_is_found() {
    let server = Server::with_config(&ConfigFile::of(&[Template { learning: 3600, ..Template::fair("*", 100.0) }]));
    server.client("ann").ask("r", 40.0);
    finds(&server.grpc().to_string(), WARNED, &[("warn resources", "r (100 of 100 held) is learning")]);
}

#[test]
fn a_resource_without_a_template_is_found_and_one_that_is_not_divided_is_not_over_committed() {
    let file = ConfigFile::of(&[Template { kind: "STATIC", ..Template::fair("each", 10.0) }]);
    let server = Server::with_config(&file);
    for client in ["ann", "bob"] {
        assert_eq!(server.client(client).ask("each", 10.0), 10.0);
    }
    let at = server.grpc().to_string();
    finds(&at, WELL, &[("ok resources", "1 alive")]);
    server.client("ann").ask("other", 10.0);
    finds(&at, WARNED, &[("warn resources", "other (10 of 0 held) is not limited: no template matches")]);
}

#[test]
fn a_certificate_that_ends_soon_is_found() {
    let authority = Authority::new("ours");
    for (seconds, code, found) in [
        (20 * 3600 - 1800, BAD, ("bad certificates", "in 19 h")),
        (5 * 86_400 - 3600, WARNED, ("warn certificates", "in 4 days")),
    ] {
        let node = Files { ca: None, ..authority.issue("node", &["127.0.0.1"], Valid::Seconds(seconds)) };
        let flags = tls::flags(&node);
        let server = Server::with_flags(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        let ca = tls::text(&authority.path("ca.pem"));
        let said = check(&format!("https://{}", server.grpc()), &["--json", "--tls-ca", &ca]);
        assert_eq!(said.code, Some(code), "{said:?}");
        let verdicts = verdicts(&said);
        assert!(verdicts.iter().any(|line| line.starts_with(found.0) && line.contains(found.1)), "{verdicts:?}");
    }
}

#[test]
fn two_nodes_under_one_name_are_found_at_the_parent_and_at_the_one_that_is_not_served() {
    let root = Server::with_config(&fair(100.0));
    let parent = root.grpc().to_string();
    let leaf = |id: &str| Server::with_flags(&["--parent", &parent, "--node", "east", "--id", id]);
    let (first, second) = (leaf("first"), leaf("second"));
    assert_eq!(first.client("ann").ask("r", 40.0), 40.0);
    second.client("bob").ask("r", 40.0);
    finds(&parent, BAD, &[("bad children", "two nodes are called east: only one of them is served")]);
    let (at, above) = (second.grpc().to_string(), ("bad children", "two nodes are called east"));
    // That depends on whether it was ever answered.
    finds(&at, BAD, &[("", "another node has this name here"), above]);
}

/// The program as another version would be: it says `9.9.9` wherever this one says its own.
fn other_version(directory: &std::path::Path) -> String {
    let mut program = fs::read(binary::path()).unwrap();
    let (own, other) = (env!("CARGO_PKG_VERSION").as_bytes(), "9.9.9".as_bytes());
    assert_eq!(own.len(), other.len());
    for at in 0..program.len() - own.len() {
        if &program[at..at + own.len()] == own {
            program[at..at + own.len()].copy_from_slice(other);
        }
    }
    let path = directory.join("leaseway");
    fs::copy(binary::path(), &path).unwrap();
    fs::write(&path, program).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn servers_of_different_versions_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let program = other_version(directory.path());
    let mut peers = Peers::start(3, fair(100.0), &[]);
    let upgraded = peers.follower();
    peers.stop(upgraded);
    peers.run_by(upgraded, &[&program], &[], &[]);
    let name = ["a", "b", "c"][upgraded];
    finds(&peers.endpoints()[0], WARNED, &[("warn versions", &format!("9.9.9 ({name})"))]);
}

#[test]
fn a_disk_that_is_slow_and_the_peer_that_waits_for_it_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let (library, slow) = (preload::library(directory.path(), "slow_disk"), directory.path().join("slow"));
    let mut peers = Peers::start(3, fair(100.0), &[]);
    let other = peers.follower();
    peers.stop(other);
    let variables = [("LD_PRELOAD", library.as_str()), ("SLOW_DISK", slow.to_str().unwrap())];
    peers.run_by(other, &[binary::path().to_str().unwrap()], &variables, &[]);
    let (at, name) = (peers.endpoints().join(","), ["a", "b", "c"][other]);
    finds(&at, WELL, &[("ok peers", "3 of 3 take part")]);
    // Longer than all that follows: what is under way counts.
    fs::write(&slow, "120000").unwrap();
    // Its promise has to be stored.
    peers.client("ann").ask(&peers, "r", 1.0);
    let waits = format!("{name} runs, but the master does not hear from it");
    finds(&at, WARNED, &[("warn peers", &waits), ("warn disks", &format!("the disk of {name} is slow: it took"))]);
}

/// Runs what follows with a small file system of its own at the directory that `$0` names.
const SMALL_DISK: &str = "mount -t tmpfs -o size=40m tmpfs \"$0\" && exec \"$@\"";

#[test]
fn a_disk_that_is_nearly_full_is_found_and_one_that_is_full_has_ended_its_peer() {
    let may_mount = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("LEASEWAY_TEST_MOUNTS").is_none(), "nothing can be mounted here");
        std::io::stderr().write_all(b"SKIPPED: no file system of its own can be mounted here\n").unwrap();
        return;
    }
    let mut peers = Peers::start(3, fair(100.0), &[]);
    let small = peers.follower();
    peers.stop(small);
    let data = peers.data(small);
    let program = ["unshare", "-rm", "sh", "-c", SMALL_DISK, data.to_str().unwrap(), binary::path().to_str().unwrap()];
    // Its directory is empty again: it joins as a new one.
    peers.run_by(small, &program, &[], &[]);
    let (at, name) = (peers.endpoints().join(","), ["a", "b", "c"][small]);
    finds(&at, WARNED, &[("ok peers", "3 of 3"), ("warn disks", &format!("MiB are free where {name} has its data"))]);
    let inside = format!("/proc/{}/root{}", peers.process(small).id(), data.display());
    let full = fs::write(format!("{inside}/else"), vec![0; 64 << 20]);
    assert!(full.is_err(), "there is no room for all of it");
    let mut ann = Client::new(peers.doorman(peers.master()).clone(), "ann");
    let stops = (format!("{name} takes no part"), format!("{name} stores nothing any more"));
    let mut number = 0;
    eventually("the peer has no room for an entry", || {
        number += 1;
        ann.ask(&format!("r{number}"), 1.0);
        verdicts(&check(&at, &["--json"])).iter().any(|line| line.contains(&stops.0)).then_some(())
    });
    finds(&at, BAD, &[("bad peers", &stops.0), ("bad disks", &stops.1)]);
}
