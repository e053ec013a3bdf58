//! The disk thread: it writes the log and the vote, one job after the other, so that no async task waits for a disk.
//!
//! After the first error nothing is written any more, and every job fails with that [`Failure`].

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Instant,
};

use openraft::storage::LogFlushed;
use tokio::sync::{oneshot, watch};

use crate::{
    log::{
        StoreError,
        directory::Directory,
        floor::Floor,
        flush_times::FlushTimes,
        frame::Kind,
        memory::Record,
        segments::Segments,
        types::{Entry, LogId, Types, Vote},
    },
    metrics,
};

/// Why consensus has ended on this peer. It neither votes nor stores anything afterwards.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub(crate) Arc<str>);

/// Publishes the first failure. Later ones are ignored.
#[derive(Debug, Clone)]
pub(crate) struct Failing(Arc<watch::Sender<Option<Failure>>>);

impl Failing {
    pub(crate) fn new() -> Failing {
        Failing(Arc::new(watch::Sender::new(None)))
    }

    pub(crate) fn fail(&self, why: &dyn std::fmt::Display) {
        let failure = Failure(why.to_string().into());
        self.0.send_if_modified(|first| {
            if first.is_none() {
                let advice = "consensus has ended on this peer: fix the cause and restart it";
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

/// A handle to the thread, which ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    jobs: mpsc::Sender<Job>,
    flushes: FlushTimes,
}

impl Disk {
    pub(crate) fn start(
        directory: Arc<Directory>,
        segments: Segments,
        floor: Floor,
        purged: Option<LogId>,
        failing: Failing,
    ) -> Disk {
        let (jobs, queue) = mpsc::channel();
        let flushes = FlushTimes::default();
        let writer = Writer { directory, segments, floor, purged, failing, flushes: flushes.clone() };
        thread::Builder::new()
            .name("raft-disk".into())
            .spawn(move || writer.run(&queue))
            .expect("threads can be started while a server starts");
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
    floor: Floor,
    purged: Option<LogId>,
    failing: Failing,
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
                        last.map_or(Ok(()), |last| writer.floor.raise(last))
                    });
                    if result.is_ok() {
                        metrics::appended(count);
                    }
                    done.log_io_completed(result.map_err(std::io::Error::other));
                }
                Job::Truncate { from, last, done } => {
                    let result = self.attempt(|writer| {
                        writer.floor.lower(last)?;
                        writer.segments.append(&[Record::Truncate(from)], writer.purged)
                    });
                    let _ = done.send(result);
                }
                Job::Purge { upto, done } => {
                    let result = self.attempt(|writer| {
                        writer.segments.append(&[Record::Purge(upto)], writer.purged)?;
                        writer.purged = writer.purged.max(Some(upto));
                        writer.floor.raise(upto)?;
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

    /// Does nothing after a failure: it is unknown what a failed flush left on the disk, and a later successful flush
    /// does not tell.
    fn attempt(&mut self, work: impl FnOnce(&mut Writer) -> Result<(), StoreError>) -> Result<(), Failure> {
        if let Some(failure) = self.failing.get() {
            return Err(failure);
        }
        self.flushes.begin(Instant::now());
        #[cfg(test)]
        let result = crate::tests::disks::meet(self.directory.root(), "log").and_then(|()| work(self));
        #[cfg(not(test))]
        let result = work(self);
        self.flushes.end(Instant::now());
        result.map_err(|error| {
            self.failing.fail(&error);
            self.failing.get().unwrap_or_else(|| Failure(error.to_string().into()))
        })
    }
}
