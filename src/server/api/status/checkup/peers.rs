//! Whether a node has a master, and whether its peers take part.

use std::collections::BTreeSet;

use leaseway_proto::admin::{ListPeersResponse, PeerReport, Role};

use super::{NodeObservation, Outcome, PeersObservation, ServerObservation, bad, fine, or_fine, unanswered, warn};

/// Entries of the log that a peer may lack.
const LAGS: u64 = 1_000;
const START: &str = "start it again, or replace it (`leaseway peers add`, then `leaseway peers remove`)";
const REJOIN: &str = "leases may have been given twice: stop that peer, empty its data directory and start it again, so \
                      that it rejoins; see the runbook, `a data directory was put back to an older copy`";
const RUNBOOK: &str = "see the runbook, `a peer takes no part`; the others go on without it";

pub(super) fn master(node: &NodeObservation) -> Vec<Outcome> {
    let masters: Vec<&str> =
        node.statuses().filter(|(_, status)| status.is_master).map(|(_, status)| &*status.server_id).collect();
    if let Some(address) = node.master_elsewhere() {
        return match node.silence_of(address) {
            None => fine(format!("the master is at {address}")),
            Some(why) => vec![warn(
                format!("the master at {address} does not answer here ({why}), but others name it"),
                "check again in some seconds; then see whether clients can reach that address (--advertise)",
            )],
        };
    }
    match (&masters[..], &node.peers) {
        ([master], _) => fine(format!("{master} is master")),
        ([], PeersObservation::Listed(list)) => {
            let (up, all) = voters(node, list);
            let text = format!("there is none, no lease is given: {up} of {all} peers answer");
            let next = match 2 * up > all {
                true => "a majority is up: see whether the peers reach each other at their peer addresses",
                false => "there is no quorum: start peers until a majority is up; with their data lost see the runbook",
            };
            vec![bad(text, next)]
        }
        ([], _) => vec![bad(
            "none is known, no lease is given",
            "a majority of the peers has to be up and to reach each other",
        )],
        (several, _) => vec![warn(
            format!("several say that they are: {}", several.join(", ")),
            "an election may be under way: check again; if it stays so, these are different nodes",
        )],
    }
}

/// Voters that answer, or that the master hears from; and all voters.
fn voters(node: &NodeObservation, list: &ListPeersResponse) -> (usize, usize) {
    let voters: Vec<_> = list.peer.iter().filter(|peer| peer.role() != Role::Learner).collect();
    (voters.iter().filter(|peer| is_up(node, list, peer)).count(), voters.len())
}

/// Only the master hears from all, and the others from it.
fn is_up(node: &NodeObservation, list: &ListPeersResponse, peer: &PeerReport) -> bool {
    let told_by_master = list.name == list.master && peer.role() != Role::Unreachable;
    peer.self_
        || peer.name == list.master
        || told_by_master
        || server(node, peer).is_some_and(|server| server.answer.is_ok())
}

fn server<'a>(node: &'a NodeObservation, peer: &PeerReport) -> Option<&'a ServerObservation> {
    node.servers.iter().find(|server| {
        let says = server.status().map(|status| &*status.server_id);
        says == Some(&*peer.name) || (server.address == peer.grpc_address && !peer.grpc_address.is_empty())
    })
}

pub(super) fn peers(node: &NodeObservation) -> Vec<Outcome> {
    let mut found: Vec<Outcome> = node
        .statuses()
        .filter_map(|(_, status)| Some((&status.server_id, status.takes_no_part.as_ref()?)))
        .map(|(server, absence)| bad(format!("{server} takes no part: {}", absence.why), RUNBOOK))
        .collect();
    // Several may have noticed the same.
    let losses: BTreeSet<&String> = node.statuses().flat_map(|(_, status)| &status.losses).collect();
    found.extend(losses.into_iter().map(|loss| bad(loss, REJOIN)));
    let well = match &node.peers {
        PeersObservation::Alone => "the server is alone and keeps nothing".to_owned(),
        PeersObservation::Elsewhere => "the master hears from them".to_owned(),
        PeersObservation::Unknown(why) => {
            let next = "the admin address tells who is a peer; --admin-token-file says who asks";
            found.push(warn(format!("they are not known: {why}"), next));
            String::new()
        }
        PeersObservation::Listed(list) => {
            let (up, all) = voters(node, list);
            found.extend(list.peer.iter().filter_map(|peer| peer_fault(node, list, peer, (up, all))));
            if (all, list.peer.len()) == (2, 2) {
                found.push(warn(
                    "there are two: while one of them is down no lease is given",
                    "add a third (`leaseway peers add`), so that one may fail",
                ));
            }
            format!("{up} of {all} take part")
        }
    };
    let is_listed = |server: &&ServerObservation| match &node.peers {
        PeersObservation::Listed(list) => list.peer.iter().any(|peer| peer.grpc_address == server.address),
        _ => false,
    };
    let silent = node.servers.iter().filter(|server| server.answer.is_err() && !is_listed(server));
    found.extend(silent.map(|server| warn(format!("{} does not answer", unanswered(server)), "see whether it runs")));
    or_fine(found, well)
}

fn peer_fault(
    node: &NodeObservation,
    list: &ListPeersResponse,
    peer: &PeerReport,
    votes: (usize, usize),
) -> Option<Outcome> {
    let (name, server) = (&peer.name, server(node, peer));
    if server.and_then(ServerObservation::status).is_some_and(|status| status.takes_no_part.is_some()) {
        return None;
    }
    let answers = server.is_some_and(|server| server.answer.is_ok());
    let by_master = list.name == list.master;
    match peer.role() {
        Role::Unreachable if answers => Some(warn(
            format!("{name} runs, but the master does not hear from it"),
            "see whether peers reach each other at their peer addresses",
        )),
        _ if !is_up(node, list, peer) => Some(down(peer, votes)),
        // See `master`.
        _ if peer.name == list.master => None,
        _ if server.is_some_and(|server| server.answer.is_err()) => Some(warn(
            format!("{name} does not answer here at {}, but the master has just heard from it", peer.grpc_address),
            "check again in some seconds; then see whether clients can reach that address (--advertise)",
        )),
        Role::Learner => Some(warn(format!("{name} learns and has no vote yet"), "it votes once it has caught up")),
        _ if by_master && peer.lag.is_some_and(|lag| lag > LAGS) => Some(warn(
            format!("{name} lags behind: it lacks {} entries of the log", peer.lag.unwrap_or_default()),
            "it should catch up within seconds; if not, look at its disk and its link",
        )),
        _ => None,
    }
}

/// Of so many votes so many are there.
fn down(peer: &PeerReport, (up, all): (usize, usize)) -> Outcome {
    let heard = match peer.last_contact_ms {
        Some(ms) => format!("was heard from {} s ago", ms / 1000),
        None => "is not heard from".to_owned(),
    };
    let text = format!("{} is down or cut off, it {heard}: ", peer.name);
    match (2 * up).checked_sub(all + 1) {
        None => bad(format!("{text}there is no quorum"), "start it again"),
        Some(0 | 1) => warn(format!("{text}no other may fail now"), START),
        Some(spare) => warn(format!("{text}{} more may fail", spare / 2), START),
    }
}
