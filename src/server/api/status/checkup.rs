//! Checks of a cluster (`leaseway check`), or of one server (pages and `/api/v1`). Pure functions.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use leaseway_core::types::{escaped, readable};
use leaseway_proto::{
    admin::{ListPeersResponse, PeerReport, Role},
    status::{GetStatusResponse, Health, Holder, LimitUse, Resource, Uplink},
};
use serde::Serialize;

/// Time without an answer after which a parent counts as unreachable.
const PARENT_SILENT_MS: u64 = 5_000;
/// A larger lag of a peer, in log entries, is a warning.
const MAX_LAG: u64 = 1_000;
const START: &str = "restart it, or replace it (`leaseway peers add`, then `leaseway peers remove`)";
const REJOIN: &str = "capacity may have been granted twice: stop that peer, empty its data directory and start it again, so \
                      that it rejoins; see the runbook, `a data directory was put back to an older copy`";
const RUNBOOK: &str = "see the runbook, `a peer is ineligible`; the other peers continue without it";
/// Maximum number of resources listed in a message.
const MAX_LISTED: usize = 3;
/// A larger offset of a clock is a warning. The uncertainty of the measurement is added.
const MAX_CLOCK_OFFSET_MS: u64 = 1_000;
/// Remaining seconds of a certificate below which it is a warning, and a fault.
const CERTIFICATE_WARN_SECS: i64 = 14 * 86_400;
const CERTIFICATE_BAD_SECS: i64 = 86_400;
/// Less free space for the data directory is a warning.
const MIN_FREE_BYTES: u64 = 256 << 20;
/// A slower flush of the log is a warning. Answers wait for flushes, and elections start after 150 ms.
const MAX_FLUSH_MS: u64 = 100;
/// More changes of master in an hour are a warning. A rolling restart of three peers makes one or two.
const MAX_ELECTIONS: u64 = 5;
/// Usage of a limit that is a warning, in per cent.
const LIMIT_WARN: u64 = 80;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    #[default]
    Ok,
    /// Works, but needs attention.
    Warn,
    /// Clients are affected.
    Bad,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Warn => "warn",
            Severity::Bad => "bad",
        }
    }

    pub fn worst(checks: &[Check]) -> Severity {
        checks.iter().map(|check| check.severity).max().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub struct Observation {
    /// The node that was asked first, then its ancestors up to the root.
    pub nodes: Vec<NodeObservation>,
    /// The local time in seconds since the epoch.
    pub unix: i64,
}

#[derive(Debug, Default)]
pub struct NodeObservation {
    /// The node's name at its parent, or the address that was asked.
    pub name: String,
    pub servers: Vec<ServerObservation>,
    /// The peers as listed by the master, or else by another server.
    pub peers: PeersObservation,
}

#[derive(Debug, Default)]
pub enum PeersObservation {
    /// There are none: a server without a data directory.
    #[default]
    Alone,
    /// Only the master has contact with all peers, and it is another server.
    Elsewhere,
    /// The peers could not be listed, for this reason.
    Unknown(String),
    Listed(ListPeersResponse),
}

#[derive(Debug)]
pub struct ServerObservation {
    pub address: String,
    /// The status, or why there is none. That of the master has all resources.
    pub answer: Result<GetStatusResponse, String>,
    /// The offset of its clock (positive: ahead of the local one), and the uncertainty, both in milliseconds.
    pub clock_ms: Option<(i64, u64)>,
}

impl ServerObservation {
    fn status(&self) -> Option<&GetStatusResponse> {
        self.answer.as_ref().ok()
    }
}

impl NodeObservation {
    /// The servers that answered.
    pub fn statuses(&self) -> impl Iterator<Item = (&ServerObservation, &GetStatusResponse)> {
        self.servers.iter().filter_map(|server| Some((server, server.status()?)))
    }

    /// The status of the master, if it answered.
    pub fn master(&self) -> Option<&GetStatusResponse> {
        self.statuses().map(|(_, status)| status).find(|status| status.is_master)
    }

    /// The address of the master according to other servers, if the master did not answer.
    fn master_elsewhere(&self) -> Option<&str> {
        if self.master().is_some() {
            return None;
        }
        let is_seen = |address: &str| self.servers.iter().any(|one| one.address == address && one.answer.is_ok());
        let mut addresses = self.statuses().map(|(_, status)| &*status.master_address);
        addresses.find(|address| !address.is_empty() && !is_seen(address))
    }

    /// Why the server at this address did not answer.
    fn error_of(&self, address: &str) -> Option<&str> {
        let server = self.servers.iter().find(|server| server.address == address)?;
        server.answer.as_ref().err().map(String::as_str)
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub severity: Severity,
    pub node: String,
    pub subject: &'static str,
    pub message: String,
    /// Advice. Empty if all is well.
    pub remedy: &'static str,
}

/// Severity, finding and advice. Each check of a node has at least one.
struct Outcome(Severity, String, &'static str);

fn fine(found: impl Into<String>) -> Vec<Outcome> {
    vec![Outcome(Severity::Ok, found.into(), "")]
}

fn warn(found: impl Into<String>, next: &'static str) -> Outcome {
    Outcome(Severity::Warn, found.into(), next)
}

fn bad(found: impl Into<String>, next: &'static str) -> Outcome {
    Outcome(Severity::Bad, found.into(), next)
}

fn or_fine(found: Vec<Outcome>, well: impl Into<String>) -> Vec<Outcome> {
    if found.is_empty() { fine(well) } else { found }
}

pub fn check(observation: &Observation) -> Vec<Check> {
    observation.nodes.iter().flat_map(|node| check_node(node, observation.unix)).collect()
}

/// Checks one server, and its peers if it is the master. Returns the faults only, the worst first.
pub(crate) fn check_self(status: GetStatusResponse, peers: PeersObservation) -> Vec<Check> {
    let unix = status.health.as_ref().map_or(0, |health| (health.unix_ms / 1000) as i64);
    let address = if status.is_master { status.master_address.clone() } else { String::new() };
    let here = ServerObservation { address, answer: Ok(status), clock_ms: None };
    let mut found = check_node(&NodeObservation { name: String::new(), servers: vec![here], peers }, unix);
    found.retain(|check| check.severity > Severity::Ok);
    found.sort_by_key(|check| std::cmp::Reverse(check.severity));
    found
}

fn check_node(node: &NodeObservation, unix: i64) -> Vec<Check> {
    if node.statuses().next().is_none() {
        let errors: Vec<String> = node.servers.iter().map(unanswered).collect();
        let next = "run `leaseway check` on a server of the node below: this machine may have no route to the parent";
        return named(node, "servers", vec![bad(format!("no server answers: {}", errors.join("; ")), next)]);
    }
    let checks: [(&'static str, Vec<Outcome>); 12] = [
        ("master", master(node)),
        ("peers", peers(node)),
        ("configuration", configuration(node)),
        ("versions", versions(node)),
        ("parent", parent(node)),
        ("children", children(node)),
        ("resources", resources(node)),
        ("gateways", gateways(node)),
        ("clocks", clocks(node)),
        ("certificates", certificates(node, unix)),
        ("disks", disks(node)),
        ("limits", limits(node)),
    ];
    checks.into_iter().flat_map(|(subject, outcomes)| named(node, subject, outcomes)).collect()
}

fn named(node: &NodeObservation, subject: &'static str, outcomes: Vec<Outcome>) -> Vec<Check> {
    let check =
        |Outcome(severity, message, remedy)| Check { severity, node: node.name.clone(), subject, message, remedy };
    outcomes.into_iter().map(check).collect()
}

fn unanswered(server: &ServerObservation) -> String {
    format!("{} ({})", server.address, server.answer.as_ref().err().map_or("", String::as_str))
}

fn configuration(node: &NodeObservation) -> Vec<Outcome> {
    let mut found = Vec::new();
    for (_, status) in node.statuses().filter(|(_, status)| !status.config_error.is_empty()) {
        let (server, version, why) = (&status.server_id, status.config_version, &status.config_error);
        let text = format!("{server} refused the newest configuration, so version {version} stays in force: {why}");
        found.push(warn(text, "fix the file (`leaseway config check FILE`), then reload or apply it again"));
    }
    let versions = by_value(node, |status| status.config_version.to_string());
    // Servers without a data directory have versions of their own.
    if let (Some(differ), PeersObservation::Listed(_)) = (differences(&versions), &node.peers) {
        let next = "a peer that is behind catches up within seconds: check again, then read its log";
        found.push(warn(format!("peers have different versions: {differ}"), next));
    }
    let version =
        node.master().map_or_else(String::new, |master| format!("version {} is in force", master.config_version));
    or_fine(found, if version.is_empty() { "no configuration was refused".to_owned() } else { version })
}

fn versions(node: &NodeObservation) -> Vec<Outcome> {
    let versions = by_value(node, |status| status.version.clone());
    match differences(&versions) {
        Some(differ) => vec![warn(
            format!("servers run different versions of leaseway: {differ}"),
            "finish the upgrade, one server after the other, the master last",
        )],
        None => fine(versions.first().map_or_else(String::new, |(version, _)| format!("leaseway {version}"))),
    }
}

/// The values of a field, with the servers that report each.
fn by_value(node: &NodeObservation, of: impl Fn(&GetStatusResponse) -> String) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for (_, status) in node.statuses().filter(|(_, status)| status.ineligible.is_none()) {
        let value = of(status);
        match all.iter_mut().find(|(known, _)| *known == value) {
            Some((_, servers)) => servers.push(status.server_id.clone()),
            None => all.push((value, vec![status.server_id.clone()])),
        }
    }
    all
}

fn differences(values: &[(String, Vec<String>)]) -> Option<String> {
    let listed = |(value, servers): &(String, Vec<String>)| format!("{value} ({})", servers.join(", "));
    (values.len() > 1).then(|| values.iter().map(listed).collect::<Vec<_>>().join(", "))
}

fn parent(node: &NodeObservation) -> Vec<Outcome> {
    let Some(uplink) = node.master().or_else(|| node.statuses().next().map(|(_, status)| status)) else {
        return Vec::new();
    };
    let Some(uplink) = &uplink.uplink else { return fine("none: this node is a root") };
    if node.master_elsewhere().is_some() {
        return fine("only the master asks the parent");
    }
    let at = uplink.parent.join(", ");
    let next = "check that the parent is up and reachable from this node; its leases remain valid until they expire";
    let Uplink { failures, answered_ms, last_error, .. } = uplink;
    match answered_ms {
        _ if uplink.master.is_empty() => {
            vec![warn(format!("this node has no master that asks the parent at {at}"), next)]
        }
        None if *failures == 0 => vec![warn(format!("{at} has not been asked yet"), "check again in a few seconds")],
        None => vec![bad(format!("{at} has never answered: {last_error}"), next)],
        Some(ago) if *failures > 0 && *ago > PARENT_SILENT_MS => {
            vec![bad(format!("{at} has not answered for {} s: {last_error}", ago / 1000), next)]
        }
        Some(_) if *failures > 0 => vec![warn(format!("{failures} requests to {at} failed: {last_error}"), next)],
        Some(_) => fine(format!("{} answers", uplink.master)),
    }
}

fn children(node: &NodeObservation) -> Vec<Outcome> {
    let mut names: Vec<&str> =
        node.statuses().flat_map(|(_, status)| &status.names_taken).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let found = |name: &&str| {
        let text = format!("two nodes are called {name}: only one of them is served");
        bad(text, "give each node its own --node")
    };
    or_fine(names.iter().map(found).collect(), "names are unique")
}

fn master(node: &NodeObservation) -> Vec<Outcome> {
    let masters: Vec<&str> =
        node.statuses().filter(|(_, status)| status.is_master).map(|(_, status)| &*status.server_id).collect();
    if let Some(address) = node.master_elsewhere() {
        return match node.error_of(address) {
            None => fine(format!("the master is at {address}")),
            Some(why) => vec![warn(
                format!("{address} is the master according to other servers, but does not answer here ({why})"),
                "check again in a few seconds; if it persists, check that clients can reach that address (--advertise)",
            )],
        };
    }
    match (&masters[..], &node.peers) {
        ([master], _) => elected(node, master),
        ([], PeersObservation::Listed(list)) => {
            let (up, all) = voters(node, list);
            let text = format!("there is no master, so no leases are granted: {up} of {all} peers answer");
            let next = match 2 * up > all {
                true => "a majority is up: check that the peers reach each other at their peer addresses",
                false => {
                    "there is no quorum: start peers until a majority is up; if their data is lost, see the runbook"
                }
            };
            vec![bad(text, next)]
        }
        ([], _) => vec![bad(
            "no master is known, so no leases are granted",
            "start a majority of the peers, and check that they reach each other",
        )],
        (several, _) => vec![warn(
            format!("several servers claim to be master: {}", several.join(", ")),
            "an election may be under way: check again in a second; if it persists, these are servers of different nodes",
        )],
    }
}

/// How often the master has changed. Each peer counts only since it started, so the largest number is the best.
fn elected(node: &NodeObservation, master: &str) -> Vec<Outcome> {
    match healths(node).map(|(_, health)| health.elections_last_hour).max() {
        None | Some(0) => fine(format!("{master} is master")),
        Some(1) => fine(format!("{master} is master, elected within the last hour")),
        Some(times) if times <= MAX_ELECTIONS => {
            fine(format!("{master} is master; {times} elections in the last hour"))
        }
        Some(times) => vec![warn(
            format!("{master} is master, but the master has changed {times} times in the last hour"),
            "check the network between the peers and their disks (`disks` below, `leaseway peers list`), then their logs",
        )],
    }
}

/// The number of voters that are up, and of all voters.
fn voters(node: &NodeObservation, list: &ListPeersResponse) -> (usize, usize) {
    let voters: Vec<_> = list.peer.iter().filter(|peer| peer.role() != Role::Learner).collect();
    (voters.iter().filter(|peer| is_up(node, list, peer)).count(), voters.len())
}

/// Whether a peer is up, by any evidence. Only the master has contact with all peers; the others only with the master.
fn is_up(node: &NodeObservation, list: &ListPeersResponse, peer: &PeerReport) -> bool {
    let seen_by_master = list.name == list.master && peer.role() != Role::Unreachable;
    peer.self_
        || peer.name == list.master
        || seen_by_master
        || server(node, peer).is_some_and(|server| server.answer.is_ok())
}

fn server<'a>(node: &'a NodeObservation, peer: &PeerReport) -> Option<&'a ServerObservation> {
    node.servers.iter().find(|server| {
        let id = server.status().map(|status| &*status.server_id);
        id == Some(&*peer.name) || (server.address == peer.grpc_address && !peer.grpc_address.is_empty())
    })
}

fn peers(node: &NodeObservation) -> Vec<Outcome> {
    let mut found: Vec<Outcome> = node
        .statuses()
        .filter_map(|(_, status)| Some((&status.server_id, status.ineligible.as_ref()?)))
        .map(|(server, ineligible)| bad(format!("{server} is ineligible: {}", ineligible.why), RUNBOOK))
        .collect();
    // Several servers may report the same loss.
    let losses: BTreeSet<&String> = node.statuses().flat_map(|(_, status)| &status.losses).collect();
    found.extend(losses.into_iter().map(|loss| bad(loss, REJOIN)));
    let well = match &node.peers {
        PeersObservation::Alone => "a single server without --data".to_owned(),
        PeersObservation::Elsewhere => "in contact with the master".to_owned(),
        PeersObservation::Unknown(why) => {
            let next = "pass the admin token with --admin-token-file";
            found.push(warn(format!("the peers are unknown: {why}"), next));
            String::new()
        }
        PeersObservation::Listed(list) => {
            let (up, all) = voters(node, list);
            found.extend(list.peer.iter().filter_map(|peer| peer_fault(node, list, peer, (up, all))));
            if (all, list.peer.len()) == (2, 2) {
                found.push(warn(
                    "two peers: if one of them is down, no leases are granted",
                    "add a third (`leaseway peers add`) to tolerate a failure",
                ));
            }
            format!("{up} of {all} peers are up")
        }
    };
    let is_listed = |server: &&ServerObservation| match &node.peers {
        PeersObservation::Listed(list) => list.peer.iter().any(|peer| peer.grpc_address == server.address),
        _ => false,
    };
    let silent = node.servers.iter().filter(|server| server.answer.is_err() && !is_listed(server));
    found.extend(
        silent.map(|server| warn(format!("{} does not answer", unanswered(server)), "check that it is running")),
    );
    or_fine(found, well)
}

fn peer_fault(
    node: &NodeObservation,
    list: &ListPeersResponse,
    peer: &PeerReport,
    votes: (usize, usize),
) -> Option<Outcome> {
    let (name, server) = (&peer.name, server(node, peer));
    if server.and_then(ServerObservation::status).is_some_and(|status| status.ineligible.is_some()) {
        return None;
    }
    let answers = server.is_some_and(|server| server.answer.is_ok());
    let by_master = list.name == list.master;
    match peer.role() {
        Role::Unreachable if answers => Some(warn(
            format!("{name} runs, but the master does not hear from it"),
            "check that the peers reach each other at their peer addresses",
        )),
        _ if !is_up(node, list, peer) => Some(down(peer, votes)),
        // Reported by `master`.
        _ if peer.name == list.master => None,
        _ if server.is_some_and(|server| server.answer.is_err()) => Some(warn(
            format!("{name} does not answer here at {}, but the master has just heard from it", peer.grpc_address),
            "check again in a few seconds; if it persists, check that clients can reach that address (--advertise)",
        )),
        Role::Learner => {
            Some(warn(format!("{name} is catching up and has no vote yet"), "it votes once it has caught up"))
        }
        _ if by_master && peer.lag.is_some_and(|lag| lag > MAX_LAG) => Some(warn(
            format!("{name} lags behind: it lacks {} entries of the log", peer.lag.unwrap_or_default()),
            "it should catch up within seconds; if not, check its disk and its network",
        )),
        _ => None,
    }
}

/// `up`: voters that are up, of `all`.
fn down(peer: &PeerReport, (up, all): (usize, usize)) -> Outcome {
    let heard = match peer.last_contact_ms {
        Some(ms) => format!("last contact {} s ago", ms / 1000),
        None => "no contact".to_owned(),
    };
    let text = format!("{} is down or cut off ({heard}): ", peer.name);
    match (2 * up).checked_sub(all + 1) {
        None => bad(format!("{text}there is no quorum"), "restart it"),
        Some(0 | 1) => warn(format!("{text}no other peer may fail"), START),
        Some(spare) => warn(format!("{text}{} more peers may fail", spare / 2), START),
    }
}

fn resources(node: &NodeObservation) -> Vec<Outcome> {
    if node.master_elsewhere().is_some() {
        return fine("only the master knows them");
    }
    let Some(master) = node.master() else {
        return vec![bad("there is no master, so no leases are granted", "see `master`")];
    };
    let mut found = Vec::new();
    let mut report =
        |applies: fn(&Resource) -> bool, text: &str, finding: fn(String, &'static str) -> Outcome, next| {
            let which: Vec<&Resource> = master.resources.iter().filter(|resource| applies(resource)).collect();
            if !which.is_empty() {
                found.push(finding(format!("{} {text}", counted(&which)), next));
            }
        };
    report(
        |resource| !resource.unbounded && resource.held > resource.capacity * (1.0 + 1e-9),
        "over-committed: more is held than the capacity",
        warn,
        "leases from before a capacity cut must expire first (`leaseway status RESOURCE` shows when); a shorter \
         lease_length helps next time",
    );
    report(
        |resource| resource.learning_ms > 0,
        "learning: holders keep their leases, and nothing more is granted",
        warn,
        "learning mode ends within a lease length",
    );
    report(
        |resource| resource.template.is_empty() && resource.supply.is_none(),
        "not limited: no template matches, so every request is granted",
        warn,
        "add a template with `identifier_glob: \"*\"` for resources that no other template matches",
    );
    report(
        |resource| resource.supply.as_ref().is_some_and(|supply| supply.version > 0 && supply.remaining_ms == 0),
        "without capacity: the parent's lease has expired",
        bad,
        "see `parent`",
    );
    report(
        |resource| resource.supply.as_ref().is_some_and(|supply| supply.version == 0),
        "without capacity: the parent has granted no lease yet",
        warn,
        "check again in a few seconds; if it persists, see `parent`",
    );
    let all = master.resources.len() as u64;
    if all < master.resources_total {
        let text = format!("only {all} of {} resources were checked", master.resources_total);
        found.push(warn(text, "`leaseway status --all` shows all"));
    }
    or_fine(found, format!("{all} active, all healthy"))
}

/// The price of the death of one gateway: its leases count until they end.
fn gateways(node: &NodeObservation) -> Vec<Outcome> {
    let Some(master) = node.master() else { return fine("only the master knows them") };
    let leased = master.resources.iter().filter(|resource| resource.gateways > 0).count();
    let shares = master.resources.iter().flat_map(|resource| {
        let of = move |holder: &'_ Holder| (holder.held / resource.capacity).min(1.0);
        resource.holder.iter().filter(|holder| holder.is_gateway).map(move |holder| (of(holder), resource, holder))
    });
    let largest = shares.max_by(|(one, ..), (other, ..)| one.total_cmp(other));
    match largest {
        None if leased == 0 => fine("none holds a lease"),
        None => fine(format!("they hold leases of {leased} resources")),
        Some((share, resource, holder)) => fine(format!(
            "if gateway {} failed, {:.0} % of {} would stay unused for up to {} s; this is the largest share that a \
             gateway holds of any of {leased} resources",
            escaped(&holder.id),
            share * 100.0,
            escaped(&resource.resource_id),
            holder.remaining_ms.div_ceil(1000),
        )),
    }
}

/// Names the first resources and counts the others, as the subject of a sentence with its verb.
fn counted(which: &[&Resource]) -> String {
    let named = |resource: &&Resource| {
        let Resource { resource_id, held, capacity, .. } = resource;
        format!("{} ({} of {} held)", escaped(resource_id), readable(*held), readable(*capacity))
    };
    let names: Vec<String> = which.iter().take(MAX_LISTED).map(named).collect();
    match which.len() {
        1 => format!("{} is", names[0]),
        all if all > MAX_LISTED => format!("{} and {} more are", names.join(", "), all - MAX_LISTED),
        _ => format!("{} are", names.join(", ")),
    }
}

/// The health reports, with the ids of the servers.
fn healths(node: &NodeObservation) -> impl Iterator<Item = (&str, &Health)> {
    node.statuses().filter_map(|(_, status)| Some((&*status.server_id, status.health.as_ref()?)))
}

/// Compares clocks with the local one.
fn clocks(node: &NodeObservation) -> Vec<Outcome> {
    let of = |server: &ServerObservation| Some((server.status()?.server_id.clone(), server.clock_ms?));
    let all: Vec<(String, (i64, u64))> = node.servers.iter().filter_map(of).collect();
    let apart = |(ahead, within): (i64, u64)| ahead.unsigned_abs() > MAX_CLOCK_OFFSET_MS + within;
    let offset = |(server, (ahead, _)): &(String, (i64, u64))| {
        let which = if *ahead > 0 { "ahead of" } else { "behind" };
        format!("the clock of {server} is {:.1} s {which} this machine's", ahead.unsigned_abs() as f64 / 1000.0)
    };
    let wrong: Vec<String> = all.iter().filter(|(_, clock)| apart(*clock)).map(offset).collect();
    match (wrong.is_empty(), all.is_empty()) {
        (_, true) => fine("not visible to this caller"),
        (true, _) => fine(format!("{} agree with this machine's clock", all.len())),
        _ => {
            let next = "synchronize the clocks by NTP: certificates and leases of Doorman's clients depend on them, other \
                        leases do not";
            vec![warn(wrong.join(", "), next)]
        }
    }
}

fn certificates(node: &NodeObservation, unix: i64) -> Vec<Outcome> {
    let next = "replace the files, which are reloaded without a restart; `leaseway certs show` shows them";
    let ends: Vec<(&str, i64)> = healths(node)
        .filter_map(|(server, health)| Some((server, health.certificate_ends_unix?.saturating_sub(unix))))
        .collect();
    let finding = |(server, left): (&str, i64)| match left {
        left if left < 0 => Some(bad(format!("the certificate of {server} has expired"), next)),
        left if left < CERTIFICATE_BAD_SECS => {
            Some(bad(format!("the certificate of {server} expires in {} h", left / 3600), next))
        }
        left if left < CERTIFICATE_WARN_SECS => {
            Some(warn(format!("the certificate of {server} expires in {} days", left / 86_400), next))
        }
        _ => None,
    };
    let first = ends.iter().map(|(_, left)| *left).min();
    let well = first.map_or("none".to_owned(), |left| format!("the first expires in {} days", left / 86_400));
    or_fine(ends.into_iter().filter_map(finding).collect(), well)
}

fn disks(node: &NodeObservation) -> Vec<Outcome> {
    let mut found = Vec::new();
    for (server, health) in healths(node) {
        if !health.data_error.is_empty() {
            let text = format!("{server} cannot store anything: {}", health.data_error);
            found.push(bad(text, "repair the disk, then restart this peer"));
        }
        if let Some(free) = health.free_bytes.filter(|free| *free < MIN_FREE_BYTES) {
            let text = format!("only {} MiB are free for the data directory of {server}", free >> 20);
            found.push(warn(text, "free disk space: a peer whose disk is full is ineligible"));
        }
        if let Some(took) = health.slowest_flush_ms.filter(|took| *took > MAX_FLUSH_MS) {
            let text = format!("the disk of {server} is slow: the slowest flush of the last minute took {took} ms");
            found.push(warn(text, "find out what else uses the disk: requests for more capacity wait for a flush"));
        }
    }
    let least = healths(node).filter_map(|(_, health)| health.free_bytes).min();
    or_fine(found, least.map_or("no data directory".to_owned(), |free| format!("{} GiB are free", free >> 30)))
}

fn limits(node: &NodeObservation) -> Vec<Outcome> {
    let mut found = Vec::new();
    for (server, health) in healths(node) {
        let nearly = |used: u64, most: u64| used > 0 && used >= most.saturating_mul(LIMIT_WARN) / 100;
        let (soft, hard): (Vec<&LimitUse>, Vec<&LimitUse>) = health.limit.iter().partition(|limit| limit.soft);
        for LimitUse { what, flag, used, most, .. } in soft.into_iter().filter(|limit| limit.used > limit.most) {
            let text = format!("{server} has {used} resources, but {flag} allows {most} {what}");
            let next =
                "only those under the most pressure are shown: raise the flag to show all, or set it to 0 to show none";
            found.push(warn(text, next));
        }
        for limit in hard.into_iter().filter(|limit| nearly(limit.used, limit.most)) {
            let text = format!("{server} has {} of {} {} ({})", limit.used, limit.most, limit.what, limit.flag);
            found.push(match limit.used >= limit.most {
                true => bad(text, "raise the limit, or find out who uses so much; see docs/reference/limits.md"),
                false => warn(text, "raise the limit, or find out who uses so much; see docs/reference/limits.md"),
            });
        }
    }
    let known = healths(node).next().is_some();
    or_fine(found, if known { "no limit is nearly used up" } else { "not visible to this caller" })
}
