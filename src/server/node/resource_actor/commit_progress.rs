//! The progress of one incarnation's proposals.
//!
//! Raft reports progress by an atomic number and a wake-up rather than a message, because a full mailbox must not
//! delay answers.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use leaseway_raft::{Command, MasterLease, ProposeError, RaftHandle};

use super::{combiner::Incarnation, scheduler::Schedule};
use crate::observe::logging::Throttle;

/// Shared by the incarnation and its pending proposals.
#[derive(Default)]
pub(super) struct CommitProgress {
    stored: AtomicU64,
    lost: AtomicBool,
    /// Woken when the progress changes. Dangling if the resource polls.
    resource: Weak<Incarnation>,
}

/// Throttled, because a loss of mastership fails the proposals of thousands of resources.
static LOGGED: Throttle = Throttle::new();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commit {
    /// All proposals up to this number are committed.
    UpTo(u64),
    /// A proposal was not committed, or its outcome is unknown: all decisions since then are void.
    Lost,
}

impl CommitProgress {
    pub(super) fn waking(resource: Weak<Incarnation>) -> CommitProgress {
        CommitProgress { resource, ..CommitProgress::default() }
    }

    pub(super) fn now(&self) -> Commit {
        if self.lost.load(Ordering::Acquire) { Commit::Lost } else { Commit::UpTo(self.stored.load(Ordering::Acquire)) }
    }

    /// Proposes `command` as proposal `number`.
    pub(super) fn propose(
        self: &Arc<Self>,
        number: u64,
        command: Command,
        raft: &RaftHandle,
        master_lease: &MasterLease,
    ) {
        let (guard, term) = (self.guard(number), master_lease.term());
        raft.submit(master_lease, vec![command], move |result| match result {
            Ok(()) => guard.confirm(),
            Err(ProposeError::Deposed) => tracing::debug!(
                term,
                "change of an earlier term was not committed to the \
                                                                 Raft log"
            ),
            Err(error) => {
                if let Some(suppressed) = LOGGED.turn() {
                    tracing::warn!(term, suppressed, %error, "change not committed to the Raft log");
                }
            }
        });
    }

    fn guard(self: &Arc<Self>, number: u64) -> CommitGuard {
        CommitGuard { progress: Arc::clone(self), number, stored: false }
    }
}

/// Tracks one proposal. If it is dropped before [`confirm`](CommitGuard::confirm), the proposal counts as lost.
struct CommitGuard {
    progress: Arc<CommitProgress>,
    number: u64,
    stored: bool,
}

impl CommitGuard {
    fn confirm(mut self) {
        self.stored = true;
    }
}

impl Drop for CommitGuard {
    fn drop(&mut self) {
        if self.stored {
            self.progress.stored.fetch_max(self.number, Ordering::AcqRel);
        } else {
            self.progress.lost.store(true, Ordering::Release);
        }
        if let Some(resource) = self.progress.resource.upgrade() {
            Schedule::wake(&resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_guard_loses_the_proposal_and_all_later_ones() {
        let progress = Arc::<CommitProgress>::default();
        progress.guard(1).confirm();
        assert_eq!(progress.now(), Commit::UpTo(1));
        drop(progress.guard(2));
        assert_eq!(progress.now(), Commit::Lost);
        progress.guard(3).confirm();
        assert_eq!(progress.now(), Commit::Lost);
    }
}
