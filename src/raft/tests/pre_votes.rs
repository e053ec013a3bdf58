//! Which peers start elections, and which wait. Tests check at the end of a master lease that it went on: one that has lapsed
//! is over for ever.

use std::time::Duration;

use leaseway_proto::peer::{Introduction, PeerRequest};
use tonic::Code;

use crate::{
    election::master_lease::MasterLease,
    log::{codec, types::LogId},
    settings::timing::Timing,
    tests::{
        segments::log_id,
        strangers::{ask, identity, introduction},
        world::{SECRET, World, known, said, timing, until},
    },
    transport::Method,
};

/// Several times longer than any peer waits before it starts an election.
fn long() -> Duration {
    timing().certainly_over() * 5
}

/// The elections that a peer knows of.
fn elections(world: &World, name: &str) -> u64 {
    world.peer(name).peers().first().expect("it knows of itself").term
}

/// Three peers, one of them the master for a while.
async fn with_a_master() -> (World, String, MasterLease, [String; 2]) {
    let mut world = World::new(&["a", "b", "c"]).await;
    world.bootstrap().await;
    let (master, lease) = world.master().await;
    world.propose(said("first")).await;
    until("all know", || world.running().all(|(_, peer)| known(peer) == ["first"])).await;
    let followers: Vec<_> = world.names.iter().filter(|name| **name != master).cloned().collect();
    (world, master, lease, followers.try_into().expect("two"))
}

async fn poll(world: &World, of: &str, last: Option<LogId>) -> Result<bool, tonic::Status> {
    let from = world.names.iter().find(|name| *name != of).expect("there are others");
    let from = Introduction {
        election_timeout_ms: world.timing.lease().0,
        ..introduction(world, from, identity(world, from).peer)
    };
    let to = identity(world, of).peer;
    let request = PeerRequest { from: Some(from), to, payload: codec::encode(&last), proof: None };
    let answer = ask(world, of, SECRET, Method::Poll, request).await?;
    Ok(codec::decode(&answer.payload).expect("it decodes"))
}

#[tokio::test]
async fn a_follower_that_was_cut_off_does_not_depose_the_master_when_it_returns() {
    let (world, master, lease, [follower, _]) = with_a_master().await;
    let before = elections(&world, &master);
    for round in 0..5 {
        world.isolate(&follower, true);
        tokio::time::sleep(long()).await;
        assert_eq!(elections(&world, &follower), before, "it has started an election all alone");
        world.peer(&master).propose(&lease, vec![said(format!("{round}"))]).await.expect("it is master");
        world.isolate(&follower, false);
        let newest = || known(world.peer(&follower)).last().cloned();
        until("it is back", || newest() == Some(format!("{round}"))).await;
    }
    assert!(lease.holds(world.now()), "it goes on all the time");
    assert_eq!(elections(&world, &master), before);
}

#[tokio::test]
async fn a_peer_that_hears_no_master_starts_an_election_only_once_the_others_hear_none_either() {
    let (mut world, master, lease, [apart, between]) = with_a_master().await;
    let before = elections(&world, &master);
    world.cut(&apart, &master, true);
    tokio::time::sleep(long()).await;
    assert_eq!(elections(&world, &apart), before, "it has started an election though the other one has a master");
    assert!(lease.holds(world.now()));
    // The other one hears from no peer now, and can ask none.
    world.cut_off(&between, &apart, true);
    world.kill(&master);
    until("it is elected", || world.masters().iter().any(|(name, _)| *name == apart)).await;
    assert!(elections(&world, &apart) > before);
}

#[tokio::test]
async fn without_a_majority_no_peer_starts_an_election() {
    let (mut world, master, lease, [one, other]) = with_a_master().await;
    let before = elections(&world, &master);
    for name in world.names.clone() {
        world.isolate(&name, true);
    }
    until("the lease is over", || !lease.holds(world.now())).await;
    tokio::time::sleep(long()).await;
    for name in &world.names {
        assert_eq!(elections(&world, name), before, "{name} has started an election");
    }
    // A peer that has only just started knows of no vote lease, and reaches no majority either.
    world.kill(&one);
    world.start(&one).await;
    tokio::time::sleep(long()).await;
    assert_eq!(elections(&world, &one), before);
    world.cut(&one, &other, false);
    until("two are enough", || world.masters().iter().any(|(name, _)| *name == one || *name == other)).await;
}

#[tokio::test]
async fn a_master_that_was_cut_off_follows_when_it_returns() {
    let (world, master, lease, _) = with_a_master().await;
    world.isolate(&master, true);
    let elected = || world.masters().into_iter().find(|(name, _)| *name != master);
    until("the others elect", || elected().is_some()).await;
    assert!(!lease.holds(world.now()));
    let (name, next) = elected().expect("there is one");
    tokio::time::sleep(long()).await;
    world.peer(&name).propose(&next, vec![said("second")]).await.expect("it is master");
    world.isolate(&master, false);
    until("it follows", || known(world.peer(&master)) == ["first", "second"]).await;
    tokio::time::sleep(long()).await;
    assert!(next.holds(world.now()), "it goes on");
}

#[tokio::test]
async fn a_peer_answers_a_pre_vote_by_its_vote_lease_and_its_log() {
    let (mut world, master, lease, [one, other]) = with_a_master().await;
    let ahead = Some(log_id(1_000, 1_000_000));
    tokio::time::sleep(long()).await;
    for name in &world.names {
        assert!(!poll(&world, name, ahead).await.expect("it answers"), "{name} hears from a master, or is it");
    }
    assert!(lease.holds(world.now()), "to be asked changes nothing");
    world.kill(&master);
    world.kill(&other);
    tokio::time::sleep(long()).await;
    assert!(poll(&world, &one, ahead).await.expect("it answers"), "there is no master");
    for behind in [None, Some(log_id(0, 1_000_000))] {
        assert!(!poll(&world, &one, behind).await.expect("it answers"), "it has more than {behind:?}");
    }
    assert!(known(world.peer(&one)) == ["first"] && world.masters().is_empty());
}

#[tokio::test]
async fn a_peer_that_has_only_just_started_refuses_a_pre_vote() {
    let (mut world, _, _, [name, _]) = with_a_master().await;
    for name in world.names.clone() {
        world.kill(&name);
    }
    // An earlier process may have leased its vote for so long.
    world.timing = Timing::new(1_000, 30_000, 60_000).expect("a good timing");
    world.start(&name).await;
    let status = poll(&world, &name, Some(log_id(1_000, 1_000_000))).await.expect_err("it says nothing yet");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}
