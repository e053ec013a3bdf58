//! How far the quorum has stored what one incarnation of a resource has proposed.
//!
//! The quorum tells by an atomic number and a wake-up, not by a message: a full mailbox must not keep answers in.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use leaseway_raft::{Command, MasterLease, ProposeError, RaftHandle};
use tokio::sync::Notify;

use crate::observe::logging::Throttle;

/// Shared by the incarnation and the proposals that it has under way.
#[derive(Debug, Default)]
pub(super) struct CommitProgress {
    stored: AtomicU64,
    lost: AtomicBool,
    /// Notified of each change; none: the resource looks for itself.
    notified: Option<Arc<Notify>>,
}

/// With mastership all that is under way is lost, of thousands of resources.
static LOGGED: Throttle = Throttle::new();

/// What has become of the proposals of one incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commit {
    /// All up to this number are stored by a quorum.
    UpTo(u64),
    /// One of them is not, or may not be: nothing that was decided since can count.
    Lost,
}

impl CommitProgress {
    pub(super) fn notifying(notified: Arc<Notify>) -> CommitProgress {
        CommitProgress { notified: Some(notified), ..CommitProgress::default() }
    }

    pub(super) fn now(&self) -> Commit {
        if self.lost.load(Ordering::Acquire) { Commit::Lost } else { Commit::UpTo(self.stored.load(Ordering::Acquire)) }
    }

    /// Proposes `command`, the proposal `number`.
    pub(super) fn propose(self: &Arc<Self>, number: u64, command: Command, quorum: &RaftHandle, reign: &MasterLease) {
        let (guard, reign_number) = (self.guard(number), reign.term());
        quorum.submit(reign, vec![command], move |result| match result {
            Ok(()) => guard.confirm(),
            Err(ProposeError::Deposed) => tracing::debug!(reign = reign_number, "what was to be stored comes too late"),
            Err(error) => {
                if let Some(unsaid) = LOGGED.turn() {
                    tracing::warn!(reign = reign_number, unsaid, %error, "the peers did not store what they were to");
                }
            }
        });
    }

    /// To travel with the proposal `number`.
    fn guard(self: &Arc<Self>, number: u64) -> CommitGuard {
        CommitGuard { progress: Arc::clone(self), number, stored: false }
    }
}

/// Travels with a proposal. One that is dropped unconfirmed says that the proposal is lost.
#[derive(Debug)]
struct CommitGuard {
    progress: Arc<CommitProgress>,
    number: u64,
    stored: bool,
}

impl CommitGuard {
    /// A quorum has stored the proposal.
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
        if let Some(notified) = &self.progress.notified {
            notified.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_that_is_dropped_means_that_the_proposal_is_lost() {
        let progress = Arc::<CommitProgress>::default();
        progress.guard(1).confirm();
        assert_eq!(progress.now(), Commit::UpTo(1));
        drop(progress.guard(2));
        assert_eq!(progress.now(), Commit::Lost);
        progress.guard(3).confirm();
        assert_eq!(progress.now(), Commit::Lost, "what came after it rests on nothing");
    }
}
