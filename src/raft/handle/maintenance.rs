//! Background tasks of a peer: they compact the log, flush the high-water mark and advance the cluster clock.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    election::{PeerContext, master_lease::Mastership},
    handle::proposals::{self, WeakProposals},
    log::{Raft, disk_thread::FailureLatch, high_water_mark::Flusher, store::LogStore},
    metrics,
    settings::Settings,
    state::{
        backup::Backup,
        machine::{Clock, SharedState},
    },
    transport::{Method, client::PeerClient},
};

/// A snapshot is taken once this many entries have been applied since the last one, …
const SNAPSHOT_AFTER_ENTRIES: u64 = 20_000;
/// … or once the log has this size.
const SNAPSHOT_AFTER_BYTES: u64 = 8 << 20;
/// With a large state both limits grow: the log may have a fourth of the size of the last snapshot, so that snapshots
/// never write more than five times as much as the log.
const LOG_PER_SNAPSHOT: u64 = 4;
/// The usual size of an entry in the log.
const ENTRY_BYTES: u64 = 100;
const LOG_CHECK_INTERVAL: Duration = Duration::from_millis(200);
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The interval of flushes, and so the maximum age of the high-water mark after a power failure.
const MARK_FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which this peer asks others for their incarnation, and the time limit for an answer.
const DOUBT_INTERVAL: Duration = Duration::from_secs(1);

/// Compacts the log: takes a snapshot when the log has become long, and purges entries that a snapshot covers.
pub(crate) async fn compact_log(raft: Raft, log: LogStore) {
    let mut asked = None;
    loop {
        tokio::time::sleep(LOG_CHECK_INTERVAL).await;
        let (applied, snapshot) = {
            let metrics = raft.data_metrics();
            let metrics = metrics.borrow();
            (metrics.last_applied.map(|id| id.index), metrics.snapshot.map(|id| id.index))
        };
        let (entries, bytes, purgeable) = {
            let log = log.log();
            (log.len(), log.bytes(), snapshot.and_then(|snapshot| log.purgeable(snapshot)))
        };
        metrics::log(entries, bytes);
        if let Some(purgeable) = purgeable
            && raft.trigger().purge_log(purgeable).await.is_err()
        {
            return;
        }
        let since = applied.unwrap_or(0).saturating_sub(snapshot.unwrap_or(0));
        let relative = log.snapshot_bytes() / LOG_PER_SNAPSHOT;
        let is_long = since >= SNAPSHOT_AFTER_ENTRIES.max(relative / ENTRY_BYTES)
            || (bytes >= SNAPSHOT_AFTER_BYTES.max(relative) && applied > snapshot);
        // One snapshot at a time: openraft would begin a second one.
        if asked.is_none_or(|asked| snapshot >= asked) && is_long {
            asked = Some(applied);
            if raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
    }
}

/// Writes the cluster clock to the log while a promise or learning period is in force. Every proposal carries the
/// clock, so this task proposes nothing while a master makes other proposals.
pub(crate) async fn advance_clock(
    state: SharedState,
    mastership: watch::Receiver<Mastership>,
    queue: WeakProposals,
    clock: Clock,
) {
    loop {
        tokio::time::sleep(CLOCK_CHECK_INTERVAL).await;
        let Mastership::Master(lease) = mastership.borrow().clone() else { continue };
        let (stored, last) = {
            let state = state.read();
            (state.clock(), state.last_end())
        };
        if lease.clock().advance(clock(), stored, last).is_none() {
            continue;
        }
        let Some(queue) = queue.upgrade() else { return };
        // If the proposal fails, the next check repeats it.
        let _ = proposals::propose(&queue, &lease, Vec::new()).await;
    }
}

/// Flushes the high-water mark. Not on the disk thread, because commits wait for that thread.
pub(crate) async fn flush_high_water_mark(mark: Flusher, failing: FailureLatch) {
    loop {
        tokio::time::sleep(MARK_FLUSH_INTERVAL).await;
        if !mark.is_due() {
            continue;
        }
        let flusher = mark.clone();
        match tokio::task::spawn_blocking(move || flusher.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return failing.fail(&error),
            Err(_) => return,
        }
    }
}

/// Asks the members whose incarnation is in doubt; the answer shows whether they have lost entries. Forgets peers that
/// are not members.
pub(crate) async fn resolve_doubts(context: Arc<PeerContext>, client: Arc<PeerClient>) {
    loop {
        tokio::time::sleep(DOUBT_INTERVAL).await;
        let Some(membership) = context.membership() else { continue };
        let members: BTreeMap<_, _> = membership.nodes().collect();
        if members.is_empty() {
            continue;
        }
        context.acknowledged.retain(|peer| members.contains_key(&peer));
        for (peer, member) in members {
            if context.acknowledged.doubts().contains(peer) {
                let address = (member.name.as_str(), context.settings.address_of_member(member));
                // `Acknowledged` compares the answer. Without an answer, the next round asks again.
                let _ = client.call_within::<_, ()>(DOUBT_INTERVAL, address, *peer, Method::Hello, &()).await;
            }
        }
    }
}

/// Deletes the backup file from the data directory once its content is in the log. Otherwise a later start would
/// restore it again.
pub(crate) async fn remove_backup(settings: Arc<Settings>, state: SharedState) {
    while state.read().is_blank() {
        tokio::time::sleep(LOG_CHECK_INTERVAL).await;
    }
    let removed = tokio::task::spawn_blocking(move || Backup::remove_pending(&settings.data)).await;
    if let Ok(Err(error)) = removed {
        tracing::warn!(%error, "cannot delete the restored backup from the data directory; delete it, or a later start may restore it again");
    }
}
