//! All members as one peer sees them, for operators.

use leaseway_core::types::Millis;

use crate::{
    election::PeerContext,
    log::{PeerId, Raft},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The reporting peer believes that it leads. Whether it may decide depends on its master lease.
    Master,
    Follower,
    /// It receives the log and has no vote yet.
    Learner,
}

/// A member as the reporting peer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerReport {
    pub name: String,
    /// The address of its peer listener.
    pub address: String,
    /// The address for clients.
    pub advertise: String,
    pub role: Role,
    /// The newest Raft term that the reporting peer knows. Not the term of a master lease.
    pub term: u64,
    /// The index of the last log entry that it certainly has. `None` for other peers unless the reporting peer leads.
    pub position: Option<u64>,
    /// The number of log entries that it lacks. `None` without `position`.
    pub lag: Option<u64>,
    /// The time since its last message. `None` for the reporting peer, and for a peer that has sent none.
    pub last_contact: Option<Millis>,
}

pub(crate) fn peers(raft: &Raft, context: &PeerContext) -> Vec<PeerReport> {
    let settings = &context.settings;
    let metrics = raft.metrics().borrow().clone();
    let membership = &metrics.membership_config;
    let voters: Vec<PeerId> = membership.voter_ids().collect();
    let now = context.now();
    let report = |(peer, member): (&PeerId, &crate::log::Member)| {
        let mine = *peer == metrics.id;
        let contact = context.liveness.get(*peer);
        let replicated = metrics.replication.as_ref().and_then(|all| all.get(peer).copied().flatten());
        let position = if mine { metrics.last_log_index } else { replicated.map(|log_id| log_id.index) };
        let advertise = match &contact {
            _ if mine => &settings.advertise,
            Some(contact) => &contact.advertise,
            None => &member.advertise,
        };
        PeerReport {
            name: member.name.clone(),
            address: settings.address_of_member(member).to_owned(),
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
