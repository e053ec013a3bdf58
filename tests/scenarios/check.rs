//! `leaseway check` finds what is wrong, and says that all is well when it is.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, Client},
    peers::Peers,
    process::{Said, leaseway},
    server::Server,
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
    eventually(&format!("{code}, {expected:?}"), || {
        let said = check(servers, &["--json"]);
        let lines = if said.code == Some(code) { verdicts(&said) } else { return None };
        let is_said = |(start, part): &(&str, &str)| lines.iter().any(|l| l.starts_with(start) && l.contains(part));
        expected.iter().all(is_said).then_some(())
    });
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
