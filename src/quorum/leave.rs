//! How a peer leaves: a master hands its mastership over (Raft's leadership transfer).

use std::time::Duration;

use openraft::ServerState;

use crate::{
    members::Members,
    peers::Call,
    raft::{PeerId, Vote},
};

/// What openraft tells about a peer.
type RaftMetrics = openraft::RaftMetrics<PeerId, crate::raft::Member>;

/// Waits until the reign has ended; its keeper has been stopped before. Then, if this peer leads, it asks the voter
/// with the longest log to start an election at once, and gives it its own vote. Where that vote is not enough, the
/// voter is elected as soon as the others' vote leases on this peer have ended.
pub(crate) async fn leave(members: &Members) {
    // The reign is over once all senders of the mastership are gone: only then may this peer vote for another.
    let mut mastership = members.mastership.clone();
    while mastership.changed().await.is_ok() {}
    let metrics = members.raft.metrics().borrow().clone();
    if metrics.state == ServerState::Leader && metrics.membership_config.voter_ids().count() > 1 {
        members.local.ballot.release();
        // Entries under way arrive first, or the next master lacks them.
        let last = metrics.last_log_index;
        let has_all = |metrics: &RaftMetrics| most_complete(metrics).is_some_and(|(_, at)| at >= last);
        let wait = members.raft.wait(Some(members.settings.timing.heartbeat()));
        let _ = wait.metrics(has_all, "hand over").await;
        let metrics = members.raft.metrics().borrow().clone();
        if let Some((next, _)) = most_complete(&metrics) {
            hand_over(members, next).await;
        }
    }
    let _ = tokio::time::timeout(Duration::from_secs(2), members.raft.shutdown()).await;
}

/// Asks a peer to start an election, and waits until another leads. The reign has ended, and the ballot is released.
/// This peer stays up meanwhile, because its vote is needed.
pub(crate) async fn hand_over(members: &Members, next: PeerId) -> bool {
    let metrics = members.raft.metrics().borrow().clone();
    ask_to_start_election(members, next, metrics.vote).await;
    let me = metrics.id;
    let succeeded = |metrics: &RaftMetrics| metrics.current_leader.is_some_and(|leader| leader != me);
    let patience = members.settings.timing.certainly_over() * 2;
    members.raft.wait(Some(patience)).metrics(succeeded, "another peer leads").await.is_ok()
}

/// The other voter with the longest log, and the index of its last entry.
pub(crate) fn most_complete(metrics: &RaftMetrics) -> Option<(PeerId, Option<u64>)> {
    let voters = metrics.membership_config.voter_ids().filter(|voter| *voter != metrics.id);
    let at = |voter: PeerId| metrics.replication.as_ref()?.get(&voter).copied().flatten().map(|log_id| log_id.index);
    voters.map(|voter| (voter, at(voter))).max_by_key(|(_, at)| *at)
}

async fn ask_to_start_election(members: &Members, next: PeerId, vote: Vote) {
    let metrics = members.raft.metrics().borrow().clone();
    let Some(member) = metrics.membership_config.membership().get_node(&next).cloned() else { return };
    let address = members.settings.address_of(&member.name).unwrap_or(&member.address);
    let peer = (member.name.as_str(), address);
    let patience = members.settings.timing.heartbeat() * 2;
    let started = members.calls.call_within::<_, bool>(patience, peer, next, Call::Stand, &vote).await;
    if let Ok((_, true)) = started {
        tracing::info!(to = member.name, "mastership is handed over");
    }
}
