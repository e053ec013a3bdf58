//! How long a peer stands by whom it has heard.

use std::time::Duration;

use tokio::time::Instant;

use crate::{raft::State, settings::Timing};

/// Until when this peer has promised to stand by somebody; nothing if it has heard of nobody since it was started.
///
/// By a master for as long as the master counts on: openraft refuses to vote in that time. By somebody who stands for
/// election, and has this peer's vote, for as long as being elected may take: openraft would vote for the next one at
/// once, but whoever asks beforehand is told to wait, or they would disturb each other.
pub(crate) fn promised_until(state: &State, timing: Timing) -> Option<Instant> {
    let master = state.vote_ref().is_committed();
    let promise = if master { Duration::from_millis(timing.lease().0) } else { timing.election_min() };
    state.vote_last_modified().map(|heard| heard + promise)
}

/// Whether this peer stands by a master of whom it has heard lately.
pub(crate) fn hears_a_master(state: &State, timing: Timing) -> bool {
    state.vote_ref().is_committed() && !hears_nobody(state, timing)
}

/// Whether that is over.
pub(crate) fn hears_nobody(state: &State, timing: Timing) -> bool {
    promised_until(state, timing).is_none_or(|until| Instant::now() > until)
}
