//! A short run of `leaseway-bench hostile`: attacks harm no well-behaved client.

use std::{fs, process::Command};

use serde_json::Value;

use crate::harness::{binary, slots::ServerSlot};

#[test]
fn attacks_harm_no_well_behaved_client() {
    let _slot = ServerSlot::take();
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("report.json");
    let attacks = ["rapid-reset", "malformed", "bad-tokens"];
    let output = Command::new(binary::bench())
        .args(["hostile", "--server", binary::path().to_str().unwrap(), "--only", &attacks.join(",")])
        .args(["--reps", "1", "--seconds", "1", "--rate", "200", "--attack-rate", "1000"])
        .args(["--json", json.to_str().unwrap()])
        .output()
        .unwrap();
    let log = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat();
    assert!(output.status.success() && log.contains("No request failed, and no memory budget was exceeded."), "{log}");
    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(report["attacks"].as_array().map(Vec::len), Some(attacks.len()), "{report}");
    for attack in report["attacks"].as_array().unwrap() {
        assert!(attack["pairs"][0]["sent"]["acts"].as_u64().unwrap() > 0, "the attack ran: {attack}");
    }
}
