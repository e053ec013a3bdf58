//! `compare` as a user runs it: real processes, a table, a file, and nothing left behind. No word about speed.

use std::{
    fs,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

const BENCH: &str = env!("CARGO_BIN_EXE_leaseway-bench");

fn compare(a: &str, seconds: &str, flags: &[&str]) -> Command {
    let b = format!("{BENCH} ceiling --threads 1 --listen 127.0.0.1:{{port}}");
    let mut command = Command::new(BENCH);
    command.args(["compare", "--a", a, "--b", &b, "--seconds", seconds, "--warmup", "0.05", "--load", "1x2"]);
    command.args(flags);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Processes whose command line contains `word`, which no other process should.
fn running(word: &str) -> usize {
    let processes = fs::read_dir("/proc").expect("only Linux is tested").flatten();
    processes
        .filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|line| text(&line).contains(word)))
        .count()
}

#[test]
fn two_servers_are_compared_in_a_table_and_a_file() {
    let a = format!("{BENCH} ceiling --runtime multi-thread --threads 2 --listen 127.0.0.1:{{port}}");
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("result.json");
    let flags = ["--reps", "2", "--clients", "1,20", "--json", json.to_str().unwrap()];
    let Output { status, stdout, stderr } = compare(&a, "0.1", &flags).output().unwrap();
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    assert!(status.success(), "{stdout}\n{stderr}");
    assert!(stderr.contains("8 runs, about 1 s"), "{stderr}");
    assert_eq!(stderr.matches("note: 2 requests in flight from 1 clients").count(), 1, "{stderr}");
    assert_eq!(stdout.matches("| A/B ").count(), 2, "{stdout}");

    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    for case in report["cases"].as_array().unwrap() {
        assert_eq!(case["runs"].as_array().unwrap().len(), 2);
        assert!(case["a"]["requests_per_second"]["min"].as_f64().unwrap() > 0.0, "{case}");
        assert_eq!((&case["a"]["errors"], &case["b"]["errors"]), (&0.into(), &0.into()), "{case}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_anything_is_measured() {
    let a = format!("{BENCH} ceiling --listen 127.0.0.1:{{port}}");
    let Output { status, stderr, .. } = compare(&a, "0.1", &["--json", "/nowhere/at/all.json"]).output().unwrap();
    let stderr = text(&stderr);
    assert!(!status.success() && stderr.contains("cannot write /nowhere/at/all.json"), "{stderr}");
    assert!(!stderr.contains("repetitions"), "{stderr}");
}

#[test]
fn a_server_that_does_not_start_is_quoted() {
    let Output { status, stderr, .. } =
        compare("sh -c 'echo port {port} is haunted; exit 7'", "0.1", &[]).output().unwrap();
    let stderr = text(&stderr);
    assert!(!status.success() && stderr.contains("exit status: 7") && stderr.contains("is haunted"), "{stderr}");
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn servers_end_when_the_comparison_is_interrupted() {
    // Written as no other process has it, to find the server among all processes; the comparison has it within a word.
    const ODD: &str = "\u{0}0013\u{0}";
    let a = format!("{BENCH} ceiling --threads 0013 --listen 127.0.0.1:{{port}}");
    // Were it deaf to the signal, it would end long after the deadline, and this test fail.
    let mut child = compare(&a, "300", &["--reps", "1", "--clients", "1"]).spawn().unwrap();
    wait_until("a server runs", || running(ODD) == 1);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut ended = None;
    wait_until("the comparison ends", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert!(!ended.unwrap().success());
    wait_until("no server runs", || running(ODD) == 0);
}
