//! What `leaseway up` writes down of its peers.

use std::net::SocketAddr;

use super::{
    file::Peer,
    plan::{NodePlan, Plan},
    process::Served,
};
use crate::connect::run_file::{Running, RunningNode};

/// Where peers serve, for commands that are not told: `served` has those of the plan, in its order.
pub(super) fn running(plan: &Plan, served: &[Option<&Served>]) -> Running {
    let here: Vec<_> = plan.peers().map(|peer| &peer.data).zip(served).collect();
    let address = |known: Option<String>, planned: &SocketAddr| {
        known.or_else(|| (planned.port() != 0).then(|| planned.to_string()))
    };
    let node = |node: &NodePlan| {
        let at = |peer: &Peer| here.iter().find(|(data, _)| **data == node.directory.join(&peer.name))?.1.cloned();
        let members: Vec<_> = node.members.iter().map(|peer| (peer, at(peer))).collect();
        let servers =
            members.iter().filter_map(|(peer, at)| address(at.as_ref().map(|at| at.grpc.clone()), &peer.grpc));
        let admins =
            members.iter().filter_map(|(peer, at)| address(at.as_ref().map(|at| at.admin.clone()), &peer.admin));
        RunningNode {
            name: node.name.clone(),
            is_root: node.parent.is_none(),
            servers: servers.collect(),
            admins: admins.collect(),
        }
    };
    Running { process: std::process::id(), nodes: plan.nodes.iter().map(node).collect() }
}
