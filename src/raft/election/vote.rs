//! When this peer may give its vote, and how it starts an election.
//!
//! A peer leases its vote to a master whose message it receives, and to a candidate that it votes for. It supports no
//! other peer meanwhile.
//! openraft enforces this for followers. [`Ballot`] enforces it for a master, and orders messages to openraft so that
//! checking a vote lease and acting on it are one step.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
    time::Duration,
};

use leaseway_core::{
    planted::{self, Fault},
    types::Millis,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    log::{LogId, Raft, RaftState, Vote, store::LogStore},
    settings::timing::Timing,
};

/// The end of this peer's vote lease; `None` if no master or candidate was heard from since the start.
///
/// A vote is leased to a master for [`Timing::lease`], and openraft refuses to vote in that time. It is leased to a
/// candidate for the time limit of an election. openraft would vote for another candidate meanwhile, but the pre-vote
/// makes it wait, so that candidates do not disturb each other.
pub(crate) fn vote_leased_until(state: &RaftState, timing: Timing) -> Option<Instant> {
    let master = state.vote_ref().is_committed();
    let lease = if master { Duration::from_millis(timing.lease().0) } else { timing.election_min() };
    state.vote_last_modified().map(|heard| heard + lease)
}

/// Whether this peer's vote is leased to a master.
pub(crate) fn follows_live_master(state: &RaftState, timing: Timing) -> bool {
    state.vote_ref().is_committed() && !is_free_to_vote(state, timing)
}

/// Whether no vote lease runs.
pub(crate) fn is_free_to_vote(state: &RaftState, timing: Timing) -> bool {
    vote_leased_until(state, timing).is_none_or(|until| Instant::now() > until)
}

/// Withholds the vote of a master, and orders the messages to openraft.
///
/// openraft's followers refuse to vote while their votes are leased to a master, but a master leases no vote to itself.
/// A master belongs to the quorum that confirms its lease. If it voted for another peer while the confirmation counts,
/// it could elect a second master together with a peer that did not confirm.
#[derive(Debug, Default)]
pub(crate) struct Ballot {
    withheld_until: AtomicU64,
    order: Mutex<()>,
}

impl Ballot {
    /// Runs `work`, whose first poll sends a message to openraft. Messages arrive there in the order of these calls.
    pub(crate) async fn in_order<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let first = {
            let _order = self.order.lock().await;
            poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await
        };
        match first {
            Poll::Ready(result) => result,
            Poll::Pending => work.await,
        }
    }

    /// Runs `work` to its end while no other message is sent to openraft.
    async fn exclusively<T>(&self, work: impl Future<Output = T>) -> T {
        let _order = self.order.lock().await;
        work.await
    }

    /// Refuses to vote before this time. Applies to votes that run through [`in_order`](Ballot::in_order).
    pub(crate) fn withhold(&self, until: Millis) {
        self.withheld_until.fetch_max(until.0, Ordering::SeqCst);
    }

    /// Allows votes again. The master lease of this peer must have ended, and it must begin no other.
    pub(crate) fn release(&self) {
        self.withheld_until.store(0, Ordering::SeqCst);
    }

    pub(crate) fn is_withheld(&self, now: Millis) -> bool {
        now.0 <= self.withheld_until.load(Ordering::SeqCst)
    }
}

/// Starts an election if `is_right`. No message reaches openraft between the check and the election, because it could
/// grant a vote lease that the election would break.
pub(crate) async fn start_election(
    raft: &Raft,
    ballot: &Ballot,
    is_right: impl FnOnce(&RaftState) -> bool + Send + 'static,
) -> bool {
    let elect = async {
        let right = raft.with_raft_state(is_right).await;
        right.unwrap_or(false) && raft.trigger().elect().await.is_ok()
    };
    ballot.exclusively(elect).await
}

/// A master's request to another peer to stand for election in its place. See `membership/transfer.rs`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct StandRequest {
    /// The vote that the master was elected by.
    pub(crate) master: Vote,
    /// The last entry of its log, after its lease.
    pub(crate) last: Option<LogId>,
}

impl StandRequest {
    /// Whether no later master lease has begun, as far as a peer that could win the election knows.
    pub(crate) fn is_current(&self, state: &RaftState, log: &LogStore) -> bool {
        let is_last = log.log().last() == self.last || planted::is(Fault::StaleHandOver);
        *state.vote_ref() == self.master && is_last
    }
}
