//! How a peer leaves: a master hands its mastership over first.

use std::time::Duration;

use openraft::ServerState;

use crate::{members::Members, transfer::hand_over};

/// Waits until the master lease has ended; the lease renewal has been stopped before. Then, if this peer leads, hands over to the
/// voter with the longest log. Where this peer's vote and that of the next master are not enough, the next one is
/// elected as soon as the others' vote leases have ended.
pub(crate) async fn leave(members: &Members) {
    // The master lease is over once all senders of the mastership are gone: only then may this peer vote for another.
    let mut mastership = members.mastership.clone();
    while mastership.changed().await.is_ok() {}
    let state = members.raft.metrics().borrow().state;
    if state == ServerState::Leader
        && let Some(next) = members.most_complete()
    {
        members.local.ballot.release();
        hand_over(members, next).await;
    }
    let _ = tokio::time::timeout(Duration::from_secs(2), members.raft.shutdown()).await;
}
