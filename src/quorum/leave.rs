//! How a peer leaves: the master hands its mastership on.

use std::time::Duration;

use openraft::ServerState;

use crate::{
    members::Members,
    peers::Call,
    raft::{PeerId, Vote},
};

/// Waits until the reign has ended: whoever keeps it was told to. Then, if this peer leads, the one that has most is
/// told to stand at once, and gets this peer's vote; where that is not enough it is elected as soon as the others'
/// promise to stand by this one has ended.
pub(crate) async fn leave(members: &Members) {
    // It is over when nobody is left to say anything about it: only then may this peer vote for somebody else.
    let mut mastership = members.mastership.clone();
    while mastership.changed().await.is_ok() {}
    let timing = members.settings.timing;
    let metrics = members.raft.metrics().borrow().clone();
    if metrics.state == ServerState::Leader && metrics.membership_config.voter_ids().count() > 1 {
        members.core.ballot.release();
        // What was under way arrives, or the next master lacks it.
        let last = metrics.last_log_index;
        let has_all = |metrics: &openraft::RaftMetrics<_, _>| furthest(metrics).is_some_and(|(_, at)| at >= last);
        let _ = members.raft.wait(Some(timing.heartbeat())).metrics(has_all, "hand over").await;
        let metrics = members.raft.metrics().borrow().clone();
        if let Some((next, _)) = furthest(&metrics) {
            stand(members, next, metrics.vote).await;
        }
        let me = metrics.id;
        let succeeded =
            |metrics: &openraft::RaftMetrics<PeerId, _>| metrics.current_leader.is_some_and(|leader| leader != me);
        // It votes meanwhile.
        let patience = timing.certainly_over() * 2;
        let _ = members.raft.wait(Some(patience)).metrics(succeeded, "somebody else leads").await;
    }
    let _ = tokio::time::timeout(Duration::from_secs(2), members.raft.shutdown()).await;
}

/// Who of the other voters has most, and up to where.
fn furthest(metrics: &openraft::RaftMetrics<PeerId, crate::raft::Member>) -> Option<(PeerId, Option<u64>)> {
    let voters = metrics.membership_config.voter_ids().filter(|voter| *voter != metrics.id);
    let at = |voter: PeerId| metrics.replication.as_ref()?.get(&voter).copied().flatten().map(|log_id| log_id.index);
    voters.map(|voter| (voter, at(voter))).max_by_key(|(_, at)| *at)
}

async fn stand(members: &Members, next: PeerId, vote: Vote) {
    let metrics = members.raft.metrics().borrow().clone();
    let Some(member) = metrics.membership_config.membership().get_node(&next).cloned() else { return };
    let address = members.settings.address_of(&member.name).unwrap_or(&member.address);
    let whom = (member.name.as_str(), address);
    let patience = members.settings.timing.heartbeat() * 2;
    let stood = members.calls.call_within::<_, bool>(patience, whom, next, Call::Stand, &vote).await;
    if let Ok((_, true)) = stood {
        tracing::info!(to = member.name, "mastership is handed on");
    }
}
