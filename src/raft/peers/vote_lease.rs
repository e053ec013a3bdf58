//! The lease on its vote that a peer gives to a master or candidate it has heard from. While the lease runs, the peer
//! supports no other.

use std::time::Duration;

use tokio::time::Instant;

use crate::{raft::RaftState, settings::Timing};

/// Until when this peer's vote is leased; `None` if it has heard from no master and no candidate since it was started.
///
/// To a master, for as long as the master relies on: openraft refuses to vote in that time. To a candidate that has
/// this peer's vote, for as long as an election may take: openraft would vote for the next candidate at once, but the
/// pre-vote tells that one to wait, so that candidates do not disturb each other.
pub(crate) fn vote_leased_until(state: &RaftState, timing: Timing) -> Option<Instant> {
    let master = state.vote_ref().is_committed();
    let promise = if master { Duration::from_millis(timing.lease().0) } else { timing.election_min() };
    state.vote_last_modified().map(|heard| heard + promise)
}

/// Whether this peer's vote is leased to a master.
pub(crate) fn follows_live_master(state: &RaftState, timing: Timing) -> bool {
    state.vote_ref().is_committed() && !is_free_to_vote(state, timing)
}

/// Whether no vote lease runs.
pub(crate) fn is_free_to_vote(state: &RaftState, timing: Timing) -> bool {
    vote_leased_until(state, timing).is_none_or(|until| Instant::now() > until)
}
