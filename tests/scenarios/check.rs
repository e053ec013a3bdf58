//! `leaseway check` finds what is wrong, and says that all is well when it is.

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, Client},
    peers::Peers,
    process::{Said, leaseway},
    server::Server,
    wait::eventually,
};

fn node(peers: usize, capacity: f64) -> Peers {
    let template = Template { refresh: 1, ..Template::fair("*", capacity) };
    Peers::start(peers, ConfigFile::of(&[template]), &[])
}

/// Asks these servers.
fn check(of: &Peers, flags: &[&str]) -> Said {
    check_at(&of.endpoints().join(","), flags)
}

fn check_at(servers: &str, flags: &[&str]) -> Said {
    leaseway(&[&["check", "--server", servers], flags].concat())
}

/// Until it ends so; then its verdicts that are not ok, as `GRADE ABOUT: FOUND`.
#[track_caller]
fn verdicts(of: &Peers, code: i32) -> Vec<String> {
    verdicts_at(&of.endpoints().join(","), code)
}

#[track_caller]
fn verdicts_at(servers: &str, code: i32) -> Vec<String> {
    let found = eventually("check ends as it should", || {
        let said = check_at(servers, &["--json"]);
        (said.code == Some(code)).then_some(said)
    });
    let read: Value = serde_json::from_str(&found.stdout).unwrap();
    let all = read["verdicts"].as_array().unwrap().iter().filter(|verdict| verdict["grade"] != "ok");
    let text = |verdict: &Value, field: &str| verdict[field].as_str().unwrap().to_owned();
    all.map(|verdict| {
        assert!(!text(verdict, "next").is_empty(), "what to do is said: {verdict}");
        format!("{} {}: {}", text(verdict, "grade"), text(verdict, "about"), text(verdict, "found"))
    })
    .collect()
}

fn has(found: &[String], start: &str, part: &str) {
    assert!(found.iter().any(|line| line.starts_with(start) && line.contains(part)), "{start} {part}: {found:#?}");
}

#[test]
fn a_cluster_that_is_well_is_said_to_be_and_a_peer_that_dies_is_named() {
    let mut peers = node(3, 100.0);
    assert_eq!(verdicts(&peers, 0), [""; 0]);
    let said = check(&peers, &[]);
    assert!(said.stdout.contains("3 of 3 take part") && !said.stdout.contains("warn"), "{said:?}");
    assert_eq!(check(&peers, &["--quiet"]).stdout, "");
    let gone = peers.follower();
    peers.kill(gone);
    let name = ["a", "b", "c"][gone];
    has(&verdicts(&peers, 3), "warn peers", &format!("{name} is down or cut off"));
    let master = peers.master();
    let last = peers.all().find(|peer| ![gone, master].contains(peer)).unwrap();
    peers.kill(master);
    let found = verdicts(&peers, 4);
    has(&found, "bad master", "1 of 3 peers answer");
    has(&found, "bad peers", "there is no quorum");
    peers.kill(last);
    eventually("none answers", || (check(&peers, &["--timeout", "1"]).code == Some(69)).then_some(()));
}

#[test]
fn a_configuration_that_was_refused_and_one_that_cut_too_much_are_found() {
    let peers = node(1, 100.0);
    let mut ann = Client::new(peers.doorman(0).clone(), "ann");
    assert_eq!(ann.ask("r", 90.0), 90.0);
    let cut = ConfigFile::of(&[Template { refresh: 1, ..Template::fair("*", 40.0) }]);
    peers.operated(0, &["config", "apply", cut.path()]);
    let found = verdicts(&peers, 3);
    has(&found, "warn resources", "r (90 of 40 held) is over-committed");
    let server = Server::with_config(&cut);
    cut.rewrite("resources: [{identifier_glob: a, capacity: many}]\n");
    server.signal(rustix::process::Signal::HUP);
    has(
        &verdicts_at(&server.grpc().to_string(), 3),
        "warn configuration",
        "refused the newest, version 1 stays in force",
    );
}

#[test]
fn a_parent_that_is_gone_is_found_at_the_leaf_and_above_it() {
    let mut root = node(1, 100.0);
    let leaf = root.child("east", 1);
    let mut ann = Client::new(leaf.doorman(0).clone(), "ann");
    assert_eq!(ann.ask("r", 40.0), 40.0);
    assert_eq!(verdicts(&leaf, 0), [""; 0]);
    let both: Value = serde_json::from_str(&check(&leaf, &["-o", "json"]).stdout).unwrap();
    let of_root =
        both["verdicts"].as_array().unwrap().iter().any(|verdict| verdict["found"] == "it has none: it is a root");
    assert!(of_root, "{both}");
    root.kill(0);
    let found = verdicts(&leaf, 4);
    has(&found, "bad servers", "no server answers");
    eventually("the leaf says so, too", || {
        let found = verdicts(&leaf, 4);
        found.iter().any(|line| line.contains(" parent: ")).then_some(())
    });
}

#[test]
fn a_clock_that_is_wrong_and_a_limit_that_is_nearly_reached_are_found() {
    let flags = ["--clock-offset-ms", "-60000", "--max-resources", "5"];
    let template = Template { refresh: 1, ..Template::fair("*", 100.0) };
    let peers = Peers::start(1, ConfigFile::of(&[template]), &flags);
    let mut ann = Client::new(peers.doorman(0).clone(), "ann");
    for resource in ["p", "q", "r", "s"] {
        ann.ask(resource, 1.0);
    }
    let found = verdicts(&peers, 3);
    has(&found, "warn clocks", "behind this machine's");
    has(&found, "warn limits", "a has 4 of 5 resources, which --max-resources sets");
}
