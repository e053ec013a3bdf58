//! `leaseway-bench hostile`, in small: no attack makes a well-behaved request fail, keeps newcomers out, or makes memory
//! grow beyond its budget. How long others wait is nothing that a test can show.

use std::{fs, process::Command};

use serde_json::Value;

use crate::harness::{binary, slots::ServerSlot};

/// Makes attacks, none of which may do harm. Returns what was measured of each.
fn attack(flags: &[&str]) -> Vec<Value> {
    let _slot = ServerSlot::take();
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("hostile.json");
    let mut command = Command::new(binary::bench());
    command.args(["hostile", "--server", binary::path().to_str().unwrap(), "--reps", "1", "--seconds", "0.5"]);
    command.args(["--rate", "100", "--clients", "2000", "--connections", "2"]);
    command.args(["--attack-rate", "1000", "--attack-connections", "1000", "--json"]).arg(&json);
    let output = command.args(flags).output().unwrap();
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat();
    assert!(output.status.success() && said.contains("No request failed, and no budget was passed."), "{said}");
    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let measured = report["attacks"].as_array().unwrap().clone();
    for attack in &measured {
        let pair = &attack["pairs"][0];
        // An attack goes on, or its connections are open.
        let descriptors = attack["descriptors"].as_u64().unwrap();
        assert!(pair["sent"]["acts"].as_u64().unwrap() > 0 || descriptors > 200, "{attack}");
        assert!(pair["undisturbed"]["granted"].as_u64().unwrap() > 0, "{attack}");
        assert!(pair["newcomers"]["came"].as_u64().unwrap() > 0, "{attack}");
        assert!(descriptors > 10, "{attack}");
    }
    measured
}

#[test]
fn attacks_do_no_harm() {
    let measured = attack(&[]);
    let sent = |name: &str, what: &str| {
        let attack = measured.iter().find(|measured| measured["attack"] == name).unwrap();
        attack["pairs"][0]["sent"][what].as_u64().unwrap()
    };
    for name in ["long-prefix", "malformed", "bad-tokens", "bad-jwts"] {
        assert!(sent(name, "refused") > 0, "{name}: {measured:?}");
    }
    for name in ["continuation", "hpack-bomb"] {
        assert!(sent(name, "ended") > 0, "{name}: {measured:?}");
    }
}

#[test]
fn attacks_over_tls_do_no_harm() {
    attack(&["--tls", "--only", "silent,half-preface,handshakes,unread-status,rapid-reset,scrapes"]);
}
