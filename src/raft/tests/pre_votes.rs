//! Which peers start elections and which wait. Tests check at the end that a master lease still holds: one that has
//! lapsed never comes back.

use std::time::Duration;

use leaseway_proto::peer::{PeerInfo, PeerRequest};
use tonic::Code;

use crate::{
    election::master_lease::MasterLease,
    log::{codec, types::LogId},
    settings::timing::Timing,
    tests::{
        cluster::{Cluster, SECRET, set_text, texts, timing, until},
        rejections::{ask, identity, peer_info},
        segments::log_id,
    },
    transport::Method,
};

/// Several times longer than any peer waits before it starts an election.
fn long() -> Duration {
    timing().certainly_over() * 5
}

/// The Raft term, which counts elections.
fn elections(cluster: &Cluster, name: &str) -> u64 {
    cluster.peer(name).peers().first().expect("it knows of itself").term
}

/// Three peers that have had a master for a while.
async fn with_a_master() -> (Cluster, String, MasterLease, [String; 2]) {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    cluster.bootstrap().await;
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
async fn a_follower_that_was_cut_off_does_not_depose_the_master_when_it_returns() {
    let (cluster, master, lease, [follower, _]) = with_a_master().await;
    let before = elections(&cluster, &master);
    for round in 0..5 {
        cluster.isolate(&follower, true);
        tokio::time::sleep(long()).await;
        assert_eq!(elections(&cluster, &follower), before, "it has started an election all alone");
        cluster.peer(&master).propose(&lease, vec![set_text(format!("{round}"))]).await.expect("it is master");
        cluster.isolate(&follower, false);
        let newest = || texts(cluster.peer(&follower)).last().cloned();
        until("it is back", || newest() == Some(format!("{round}"))).await;
    }
    assert!(lease.holds(cluster.now()), "it goes on all the time");
    assert_eq!(elections(&cluster, &master), before);
}

#[tokio::test]
async fn a_peer_that_hears_no_master_starts_an_election_only_once_the_others_hear_none_either() {
    let (mut cluster, master, lease, [apart, between]) = with_a_master().await;
    let before = elections(&cluster, &master);
    cluster.cut(&apart, &master, true);
    tokio::time::sleep(long()).await;
    assert_eq!(elections(&cluster, &apart), before, "it has started an election though the other one has a master");
    assert!(lease.holds(cluster.now()));
    // Now the other peer hears nobody, and its own requests are lost.
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
    // A peer that was just started knows no vote lease, and reaches no majority either.
    cluster.kill(&one);
    cluster.start(&one).await;
    tokio::time::sleep(long()).await;
    assert_eq!(elections(&cluster, &one), before);
    cluster.cut(&one, &other, false);
    until("two are enough", || cluster.masters().iter().any(|(name, _)| *name == one || *name == other)).await;
}

#[tokio::test]
async fn a_master_that_was_cut_off_follows_when_it_returns() {
    let (cluster, master, lease, _) = with_a_master().await;
    cluster.isolate(&master, true);
    let elected = || cluster.masters().into_iter().find(|(name, _)| *name != master);
    until("the others elect", || elected().is_some()).await;
    assert!(!lease.holds(cluster.now()));
    let (name, next) = elected().expect("there is one");
    tokio::time::sleep(long()).await;
    cluster.peer(&name).propose(&next, vec![set_text("second")]).await.expect("it is master");
    cluster.isolate(&master, false);
    until("it follows", || texts(cluster.peer(&master)) == ["first", "second"]).await;
    tokio::time::sleep(long()).await;
    assert!(next.holds(cluster.now()), "it goes on");
}

#[tokio::test]
async fn a_peer_answers_a_pre_vote_by_its_vote_lease_and_its_log() {
    let (mut cluster, master, lease, [one, other]) = with_a_master().await;
    let ahead = Some(log_id(1_000, 1_000_000));
    tokio::time::sleep(long()).await;
    for name in &cluster.names {
        assert!(!poll(&cluster, name, ahead).await.expect("it answers"), "{name} hears from a master, or is it");
    }
    assert!(lease.holds(cluster.now()), "to be asked changes nothing");
    cluster.kill(&master);
    cluster.kill(&other);
    tokio::time::sleep(long()).await;
    assert!(poll(&cluster, &one, ahead).await.expect("it answers"), "there is no master");
    for behind in [None, Some(log_id(0, 1_000_000))] {
        assert!(!poll(&cluster, &one, behind).await.expect("it answers"), "it has more than {behind:?}");
    }
    assert!(texts(cluster.peer(&one)) == ["first"] && cluster.masters().is_empty());
}

#[tokio::test]
async fn a_peer_that_has_only_just_started_refuses_a_pre_vote() {
    let (mut cluster, _, _, [name, _]) = with_a_master().await;
    for name in cluster.names.clone() {
        cluster.kill(&name);
    }
    // An earlier process may have leased its vote for this long.
    cluster.timing = Timing::new(1_000, 30_000, 60_000).expect("a good timing");
    cluster.start(&name).await;
    let status = poll(&cluster, &name, Some(log_id(1_000, 1_000_000))).await.expect_err("it says nothing yet");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}
