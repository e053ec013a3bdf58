//! The peers of a node as this one sees them, for operators and pages.

use leaseway_core::Millis;
use leaseway_proto::admin::{ListPeersResponse, PeerReport, Role};
use leaseway_raft::{Mastership, RaftHandle};

use crate::node::{peer_endpoints::PeerEndpoints, server_info::ServerInfo};

/// A peer that was not heard from for so long counts as away.
pub(crate) const UNREACHABLE: Millis = Millis::from_secs(3);

/// All peers; how the others are is known to the master alone.
pub(crate) fn peer_list(quorum: &RaftHandle, info: &ServerInfo) -> ListPeersResponse {
    let mastership = quorum.mastership().borrow().clone();
    let name = quorum.name().to_owned();
    let (master, master_admin_address) = match mastership {
        Mastership::Master(_) => (name.clone(), info.admin.to_string()),
        Mastership::Follower { of: Some(master) } => {
            (master.name, PeerEndpoints::from(master.advertise.as_str()).admin)
        }
        Mastership::Follower { of: None } | Mastership::Unknown => Default::default(),
    };
    // Followers do not hear from each other.
    let hears = matches!(*quorum.mastership().borrow(), Mastership::Master(_));
    let peer = quorum.peers().into_iter().map(|peer| report(peer, &name, hears)).collect();
    ListPeersResponse { cluster_id: quorum.cluster().unwrap_or_default(), name, master, master_admin_address, peer }
}

fn report(peer: leaseway_raft::PeerReport, own: &str, hears: bool) -> PeerReport {
    let this = peer.name == own;
    let silent = hears && !this && peer.last_contact.is_none_or(|since| since > UNREACHABLE);
    let role = match peer.role {
        _ if silent => Role::Unreachable,
        leaseway_raft::Role::Master => Role::Master,
        leaseway_raft::Role::Follower => Role::Follower,
        leaseway_raft::Role::Learner => Role::Learner,
    };
    PeerReport {
        name: peer.name,
        peer_address: peer.address,
        grpc_address: PeerEndpoints::from(peer.advertise.as_str()).grpc,
        role: role.into(),
        term: peer.term,
        log_position: peer.position,
        lag: peer.lag,
        last_contact_ms: peer.last_contact.map(|since| since.0),
        self_: this,
    }
}
