//! Whether resources are well.

use leaseway_core::{escaped, readable};
use leaseway_proto::status::Resource;

use super::{NodeObservation, Outcome, bad, fine, or_fine, warn};

/// Resources that are named.
const NAMED: usize = 3;

pub(super) fn resources(node: &NodeObservation) -> Vec<Outcome> {
    if node.master_elsewhere().is_some() {
        return fine("the master knows them");
    }
    let Some(master) = node.master() else { return vec![bad("no master: no lease is given", "see `master`")] };
    let mut found = Vec::new();
    let mut tell = |is_so: fn(&Resource) -> bool, text: &str, finding: fn(String, &'static str) -> Outcome, next| {
        let which: Vec<&Resource> = master.resources.iter().filter(|resource| is_so(resource)).collect();
        if !which.is_empty() {
            found.push(finding(format!("{} {text}", counted(&which)), next));
        }
    };
    tell(
        |resource| !resource.unbounded && resource.held > resource.capacity * (1.0 + 1e-9),
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
        |resource| resource.template.is_empty() && resource.supply.is_none(),
        "not limited: no template matches, and requests are honoured as they come",
        warn,
        "add a template with `identifier_glob: \"*\"` to bound what no other matches",
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

/// Who they are, in words.
fn counted(which: &[&Resource]) -> String {
    let named = |resource: &&Resource| {
        let Resource { resource_id, held, capacity, .. } = resource;
        format!("{} ({} of {} held)", escaped(resource_id), readable(*held), readable(*capacity))
    };
    let names: Vec<String> = which.iter().take(NAMED).map(named).collect();
    match which.len() {
        1 => format!("{} is", names[0]),
        all if all > NAMED => format!("{} and {} more are", names.join(", "), all - NAMED),
        _ => format!("{} are", names.join(", ")),
    }
}
