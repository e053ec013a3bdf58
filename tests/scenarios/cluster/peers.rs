//! Peers of a node: configurations, lost disks and restarts.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crate::harness::{
    config::{ConfigFile, Template, text},
    doorman::{Doorman, entry, request},
    http,
    peers::{self, Peers, granted},
    process::leaseway,
    server::ANYWHERE,
    wait::eventually,
};

fn fair(capacity: f64) -> ConfigFile {
    ConfigFile::of(&[Template::fair("*", capacity)])
}

/// For tests that change the configuration or lose every peer.
fn own_peers() -> Peers {
    Peers::start(3, fair(100.0), &[])
}

#[test]
fn a_configuration_applied_through_any_peer_reaches_all_and_survives_failover() {
    let second = fair(50.0);
    let mut peers = own_peers();
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "r", 1000.0), 100.0);
    let applied = peers.operated(peers.follower(), &["config", "apply", second.path(), "--yes"]);
    assert!(applied.contains("capacity 100 → 50") && applied.contains("version 2 is in force"), "{applied}");
    for peer in peers.all() {
        eventually("every peer has the new configuration", || {
            let shown = peers.operated(peer, &["config", "show"]);
            (shown == text(&[Template::fair("*", 50.0)])).then_some(())
        });
    }
    peers.kill(peers.master());
    assert_eq!(alice.ask(&peers, "r", 1000.0), 50.0);
    let history = peers.operated(peers.follower(), &["config", "history"]);
    assert!(history.contains(peers.config().path()) && history.contains(second.path()), "{history}");
    let rolled_back = peers.operated(peers.follower(), &["config", "rollback", "1", "--yes"]);
    assert!(rolled_back.contains("version 3 is in force"), "{rolled_back}");
    eventually("the first capacity is in force", || (alice.ask(&peers, "r", 1000.0) == 100.0).then_some(()));
}

#[test]
fn a_changed_configuration_file_has_no_effect_on_a_cluster() {
    let peers = own_peers();
    let master = peers.master();
    peers.config().rewrite(&text(&[Template::fair("*", 50.0)]));
    eventually("the log names the command", || peers.log(master).contains("leaseway config apply").then_some(()));
    assert_eq!(peers.client("alice").ask(&peers, "r", 1000.0), 100.0);
}

#[test]
fn a_rolling_restart_of_all_peers_loses_no_request() {
    let mut peers = peers::shared();
    let mut alice = peers.client("alice");
    for peer in peers.all() {
        alice.ask(&peers, "rolling", 40.0);
        let output = peers.stop(peer);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(alice.ask(&peers, "rolling", 40.0), 40.0);
        peers.run(peer, &[]);
    }
    assert_eq!(alice.ask(&peers, "rolling", 40.0), 40.0);
}

#[test]
fn a_wiped_peer_rejoins_under_a_new_identity_and_votes_once_caught_up() {
    let mut peers = own_peers();
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
    let wiped = peers.follower();
    peers.kill(wiped);
    std::fs::remove_dir_all(peers.data(wiped)).unwrap();
    peers.run(wiped, &[]);
    eventually("the peer votes again", || {
        let logs = peers.all().map(|peer| peers.log(peer));
        logs.into_iter().any(|log| log.contains("a peer has joined")).then_some(())
    });
    // The new master is elected with its vote, and knows the promises.
    peers.kill(peers.master());
    let bob = peers.client("bob").ask(&peers, "r", 1000.0);
    assert!(bob > 0.0 && bob <= 60.0, "bob got {bob}, and alice left 60");
}

#[test]
fn a_peer_is_not_removed_if_no_majority_would_remain() {
    let mut peers = peers::shared();
    let master = peers.master();
    let others: Vec<_> = peers.all().filter(|peer| *peer != master).collect();
    peers.kill(others[0]);
    eventually("the master reports the peer as unreachable", || {
        peers.operate(master, &["peers", "list"]).stdout.contains("unreachable").then_some(())
    });
    let output = peers.operate(master, &["peers", "remove", ["a", "b", "c"][others[1]], "--yes"]);
    assert!(output.code != Some(0) && output.stderr.contains("only 1 of the remaining peers answer"), "{output:?}");
    assert_eq!(peers.client("alice").ask(&peers, "not removed", 40.0), 40.0, "the master still grants leases");
}

#[test]
fn peers_that_lost_all_disks_answer_only_after_a_new_bootstrap() {
    let mut peers = own_peers();
    assert_eq!(peers.client("alice").ask(&peers, "r", 40.0), 40.0);
    for peer in peers.all() {
        peers.kill(peer);
        std::fs::remove_dir_all(peers.data(peer)).unwrap();
    }
    for peer in peers.all() {
        peers.run(peer, &[]);
    }
    for peer in peers.all() {
        eventually("the log says what to do", || {
            peers.log(peer).contains("restart every peer with --bootstrap").then_some(())
        });
        assert_eq!(peers.doorman(peer).discovery().is_master, Some(false));
        let answer = peers.client("alice").try_ask(peers.doorman(peer), "r", 40.0).unwrap();
        assert_eq!(answer.response, [], "no peer grants while promises are unknown");
    }
    for peer in peers.all() {
        peers.stop(peer);
        peers.run(peer, &["--bootstrap"]);
    }
    assert_eq!(peers.client("bob").ask(&peers, "r", 1000.0), 100.0);
}

#[test]
fn a_first_start_logs_which_peer_is_missing() {
    let mut peers = Peers::found(3, Some(fair(100.0)), &[], Vec::new());
    for peer in [0, 1] {
        peers.run(peer, &["--bootstrap"]);
    }
    for peer in [0, 1] {
        eventually("the log names the missing peer", || {
            peers.log(peer).contains("still waiting for c (").then_some(())
        });
    }
    peers.run(2, &["--bootstrap"]);
    assert_eq!(peers.client("alice").ask(&peers, "r", 40.0), 40.0);
}

#[test]
fn a_data_directory_is_locked_to_one_peer_and_one_process() {
    let mut peers = peers::shared();
    let follower = peers.follower();
    let mut command = peers.command(follower, &[0, 1, 2]);
    let mut refused = |changed: &[(&str, &str)], says: &str| {
        for (flag, value) in changed {
            let at = command.iter().position(|word| word == flag).expect("the command has this flag");
            command[at + 1] = (*value).to_owned();
        }
        let output = leaseway(&command.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.code != Some(0) && output.stderr.contains(says), "{output:?}");
    };
    refused(&["--listen", "--http", "--admin", "--peer-listen"].map(|flag| (flag, ANYWHERE)), "in use");
    peers.kill(follower);
    refused(&[("--id", ["b", "c", "a"][follower])], "belongs to");
}

#[test]
fn requests_succeed_while_masters_shut_down_in_turn() {
    let mut peers = peers::shared();
    let stop = AtomicBool::new(false);
    let endpoints: Vec<_> = peers.all().map(|peer| peers.doorman(peer).clone()).collect();
    let answered = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let ask = |doorman: &Doorman| granted(doorman.get(request("steady", vec![entry("steady", 1.0)])));
            let mut answered = 0;
            while !stop.load(Ordering::Relaxed) {
                eventually("a peer answers", || endpoints.iter().find_map(ask));
                answered += 1;
            }
            answered
        });
        for _ in 0..2 {
            let master = peers.master();
            peers.stop(master);
            peers.run(master, &[]);
            // Waits until the peer is ready, as an operator would.
            eventually("the peer is ready", || (http::get(peers.http(master), "/readyz").status == 200).then_some(()));
        }
        stop.store(true, Ordering::Relaxed);
        asking.join().unwrap()
    });
    assert!(answered > 10, "{answered}");
}
