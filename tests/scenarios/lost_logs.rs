//! Directories whose log was lost while the rest of them is there: they would pass for a first start, or vote for a
//! peer that knows less than they did.

use std::{fs, path::Path};

use rustix::process::Signal;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::Asks as _,
    http,
    peers::{Peers, granted},
    process::{Process, Said},
    server::{ANYWHERE, Server},
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

/// The only segment of a log.
fn segment(data: &Path) -> std::path::PathBuf {
    data.join("log/00000000000000000001.log")
}

fn assert_refused(said: &Said, words: &[&str]) {
    assert_ne!(said.code, Some(0), "{said:?}");
    for word in words {
        assert!(said.stderr.contains(word), "`{word}` is not in: {}", said.stderr);
    }
}

#[test]
fn a_lone_servers_directory_without_its_log_does_not_pass_for_a_first_start() {
    let config = config();
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let given = ["--config", config.path(), "--data", data.to_str().unwrap(), "--admin", ANYWHERE, "--bootstrap"];
    let server = Server::with_flags(&given);
    eventually("it is its own master", || (server.doorman().discovery().is_master == Some(true)).then_some(()));
    assert_eq!(server.client("alice").ask("r", 100.0), 100.0);
    server.signal(Signal::KILL);
    server.finish();
    let whole = fs::read(segment(&data)).unwrap();
    let start = || {
        let listen = ["serve", "--listen", ANYWHERE, "--http", ANYWHERE];
        Process::start(&[&listen[..], &given[..]].concat(), &[]).finish()
    };
    // The last promise.
    fs::write(segment(&data), &whole[..whole.len() - 1]).unwrap();
    assert_refused(&start(), &["this server has acknowledged everything up to entry", "--take-over"]);
    for kept in [&["identity", "vote", "floor"][..], &["identity", "vote"], &["identity", "floor"], &["identity"]] {
        empty(&data, kept);
        assert_refused(&start(), &["log", "--take-over"]);
    }
    // As it says.
    empty(&data, &[]);
    let flags = [&given[..6], &["--take-over"]].concat();
    let server = Server::with_flags(&flags);
    eventually("it is its own master", || (server.doorman().discovery().is_master == Some(true)).then_some(()));
    assert_eq!(server.client("bob").ask("r", 100.0), 0.0, "alice may have it all");
}

#[test]
fn a_peer_that_has_lost_its_log_gives_no_vote_to_one_that_knows_less() {
    let mut peers = Peers::start(3, config(), &[]);
    // One that knows nothing of what follows.
    let behind = peers.follower();
    peers.kill(behind);
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "r", 100.0), 100.0);
    let (master, other) = (peers.master(), 3 - behind - peers.master());
    peers.kill(master);
    peers.kill(other);
    empty(&peers.data(other).join("log"), &[]);
    peers.run(behind, &[]);
    let command = peers.command(other);
    let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
    let started = Process::start(&arguments, &[]);
    // Either it goes on, and makes the one that knows nothing the master; or it is refused.
    eventually("it is refused", || {
        let bob = granted(peers.client("bob").try_ask(peers.doorman(behind), "r", 100.0));
        assert_eq!(bob, None, "alice has it all");
        started.ended()
    });
    assert_refused(&started.finish(), &["the log is empty", "will join them as a new one"]);
    // With the one that knows they are a majority, and as it says, the third joins them.
    peers.run(master, &[]);
    assert_eq!(alice.ask(&peers, "r", 100.0), 100.0);
    let bob = granted(peers.client("bob").try_ask(peers.doorman(peers.master()), "r", 100.0));
    assert_eq!(bob.map(|lease| lease.capacity()), Some(0.0));
    fs::remove_dir_all(peers.data(other)).unwrap();
    peers.run(other, &[]);
    eventually("it counts", || (http::get(peers.http(other), "/readyz").status == 200).then_some(()));
}
