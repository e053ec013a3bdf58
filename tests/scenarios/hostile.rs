//! `leaseway-bench hostile` as a user runs it, in small: no attack makes a well-behaved request fail or memory grow
//! beyond its budget, and it is noticed when one does. How long others wait is nothing that a test can say.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;

use crate::harness::{binary, seats::Seat};

const CALLS: &str = "unread-status,unread-capacity,dribble,endless-bodies,long-prefix,malformed,bad-tokens,bad-jwts";
const CONNECTIONS: &str = "silent,half-preface,half-headers,handshakes,slow-pages,scrapes";
const FRAMES: &str = "rapid-reset,continuation,hpack-bomb,ping,ping-unread,settings,priority,empty-data";
const TABLES: &str = "holders,resources,pool-places,watchers";

/// Attacks that TLS makes others.
const OVER_TLS: &str = "silent,half-preface,handshakes,unread-status,rapid-reset,scrapes";

fn bench(server: &str, flags: &[&str]) -> Output {
    let small = ["--reps", "1", "--seconds", "0.5", "--rate", "100", "--clients", "2000", "--connections", "2"];
    let attack = ["--attack-rate", "1000", "--attack-connections", "1000"];
    let mut command = Command::new(binary::bench());
    command.args(["hostile", "--server", server]).args(small).args(attack).args(flags);
    command.output().unwrap()
}

/// `overload`, in small: those that are served already are served on. How soon all is as it was is nothing that a test
/// can say.
#[test]
fn too_many_and_too_much_make_no_request_of_a_steady_client_fail() {
    let _seat = Seat::take();
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("overload.json");
    let mut command = Command::new(binary::bench());
    command.args(["overload", "--server", leaseway(), "--seconds", "1", "--rate", "100", "--clients", "3000"]);
    let output = command.args(["--only", "requests,newcomers,entries", "--json"]).arg(&json).output().unwrap();
    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 3, "{}", said(&output));
    for case in cases {
        for time in ["before", "meanwhile", "after"] {
            let steady = &case[time];
            // Meanwhile a second may be too short for an answer on a slow machine.
            let served = time == "meanwhile" || steady["granted"].as_u64().is_some_and(|granted| granted > 0);
            assert!(served, "{time}: {}", said(&output));
            assert_eq!(steady["errors"].as_object().map(|errors| errors.len()), Some(0), "{time}: {}", said(&output));
        }
    }
    // In a second, a slow machine may answer none of one kind.
    let rush = cases.iter().filter_map(|case| case["rush"]["granted"].as_u64());
    assert!(rush.sum::<u64>() > 0, "{}", said(&output));
}

fn leaseway() -> &'static str {
    binary::path().to_str().unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

/// What was measured of each of these attacks, none of which does harm.
fn harmless(attacks: &str, flags: &[&str]) -> Vec<Value> {
    let _seat = Seat::take();
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("hostile.json");
    let flags = [&["--only", attacks, "--json", json.to_str().unwrap()], flags].concat();
    let output = bench(leaseway(), &flags);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("No request failed, and no budget was passed."), "{}", said(&output));
    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let measured = report["attacks"].as_array().unwrap().clone();
    let names: Vec<&str> = measured.iter().map(|attack| attack["attack"].as_str().unwrap()).collect();
    assert_eq!(names, attacks.split(',').collect::<Vec<_>>());
    for attack in &measured {
        let pair = &attack["pairs"][0];
        // It goes on, or its connections are there.
        let descriptors = attack["descriptors"].as_u64().unwrap();
        assert!(pair["sent"]["acts"].as_u64().unwrap() > 0 || descriptors > 200, "{attack}");
        assert!(pair["undisturbed"]["granted"].as_u64().unwrap() > 0, "{attack}");
        assert!(pair["newcomers"]["came"].as_u64().unwrap() > 0, "{attack}");
        assert!(descriptors > 10, "{attack}");
    }
    measured
}

fn sent<'a>(measured: &'a [Value], attack: &str) -> &'a Value {
    &measured.iter().find(|measured| measured["attack"] == attack).unwrap()["pairs"][0]["sent"]
}

#[test]
fn calls_that_mean_harm_do_none() {
    let measured = harmless(CALLS, &[]);
    for attack in ["long-prefix", "malformed", "bad-tokens", "bad-jwts"] {
        assert!(sent(&measured, attack)["refused"].as_u64().unwrap() > 0, "{attack}: {measured:?}");
    }
}

#[test]
fn connections_that_mean_harm_do_none() {
    harmless(CONNECTIONS, &[]);
}

#[test]
fn frames_that_mean_harm_do_none() {
    let measured = harmless(FRAMES, &[]);
    for attack in ["continuation", "hpack-bomb"] {
        assert!(sent(&measured, attack)["ended"].as_u64().unwrap() > 0, "{attack}: {measured:?}");
    }
}

#[test]
fn names_that_mean_harm_do_none() {
    harmless(TABLES, &[]);
}

#[test]
fn over_tls_strangers_do_no_harm_either() {
    harmless(OVER_TLS, &["--tls"]);
}

#[test]
fn each_attack_is_made_by_a_test() {
    let output = bench(leaseway(), &["--only", "none"]);
    let said = said(&output);
    let (_, named) = said.split_once("[possible values: ").unwrap();
    let mut all: Vec<&str> = named.split_once(']').unwrap().0.split(", ").collect();
    let mut made: Vec<&str> = [CALLS, CONNECTIONS, FRAMES, TABLES].iter().flat_map(|list| list.split(',')).collect();
    all.sort_unstable();
    made.sort_unstable();
    assert_eq!(made, all);
}

#[test]
fn memory_beyond_its_budget_fails_the_run() {
    let _seat = Seat::take();
    let output = bench(leaseway(), &["--only", "resources", "--budget", "0"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("resources: the server's memory grew by"), "{}", said(&output));
}

#[test]
fn newcomers_that_are_refused_fail_the_run() {
    let _seat = Seat::take();
    // One address may have it all.
    let server = format!("{} serve --max-resources 200 --address-share 100", leaseway());
    let output = bench(&server, &["--only", "resources"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("newcomers failed: no lease"), "{}", said(&output));
    assert!(said(&output).contains("error: 1 attacks did harm"), "{}", said(&output));
}
