//! Short runs of `leaseway-bench chaos`. Also checks the auditor: it must fail if it assumes too small a capacity.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use crate::harness::{binary, slots::ServerSlot, wait::eventually};

fn chaos(directory: &Path, flags: &[&str]) -> Output {
    let _slot = ServerSlot::take();
    let mut command = Command::new(binary::bench());
    command.args(["chaos", "--server", binary::path().to_str().unwrap(), "--clients", "9", "--legacy-clients", "3"]);
    command.args(["--patience", "120", "--timing", "several-sites"]);
    command.args(flags).env("TMPDIR", directory).output().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

/// Processes whose command line names files in this directory.
fn processes_naming(directory: &Path) -> Vec<String> {
    let command_lines = fs::read_dir("/proc").into_iter().flatten().flatten();
    let command_lines = command_lines.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
    command_lines.filter(|line| line.contains(directory.to_str().unwrap())).collect()
}

/// Even seeds use TLS.
#[test]
fn no_promise_is_broken() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("report.json");
    let only = "kill,pause,cut-off,capacity,herd,crash,lost-answers,certificates,authority";
    let flags = ["--seed", "2", "--for", "10", "--only", only, "--json", json.to_str().unwrap()];
    let output = chaos(directory.path(), &flags);
    let log = text(&output);
    assert!(output.status.success() && log.contains("no promise was broken"), "{log}");
    let run = serde_json::from_slice::<Value>(&fs::read(json).unwrap()).unwrap()["runs"][0].take();
    assert!(run["faults"].as_array().unwrap().iter().any(|fault| fault["whom"].is_string()), "{run}");
    assert!(run["shared"]["peak"].as_f64().is_some_and(|peak| peak > 0.0), "{run}");
    eventually("all processes are gone", || processes_naming(directory.path()).is_empty().then_some(()));
}

#[test]
fn no_promise_is_broken_in_a_tree_whose_masters_are_killed() {
    let directory = tempfile::tempdir().unwrap();
    let output = chaos(directory.path(), &["--shape", "tree", "--for", "8", "--only", "kill,pause,lost-parent"]);
    let log = text(&output);
    assert!(output.status.success() && log.contains("no promise was broken"), "{log}");
}

#[test]
fn an_auditor_that_assumes_too_little_capacity_fails_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--for", "4", "--only", "kill,capacity,herd,crash,lost-answers", "--audit-part", "0.1"];
    let output = chaos(directory.path(), &flags);
    let log = text(&output);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("more than the capacity of `chaos`") && log.contains("chaos --seed 1 --shape three"), "{log}");
    assert!(log.contains("requests too many passed for `asked/route="), "{log}");
}

/// Runs in a network namespace.
#[test]
#[cfg_attr(not(namespaces), ignore = "needs LEASEWAY_TEST_NAMESPACES")]
fn no_promise_is_broken_when_packets_are_lost_and_reordered() {
    let directory = tempfile::tempdir().unwrap();
    let output = chaos(directory.path(), &["--namespace", "--for", "6", "--only", "loss,reordering,cut-off"]);
    let log = text(&output);
    assert!(output.status.success() && log.contains("no promise was broken"), "{log}");
    let again =
        log.split_once("The kernel retransmitted ").and_then(|(_, rest)| rest.split_once(" segments")).unwrap().0;
    assert!(again.parse::<u64>().unwrap() > 0, "{log}");
    eventually("all processes are gone", || processes_naming(directory.path()).is_empty().then_some(()));
}
