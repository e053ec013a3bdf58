//! openraft's log storage.
//!
//! openraft 0.9 waits for every append, truncation, purge and vote before it does anything else. So there is at most
//! one job at a time, and proposals are batched before they reach openraft (`handle/proposals.rs`).

use std::{
    fmt::Debug,
    ops::{Bound, RangeBounds},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use openraft::{
    ErrorSubject, ErrorVerb, LogState, OptionalSend, RaftLogReader, StorageIOError,
    storage::{LogFlushed, RaftLogStorage},
};
use tokio::sync::oneshot;

use crate::log::{
    Entry, LogId, PeerId, StorageError, Types, Vote, codec,
    disk_thread::{Disk, Done, Failure, Job},
    memory::Log,
    snapshots::Snapshots,
};

/// The maximum size of the entries in one message, which has to arrive within a heartbeat.
const MAX_APPEND_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone)]
pub(crate) struct LogStore {
    log: Arc<Mutex<Log>>,
    /// The newest vote, even if it is not on disk yet.
    vote: Arc<Mutex<Option<Vote>>>,
    disk: Disk,
    snapshots: Snapshots,
    me: PeerId,
}

impl LogStore {
    pub(crate) fn new(log: Log, vote: Option<Vote>, disk: Disk, snapshots: Snapshots, me: PeerId) -> LogStore {
        LogStore { log: Arc::new(Mutex::new(log)), vote: Arc::new(Mutex::new(vote)), disk, snapshots, me }
    }

    /// The approximate size of the last snapshot.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.snapshots.bytes()
    }

    /// Ignores poison: a panic while the lock is held ends consensus anyway.
    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`log`](Self::log).
    pub(crate) fn vote(&self) -> MutexGuard<'_, Option<Vote>> {
        self.vote.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run_job(&self, verb: ErrorVerb, job: impl FnOnce(Done) -> Job + OptionalSend) -> Result<(), StorageError> {
        let (done, result) = oneshot::channel();
        self.disk.submit(job(done));
        let result = result.await.unwrap_or_else(|_| Err(Failure("the disk thread has ended".into())));
        result.map_err(|failure| StorageIOError::new(ErrorSubject::Store, verb, &failure).into())
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        Ok(self.log().range(start..end, u64::MAX))
    }

    /// Returns nothing if the first entry was purged, so that a follower never gets a log with a gap.
    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, StorageError> {
        let mut entries = self.log().range(start..end, MAX_APPEND_BYTES);
        if entries.first().is_some_and(|first| first.log_id.index != start) {
            entries.clear();
        }
        Ok(entries)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let log = self.log();
        Ok(LogState { last_purged_log_id: log.purged(), last_log_id: log.last() })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        *self.vote() = Some(*vote);
        self.run_job(ErrorVerb::Write, |done| Job::Vote { vote: *vote, done }).await
    }

    /// Returns a vote for this peer as not committed. Otherwise openraft would lead again after a restart, in a Raft
    /// term that the other peers may have left.
    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.vote().map(|vote| {
            let mine = vote.leader_id.voted_for() == Some(self.me);
            Vote { committed: vote.committed && !mine, ..vote }
        }))
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        {
            let mut log = self.log();
            for entry in &entries {
                let size = codec::HEADER_BYTES as u64 + codec::encoded_len(entry);
                log.append(entry.clone(), size)
                    .map_err(|error| StorageIOError::write_log_entry(entry.log_id, &error))?;
            }
        }
        self.disk.submit(Job::Append { entries, done: callback });
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let last = {
            let mut log = self.log();
            log.truncate(log_id.index);
            log.last()
        };
        self.run_job(ErrorVerb::Delete, |done| Job::Truncate { from: log_id.index, last, done }).await
    }

    /// Waits until the snapshot is on disk. openraft purges entries while the snapshot that covers them is still being
    /// written; a peer that is killed in between would have neither.
    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let covered = self.snapshots.cover(log_id).await;
        covered.map_err(|failure| StorageIOError::new(ErrorSubject::Store, ErrorVerb::Delete, &failure))?;
        self.log().purge(log_id);
        self.run_job(ErrorVerb::Delete, |done| Job::Purge { upto: log_id, done }).await
    }
}
