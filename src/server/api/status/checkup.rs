//! What is to be said about a cluster, and about a server by itself: the one judgement of `leaseway check`, the page
//! and `/api/v1`. Pure.

mod hosts;
mod observation;
mod peers;
mod resources;
#[cfg(test)]
mod tests;

use leaseway_proto::status::{GetStatusResponse, Uplink};
use serde::Serialize;

pub use self::observation::{NodeObservation, Observation, PeersObservation, ServerObservation};

/// A parent that has not answered for longer is not heard from.
const SILENT_MS: u64 = 5_000;

/// How well something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    #[default]
    Ok,
    /// It works, and should be looked at.
    Warn,
    /// Clients do not get what they should.
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

    /// The worst of all verdicts.
    pub fn worst(verdicts: &[Check]) -> Severity {
        verdicts.iter().map(|verdict| verdict.grade).max().unwrap_or_default()
    }
}

/// What became of one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// How bad it is.
    pub grade: Severity,
    pub node: String,
    /// What was looked at.
    pub about: &'static str,
    pub found: String,
    /// What to do; empty where nothing is to be done.
    pub next: &'static str,
}

/// An answer to one question about a node, which all have at least one.
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

/// What was found, or else that all is well.
fn or_fine(found: Vec<Outcome>, well: impl Into<String>) -> Vec<Outcome> {
    if found.is_empty() { fine(well) } else { found }
}

/// Every question, node after node.
pub fn check(seen: &Observation) -> Vec<Check> {
    seen.nodes.iter().flat_map(|node| of_node(node, seen.unix)).collect()
}

/// What a server finds wrong by itself, the worst first: with the peers that it hears from, if it is the master.
pub(crate) fn check_self(status: GetStatusResponse, peers: PeersObservation) -> Vec<Check> {
    let unix = status.health.as_ref().map_or(0, |health| (health.unix_ms / 1000) as i64);
    let address = if status.is_master { status.master_address.clone() } else { String::new() };
    let here = ServerObservation { address, answer: Ok(status), clock_ms: None };
    let mut found = of_node(&NodeObservation { name: String::new(), servers: vec![here], peers }, unix);
    found.retain(|verdict| verdict.grade > Severity::Ok);
    found.sort_by_key(|verdict| std::cmp::Reverse(verdict.grade));
    found
}

fn of_node(node: &NodeObservation, unix: i64) -> Vec<Check> {
    if node.statuses().next().is_none() {
        let said: Vec<String> = node.servers.iter().map(unanswered).collect();
        let next = "look from the node below whether it reaches its parent; check runs where it may be unreachable";
        return verdicts(node, "servers", vec![bad(format!("no server answers: {}", said.join("; ")), next)]);
    }
    let questions: [(&'static str, Vec<Outcome>); 11] = [
        ("master", peers::master(node)),
        ("peers", peers::peers(node)),
        ("configuration", configuration(node)),
        ("versions", versions(node)),
        ("parent", parent(node)),
        ("children", children(node)),
        ("resources", resources::resources(node)),
        ("clocks", hosts::clocks(node)),
        ("certificates", hosts::certificates(node, unix)),
        ("disks", hosts::disks(node)),
        ("limits", hosts::limits(node)),
    ];
    questions.into_iter().flat_map(|(about, found)| verdicts(node, about, found)).collect()
}

fn verdicts(node: &NodeObservation, about: &'static str, found: Vec<Outcome>) -> Vec<Check> {
    let verdict = |Outcome(grade, found, next)| Check { grade, node: node.name.clone(), about, found, next };
    found.into_iter().map(verdict).collect()
}

fn unanswered(server: &ServerObservation) -> String {
    format!("{} ({})", server.address, server.answer.as_ref().err().map_or("", String::as_str))
}

fn configuration(node: &NodeObservation) -> Vec<Outcome> {
    let mut found = Vec::new();
    for (_, status) in node.statuses().filter(|(_, status)| !status.config_error.is_empty()) {
        let (server, version, why) = (&status.server_id, status.config_version, &status.config_error);
        let text = format!("{server} refused the newest, version {version} stays in force: {why}");
        found.push(warn(text, "mend the file (`leaseway config check FILE`), then reload or apply it again"));
    }
    let versions = by_value(node, |status| status.config_version.to_string());
    // Servers that keep nothing count by themselves.
    if let (Some(differ), PeersObservation::Listed(_)) = (differences(&versions), &node.peers) {
        let next = "one that is behind catches up within seconds: check again, then look at its log";
        found.push(warn(format!("peers have different ones: {differ}"), next));
    }
    let version =
        node.master().map_or_else(String::new, |master| format!("version {} is in force", master.config_version));
    or_fine(found, if version.is_empty() { "none was refused".to_owned() } else { version })
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

/// What servers say, with those that say it.
fn by_value(node: &NodeObservation, of: impl Fn(&GetStatusResponse) -> String) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for (_, status) in node.statuses().filter(|(_, status)| status.takes_no_part.is_none()) {
        let value = of(status);
        match all.iter_mut().find(|(known, _)| *known == value) {
            Some((_, servers)) => servers.push(status.server_id.clone()),
            None => all.push((value, vec![status.server_id.clone()])),
        }
    }
    all
}

fn differences(values: &[(String, Vec<String>)]) -> Option<String> {
    let told = |(value, servers): &(String, Vec<String>)| format!("{value} ({})", servers.join(", "));
    (values.len() > 1).then(|| values.iter().map(told).collect::<Vec<_>>().join(", "))
}

fn parent(node: &NodeObservation) -> Vec<Outcome> {
    let Some(uplink) = node.master().or_else(|| node.statuses().next().map(|(_, status)| status)) else {
        return Vec::new();
    };
    let Some(uplink) = &uplink.uplink else { return fine("it has none: it is a root") };
    if node.master_elsewhere().is_some() {
        return fine("the master asks it");
    }
    let at = uplink.parent.join(", ");
    let next =
        "see whether the parent is up and can be reached from this node; leases that it gave last until they end";
    let Uplink { failures, answered_ms, last_error, .. } = uplink;
    match answered_ms {
        _ if uplink.master.is_empty() => vec![warn(format!("{at} is asked by no master of this node"), next)],
        None if *failures == 0 => vec![warn(format!("{at} has not been asked yet"), "check again in some seconds")],
        None => vec![bad(format!("{at} has never answered: {last_error}"), next)],
        Some(ago) if *failures > 0 && *ago > SILENT_MS => {
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
        bad(text, "start the other with a --node of its own")
    };
    or_fine(names.iter().map(found).collect(), "no two have one name")
}
