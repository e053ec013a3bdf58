//! What a peer knows about all peers, for operators.

use leaseway_core::Millis;

use crate::{
    peers::LocalPeer,
    raft::{PeerId, Raft},
    settings::Settings,
};

/// What a peer does in the quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It leads, as far as is known here. Whether it may decide, only its master lease says.
    Master,
    /// It has a vote.
    Follower,
    /// It receives the log, and has no vote (yet).
    Learner,
}

/// A peer, as this one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerReport {
    pub name: String,
    /// Where its peer listener is.
    pub address: String,
    /// Where clients reach it.
    pub advertise: String,
    pub role: Role,
    /// The newest Raft term that this peer knows of. (Reigns are counted separately.)
    pub term: u64,
    /// The last entry that it certainly has: known of the reporting peer itself, and of all if that one leads.
    pub position: Option<u64>,
    /// How many entries it lacks, if that is known here.
    pub lag: Option<u64>,
    /// How long ago it was heard from. `None` for the reporting peer itself, and for one never heard from.
    pub last_contact: Option<Millis>,
}

pub(crate) fn peers(raft: &Raft, local: &LocalPeer, settings: &Settings) -> Vec<PeerReport> {
    let metrics = raft.metrics().borrow().clone();
    let membership = &metrics.membership_config;
    let voters: Vec<PeerId> = membership.voter_ids().collect();
    let now = (local.clock)();
    let report = |(peer, member): (&PeerId, &crate::raft::Member)| {
        let mine = *peer == metrics.id;
        let contact = local.liveness.get(*peer);
        let replicated = metrics.replication.as_ref().and_then(|all| all.get(peer).copied().flatten());
        let position = if mine { metrics.last_log_index } else { replicated.map(|log_id| log_id.index) };
        let advertise = match &contact {
            _ if mine => &settings.advertise,
            Some(contact) => &contact.advertise,
            None => &member.advertise,
        };
        PeerReport {
            name: member.name.clone(),
            address: settings.address_of(&member.name).unwrap_or(&member.address).to_owned(),
            advertise: advertise.clone(),
            role: match metrics.current_leader {
                Some(leader) if leader == *peer => Role::Master,
                _ if voters.contains(peer) => Role::Follower,
                _ => Role::Learner,
            },
            term: metrics.current_term,
            position,
            lag: position.and_then(|at| metrics.last_log_index.map(|last| last.saturating_sub(at))),
            last_contact: contact.filter(|_| !mine).map(|contact| now.since(contact.at)),
        }
    };
    let mut reports: Vec<_> = membership.nodes().map(report).collect();
    reports.sort_by(|one, other| one.name.cmp(&other.name));
    reports
}
