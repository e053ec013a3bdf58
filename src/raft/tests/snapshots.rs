//! Snapshots shorten the log, and bring back a peer that was away for too long.

use std::{fs, path::Path};

use openraft::raft::InstallSnapshotRequest;

use crate::{
    handle::{open::StartError, service::ReceivedSnapshot, start},
    log::{
        StoreError,
        command::Command,
        types::{SnapshotMeta, Types, Vote},
    },
    tests::{
        callers::{Callers, Mistake, judge},
        cluster::{Cluster, assigned, set_text, texts, until, until_equal},
        disks::{self, DiskState},
        lease_watcher::LeaseWatcher,
    },
};

/// Commands that take many bytes in the log and none in the state.
fn ballast(round: usize) -> Vec<Command> {
    let client = format!("{round}{}", "x".repeat(600 << 10));
    vec![assigned(&client, 0.0)]
}

fn size(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).expect("a directory");
    files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.len()).sum()
}

#[test]
fn a_chunk_of_a_snapshot_that_would_leave_a_gap_is_refused() {
    let chunk = |id: &str, offset: u64, bytes: usize, done: bool| InstallSnapshotRequest::<Types> {
        vote: Vote::new_committed(1, 1),
        meta: SnapshotMeta { snapshot_id: id.into(), ..SnapshotMeta::default() },
        offset,
        data: vec![1; bytes],
        done,
    };
    let mut received = ReceivedSnapshot::default();
    let mut arrives = |chunk| received.next(&chunk).map(|next| received = next).is_ok();
    assert!(arrives(chunk("x", 0, 10, false)) && arrives(chunk("x", 10, 10, false)));
    assert!(!arrives(chunk("x", 30, 5, true)), "a gap of ten bytes");
    assert!(
        arrives(chunk("x", 0, 10, false)) && arrives(chunk("x", 20, 10, false)),
        "it began anew, with the same bytes"
    );
    assert!(!arrives(chunk("y", 10, 10, false)), "the beginning of another one has not arrived");
    assert!(arrives(chunk("y", 0, 10, false)) && !arrives(chunk("x", 30, 5, true)), "the other one takes its place");
    assert!(arrives(chunk("y", 10, 10, true)) && !arrives(chunk("y", 10, 10, true)), "it is whole, and forgotten");
}

#[tokio::test]
async fn a_long_log_is_cut_off_and_a_peer_that_was_away_catches_up_by_a_snapshot() {
    let mut cluster = Cluster::three().await;
    cluster.propose(set_text("one")).await;
    let (master, _) = cluster.master().await;
    let away = cluster.others(&master).swap_remove(0);
    cluster.kill(&away);
    let mut proposed = 0;
    let log = cluster.data(&master).join("log");
    for round in 0..30 {
        loop {
            let (name, lease) = cluster.master().await;
            if cluster.peer(&name).propose(&lease, ballast(round)).await.is_ok() {
                break;
            }
        }
        proposed += 600 << 10;
    }
    cluster.propose(set_text("two")).await;
    until("the log is cut off", || size(&log) < proposed / 2 && cluster.data(&master).join("snapshot").exists()).await;
    let back = cluster.start(&away).await;
    until("it has everything", || texts(&back) == ["one", "two"]).await;
    assert!(cluster.data(&away).join("snapshot").exists(), "it came as one");
    cluster.propose(set_text("three")).await;
    until("it goes on", || texts(&back) == ["one", "two", "three"]).await;
    drop(back);

    // Restart from a snapshot and the rest of the log.
    cluster.restart().await;
    cluster.propose(set_text("four")).await;
    until("all know", || cluster.running().all(|(_, peer)| texts(peer) == ["one", "two", "three", "four"])).await;

    cluster.kill(&away);
    let snapshot = cluster.data(&away).join("snapshot");
    let mut bytes = fs::read(&snapshot).expect("it can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&snapshot, &bytes).expect("it can be written");
    let damaged = start(cluster.settings(&away)).await.map(|_| ()).expect_err("it is damaged");
    assert!(matches!(damaged, StartError::Store(StoreError::Damaged { .. })), "{damaged}");
    fs::remove_file(&snapshot).expect("it can be removed");
    let missing = start(cluster.settings(&away)).await.map(|_| ()).expect_err("it is missing");
    assert!(missing.to_string().contains("the snapshot is missing"), "{missing}");
}

/// Kills a peer that is about to write a snapshot.
async fn killed_while_it_writes_a_snapshot(cluster: &mut Cluster, callers: &Callers, name: &str, begun: usize) {
    let data = cluster.data(name);
    until("a snapshot is about to be written", || disks::snapshots_begun(&data) > begun).await;
    let before = callers.loaded();
    until("proposals go on", || callers.loaded() >= before + 10).await;
    callers.forget(name);
    cluster.kill(name);
    disks::set_for_snapshots(&data, DiskState::Broken);
}

async fn started(cluster: &mut Cluster, callers: &Callers, watcher: &LeaseWatcher, name: &str) {
    disks::set_for_snapshots(&cluster.data(name), DiskState::Sound);
    watcher.watch(&cluster.start(name).await);
    callers.set_running(cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_are_killed_while_they_build_and_install_snapshots_under_load() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    let (watcher, watching) = LeaseWatcher::start(&cluster);
    cluster.bootstrap().await;
    cluster.running().for_each(|(_, peer)| watcher.watch(peer));
    cluster.master().await;
    let mut callers = Callers::start(&cluster, 7, Mistake::None);
    callers.add_load(3, 200 << 10);
    for _ in 0..3 {
        // The master while it builds a snapshot.
        let (master, _) = cluster.master().await;
        let data = cluster.data(&master);
        disks::set_for_snapshots(&data, DiskState::Stuck);
        let begun = disks::snapshots_begun(&data);
        killed_while_it_writes_a_snapshot(&mut cluster, &callers, &master, begun).await;
        started(&mut cluster, &callers, &watcher, &master).await;

        // A follower while it installs a snapshot, because the log lacks what it needs.
        let (master, _) = cluster.master().await;
        let away = cluster.others(&master).swap_remove(0);
        callers.forget(&away);
        cluster.kill(&away);
        let before = callers.loaded();
        until("it lacks what was cut off", || callers.loaded() > before + 100).await;
        let data = cluster.data(&away);
        let begun = disks::snapshots_begun(&data);
        started(&mut cluster, &callers, &watcher, &away).await;
        disks::set_for_snapshots(&data, DiskState::Stuck);
        killed_while_it_writes_a_snapshot(&mut cluster, &callers, &away, begun).await;
        started(&mut cluster, &callers, &watcher, &away).await;

        // Restart from disk.
        callers.forget(&away);
        cluster.kill(&away);
        started(&mut cluster, &callers, &watcher, &away).await;
    }
    cluster.propose(assigned("last", 1.0)).await;
    let calls = callers.stop(&cluster).await;
    until_equal(&cluster, &cluster.names, "snapshots").await;
    let (writes, reads) = judge(&calls).unwrap_or_else(|why| panic!("{why}"));
    assert!(writes > 20 && reads > 20, "nothing happened: {writes} writes, {reads} reads");
    watcher.stop(watching);
}
