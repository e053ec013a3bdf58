//! The master lease (leader lease): the right of one peer to decide, for a limited time.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use leaseway_core::{
    planted::{self, Fault},
    types::{ClusterClock, ClusterTime, Millis},
};
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub enum Mastership {
    /// This peer is master as long as the lease [holds](MasterLease::holds).
    Master(MasterLease),
    /// Another peer is master, or nobody knows.
    Follower {
        /// The master, if this peer knows it.
        of: Option<PeerAddress>,
    },
    /// This peer does not know yet.
    Unknown,
}

/// A peer and its address for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    pub name: String,
    pub advertise: String,
}

/// A lease that has ended never holds again. The next one has a higher term.
#[derive(Clone)]
pub struct MasterLease(Arc<LeaseState>);

struct LeaseState {
    term: u64,
    since: Millis,
    clock: ClusterClock,
    /// The lease holds before this time. Zero once it has ended.
    until: AtomicU64,
    over: watch::Sender<bool>,
}

impl MasterLease {
    /// `stored` is the cluster clock in the log up to the entry that begins the term.
    pub(crate) fn new(term: u64, since: Millis, until: Millis, stored: ClusterTime) -> MasterLease {
        let (clock, until, over) =
            (ClusterClock::new(stored, since), AtomicU64::new(until.0), watch::Sender::new(false));
        MasterLease(Arc::new(LeaseState { term, since, clock, until, over }))
    }

    /// Each lease of a cluster has a higher term than those before. Not the Raft term.
    pub fn term(&self) -> u64 {
        self.0.term
    }

    /// The beginning, on this peer's clock.
    pub fn since(&self) -> Millis {
        self.0.since
    }

    /// The cluster clock of this term.
    pub fn clock(&self) -> ClusterClock {
        self.0.clock
    }

    /// Whether this peer may decide at `now`, on the clock that it was started with. At most one peer may at any time.
    /// The first call that finds the lease lapsed ends it.
    pub fn holds(&self, now: Millis) -> bool {
        let until = self.0.until.load(Ordering::Acquire);
        if now.0 < until || until != 0 && planted::is(Fault::OldMasterGoesOn) {
            return true;
        }
        // The exchange fails if the lease was extended meanwhile. Then `now` is outdated, and false is a safe answer.
        if until != 0 && self.0.until.compare_exchange(until, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.0.over.send_replace(true);
        }
        false
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.until.load(Ordering::Acquire) == 0
    }

    #[cfg(test)]
    pub(crate) fn until(&self) -> Millis {
        Millis(self.0.until.load(Ordering::Acquire))
    }

    /// Extends the lease. False if it has lapsed.
    pub(crate) fn extend(&self, now: Millis, until: Millis) -> bool {
        if !self.holds(now) {
            return false;
        }
        let extend = |before: u64| (before != 0).then_some(before.max(until.0));
        self.0.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, extend).is_ok()
    }

    pub(crate) fn end(&self) {
        self.0.until.store(0, Ordering::Release);
        self.0.over.send_replace(true);
    }

    pub(crate) async fn ended(&self) {
        let mut over = self.0.over.subscribe();
        // The sender lives as long as `self`.
        let _ = over.wait_for(|over| *over).await;
    }
}

impl fmt::Debug for MasterLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.0.until.load(Ordering::Acquire);
        f.debug_struct("MasterLease").field("term", &self.0.term).field("until", &until).finish_non_exhaustive()
    }
}
