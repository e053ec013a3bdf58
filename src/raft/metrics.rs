//! Metrics, through the `metrics` facade.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// All metrics of this crate with a description.
pub const METRICS: [(&str, &str); 11] = [
    ("leaseway_master_lease_term", "Term of the newest master lease known to this peer."),
    ("leaseway_raft_is_master", "1 while this peer is master, 0 otherwise."),
    ("leaseway_raft_log_entries", "Log entries not yet covered by a snapshot."),
    ("leaseway_raft_log_bytes", "Size in bytes of the log entries not yet covered by a snapshot."),
    ("leaseway_raft_appended_total", "Entries written to the log on disk."),
    ("leaseway_raft_commit_seconds", "Time until a batch of proposals is stored by a quorum and applied."),
    ("leaseway_raft_proposals_total", "Proposals, by result."),
    ("leaseway_promise_entries_total", "Log entries that contain promises."),
    ("leaseway_promise_changes_total", "Changes of promises; a log entry may contain several."),
    ("leaseway_raft_snapshots_total", "Snapshots written, both own and received."),
    ("leaseway_raft_snapshot_bytes", "Size of the newest snapshot in bytes."),
];

/// Last values of gauges that rarely change, for [`repeat_gauges`].
static TERM: AtomicU64 = AtomicU64::new(0);
static IS_MASTER: AtomicU64 = AtomicU64::new(0);
static SNAPSHOT_BYTES: AtomicU64 = AtomicU64::new(0);

/// Sets the gauges that rarely change. Call it before each scrape if the recorder drops gauges that are not set for a
/// while.
pub fn repeat_gauges() {
    metrics::gauge!("leaseway_master_lease_term").set(TERM.load(Relaxed) as f64);
    metrics::gauge!("leaseway_raft_is_master").set(IS_MASTER.load(Relaxed) as f64);
    metrics::gauge!("leaseway_raft_snapshot_bytes").set(SNAPSHOT_BYTES.load(Relaxed) as f64);
}

/// Registers all counters at zero, so that a rate over them includes the first event.
pub fn begin_counters() {
    for name in [
        "leaseway_raft_appended_total",
        "leaseway_raft_snapshots_total",
        "leaseway_promise_entries_total",
        "leaseway_promise_changes_total",
    ] {
        metrics::counter!(name).absolute(0);
    }
    for result in ["stored", "refused", "uncertain"] {
        metrics::counter!("leaseway_raft_proposals_total", "result" => result).absolute(0);
    }
}

pub(crate) fn appended(entries: u64) {
    metrics::counter!("leaseway_raft_appended_total").increment(entries);
}

pub(crate) fn snapshot(bytes: usize) {
    metrics::counter!("leaseway_raft_snapshots_total").increment(1);
    SNAPSHOT_BYTES.store(bytes as u64, Relaxed);
    repeat_gauges();
}

pub(crate) fn log(entries: usize, bytes: u64) {
    metrics::gauge!("leaseway_raft_log_entries").set(entries as f64);
    metrics::gauge!("leaseway_raft_log_bytes").set(bytes as f64);
}

pub(crate) fn mastership(term: u64, is_master: bool) {
    TERM.store(term, Relaxed);
    IS_MASTER.store(u64::from(is_master), Relaxed);
    repeat_gauges();
}

pub(crate) fn committed(took: Duration) {
    metrics::histogram!("leaseway_raft_commit_seconds").record(took.as_secs_f64());
}

pub(crate) fn proposed(result: &'static str, count: usize) {
    metrics::counter!("leaseway_raft_proposals_total", "result" => result).increment(count as u64);
}

/// Counts an entry with changes of promises.
pub(crate) fn promised(changes: usize) {
    if changes > 0 {
        metrics::counter!("leaseway_promise_entries_total").increment(1);
        metrics::counter!("leaseway_promise_changes_total").increment(changes as u64);
    }
}
