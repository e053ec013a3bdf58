//! The disk thread: it writes the log and the vote, one job after the other, so that no async task waits for a disk.
//! After the first error it writes nothing, and every job fails with that [`Failure`].

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use openraft::storage::LogFlushed;
use tokio::sync::{oneshot, watch};

use crate::{
    log::{
        Entry, LogId, StoreError, Types, Vote, codec::Kind, directory::Directory, high_water_mark::HighWaterMark,
        memory::Record, segment_files::Segments,
    },
    metrics,
};

/// Why consensus has ended on this peer, which neither votes nor stores anything afterwards.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub(crate) Arc<str>);

/// Publishes the first failure. Later ones are ignored.
#[derive(Debug, Clone)]
pub(crate) struct FailureLatch(Arc<watch::Sender<Option<Failure>>>);

impl FailureLatch {
    pub(crate) fn new() -> FailureLatch {
        FailureLatch(Arc::new(watch::Sender::new(None)))
    }

    pub(crate) fn fail(&self, why: &dyn std::fmt::Display) {
        let failure = Failure(why.to_string().into());
        self.0.send_if_modified(|first| {
            if first.is_none() {
                let advice = "consensus has ended on this peer: fix the cause and restart the peer";
                tracing::error!(error = %failure, "{advice}");
                *first = Some(failure);
                return true;
            }
            false
        });
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Option<Failure>> {
        self.0.subscribe()
    }

    pub(crate) fn get(&self) -> Option<Failure> {
        self.0.borrow().clone()
    }
}

pub(crate) type Done = oneshot::Sender<Result<(), Failure>>;

pub(crate) enum Job {
    Append {
        entries: Vec<Entry>,
        done: LogFlushed<Types>,
    },
    /// `last` is the end of the log afterwards.
    Truncate {
        from: u64,
        last: Option<LogId>,
        done: Done,
    },
    Purge {
        upto: LogId,
        done: Done,
    },
    Vote {
        vote: Vote,
        done: Done,
    },
}

/// A handle to the disk thread, which ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    jobs: mpsc::Sender<Job>,
    flushes: FlushTimes,
}

impl Disk {
    pub(crate) fn start(
        directory: Arc<Directory>,
        segments: Segments,
        mark: HighWaterMark,
        purged: Option<LogId>,
        failing: FailureLatch,
    ) -> Disk {
        let (jobs, queue) = mpsc::channel();
        let flushes = FlushTimes::default();
        let writer = Writer { directory, segments, mark, purged, failing, flushes: flushes.clone() };
        thread::Builder::new()
            .name("raft-disk".into())
            .spawn(move || writer.run(&queue))
            .expect("a thread can be spawned at startup");
        Disk { jobs, flushes }
    }

    pub(crate) fn flushes(&self) -> FlushTimes {
        self.flushes.clone()
    }

    /// The queue is unbounded, but openraft waits for each job before it submits the next.
    pub(crate) fn submit(&self, job: Job) {
        // The thread outlives all senders.
        let _ = self.jobs.send(job);
    }
}

struct Writer {
    directory: Arc<Directory>,
    segments: Segments,
    mark: HighWaterMark,
    purged: Option<LogId>,
    failing: FailureLatch,
    flushes: FlushTimes,
}

impl Writer {
    fn run(mut self, queue: &mpsc::Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            match job {
                Job::Append { entries, done } => {
                    let (count, last) = (entries.len() as u64, entries.last().map(|entry| entry.log_id));
                    let records: Vec<_> = entries.into_iter().map(Record::Entry).collect();
                    let result = self.attempt(|writer| {
                        writer.segments.append(&records, writer.purged)?;
                        last.map_or(Ok(()), |last| writer.mark.raise(last))
                    });
                    if result.is_ok() {
                        metrics::appended(count);
                    }
                    done.log_io_completed(result.map_err(std::io::Error::other));
                }
                Job::Truncate { from, last, done } => {
                    let result = self.attempt(|writer| {
                        writer.mark.lower(last)?;
                        writer.segments.append(&[Record::Truncate(from)], writer.purged)
                    });
                    let _ = done.send(result);
                }
                Job::Purge { upto, done } => {
                    let result = self.attempt(|writer| {
                        writer.segments.append(&[Record::Purge(upto)], writer.purged)?;
                        writer.purged = writer.purged.max(Some(upto));
                        writer.mark.raise(upto)?;
                        writer.segments.drop_purged(upto)
                    });
                    let _ = done.send(result);
                }
                Job::Vote { vote, done } => {
                    let result = self.attempt(|writer| writer.directory.replace("vote", Kind::Vote, &vote));
                    let _ = done.send(result);
                }
            }
        }
    }

    /// Runs a write, or fails if an earlier one has failed: even if later flushes succeed, it is unknown what the
    /// failed one left on the disk.
    fn attempt(&mut self, work: impl FnOnce(&mut Writer) -> Result<(), StoreError>) -> Result<(), Failure> {
        if let Some(failure) = self.failing.get() {
            return Err(failure);
        }
        self.flushes.begin(Instant::now());
        #[cfg(test)]
        let result =
            crate::tests::harness::faults::inject_disk_fault(self.directory.root(), "log").and_then(|()| work(self));
        #[cfg(not(test))]
        let result = work(self);
        self.flushes.end(Instant::now());
        result.map_err(|error| {
            self.failing.fail(&error);
            self.failing.get().unwrap_or_else(|| Failure(error.to_string().into()))
        })
    }
}

/// Half of the window. The slowest writes of the current half and of the one before are kept.
const HALF_WINDOW: Duration = Duration::from_secs(30);

/// The slowest disk write of the last minute, including one under way.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlushTimes(Arc<Mutex<SlowestWrites>>);

#[derive(Debug, Default)]
struct SlowestWrites {
    since: Option<Instant>,
    slowest: Duration,
    before: Duration,
    under_way: Option<Instant>,
}

impl SlowestWrites {
    fn advance(&mut self, now: Instant) {
        match self.since.map(|since| now.saturating_duration_since(since)) {
            Some(past) if past < HALF_WINDOW => return,
            Some(past) if past < 2 * HALF_WINDOW => self.before = self.slowest,
            _ => self.before = Duration::ZERO,
        }
        (self.since, self.slowest) = (Some(now), Duration::ZERO);
    }
}

impl FlushTimes {
    fn slowest_writes(&self) -> MutexGuard<'_, SlowestWrites> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, now: Instant) {
        self.slowest_writes().under_way = Some(now);
    }

    pub(crate) fn end(&self, now: Instant) {
        let mut slowest_writes = self.slowest_writes();
        slowest_writes.advance(now);
        let took = slowest_writes.under_way.take().map(|began| now.saturating_duration_since(began));
        slowest_writes.slowest = slowest_writes.slowest.max(took.unwrap_or_default());
    }

    pub(crate) fn slowest(&self, now: Instant) -> Duration {
        let mut slowest_writes = self.slowest_writes();
        slowest_writes.advance(now);
        let under_way = slowest_writes.under_way.map(|began| now.saturating_duration_since(began));
        slowest_writes.slowest.max(slowest_writes.before).max(under_way.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_write_is_kept_for_a_minute() {
        let (times, start) = (FlushTimes::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let slowest = |millis| times.slowest(at(millis)).as_millis();
        times.begin(at(0));
        assert_eq!(slowest(200), 200, "it is under way");
        times.end(at(300));
        times.begin(at(400));
        times.end(at(410));
        assert_eq!((slowest(29_000), slowest(31_000), slowest(59_000)), (300, 300, 300));
        assert_eq!(slowest(92_000), 0);
    }
}
