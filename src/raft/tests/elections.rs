//! Elections, pre-votes, leadership transfers, and the state of a new master.
//!
//! Tests of pre-votes check at the end that a master lease still holds, because a lease that has lapsed never holds
//! again.

use std::time::Duration;

use leaseway_proto::peer::{PeerInfo, PeerRequest};
use tonic::Code;

use crate::{
    election::master_lease::{MasterLease, Mastership},
    handle::{peer::StateOrigin, start},
    log::{LogId, codec, command::ProposeError},
    membership::members::ChangeError,
    settings::{Settings, timing::Timing},
    tests::harness::{
        cluster::{Cluster, SECRET, configuration, lone_master, set_text, texts, timing, until},
        lease_watcher::LeaseWatcher,
        log_id,
        requests::{ask, identity, peer_info},
    },
    transport::Method,
};

#[tokio::test]
async fn the_successor_of_a_dead_master_has_every_acknowledged_command() {
    let mut cluster = Cluster::three().await;
    let (first, lease) = cluster.master().await;
    for text in ["one", "two", "three"] {
        cluster.peer(&first).propose(&lease, vec![set_text(text)]).await.expect("it is master");
    }
    until("all know", || cluster.running().all(|(_, peer)| texts(peer) == ["one", "two", "three"])).await;
    cluster.kill(&first);
    until("the lease is over", || !lease.holds(cluster.now())).await;
    let (second, successor) = cluster.master().await;
    assert_ne!(first, second);
    assert!(successor.term() > lease.term());
    assert_eq!(
        texts(cluster.peer(&second)),
        ["one", "two", "three"],
        "a new master has all commands before its lease begins"
    );
    cluster.start(&first).await;
    until("the first is back", || texts(cluster.peer(&first)) == ["one", "two", "three"]).await;
    assert_eq!(cluster.peer(&first).origin(), StateOrigin::Resumed);
}

#[tokio::test]
async fn a_lone_peer_is_master_at_once_and_keeps_its_state() {
    let cluster = Cluster::new(&[]).await;
    let settings = || Settings {
        first_configuration: Some(configuration("first")),
        ..Settings::new("alone", cluster.data("alone"), cluster.clock())
    };
    let mut numbers = Vec::new();
    for round in 0..3 {
        // `bootstrap` is ignored after the first start.
        let peer = start(Settings { bootstrap: true, ..settings() }).await.expect("it starts");
        assert_eq!(peer.origin(), if round == 0 { StateOrigin::Bootstrapped } else { StateOrigin::Resumed });
        let lease = lone_master(&peer).await;
        assert_eq!(texts(&peer).first().map(String::as_str), Some("first"));
        peer.propose(&lease, vec![set_text(format!("round {round}"))]).await.expect("it is master");
        numbers.push(lease.term());
        drop(peer);
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let peer = start(settings()).await.expect("it starts");
    assert_eq!(peer.add("b", "127.0.0.1:1").await, Err(ChangeError::Lone { name: "alone".into() }));
    until("it has read its log", || texts(&peer) == ["first", "round 0", "round 1", "round 2"]).await;
}

#[tokio::test]
async fn a_master_that_shuts_down_transfers_mastership() {
    let mut cluster = Cluster::three().await;
    let (first, lease) = cluster.master().await;
    cluster.propose(set_text("one")).await;
    let leaving = cluster.peer(&first).clone();
    leaving.shutdown().await;
    assert!(!lease.holds(cluster.now()));
    assert!(matches!(*leaving.mastership().borrow(), Mastership::Unknown));
    assert_eq!(leaving.propose(&lease, vec![set_text("late")]).await, Err(ProposeError::Deposed));
    cluster.kill(&first);
    let (second, _) = cluster.master().await;
    assert_ne!(first, second);
    assert_eq!(texts(cluster.peer(&second)), ["one"]);
}

#[tokio::test]
async fn mastership_is_transferred_to_the_named_peer_and_back() {
    let cluster = Cluster::three().await;
    let (first, lease) = cluster.master().await;
    let others = cluster.others(&first);
    let second = others[0].as_str();
    cluster.propose(set_text("one")).await;
    assert_eq!(cluster.peer(&first).transfer(Some(second)).await.map(|moved| moved.master.name).as_deref(), Ok(second));
    assert!(!lease.holds(cluster.now()));
    assert_eq!(cluster.peer(&first).propose(&lease, vec![set_text("late")]).await, Err(ProposeError::Deposed));
    let (master, successor) = cluster.master().await;
    assert!(master == second && successor.term() > lease.term());
    assert_eq!(texts(cluster.peer(second)), ["one"]);
    cluster.propose(set_text("two")).await;
    let (not_master, master) = (cluster.peer(&first).transfer(None).await, Some(second.to_owned()));
    assert_eq!(not_master, Err(ChangeError::NotMaster { master }));
    let back = cluster.peer(second).transfer(Some(&first)).await.map(|moved| moved.master.name);
    assert_eq!(back.as_ref(), Ok(&first), "the former master may be master again");
    assert_eq!(cluster.master().await.0, first);
    let chosen = cluster.peer(&first).transfer(None).await.expect("there are others");
    assert_ne!(chosen.master.name, first);
    until("all know", || cluster.running().all(|(_, peer)| texts(peer) == ["one", "two"])).await;
    let (last, _) = cluster.master().await;
    let named = cluster.peer(&last).transfer(Some(&last)).await;
    assert_eq!(named, Err(ChangeError::IsMasterAlready { name: last.clone() }));
    let unknown = cluster.peer(&last).transfer(Some("x")).await;
    assert_eq!(unknown, Err(ChangeError::Unknown { name: "x".into(), known: "a, b, c".into() }));
}

#[tokio::test]
async fn a_transfer_to_an_isolated_peer_is_refused() {
    let cluster = Cluster::three().await;
    let (first, _) = cluster.master().await;
    let away = cluster.others(&first).swap_remove(0);
    until("it is known", || cluster.peer(&first).peers().iter().any(|peer| peer.name == away)).await;
    cluster.isolate(&away, true);
    let silent = ChangeError::Silent { name: away.clone() };
    let mut result = cluster.peer(&first).transfer(Some(&away)).await;
    // Until the peer counts as silent, the transfer waits for it and fails.
    while result != Err(silent.clone()) {
        assert!(matches!(result, Err(ChangeError::Behind { .. } | ChangeError::NotTaken { .. })), "{result:?}");
        result = cluster.peer(&first).transfer(Some(&away)).await;
    }
    let (master, _) = cluster.master().await;
    assert_eq!(master, first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_request_to_stand_makes_no_second_master() {
    let cluster = Cluster::three().await;
    let watcher = LeaseWatcher::start(&cluster);
    cluster.propose(set_text("one")).await;
    let (master, lease) = cluster.master().await;
    let others = cluster.others(&master);
    let [next, third] = others.as_slice() else { panic!("there are three") };
    let held = cluster.hold_next(&master, next, Some(Method::Stand));
    let peer = cluster.peer(&master).clone();
    let transfer = {
        let next = next.clone();
        tokio::spawn(async move { peer.transfer(Some(&next)).await })
    };
    held.caught().await;
    let _ = transfer.await.expect("nothing panics");
    until("there is a later lease", || cluster.masters().iter().any(|(_, later)| later.term() > lease.term())).await;
    // The master loses one peer, and keeps the one that the held message is addressed to.
    let (again, _) = cluster.master().await;
    cluster.cut(&again, if again == *third { next } else { third }, true);
    tokio::time::sleep(Duration::from_millis(600)).await;
    held.deliver().await;
    cluster.isolate(&again, true);
    tokio::time::sleep(Duration::from_millis(600)).await;
    cluster.isolate(&again, false);
    cluster.propose(set_text("two")).await;
    watcher.stop();
}

/// Several times longer than any peer waits before it starts an election.
fn long() -> Duration {
    timing().certainly_over() * 5
}

/// The Raft term, which counts elections.
fn elections(cluster: &Cluster, name: &str) -> u64 {
    cluster.peer(name).peers().first().expect("it lists itself").term
}

/// Three peers that have had a master for a while.
async fn with_a_master() -> (Cluster, String, MasterLease, [String; 2]) {
    let cluster = Cluster::three().await;
    let (master, lease) = cluster.master().await;
    cluster.propose(set_text("first")).await;
    until("all know", || cluster.running().all(|(_, peer)| texts(peer) == ["first"])).await;
    let followers: Vec<_> = cluster.names.iter().filter(|name| **name != master).cloned().collect();
    (cluster, master, lease, followers.try_into().expect("two"))
}

async fn poll(cluster: &Cluster, of: &str, last: Option<LogId>) -> Result<bool, tonic::Status> {
    let from = cluster.names.iter().find(|name| *name != of).expect("there are others");
    let from = PeerInfo {
        election_timeout_ms: cluster.timing.lease().0,
        ..peer_info(cluster, from, identity(cluster, from).peer)
    };
    let to = identity(cluster, of).peer;
    let request = PeerRequest { from: Some(from), to, payload: codec::encode(&last), proof: None };
    let answer = ask(cluster, of, SECRET, Method::Poll, request).await?;
    Ok(codec::decode(&answer.payload).expect("it decodes"))
}

#[tokio::test]
async fn a_returning_follower_does_not_depose_the_master() {
    let (cluster, master, lease, [follower, _]) = with_a_master().await;
    let before = elections(&cluster, &master);
    for round in 0..2 {
        cluster.isolate(&follower, true);
        tokio::time::sleep(long()).await;
        assert_eq!(elections(&cluster, &follower), before, "an isolated peer has started an election");
        cluster.peer(&master).propose(&lease, vec![set_text(format!("{round}"))]).await.expect("it is master");
        cluster.isolate(&follower, false);
        let newest = || texts(cluster.peer(&follower)).last().cloned();
        until("it is back", || newest() == Some(format!("{round}"))).await;
    }
    assert!(lease.holds(cluster.now()), "the lease has lapsed");
    assert_eq!(elections(&cluster, &master), before);
}

#[tokio::test]
async fn a_peer_starts_an_election_only_if_the_others_hear_no_master_either() {
    let mut attempts = 0;
    let (mut cluster, master, [apart, between], before) = loop {
        let (cluster, master, lease, followers) = with_a_master().await;
        let before = elections(&cluster, &master);
        cluster.cut(&followers[0], &master, true);
        tokio::time::sleep(long()).await;
        let after = elections(&cluster, &followers[0]);
        if lease.holds(cluster.now()) {
            assert_eq!(after, before, "it has started an election although another peer hears the master");
            break (cluster, master, followers, before);
        }
        // On a busy machine the master may have lost its lease: then an election is right.
        attempts += 1;
        assert!(attempts < 5, "the master never keeps its lease");
    };
    // Now the master is dead, and the requests of the other peer are lost.
    cluster.cut_off(&between, &apart, true);
    cluster.kill(&master);
    until("it is elected", || cluster.masters().iter().any(|(name, _)| *name == apart)).await;
    assert!(elections(&cluster, &apart) > before);
}

#[tokio::test]
async fn without_a_majority_no_peer_starts_an_election() {
    let (mut cluster, master, lease, [one, other]) = with_a_master().await;
    let before = elections(&cluster, &master);
    for name in cluster.names.clone() {
        cluster.isolate(&name, true);
    }
    until("the lease is over", || !lease.holds(cluster.now())).await;
    tokio::time::sleep(long()).await;
    for name in &cluster.names {
        assert_eq!(elections(&cluster, name), before, "{name} has started an election");
    }
    // A restarted peer has no vote lease to wait for, but reaches no majority either.
    cluster.kill(&one);
    cluster.start(&one).await;
    tokio::time::sleep(long()).await;
    assert_eq!(elections(&cluster, &one), before);
    cluster.cut(&one, &other, false);
    until("two are enough", || cluster.masters().iter().any(|(name, _)| *name == one || *name == other)).await;
}

#[tokio::test]
async fn the_answer_to_a_pre_vote_depends_on_vote_lease_and_log() {
    let (mut cluster, master, lease, [one, other]) = with_a_master().await;
    let ahead = Some(log_id(1_000, 1_000_000));
    tokio::time::sleep(long()).await;
    for name in &cluster.names {
        assert!(!poll(&cluster, name, ahead).await.expect("it answers"), "{name} hears a master or is it");
    }
    assert!(lease.holds(cluster.now()), "a pre-vote must not disturb the master");
    cluster.kill(&master);
    cluster.kill(&other);
    tokio::time::sleep(long()).await;
    assert!(poll(&cluster, &one, ahead).await.expect("it answers"), "there is no master");
    for behind in [None, Some(log_id(0, 1_000_000))] {
        assert!(!poll(&cluster, &one, behind).await.expect("it answers"), "its log is longer than {behind:?}");
    }
    assert!(texts(cluster.peer(&one)) == ["first"] && cluster.masters().is_empty());
}

#[tokio::test]
async fn a_peer_that_has_just_started_refuses_a_pre_vote() {
    let (mut cluster, _, _, [name, _]) = with_a_master().await;
    for name in cluster.names.clone() {
        cluster.kill(&name);
    }
    // An earlier process may have leased its vote for this long.
    cluster.timing = Timing::new(1_000, 30_000, 60_000).expect("a good timing");
    cluster.start(&name).await;
    let status = poll(&cluster, &name, Some(log_id(1_000, 1_000_000))).await.expect_err("consensus has not started");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}
