//! Directories whose log was lost or replaced by an older copy.

use std::{fs, path::Path};

use crate::harness::{
    config::{ConfigFile, Template},
    http,
    peers::{Peers, granted},
    process::{Output, leaseway},
    wait::eventually,
};

fn config() -> ConfigFile {
    ConfigFile::of(&[Template { learning: 3600, ..Template::fair("*", 100.0) }])
}

fn empty(directory: &Path, but: &[&str]) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if !but.iter().any(|kept| entry.file_name() == *kept) {
            let path = entry.path();
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn assert_refused(output: &Output, words: &[&str]) {
    assert_ne!(output.code, Some(0), "{output:?}");
    for word in words {
        assert!(output.stderr.contains(word), "`{word}` is not in: {}", output.stderr);
    }
}

#[test]
fn an_outdated_data_directory_is_reported_by_log_page_and_check() {
    let mut peers = Peers::start(3, config(), &[]);
    let (master, victim) = (peers.master(), peers.follower());
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "first", 100.0), 100.0);
    peers.kill(victim);
    let kept = tempfile::tempdir().unwrap();
    copy(&peers.data(victim), kept.path());
    peers.run(victim, &[]);
    eventually("the peer is ready", || (http::get(peers.http(victim), "/readyz").status == 200).then_some(()));
    assert_eq!(alice.ask(&peers, "r", 100.0), 100.0);
    // Each second the master stores the acknowledged positions of the others, alternating between two records.
    for _ in 0..2 {
        let records = || fs::read(peers.data(master).join("high-water-mark")).unwrap();
        let before = records();
        let is_new = |record: std::ops::Range<usize>| records()[record.clone()] != before[record];
        eventually("both records are rewritten", || (is_new(0..512) && is_new(512..1024)).then_some(()));
    }
    for peer in peers.all() {
        peers.kill(peer);
    }
    fs::remove_dir_all(peers.data(victim)).unwrap();
    copy(kept.path(), &peers.data(victim));
    peers.run(victim, &[]);
    let name = ["a", "b", "c"][victim];
    for peer in peers.all().filter(|peer| *peer != victim) {
        peers.run(peer, &[]);
    }
    let what = format!("{name} has lost entries of the log that it had acknowledged");
    let says_error = |log: &str| log.lines().any(|line| line.contains("ERROR") && line.contains(&what));
    eventually("the log reports the loss", || says_error(&peers.log(master)).then_some(()));
    eventually("the page reports the loss", || http::get(peers.http(master), "/").body.contains(&what).then_some(()));
    let endpoints = peers.endpoints().join(",");
    let check = || leaseway(&["check", "--server", &endpoints]);
    eventually("check reports the loss and the remedy", || {
        let output = check();
        let told = output.stdout.contains(&what) && output.stdout.contains("empty its data directory");
        (output.code == Some(4) && told).then_some(())
    });
    // Apply the remedy.
    peers.kill(victim);
    fs::remove_dir_all(peers.data(victim)).unwrap();
    peers.run(victim, &[]);
    eventually("check reports no loss", || (!check().stdout.contains(&what)).then_some(()));
}

#[test]
fn a_peer_without_its_log_does_not_start_and_gives_no_vote() {
    let mut peers = Peers::start(3, config(), &[]);
    // This peer misses all later entries.
    let behind = peers.follower();
    peers.kill(behind);
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "r", 100.0), 100.0);
    let (master, other) = (peers.master(), 3 - behind - peers.master());
    peers.kill(master);
    peers.kill(other);
    empty(&peers.data(other).join("log"), &[]);
    peers.run(behind, &[]);
    let started = peers.launch(other, &[0, 1, 2], &[], &[]);
    // Its vote would make the outdated peer master.
    eventually("the peer refuses to start", || {
        let bob = granted(peers.client("bob").try_ask(peers.doorman(behind), "r", 100.0));
        assert_eq!(bob, None, "alice holds the whole capacity");
        started.ended()
    });
    assert_refused(&started.finish(), &["the log is empty", "joins them as a new peer"]);
    // With the former master there is a majority again. The third peer joins with an empty directory, as the error
    // advises.
    peers.run(master, &[]);
    assert_eq!(alice.ask(&peers, "r", 100.0), 100.0);
    let bob = granted(peers.client("bob").try_ask(peers.doorman(peers.master()), "r", 100.0));
    assert_eq!(bob.map(|lease| lease.capacity()), Some(0.0));
    fs::remove_dir_all(peers.data(other)).unwrap();
    peers.run(other, &[]);
    eventually("the peer is ready", || (http::get(peers.http(other), "/readyz").status == 200).then_some(()));
}
