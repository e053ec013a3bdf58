//! The workarounds for openraft's faults, which src/raft/openraft.md lists.

use std::{
    collections::BTreeSet,
    future::{Future as _, poll_fn},
    io::Cursor,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use leaseway_core::types::Millis;
use openraft::{
    EntryPayload, RaftLogReader as _, RaftSnapshotBuilder as _, StoredMembership,
    network::{RPCOption, RaftNetwork as _, RaftNetworkFactory as _},
    raft::{AppendEntriesRequest, InstallSnapshotRequest},
    storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _},
};
use tempfile::TempDir;
use tokio::{net::TcpListener, time::sleep};

use crate::{
    handle::open::{Opened, open},
    log::{Entry, LogId, Member, PeerId, SnapshotMeta, Vote, acknowledged::Acknowledged, codec},
    settings::Settings,
    tests::harness::{
        cluster::{Cluster, until},
        log_id,
        requests::identity,
    },
    transport::{client::PeerClient, handshake::Handshake, liveness::Liveness, network::PeerNetwork, proof::Prover},
};

fn settings(directory: &TempDir) -> Settings {
    Settings::new("a", directory.path(), Arc::new(|| Millis(1)))
}

fn blank(index: u64) -> Entry {
    Entry { log_id: log_id(1, index), payload: EntryPayload::Blank }
}

fn meta(upto: LogId) -> SnapshotMeta {
    SnapshotMeta {
        last_log_id: Some(upto),
        last_membership: StoredMembership::default(),
        snapshot_id: upto.index.to_string(),
    }
}

fn nothing(opened: &Opened) -> Box<Cursor<Vec<u8>>> {
    Box::new(Cursor::new(codec::encode(&opened.machine.state().read().record(Millis(1)))))
}

#[tokio::test]
async fn a_peer_sends_no_entries_for_an_earlier_vote() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = Arc::new(settings(&directory));
    let mut opened = open(&settings).expect("it opens");
    let handshake =
        Handshake::new(Arc::clone(&settings), Arc::clone(&opened.directory), &opened.identity, opened.incarnation);
    let client = PeerClient {
        settings,
        prover: Arc::new(Prover::new(None)),
        handshake: Arc::new(handshake),
        liveness: Arc::new(Liveness::new(Millis(0))),
        acknowledged: Acknowledged::default(),
        connections: Mutex::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let member = Member { name: "b".into(), address, advertise: String::new() };
    let mut network = PeerNetwork { client: Arc::new(client), log: opened.log.clone() };
    let mut link = network.new_client(8, &member).await;
    let (mine, theirs) = (Vote::new_committed(1, 7), Vote::new_committed(2, 8));
    let append = || AppendEntriesRequest { vote: mine, prev_log_id: None, entries: Vec::new(), leader_commit: None };
    let option = || RPCOption::new(Duration::from_secs(1));

    opened.log.save_vote(&mine).await.expect("it is written");
    tokio::select! {
        asked = listener.accept() => drop(asked.expect("it is asked")),
        answer = link.append_entries(append(), option()) => panic!("it was not asked: {answer:?}"),
    }
    opened.log.save_vote(&theirs).await.expect("it is written");
    let refused = link.append_entries(append(), option()).await.expect_err("another vote is newer");
    assert!(refused.to_string().contains("stale RPC"), "{refused}");
    let snapshot =
        InstallSnapshotRequest { vote: mine, meta: meta(log_id(1, 1)), offset: 0, data: Vec::new(), done: true };
    let refused = link.install_snapshot(snapshot, option()).await.expect_err("another vote is newer");
    assert!(refused.to_string().contains("stale RPC"), "{refused}");
}

#[tokio::test]
async fn entries_for_a_follower_have_no_gap() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut opened = open(&settings(&directory)).expect("it opens");
    opened.log.blocking_append((0..10).map(blank)).await.expect("it is written");
    let state = nothing(&opened);
    opened.machine.install_snapshot(&meta(log_id(1, 4)), state).await.expect("it is written");
    opened.log.purge(log_id(1, 4)).await.expect("it is written");
    assert_eq!(opened.log.limited_get_log_entries(3, 8).await.expect("they are in memory"), []);
    let there = opened.log.limited_get_log_entries(5, 8).await.expect("they are in memory");
    assert_eq!(there, (5..8).map(blank).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_log_is_purged_only_once_the_snapshot_is_on_disk() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = settings(&directory);
    let mut opened = open(&settings).expect("it opens");
    opened.log.save_vote(&Vote::new_committed(1, 8)).await.expect("it is written");
    opened.log.blocking_append((0..10).map(blank)).await.expect("it is written");
    let mut log = opened.log.clone();
    let purge = tokio::spawn(async move { log.purge(log_id(1, 8)).await });
    sleep(Duration::from_millis(50)).await;
    assert!(!purge.is_finished(), "a peer that is killed now would have neither log nor snapshot");
    let state = nothing(&opened);
    opened.machine.install_snapshot(&meta(log_id(1, 8)), state).await.expect("it is written");
    purge.await.expect("it does not panic").expect("it is written");
    drop(opened);
    let opened = open(&settings).expect("log and snapshot are complete");
    assert_eq!((opened.machine.applied(), opened.log.log().purged()), (Some(log_id(1, 8)), Some(log_id(1, 8))));
}

#[tokio::test]
async fn a_damaged_snapshot_ends_the_wait_to_purge_the_log() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut opened = open(&settings(&directory)).expect("it opens");
    opened.log.blocking_append((0..10).map(blank)).await.expect("it is written");
    let mut log = opened.log.clone();
    let purge = tokio::spawn(async move { log.purge(log_id(1, 8)).await });
    let damaged = Box::new(Cursor::new(vec![0xff; 9]));
    opened.machine.install_snapshot(&meta(log_id(1, 8)), damaged).await.expect_err("the state does not decode");
    purge.await.expect("it does not panic").expect_err("there is no snapshot");
    assert!(opened.failing.get().is_some(), "consensus has not ended on this peer");
}

#[tokio::test]
async fn an_older_snapshot_never_replaces_a_newer_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = settings(&directory);
    let mut opened = open(&settings).expect("it opens");
    opened.log.save_vote(&Vote::new_committed(1, 8)).await.expect("it is written");
    opened.machine.apply((0..10).map(blank)).await.expect("they are applied");
    let mut builder = opened.machine.get_snapshot_builder().await;
    let state = nothing(&opened);
    opened.machine.install_snapshot(&meta(log_id(1, 20)), state).await.expect("it is written");
    builder.build_snapshot().await.expect("it may be late");
    drop((builder, opened));
    assert_eq!(open(&settings).expect("it opens").machine.applied(), Some(log_id(1, 20)));
}

#[tokio::test]
async fn a_panic_while_entries_are_applied_is_reported_as_an_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let panics = Arc::<AtomicBool>::default();
    let clock = {
        let panics = Arc::clone(&panics);
        Arc::new(move || if panics.load(Ordering::SeqCst) { panic!("planted") } else { Millis(1) })
    };
    let mut opened = open(&Settings::new("a", directory.path(), clock)).expect("it opens");
    opened.machine.apply([blank(0)]).await.expect("it is applied");
    panics.store(true, Ordering::SeqCst);
    let failed = opened.machine.apply([blank(1)]).await.expect_err("openraft learns it");
    assert!(failed.to_string().contains("panic"), "{failed}");
}

/// Begins a change of the voters on the master, and does not finish it.
async fn begin_change(cluster: &Cluster, master: &str, voters: BTreeSet<PeerId>) {
    let raft = cluster.peer(master).raft();
    let before = *raft.metrics().borrow().membership_config.log_id();
    {
        let mut change = pin!(raft.change_membership(voters, false));
        let first = poll_fn(|context| Poll::Ready(change.as_mut().poll(context))).await;
        assert!(first.is_pending(), "{first:?}");
    }
    until("it has begun", || *raft.metrics().borrow().membership_config.log_id() > before).await;
}

fn ids(cluster: &Cluster, names: &[&str]) -> BTreeSet<PeerId> {
    names.iter().map(|name| identity(cluster, name).peer).collect()
}

/// The voters and the leader that decided on them; `None` if the membership is joint.
fn settled(cluster: &Cluster, at: &str) -> Option<(BTreeSet<PeerId>, PeerId)> {
    let membership = cluster.peer(at).raft().metrics().borrow().membership_config.clone();
    match membership.membership().get_joint_config().as_slice() {
        [voters] => Some((voters.clone(), membership.log_id().as_ref()?.leader_id.node_id)),
        _ => None,
    }
}

#[tokio::test]
async fn a_half_done_membership_change_is_finished() {
    let mut cluster = Cluster::three().await;
    let (master, _) = cluster.master().await;
    cluster.add_name("d").await;
    let _learner = cluster.start("d").await;
    let all = ids(&cluster, &["a", "b", "c", "d"]);
    let raft = cluster.peer(&master).raft().clone();
    let member = Member { name: "d".into(), address: cluster.address(&master, "d"), advertise: String::new() };
    raft.add_learner(identity(&cluster, "d").peer, member, true).await.expect("it learns");
    begin_change(&cluster, &master, all.clone()).await;
    until("it is finished", || settled(&cluster, &master).is_some_and(|(voters, _)| voters == all)).await;
}

#[tokio::test]
async fn a_removed_master_transfers_mastership_before_the_change_is_finished() {
    let cluster = Cluster::three().await;
    let (master, _) = cluster.master().await;
    let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| *name != master).collect();
    let left = ids(&cluster, &others);
    begin_change(&cluster, &master, left.clone()).await;
    let mut by = None;
    until("another has finished it", || {
        by = others.iter().find_map(|name| settled(&cluster, name).filter(|(voters, _)| *voters == left));
        by.is_some()
    })
    .await;
    let (_, by) = by.expect("it was found");
    assert!(left.contains(&by), "the master has removed itself, and the others may lack the last entry");
    until("another peer is master", || cluster.masters().iter().any(|(name, _)| others.contains(&name.as_str()))).await;
}
