//! Membership: data directories that contradict `--peers`, growth from one peer to several, and ineligible peers.

use std::fs;

use serde_json::Value;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, Client, entry, request},
    http,
    peers::{self, NAMES, Peers, channel},
    process::leaseway,
    prometheus::Scrape,
    wait::{block_on, eventually},
};

const ABC: [usize; 3] = [0, 1, 2];
const C: usize = 2;

/// Peers that are not started.
fn peers(number: usize) -> Peers {
    Peers::found(number, Some(ConfigFile::of(&[Template::fair("*", 100.0)])), &[], Vec::new())
}

/// Bootstraps a, b and c.
fn found(peers: &mut Peers) {
    ABC.iter().for_each(|peer| peers.run_naming(*peer, &ABC, &["--bootstrap"]));
    peers.master();
}

/// Starts a peer that must refuse to start, and returns its error.
#[track_caller]
fn refused(peers: &Peers, peer: usize, others: &[usize], flags: &[&str]) -> String {
    let output = peers.launch(peer, others, &[], flags).finish();
    assert_eq!(output.code, Some(78), "{output:?}");
    output.stderr
}

fn client(peers: &Peers, id: &str, at: usize) -> Client {
    Client::new(peers.doorman(at).clone(), id)
}

fn is_added(peers: &Peers, at: usize, new: usize) {
    eventually("the peer is added", || {
        let added = peers.operate(at, &["peers", "add", NAMES[new], &peers.peer_address(new)]);
        (added.code == Some(0)).then_some(())
    });
}

/// Waits until health, pages, metrics, status and log all report that the peer is ineligible for this reason, in texts
/// that contain `says`.
fn is_ineligible(peers: &Peers, peer: usize, reason: &str, says: &str) {
    let http = peers.http(peer);
    let health = eventually("the peer is unhealthy", || {
        let health = http::get(http, "/healthz");
        (health.status != 200 && health.body.contains(says)).then_some(health)
    });
    assert_eq!(health.status, 503, "{health:?}");
    let ready = http::get(http, "/readyz");
    assert!(ready.status == 503 && ready.body.contains(says), "{ready:?}");
    let metrics = Scrape::parse(&http::get(http, "/metrics").body);
    assert_eq!(metrics.find("leaseway_peer_ineligible", "reason", reason), Some(1.0));
    let reasons = metrics.series("leaseway_peer_ineligible").iter().filter(|series| series.value != 0.0).count();
    assert_eq!(reasons, 1, "exactly one reason is set");
    assert!(http::get(http, "/").body.contains(says));
    let mut health = HealthClient::new(channel(peers.grpc(peer)));
    eventually("gRPC health reports it", || {
        let health = block_on(health.check(HealthCheckRequest::default())).ok()?.into_inner();
        (health.status() == ServingStatus::NotServing).then_some(())
    });
    let status = leaseway(&["status", "--here", "--server", &peers.grpc(peer).to_string()]);
    assert!(status.stdout.contains(says), "{status:?}");
    assert_eq!(peers.status(peer, &[])["ineligible"]["reason"], Value::from(reason));
    let log = peers.log(peer);
    let errors = log.lines().filter(|line| line.contains("ERROR")).filter(|line| line.contains(says));
    assert_eq!(errors.count(), 1, "the error is logged once: {log}");
}

fn takes_part(peers: &Peers, peer: usize) {
    eventually("the peer is healthy and ready", || {
        let well = |path| http::get(peers.http(peer), path).status == 200;
        (well("/healthz") && well("/readyz")).then_some(())
    });
    let metrics = Scrape::parse(&http::get(peers.http(peer), "/metrics").body);
    let series = metrics.series("leaseway_peer_ineligible");
    assert!(series.len() == 4 && series.iter().all(|series| series.value == 0.0));
}

#[test]
fn a_lone_servers_directory_is_refused_in_a_larger_cluster() {
    let mut peers = peers(3);
    peers.run_naming(C, &[], &["--bootstrap"]);
    peers.master();
    assert_eq!(client(&peers, "alice", C).ask("r", 1000.0), 100.0);
    peers.kill(C);
    let data = peers.data(C);
    for flags in [&[][..], &["--bootstrap"]] {
        let error = refused(&peers, C, &ABC, flags);
        let alone = format!("--peers {}", peers.named(C, &[C]));
        for part in [data.to_str().unwrap(), "whose only peer is c", "a, b", "empty", &alone, "leaseway peers add"] {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    }
    // The directory still works for a lone server, with or without `--peers`.
    for others in [&[C][..], &[]] {
        peers.run_naming(C, others, &[]);
        peers.kill(C);
    }
    // With an empty directory the peer can join the others.
    fs::remove_dir_all(data).unwrap();
    found(&mut peers);
}

#[test]
fn a_peers_directory_is_refused_alone_or_in_another_cluster() {
    let mut peers = peers(5);
    found(&mut peers);
    ABC.iter().for_each(|peer| peers.kill(*peer));
    for (others, parts) in [(&[][..], ["a, b, c", "without --peers"]), (&[0, 3, 4], ["d, e", "empty"])] {
        let error = refused(&peers, 0, others, &[]);
        for part in [&parts[..], &["--peers a="]].concat() {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    }
}

#[test]
fn a_peer_that_missed_membership_changes_starts_and_warns() {
    let mut peers = peers(4);
    found(&mut peers);
    peers.kill(0);
    let master = peers.master();
    peers.run_naming(3, &[1, 2, 3], &[]);
    is_added(&peers, master, 3);
    peers.run_naming(0, &[0, 1, 3], &[]);
    let log = peers.log(0);
    let warned = log.lines().find(|line| line.contains("WARN") && line.contains("--peers")).expect("the peer warns");
    assert!(warned.contains("a, b, c") && warned.contains("a, b, d"), "{warned}");
    takes_part(&peers, 0);
    // `--peers` may name only the peer itself, as on a lone server that has grown: the directory has the others.
    peers.kill(0);
    peers.run_naming(0, &[0], &[]);
    takes_part(&peers, 0);
}

#[test]
fn a_lone_server_grows_to_three_peers_without_losing_promises() {
    let mut peers = peers(3);
    peers.run_naming(0, &[], &["--bootstrap"]);
    peers.master();
    let mut alice = client(&peers, "alice", 0);
    assert_eq!(alice.ask("r", 40.0), 40.0);
    // Without `--peers` other peers cannot reach the server. The error says what to change.
    let output = peers.operate(0, &["peers", "add", "b", &peers.peer_address(1)]);
    assert_ne!(output.code, Some(0), "{output:?}");
    for part in ["--id a", "--peers a=HOST:PORT", "same --data"] {
        assert!(output.stderr.contains(part), "`{part}` is not in: {output:?}");
    }
    peers.kill(0);
    peers.run_naming(0, &[0], &[]);
    peers.master();
    alice.moves_to(peers.doorman(0).clone());
    assert_eq!(alice.ask("r", 40.0), 40.0);
    for new in [1, 2] {
        peers.run_naming(new, &ABC, &[]);
        is_added(&peers, 0, new);
    }
    let list = peers.operated(0, &["peers", "list"]);
    assert_eq!(list.matches("follower").count(), 2, "{list}");
    // The first peer is lost. The others know its promises.
    peers.kill(0);
    let master = peers.master();
    let bob = client(&peers, "bob", master).ask("r", 1000.0);
    assert!(bob > 0.0 && bob <= 60.0, "bob got {bob}, and alice left 60");
    alice.moves_to(peers.doorman(master).clone());
    assert_eq!(alice.ask("r", 40.0), 40.0);
}

#[test]
fn a_removed_peer_reports_that_it_is_ineligible() {
    let mut peers = peers(3);
    found(&mut peers);
    let (master, removed) = (peers.master(), peers.follower());
    takes_part(&peers, removed);
    eventually("the peer is removed", || {
        (peers.operate(master, &["peers", "remove", NAMES[removed], "--yes"]).code == Some(0)).then_some(())
    });
    is_ineligible(&peers, removed, "removed", "was removed");
    peers.kill(removed);
    peers.run(removed, &[]);
    is_ineligible(&peers, removed, "removed", "was removed");
    // With an empty directory the peer can be added again.
    peers.kill(removed);
    fs::remove_dir_all(peers.data(removed)).unwrap();
    peers.run(removed, &[]);
    is_added(&peers, master, removed);
    takes_part(&peers, removed);
}

#[test]
fn a_replaced_peer_reports_that_it_is_ineligible() {
    let mut peers = peers(3);
    found(&mut peers);
    peers.kill(C);
    let (data, old) = (peers.data(C), peers.data(C).with_extension("old"));
    fs::rename(&data, &old).unwrap();
    peers.run(C, &[]);
    eventually("the peer votes again", || {
        [0, 1].iter().any(|peer| peers.log(*peer).contains("a peer has joined")).then_some(())
    });
    peers.kill(C);
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&old, &data).unwrap();
    peers.run(C, &[]);
    is_ineligible(&peers, C, "replaced", "a newer data directory");
}

#[test]
fn a_peer_with_a_failed_disk_reports_that_it_is_ineligible() {
    let mut peers = peers(3);
    found(&mut peers);
    let (master, failing) = (peers.master(), peers.follower());
    takes_part(&peers, failing);
    // The peer cannot write its vote, because this path is a directory now.
    fs::create_dir(peers.data(failing).join("vote.new")).unwrap();
    peers.kill(master);
    is_ineligible(&peers, failing, "failed", "vote.new");
}

#[test]
fn a_restarted_peer_knows_the_master_at_its_first_request() {
    let mut peers = peers::shared();
    let master = peers.master();
    let expected = Some(peers.grpc(master).to_string());
    let ask = |peers: &Peers, peer: usize| peers.doorman(peer).get(request("alice", vec![entry("restarted", 1.0)]));
    for peer in ABC.into_iter().filter(|peer| *peer != master) {
        peers.kill(peer);
        peers.run(peer, &[]);
        let got = ask(&peers, peer).unwrap();
        assert_eq!((got.response.len(), got.mastership.unwrap().master_address), (0, expected.clone()), "{peer}");
    }
    // The other peers may still name the restarted master as master. It must not redirect clients to itself.
    peers.kill(master);
    peers.run(master, &[]);
    eventually("the peer grants a lease or names another master", || {
        let named = ask(&peers, master).unwrap().mastership.map(|mastership| mastership.master_address);
        assert_ne!(named, Some(expected.clone()));
        (named != Some(None)).then_some(())
    });
}
