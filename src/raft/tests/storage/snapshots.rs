//! Snapshots compact the log, and bring back a peer that was down for too long.

use std::{fs, path::Path};

use openraft::raft::InstallSnapshotRequest;

use crate::{
    handle::{open::StartError, service::ReceivedSnapshot, start},
    log::{SnapshotMeta, StoreError, Types, Vote, command::Command},
    tests::harness::cluster::{Cluster, assigned, set_text, texts, until},
};

/// Commands that are large in the log and leave the state unchanged.
fn ballast(round: usize) -> Vec<Command> {
    let client = format!("{round}{}", "x".repeat(600 << 10));
    vec![assigned(&client, 0.0)]
}

fn size(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).expect("a directory");
    files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.len()).sum()
}

#[test]
fn a_snapshot_chunk_after_a_gap_is_refused() {
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
        "the transfer starts over with the same bytes"
    );
    assert!(!arrives(chunk("y", 10, 10, false)), "the beginning of another snapshot is missing");
    assert!(arrives(chunk("y", 0, 10, false)) && !arrives(chunk("x", 30, 5, true)), "another snapshot replaces it");
    assert!(
        arrives(chunk("y", 10, 10, true)) && !arrives(chunk("y", 10, 10, true)),
        "the snapshot is complete and forgotten"
    );
}

#[tokio::test]
async fn a_long_log_is_compacted_and_a_lagging_peer_gets_a_snapshot() {
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
    until("the log is compacted", || size(&log) < proposed / 2 && cluster.data(&master).join("snapshot").exists())
        .await;
    let back = cluster.start(&away).await;
    until("it has everything", || texts(&back) == ["one", "two"]).await;
    assert!(cluster.data(&away).join("snapshot").exists(), "it received a snapshot");
    cluster.propose(set_text("three")).await;
    until("it follows the master", || texts(&back) == ["one", "two", "three"]).await;
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
