//! A master's lease on mastership: a master lease. It ends by itself unless a quorum goes on confirming it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use leaseway_core::{
    ClusterClock, ClusterTime, Millis,
    planted::{self, Fault},
};
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub enum Mastership {
    /// This peer, as long as the master lease [holds](MasterLease::holds).
    Master(MasterLease),
    /// Not this peer.
    Follower {
        /// The master, if this peer knows of one.
        of: Option<PeerAddress>,
    },
    /// Not known, or no peer is master yet.
    Unknown,
}

/// Where clients find a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    pub name: String,
    pub advertise: String,
}

/// The right to decide, for a limited time. A master lease that is over is over for ever; the next one has a higher term.
#[derive(Clone)]
pub struct MasterLease(Arc<LeaseState>);

struct LeaseState {
    term: u64,
    since: Millis,
    clock: ClusterClock,
    /// It holds before this. Zero: it is over.
    until: AtomicU64,
    over: watch::Sender<bool>,
}

impl MasterLease {
    /// `stored`: the moment in the log, with everything applied that came before the master lease.
    pub(crate) fn new(term: u64, since: Millis, until: Millis, stored: ClusterTime) -> MasterLease {
        let (clock, until, over) =
            (ClusterClock::new(stored, since), AtomicU64::new(until.0), watch::Sender::new(false));
        MasterLease(Arc::new(LeaseState { term, since, clock, until, over }))
    }

    /// Counts the master leases of the cluster: no two have the same term, and later master leases have higher ones.
    pub fn term(&self) -> u64 {
        self.0.term
    }

    /// When it began, on this peer's clock.
    pub fn since(&self) -> Millis {
        self.0.since
    }

    /// The clock of the cluster in this master lease.
    pub fn clock(&self) -> ClusterClock {
        self.0.clock
    }

    /// Whether this peer may decide at `now`, on the clock that it was started with. Two peers never may at the same
    /// moment. The first call that sees the master lease lapsed ends it.
    pub fn holds(&self, now: Millis) -> bool {
        let until = self.0.until.load(Ordering::Acquire);
        if now.0 < until || until != 0 && planted::is(Fault::OldMasterGoesOn) {
            return true;
        }
        // The exchange fails if the master lease was extended in between. Then it has not lapsed and only `now` is late;
        // answering no is safe all the same.
        if until != 0 && self.0.until.compare_exchange(until, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.0.over.send_replace(true);
        }
        false
    }

    /// Whether it has ended for good.
    pub(crate) fn is_over(&self) -> bool {
        self.0.until.load(Ordering::Acquire) == 0
    }

    #[cfg(test)]
    pub(crate) fn until(&self) -> Millis {
        Millis(self.0.until.load(Ordering::Acquire))
    }

    /// Extends a master lease that a quorum has confirmed until then. False if it has lapsed meanwhile.
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

    /// Resolves when it is over.
    pub(crate) async fn ended(&self) {
        let mut over = self.0.over.subscribe();
        // The sender lives as long as this does.
        let _ = over.wait_for(|over| *over).await;
    }
}

impl fmt::Debug for MasterLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.0.until.load(Ordering::Acquire);
        f.debug_struct("MasterLease").field("term", &self.0.term).field("until", &until).finish_non_exhaustive()
    }
}
