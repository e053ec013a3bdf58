//! What is to be said about a cluster. Pure.

mod far;
mod peers;
#[cfg(test)]
mod tests;

use leaseway_core::escaped;
use leaseway_proto::status::{GetStatusResponse, Resource, Uplink};

use super::seen::{NodeSeen, Seen, ServerSeen};
use crate::format::number;

/// A parent that has not answered for longer is not heard from.
const SILENT_MS: u64 = 5_000;
/// Resources that are named.
const NAMED: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Grade {
    Ok,
    /// It works, and should be looked at.
    Warn,
    /// Clients do not get what they should.
    Bad,
}

/// What became of one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) grade: Grade,
    /// The node.
    pub(super) node: String,
    /// What was looked at.
    pub(super) about: &'static str,
    pub(super) found: String,
    /// What to do; empty where nothing is to be done.
    pub(super) next: &'static str,
}

/// An answer to one question about a node, which all have at least one.
struct Finding(Grade, String, &'static str);

fn fine(found: impl Into<String>) -> Vec<Finding> {
    vec![Finding(Grade::Ok, found.into(), "")]
}

fn warn(found: impl Into<String>, next: &'static str) -> Finding {
    Finding(Grade::Warn, found.into(), next)
}

fn bad(found: impl Into<String>, next: &'static str) -> Finding {
    Finding(Grade::Bad, found.into(), next)
}

/// What was found, or else that all is well.
fn or_fine(found: Vec<Finding>, well: impl Into<String>) -> Vec<Finding> {
    if found.is_empty() { fine(well) } else { found }
}

/// Every question, node after node.
pub(super) fn judge(seen: &Seen) -> Vec<Verdict> {
    seen.nodes.iter().flat_map(|node| of_node(node, seen.unix)).collect()
}

fn of_node(node: &NodeSeen, unix: i64) -> Vec<Verdict> {
    if node.statuses().next().is_none() {
        let said: Vec<String> = node.servers.iter().map(unanswered).collect();
        let next = "look from the node below whether it reaches its parent; check runs where it may be unreachable";
        return verdicts(node, "servers", vec![bad(format!("no server answers: {}", said.join("; ")), next)]);
    }
    let questions: [(&'static str, Vec<Finding>); 10] = [
        ("master", peers::master(node)),
        ("peers", peers::peers(node)),
        ("configuration", configuration(node)),
        ("versions", versions(node)),
        ("parent", parent(node)),
        ("resources", resources(node)),
        ("clocks", far::clocks(node)),
        ("certificates", far::certificates(node, unix)),
        ("disks", far::disks(node)),
        ("limits", far::limits(node)),
    ];
    questions.into_iter().flat_map(|(about, found)| verdicts(node, about, found)).collect()
}

fn verdicts(node: &NodeSeen, about: &'static str, found: Vec<Finding>) -> Vec<Verdict> {
    let verdict = |Finding(grade, found, next)| Verdict { grade, node: node.name.clone(), about, found, next };
    found.into_iter().map(verdict).collect()
}

fn unanswered(server: &ServerSeen) -> String {
    format!("{} ({})", server.address, server.answer.as_ref().err().map_or("", String::as_str))
}

fn configuration(node: &NodeSeen) -> Vec<Finding> {
    let mut found = Vec::new();
    for (_, status) in node.statuses().filter(|(_, status)| !status.config_error.is_empty()) {
        let (server, version, why) = (&status.server_id, status.config_version, &status.config_error);
        let text = format!("{server} refused the newest, version {version} stays in force: {why}");
        found.push(warn(text, "mend the file (`leaseway config check FILE`), then reload or apply it again"));
    }
    let versions = by_value(node, |status| status.config_version.to_string());
    // Servers that keep nothing count by themselves.
    if let (Some(differ), super::seen::PeersSeen::Listed(_)) = (differences(&versions), &node.peers) {
        let next = "one that is behind catches up within seconds: check again, then look at its log";
        found.push(warn(format!("peers have different ones: {differ}"), next));
    }
    let version =
        node.master().map_or_else(String::new, |master| format!("version {} is in force", master.config_version));
    or_fine(found, if version.is_empty() { "none was refused".to_owned() } else { version })
}

fn versions(node: &NodeSeen) -> Vec<Finding> {
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
fn by_value(node: &NodeSeen, of: impl Fn(&GetStatusResponse) -> String) -> Vec<(String, Vec<String>)> {
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

fn parent(node: &NodeSeen) -> Vec<Finding> {
    let Some(uplink) = node.master().or_else(|| node.statuses().next().map(|(_, status)| status)) else {
        return Vec::new();
    };
    let Some(uplink) = &uplink.uplink else { return fine("it has none: it is a root") };
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

fn resources(node: &NodeSeen) -> Vec<Finding> {
    let Some(master) = node.master() else { return vec![bad("no master: no lease is given", "see `master`")] };
    let mut found = Vec::new();
    let mut tell = |is_so: fn(&Resource) -> bool, text: &str, finding: fn(String, &'static str) -> Finding, next| {
        let which: Vec<&Resource> = master.resources.iter().filter(|resource| is_so(resource)).collect();
        if !which.is_empty() {
            found.push(finding(format!("{} {text}", counted(&which)), next));
        }
    };
    tell(
        |resource| resource.held > resource.capacity * (1.0 + 1e-9),
        "over-committed: more is held than there is",
        warn,
        "leases of before a cut end by themselves (`leaseway status RESOURCE` says when); a shorter lease_length helps next time",
    );
    tell(
        |resource| resource.learning_ms > 0,
        "learning: holders keep what they have, and nothing more is given",
        warn,
        "it passes by itself within a lease length",
    );
    tell(
        |resource| resource.supply.as_ref().is_some_and(|supply| supply.edition > 0 && supply.remaining_ms == 0),
        "without capacity: what the parent lent has ended",
        bad,
        "see `parent`",
    );
    tell(
        |resource| resource.supply.as_ref().is_some_and(|supply| supply.edition == 0),
        "without capacity: the parent has lent nothing yet",
        warn,
        "check again in some seconds, then see `parent`",
    );
    let all = master.resources.len() as u64;
    if all < master.resources_total {
        let text = format!("only {all} of {} were looked at", master.resources_total);
        found.push(warn(text, "`leaseway status --all` shows all"));
    }
    or_fine(found, format!("{all} alive, all well"))
}

/// Their number, and those of which most is held.
fn counted(which: &[&Resource]) -> String {
    let named = |resource: &&Resource| {
        let Resource { resource_id, held, capacity, .. } = resource;
        format!("{} ({} of {} held)", escaped(resource_id), number(*held), number(*capacity))
    };
    let mut names: Vec<String> = which.iter().take(NAMED).map(named).collect();
    if which.len() > NAMED {
        names.push("…".to_owned());
    }
    format!("{} {}:", names.join(", "), if which.len() == 1 { "is" } else { "are" }).trim_end_matches(':').to_owned()
}
