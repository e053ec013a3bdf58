//! Bootstrap, wiped data directories, adding and removing peers.

use std::{collections::BTreeSet, time::Duration};

use leaseway_proto::peer::PeerRequest;
use openraft::{
    EntryPayload,
    raft::{AppendEntriesRequest, VoteRequest},
};

use crate::{
    election::master_lease::{Mastership, PeerAddress},
    handle::peer::StateOrigin,
    log::{Entry, Member, Types, Vote, codec},
    membership::{members::ChangeError, report::Role},
    settings::Settings,
    tests::harness::{
        cluster::{Cluster, SECRET, set_text, texts, until},
        requests::{ask, ask_for_vote, identity, peer_info},
    },
    transport::Method,
};

fn voters(cluster: &Cluster, name: &str) -> BTreeSet<String> {
    let peers = cluster.peer(name).peers();
    peers.into_iter().filter(|peer| peer.role != Role::Learner).map(|peer| peer.name).collect()
}

#[tokio::test]
async fn a_cluster_begins_only_once_all_peers_are_reachable_and_bootstrap() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    for name in ["a", "b"] {
        let settings = Settings { bootstrap: true, ..cluster.settings(name) };
        cluster.start_with(settings).await.expect("it starts");
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    let third = cluster.start("c").await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(cluster.masters().is_empty(), "the third peer does not bootstrap");
    assert_eq!(third.origin(), StateOrigin::Empty);
    drop(third);
    cluster.kill("c");
    let settings = Settings { bootstrap: true, ..cluster.settings("c") };
    cluster.start_with(settings).await.expect("it starts");
    cluster.propose(set_text("one")).await;
    until("all know", || cluster.running().all(|(_, peer)| texts(peer) == ["one"])).await;
    assert!(cluster.running().all(|(_, peer)| peer.origin() == StateOrigin::Bootstrapped));
}

#[tokio::test]
async fn a_wiped_peer_rejoins_with_a_new_identity_and_never_votes_under_the_old_one() {
    let mut cluster = Cluster::three().await;
    cluster.propose(set_text("one")).await;
    let (master, _) = cluster.master().await;
    let lost = cluster.others(&master).swap_remove(0);
    let before = identity(&cluster, &lost);
    cluster.kill(&lost);
    cluster.propose(set_text("two")).await;
    cluster.wipe(&lost);
    // Operators may leave `--bootstrap` in place.
    let settings = Settings { bootstrap: lost == "b", ..cluster.settings(&lost) };
    let peer = cluster.start_with(settings).await.expect("it starts");
    until("it has joined", || peer.origin() == StateOrigin::Joined).await;
    until("it has everything", || texts(&peer) == ["one", "two"]).await;
    let after = identity(&cluster, &lost);
    assert_ne!(before.peer, after.peer);
    assert_eq!(before.cluster, after.cluster);
    until("the old identity is removed", || {
        let peers = peer.peers();
        peers.len() == 3 && peers.iter().all(|peer| peer.role != Role::Learner)
    })
    .await;
    let vote = VoteRequest::new(Vote::new(1000, 1), None);
    let from = peer_info(&cluster, &master, identity(&cluster, &master).peer);
    let refused = ask_for_vote(&cluster, &lost, before.peer, from, vote).await.expect_err("the old identity is gone");
    assert!(refused.message().contains("new identity"), "{refused}");
    // The new identity counts: with another peer down, the remaining two decide.
    let third = cluster.names.iter().find(|name| **name != master && **name != lost).expect("there are three").clone();
    cluster.kill(&third);
    cluster.propose(set_text("three")).await;
    until("it has everything", || texts(&peer) == ["one", "two", "three"]).await;
}

#[tokio::test]
async fn an_earlier_identity_left_by_a_dead_master_is_removed() {
    let cluster = Cluster::three().await;
    let (master, _) = cluster.master().await;
    let of_c =
        |name: &str| Member { name: name.into(), address: cluster.address(&master, "c"), advertise: String::new() };
    let raft = cluster.peer(&master).raft();
    raft.add_learner(17, of_c("c"), false).await.expect("the earlier identity of c, as if c had returned");
    raft.add_learner(18, of_c("d"), false).await.expect("one that joins");
    let listed = || cluster.peer(&master).peers().into_iter().map(|peer| peer.name).collect::<Vec<_>>();
    until("the earlier identity is gone", || listed() == ["a", "b", "c", "d"]).await;
}

async fn admission_is_interrupted(knows_members: bool) {
    let mut cluster = Cluster::three().await;
    cluster.propose(set_text("one")).await;
    let (master, _) = cluster.master().await;
    let lost = cluster.names.iter().find(|name| **name != master && *name != "a").expect("there are three").clone();
    let others = cluster.others(&lost);
    cluster.kill(&lost);
    cluster.wipe(&lost);
    others.iter().for_each(|name| cluster.cut_off(&lost, name, true));
    cluster.start(&lost).await;
    let heard = cluster.peer(&master).raft().metrics().borrow().clone();
    let first = Entry {
        log_id: heard.membership_config.log_id().expect("it has begun"),
        payload: EntryPayload::Membership(heard.membership_config.membership().clone()),
    };
    let entries = if knows_members { vec![first] } else { Vec::new() };
    // The first message of a master that admits a peer. The entry that makes it a learner is never committed.
    let append = AppendEntriesRequest::<Types> { vote: heard.vote, prev_log_id: None, entries, leader_commit: None };
    let from = peer_info(&cluster, &master, identity(&cluster, &master).peer);
    let to = identity(&cluster, &lost).peer;
    let request = PeerRequest { from: Some(from), to, payload: codec::encode(&append), proof: None };
    ask(&cluster, &lost, SECRET, Method::Append, request).await.expect("it is heard");
    cluster.kill(&lost);
    others.iter().for_each(|name| cluster.cut_off(&lost, name, false));
    let peer = cluster.start(&lost).await;
    assert_eq!(identity(&cluster, &lost).peer, to, "its identity changed over a restart");
    until("it has everything", || texts(&peer) == ["one"]).await;
    until("it has replaced its old identity", || {
        let peers = cluster.peer(&master).peers();
        peers.len() == 3 && peers.iter().all(|peer| matches!(peer.role, Role::Master | Role::Follower))
    })
    .await;
}

#[tokio::test]
async fn a_peer_joins_again_if_its_admission_was_interrupted() {
    admission_is_interrupted(false).await;
    admission_is_interrupted(true).await;
}

#[tokio::test]
async fn a_peer_that_loses_its_directory_twice_is_admitted() {
    let mut cluster = Cluster::three().await;
    cluster.propose(set_text("one")).await;
    let (master, _) = cluster.master().await;
    let lost = cluster.others(&master).swap_remove(0);
    cluster.kill(&lost);
    cluster.wipe(&lost);
    // Its requests arrive, but messages to it are lost.
    cluster.cut_off(&master, &lost, true);
    drop(cluster.start(&lost).await);
    let first = identity(&cluster, &lost).peer;
    until("it is a learner", || {
        cluster.peer(&master).raft().metrics().borrow().membership_config.membership().get_node(&first).is_some()
    })
    .await;
    cluster.kill(&lost);
    cluster.wipe(&lost);
    cluster.cut_off(&master, &lost, false);
    let peer = cluster.start(&lost).await;
    until("it has joined", || peer.origin() == StateOrigin::Joined).await;
    until("the old identities are removed", || peer.peers().len() == 3).await;
}

#[tokio::test]
async fn a_majority_of_empty_directories_does_not_bootstrap_beside_a_cluster() {
    let mut cluster = Cluster::three().await;
    cluster.propose(set_text("one")).await;
    until("all know", || cluster.running().all(|(_, peer)| texts(peer) == ["one"])).await;
    for name in ["a", "b"] {
        cluster.kill(name);
        cluster.wipe(name);
    }
    for name in ["a", "b"] {
        let settings = Settings { bootstrap: true, ..cluster.settings(name) };
        cluster.start_with(settings).await.expect("it starts");
    }
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(cluster.masters().is_empty(), "the commands of the third peer would be lost");
    assert!(texts(cluster.peer("a")).is_empty() && texts(cluster.peer("c")) == ["one"]);
}

#[tokio::test]
async fn recent_contact_is_not_enough_to_remove_another_peer() {
    let cluster = Cluster::three().await;
    cluster.propose(set_text("one")).await;
    let (master, _) = cluster.master().await;
    let others = cluster.others(&master);
    let [gone, silent] = others.as_slice() else { panic!("there are three") };
    until("all were heard of", || cluster.peer(&master).peers().iter().all(|peer| peer.lag == Some(0))).await;
    cluster.isolate(silent, true);
    let refused = cluster.peer(&master).remove(gone).await;
    assert_eq!(refused, Err(ChangeError::NoMajority { there: 1, needed: 2 }));
    assert_eq!(voters(&cluster, &master).len(), 3);
    cluster.isolate(silent, false);
    let mut removed = cluster.peer(&master).remove(gone).await;
    while matches!(removed, Err(ChangeError::NoMajority { .. })) {
        removed = cluster.peer(&master).remove(gone).await;
    }
    removed.expect("two of two answer");
    cluster.propose(set_text("two")).await;
}

#[tokio::test]
async fn peers_are_added_and_removed() {
    let mut cluster = Cluster::three().await;
    cluster.propose(set_text("one")).await;
    cluster.add_name("d").await;
    let newcomer = cluster.start("d").await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(newcomer.origin(), StateOrigin::Empty, "it was not told to bootstrap");
    assert!(texts(&newcomer).is_empty());

    let (master, _) = cluster.master().await;
    let other = cluster.others(&master).swap_remove(0);
    let address = cluster.address(&master, "d");
    let followed = PeerAddress { name: master.clone(), advertise: format!("{master}.example:80") };
    let follows =
        |mastership: &Mastership| matches!(mastership, Mastership::Follower { of } if *of == Some(followed.clone()));
    until("it follows", || follows(&cluster.peer(&other).mastership().borrow())).await;
    let refused = cluster.peer(&other).add("d", &address).await;
    assert_eq!(refused, Err(ChangeError::NotMaster { master: Some(master.clone()) }));
    let wrong = cluster.peer(&master).add("e", &address).await;
    assert!(matches!(wrong, Err(ChangeError::NotThere { .. })), "{wrong:?}");
    let alive = cluster.peer(&master).add(&other, &cluster.address(&master, &other)).await;
    assert!(alive.is_ok(), "adding a member again changes nothing: {alive:?}");
    cluster.peer(&master).add("d", &address).await.expect("it is there");
    until("it has everything", || texts(&newcomer) == ["one"]).await;
    assert_eq!(voters(&cluster, &master), ["a", "b", "c", "d"].map(String::from).into());
    until("it knows", || newcomer.origin() == StateOrigin::Joined).await;

    let myself = cluster.peer(&master).remove(&master).await;
    assert!(matches!(myself, Err(ChangeError::IsMaster { .. })), "{myself:?}");
    let unknown = cluster.peer(&master).remove("z").await;
    assert!(matches!(unknown, Err(ChangeError::Unknown { .. })), "{unknown:?}");
    cluster.peer(&master).remove(&other).await.expect("it is one of them");
    let left: BTreeSet<String> = cluster.names.iter().filter(|name| **name != other).cloned().collect();
    assert_eq!(voters(&cluster, &master), left);
    // A removed peer neither comes back by itself nor disturbs the others.
    cluster.propose(set_text("two")).await;
    until("the newcomer has it", || texts(&newcomer) == ["one", "two"]).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(!matches!(&*cluster.peer(&other).mastership().borrow(), Mastership::Master(_)));
    assert_eq!(voters(&cluster, &cluster.master().await.0), left);
    let report = cluster.peer(&cluster.master().await.0).peers();
    assert!(report.iter().all(|peer| peer.lag.is_some() && peer.position.is_some()), "{report:?}");
}
