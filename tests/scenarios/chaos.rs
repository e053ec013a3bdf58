//! `leaseway-bench chaos` as a user runs it, on one server, and `chaos random` on three: that it measures, that its
//! auditor is awake, and that it leaves no process behind. How fast anything is, is nothing that a test can say.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{binary, seats::Seat, wait::eventually};

const CAPACITY: f64 = 500.0;

/// A run with one kill, and what it leaves: all that it has said, its report and its books.
struct Run {
    output: Output,
    directory: TempDir,
}

impl Run {
    fn of(server: &str, flags: &[&str]) -> Run {
        let _seat = Seat::take();
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (json, book, capacity) = (file("report.json"), file("book"), CAPACITY.to_string());
        let mut command = Command::new(binary::bench());
        command.args(["chaos", "--server", server, "--peers", "1", "--handover", "learning"]);
        command.args(["--clients", "20", "--rounds", "1", "--lease", "2", "--refresh", "1", "--capacity", &capacity]);
        command.args(["--down", "0.2", "--settle", "0.5", "--json", &json, "--book", &book]);
        // What the run keeps for itself is in the directory, too, so that its processes can be told from others.
        let output = command.args(flags).env("TMPDIR", directory.path()).output().unwrap();
        Run { output, directory }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn said(&self) -> String {
        [&self.output.stdout, &self.output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
    }

    fn report(&self) -> Value {
        serde_json::from_slice::<Value>(&fs::read(self.file("report.json")).unwrap()).unwrap()["report"].take()
    }

    fn assert_no_process_is_left(&self) {
        eventually("all processes are gone", || processes_naming(self.directory.path()).is_empty().then_some(()));
    }
}

fn leaseway() -> &'static str {
    binary::path().to_str().unwrap()
}

fn processes_naming(path: &Path) -> Vec<PathBuf> {
    let path = path.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let names = |process: &PathBuf| {
        fs::read(process.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(path))
    };
    processes.filter(names).collect()
}

fn audit(book: &Path, capacity: f64) -> bool {
    let mut command = Command::new(binary::bench());
    command.arg("audit").arg(book).args(["--capacity", &capacity.to_string()]);
    command.output().unwrap().status.success()
}

#[test]
fn a_server_that_is_killed_comes_back_and_books_stay_within_the_capacity() {
    let run = Run::of(leaseway(), &[]);
    assert!(run.output.status.success(), "{}", run.said());
    assert!(run.said().contains("never more than there is"), "{}", run.said());

    let report = run.report();
    let round = &report["rounds"][0];
    for measure in ["master_ms", "grant_ms", "newcomer_ms", "newcomer_served_ms", "all_ms", "gap_ms"] {
        // It was away for so long.
        assert!(round[measure].as_f64().is_some_and(|ms| ms >= 200.0), "{measure} in {round}");
    }
    assert_eq!((&round["hits_master"], &round["victims"][0]), (&true.into(), &"a".into()));
    let audits: Vec<_> = report["audits"].as_array().unwrap().iter().map(|audit| audit[0].as_str().unwrap()).collect();
    assert_eq!(audits, ["chaos", "plenty"]);
    let peak = report["audits"][0][1]["peak"].as_f64().unwrap();
    assert!(peak > CAPACITY * 0.9 && peak <= CAPACITY * (1.0 + 1e-9), "{peak} of {CAPACITY} could be used");

    assert!(audit(&run.file("book"), CAPACITY), "the auditor found too much in the written books");
    assert!(!audit(&run.file("book"), CAPACITY / 2.0), "the auditor sleeps");
    run.assert_no_process_is_left();
}

#[test]
fn an_auditor_that_takes_the_capacity_for_half_of_it_fails_the_run() {
    let half = (CAPACITY / 2.0).to_string();
    let run = Run::of(leaseway(), &["--audit-capacity", &half]);
    assert_eq!(run.output.status.code(), Some(1), "{}", run.said());
    assert!(run.said().contains("MORE THAN THERE IS") && run.said().contains("error: clients could use more than 250"));
    run.assert_no_process_is_left();
}

#[test]
fn a_server_that_does_not_come_back_fails_the_run_which_still_reports() {
    // The second process logs why it ends, and ends: no peer answers.
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("once");
    let text =
        "#!/bin/sh\n[ -e \"$0.ran\" ] && { echo enough >&2; exit 3; }\n: > \"$0.ran\"\nexec \"$LEASEWAY\" \"$@\"\n";
    fs::write(&script, text.replace("$LEASEWAY", leaseway())).unwrap();
    let server = format!("sh {}", script.to_str().unwrap());
    let run = Run::of(&server, &[]);
    assert_eq!(run.output.status.code(), Some(1), "{}", run.said());
    assert!(run.said().contains("enough") && run.said().contains("Books of all clients"), "{}", run.said());
    run.assert_no_process_is_left();
}

/// A short run in which the capacity changes, and clients come and crash.
fn random(directory: &Path, flags: &[&str]) -> Output {
    let _seat = Seat::take();
    let mut command = Command::new(binary::bench());
    command.args(["chaos", "random", "--server", leaseway(), "--clients", "9", "--originals", "3"]);
    command.args(["--patience", "120", "--timing", "several-sites"]);
    for usual in [["--only", "kill,capacity,herd,crash,lost-answers"], ["--for", "6"]] {
        command.args(if flags.contains(&usual[0]) { &[][..] } else { &usual });
    }
    command.args(flags).env("TMPDIR", directory).output().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

#[test]
fn what_goes_wrong_at_random_breaks_no_promise_and_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (json, html) = (file("random.json"), file("random.html"));
    let output = random(directory.path(), &["--json", &json, "--html", &html]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("never more than there is"), "{}", text(&output));
    let run = serde_json::from_slice::<Value>(&fs::read(json).unwrap()).unwrap()["runs"][0].take();
    assert!(run["happenings"].as_array().unwrap().iter().any(|one| one["whom"].is_string()), "{run}");
    assert!(run["audit"]["peak"].as_f64().is_some_and(|peak| peak > 0.0), "{run}");
    assert!(fs::read_to_string(html).unwrap().contains("<svg"));
    eventually("all processes are gone", || processes_naming(directory.path()).is_empty().then_some(()));
}

/// Over TLS, as all even seeds are.
#[test]
fn certificates_are_exchanged_at_random_and_no_promise_is_broken() {
    let directory = tempfile::tempdir().unwrap();
    let only = ["--only", "certificates,authority,kill"];
    let output = random(directory.path(), &[&["--seed", "2", "--for", "8"][..], &only].concat());
    let said = text(&output);
    assert!(output.status.success() && said.contains("never more than there is"), "{said}");
    assert!(["certificates", "authority"].iter().any(|mishap| said.contains(mishap)), "{said}");
    let plain = text(&random(directory.path(), &[&["--seed", "1", "--for", "60", "--show"][..], &only].concat()));
    assert!(plain.contains("kill") && !plain.contains("authority"), "{plain}");
}

/// In a network namespace of its own, where one can be made. Where `.ci/run` has found that it can, it has to be.
#[test]
fn packets_are_lost_and_overtaken_and_no_promise_is_broken() {
    let directory = tempfile::tempdir().unwrap();
    let only = ["--only", "loss,reordering,cut-off"];
    assert!(text(&random(directory.path(), &only)).contains("--only loss needs --namespace"));
    let output = random(directory.path(), &[&["--namespace", "--for", "10"][..], &only].concat());
    let said = text(&output);
    if said.contains("leave --namespace out") {
        assert!(std::env::var_os("LEASEWAY_TEST_NAMESPACES").is_none(), "{said}");
        io::stderr().write_all(format!("SKIPPED: {said}").as_bytes()).unwrap();
        return;
    }
    assert!(output.status.success() && said.contains("never more than there is"), "{said}");
    let again = said.split_once("The kernel sent ").and_then(|(_, rest)| rest.split_once(" segments again")).unwrap().0;
    assert!(again.parse::<u64>().unwrap() > 0, "{said}");
    eventually("all processes are gone", || processes_naming(directory.path()).is_empty().then_some(()));
}

#[test]
fn a_random_run_whose_auditor_is_misled_fails_and_says_how_to_repeat_it() {
    let directory = tempfile::tempdir().unwrap();
    let output = random(directory.path(), &["--audit-part", "0.1"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("more than there is of `chaos`") && said.contains("chaos random --seed 1 --shape three"),
        "{said}"
    );
    assert!(said.contains("requests too many of `asked/route="), "{said}");
}

#[test]
fn the_same_seed_is_the_same_schedule() {
    let directory = tempfile::tempdir().unwrap();
    let show = |seed: &str| text(&random(directory.path(), &["--show", "--seed", seed, "--for", "60"]));
    assert!(show("7").lines().count() > 10);
    assert_eq!(show("7"), show("7"));
    assert_ne!(show("7"), show("8"));
}

/// `failover`, in small.
#[test]
fn all_clients_of_a_lost_master_come_back_to_the_next() {
    let _seat = Seat::take();
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("failover.json");
    let mut command = Command::new(binary::bench());
    command.args(["failover", "--server", leaseway(), "--clients", "2000", "--seconds", "8", "--json"]);
    let output = command.arg(&json).env("TMPDIR", directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(report["back"], 2000, "{}", text(&output));
    let [believed, capacity] = ["believed", "capacity"].map(|field| report[field].as_f64().unwrap());
    assert!(believed > 0.0 && believed <= capacity * (1.0 + 1e-9), "{}", text(&output));
    // The loss is noticed, and the next master found.
    assert!(report["after"]["errors"].as_object().is_some_and(|errors| !errors.is_empty()), "{}", text(&output));
    assert!(report["after"]["silence_ms"].as_f64().is_some_and(|ms| ms >= 100.0), "{}", text(&output));
    eventually("all processes are gone", || processes_naming(directory.path()).is_empty().then_some(()));
}
