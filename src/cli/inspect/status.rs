//! `leaseway status`: a server with its resources, or a resource with its holders.

use clap::Args;
use leaseway_core::types::{escaped, escaped_lines};
use leaseway_proto::status::{
    GetStatusRequest, GetStatusResponse, Group, Holder, Overridden, Pool, Promises, Resource, ResourceLimit, Supply,
    Terms, Uplink,
};
use serde_json::{Value, json};

use crate::Outcome;
use crate::connect::{Observed, Target, block_on, get_status, refused};
use crate::error::CliError;
use crate::output::{Output, learning, number, print, print_json, table, utc};

#[derive(Args)]
pub(crate) struct ShowStatus {
    /// Show only this resource, with its holders (clients and child nodes)
    resource: Option<String>,
    /// Maximum number of rows: resources, or holders of RESOURCE
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// Show all rows
    #[arg(long, conflicts_with = "rows")]
    all: bool,
    #[command(flatten)]
    output: Output,
    /// Ask the given server even if it is not the master
    #[arg(long)]
    here: bool,
    #[command(flatten)]
    target: Target,
}

impl ShowStatus {
    pub(crate) fn run(self) -> Outcome {
        let status = block_on(self.ask())?;
        if let (Some(wanted), true) = (&self.resource, status.resources.is_empty()) {
            return Err(CliError::NoSuchResource(wanted.clone()));
        }
        if self.output.is_json() {
            return print_json(as_json(&status));
        }
        self.print(&status)
    }

    /// Fetches all pages over one connection.
    async fn ask(&self) -> Result<GetStatusResponse, CliError> {
        let mut request = GetStatusRequest {
            resource_id: self.resource.clone().unwrap_or_default(),
            page_size: self.most().min(PAGE),
            page_token: String::new(),
        };
        let Observed { mut status, address, channel } = self.target.observe(&request, self.here).await?;
        while !status.next_page_token.is_empty() && shown(&status) < self.most() {
            request.page_token = std::mem::take(&mut status.next_page_token);
            request.page_size = (self.most() - shown(&status)).min(PAGE);
            let next = get_status(&channel, request.clone()).await.map_err(|status| refused(&address, &status))?;
            // A resource that is gone by now has no holders left.
            append(&mut status, next);
        }
        Ok(status)
    }

    fn most(&self) -> u32 {
        if self.all { u32::MAX } else { self.rows }
    }

    fn print(&self, status: &GetStatusResponse) -> Outcome {
        print_server(status)?;
        print("")?;
        if status.resources.is_empty() && !status.is_master {
            return print("only the master knows the resources");
        }
        if status.resources.is_empty() {
            return print("no resources yet: the first request for one creates it");
        }
        print(table(&RESOURCE_HEADING, status.resources.iter().map(resource_row)))?;
        if self.resource.is_some() {
            status.resources.iter().try_for_each(print_details)?;
            let holders = status.resources.iter().flat_map(|resource| &resource.holder);
            print("")?;
            print(table(&HOLDER_HEADING, holders.map(holder_row)))?;
        } else if status.resources.iter().any(is_overridden) {
            print("* overridden; `leaseway capacity` shows by whom and why")?;
        }
        if !status.next_page_token.is_empty() {
            let (what, total) = match status.resources.first() {
                Some(resource) if self.resource.is_some() => ("holders", resource.holders),
                _ => ("resources", status.resources_total),
            };
            print(format_args!("... {} of {total} {what} (--rows {}); --all shows all", shown(status), self.rows))?;
        }
        Ok(())
    }
}

/// Prints the state of the server itself.
fn print_server(status: &GetStatusResponse) -> Outcome {
    print(format_args!(
        "server {} (leaseway {}), {}, up for {} s",
        escaped(&status.server_id),
        escaped(&status.version),
        standing(status),
        status.uptime_ms / 1000
    ))?;
    if let Some(ineligible) = &status.ineligible {
        print(escaped(&ineligible.why))?;
    }
    for loss in &status.losses {
        print(escaped(loss))?;
    }
    print(format_args!("configuration: {}, version {}", escaped(&status.config_source), status.config_version))?;
    if let Some(uplink) = &status.uplink {
        print(tree_position(uplink))?;
    }
    if !status.access.is_empty() {
        print(format_args!("access: {}", escaped(&status.access)))?;
    }
    if !status.config_error.is_empty() {
        print(format_args!(
            "the newest configuration was refused; the previous one is in force:\n{}",
            escaped_lines(&status.config_error)
        ))?;
    }
    Ok(())
}

/// Prints the details of a single resource.
fn print_details(resource: &Resource) -> Outcome {
    if let Some(ResourceLimit { capacity, at_unix, by }) = &resource.limit {
        print(format_args!("limit of its own: {}, set by {} at {}", number(*capacity), escaped(by), utc(*at_unix)))?;
    }
    if let Some(overridden) = &resource.overridden {
        print(overridden_line(overridden))?;
    }
    for overridden in &resource.overridden_group {
        print(overridden_line(overridden))?;
    }
    if resource.gateways > 0 {
        print(format!("gateways: {}, holding {}", resource.gateways, number(resource.held_by_gateways)))?;
    }
    if let Some(pool) = &resource.pool {
        print(pool_line(pool))?;
    }
    if let Some(supply) = &resource.supply {
        print(lent(supply))?;
    }
    if let Some(promises) = &resource.promises {
        print(promised(promises))?;
    }
    if resource.group.is_empty() {
        return Ok(());
    }
    print("")?;
    print(table(&GROUP_HEADING, resource.group.iter().map(group_row)))?;
    let (shown, all) = (resource.group.len() as u64, resource.groups);
    if shown < all {
        print(format_args!("... {shown} of {all} groups, those with the largest wants"))?;
    }
    Ok(())
}

const GROUP_HEADING: [&str; 8] = ["GROUP", "WANTS", "SHARE", "HELD", "WEIGHT", "MINIMUM", "MAXIMUM", "MEMBERS"];

/// Groups are indented by level.
fn group_row(group: &Group) -> Vec<String> {
    let level = group.path.matches('/').count();
    let minimum = match (group.minimum > 0.0, group.lends) {
        (false, _) => "-".to_owned(),
        (true, true) => number(group.minimum),
        (true, false) => format!("{} kept", number(group.minimum)),
    };
    vec![
        format!("{}{}", "  ".repeat(level), group.path),
        number(group.wants),
        number(group.share),
        number(group.held),
        group.weight.to_string(),
        minimum,
        group.maximum.map_or_else(|| "-".to_owned(), number),
        group.members.to_string(),
    ]
}

fn group_as_json(group: &Group) -> Value {
    json!({
        "path": group.path, "wants": group.wants, "share": group.share, "held": group.held, "weight": group.weight,
        "minimum": group.minimum, "maximum": group.maximum, "lends": group.lends, "members": group.members,
    })
}

/// The maximum page size of servers, in rows.
const PAGE: u32 = 1000;

/// The number of rows: holders of a named resource, otherwise resources.
fn shown(status: &GetStatusResponse) -> u32 {
    let holders: usize = status.resources.iter().map(|resource| resource.holder.len()).sum();
    u32::try_from(holders.max(status.resources.len())).unwrap_or(u32::MAX)
}

fn append(status: &mut GetStatusResponse, next: GetStatusResponse) {
    let is_holders = status.resources.iter().any(|resource| !resource.holder.is_empty());
    match status.resources.first_mut() {
        Some(resource) if is_holders => {
            resource.holder.extend(next.resources.into_iter().flat_map(|resource| resource.holder));
        }
        _ => status.resources.extend(next.resources),
    }
    status.next_page_token = next.next_page_token;
}

fn standing(status: &GetStatusResponse) -> String {
    match (status.is_master, status.master_address.as_str()) {
        (true, _) => "master".to_owned(),
        (false, "") => "not the master, and no master is known".to_owned(),
        (false, master) => format!("not the master, which is {}", escaped(master)),
    }
}

/// The node's position in its tree, and the state of its uplink.
fn tree_position(uplink: &Uplink) -> String {
    let (node, parents) = (escaped(&uplink.node), escaped(&uplink.parent.join(", ")).into_owned());
    if uplink.master.is_empty() {
        return format!("node {node}, parent at {parents}: only the master of this node connects to it");
    }
    let answered = match uplink.answered_ms {
        Some(ago) => format!("answered {} ago", seconds(ago)),
        None => format!("has not answered in {}", seconds(uplink.up_ms)),
    };
    let failures = match (uplink.failures, uplink.last_error.as_str()) {
        (0, _) => String::new(),
        (failures, error) => format!("\n{failures} failures in a row, the last: {}", escaped(error)),
    };
    format!("node {node}, parent at {parents}: {} {answered}{failures}", escaped(&uplink.master))
}

fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1000.0)
}

/// The capacity that the parent lends.
fn lent(supply: &Supply) -> String {
    let state = match supply {
        Supply { version: 0, .. } => "the parent has lent nothing yet".to_owned(),
        Supply { remaining_ms: 0, .. } => "the lease from the parent has expired".to_owned(),
        supply => format!("lent by the parent for another {}", seconds(supply.remaining_ms)),
    };
    let told = supply.outstanding.map(|told| format!("; reported as outstanding: {}", number(told)));
    let terms: String =
        supply.terms.iter().map(|terms| format!("\nterms for priority {}", terms_in_words(terms))).collect();
    format!("{state}{}{terms}", told.unwrap_or_default())
}

/// The capacity promised by the quorum, and the inherited part of it that no client has claimed yet.
fn promised(promises: &Promises) -> String {
    let Promises { total, unclaimed, inherited_ms, horizon_ms, under_way } = *promises;
    let (total, horizon) = (number(total), seconds(horizon_ms));
    let under_way = if under_way > 0 { format!(", {under_way} changes pending") } else { String::new() };
    let unclaimed = if unclaimed > 0.0 {
        let (unclaimed, most) = (number(unclaimed), seconds(inherited_ms));
        format!("; of which {unclaimed} inherited and unclaimed, for at most {most}")
    } else {
        String::new()
    };
    format!("promised {total} in all, for at most {horizon}{under_way}{unclaimed}")
}

fn promises_as_json(promises: &Promises) -> Value {
    let Promises { total, unclaimed, inherited_ms, horizon_ms, under_way } = *promises;
    json!({
        "total": total, "unclaimed": unclaimed, "inherited_ms": inherited_ms, "horizon_ms": horizon_ms,
        "under_way": under_way,
    })
}

const RESOURCE_HEADING: [&str; 9] =
    ["RESOURCE", "CAPACITY", "WANTS", "GRANTED", "HELD", "CLIENTS", "LEARNING", "ALGORITHM", "TEMPLATE"];
const HOLDER_HEADING: [&str; 8] = ["CLIENT", "WANTS", "DUE", "HAS", "HELD", "PRIORITY", "CLIENTS", "HELD FOR"];

fn terms_in_words(terms: &Terms) -> String {
    let by = match terms {
        Terms { level: Some(level), .. } => format!("at most {} per client", number(*level)),
        Terms { each: Some(each), .. } => format!("{} for each client", number(*each)),
        Terms { equal_share: Some(equal), top_up, .. } => {
            let part = number(top_up.unwrap_or_default());
            format!("an equal share of {}, and {part} of the wants beyond it", number(*equal))
        }
        Terms { minimum: Some(level), .. } => format!("minimums only, at most {} per client", number(*level)),
        _ => "all wants are met".to_owned(),
    };
    format!("{}: {by}", terms.priority)
}

fn resource_row(resource: &Resource) -> Vec<String> {
    vec![
        resource.resource_id.clone(),
        // Who set it, and why, is printed for a single resource only.
        format!("{}{}", capacity(resource), if is_overridden(resource) { "*" } else { "" }),
        number(resource.wants),
        number(resource.granted),
        number(resource.held),
        resource.subclients.to_string(),
        learning(resource.learning_ms),
        resource.algorithm.clone(),
        if resource.template.is_empty() { "(none)".to_owned() } else { resource.template.clone() },
    ]
}

/// The capacity of a resource, or `unlimited`.
pub(crate) fn capacity(resource: &Resource) -> String {
    if is_unlimited(resource) { "unlimited".to_owned() } else { number(resource.capacity) }
}

/// Every request is granted: no template matches, or NO_ALGORITHM applies, and no parent lends.
pub(crate) fn is_unlimited(resource: &Resource) -> bool {
    resource.unbounded && resource.algorithm == "NO_ALGORITHM"
}

/// Whether an operator has overridden its capacity or the rule of a group.
pub(crate) fn is_overridden(resource: &Resource) -> bool {
    resource.overridden.is_some() || !resource.overridden_group.is_empty()
}

fn overridden_line(overridden: &Overridden) -> String {
    let Overridden { pattern, group, set_to, template_capacity, remaining_ms, by, why } = overridden;
    let (what, of) = match group.as_str() {
        "" => (format!("the template's capacity is {}", number(*template_capacity)), String::new()),
        group => (format!("the rule of the group {}", escaped(group)), "it for ".to_owned()),
    };
    format!(
        "* overridden: {what}; {} set {of}`{}` to {set_to} for another {}, because: {}",
        escaped(by),
        escaped(pattern),
        seconds(*remaining_ms),
        escaped(why)
    )
}

pub(crate) fn limit_as_json(limit: &ResourceLimit) -> Value {
    json!({ "capacity": limit.capacity, "at_unix": limit.at_unix, "by": limit.by })
}

pub(crate) fn overridden_as_json(overridden: &Overridden) -> Value {
    let Overridden { pattern, group, set_to, template_capacity, remaining_ms, by, why } = overridden;
    let mut value = json!({ "pattern": pattern, "set_to": set_to, "remaining_ms": remaining_ms, "by": by, "why": why });
    match group.as_str() {
        "" => value["template_capacity"] = json!(template_capacity),
        group => value["group"] = json!(group),
    }
    value
}

fn pool_line(pool: &Pool) -> String {
    let Pool { total, connected, priority_connected, priority_assigned, recharging, waiting, overloads } = *pool;
    let [total, connected, priority] = [total, connected, priority_connected].map(number);
    let [assigned, used] = [priority_assigned, recharging].map(number);
    format!(
        "pool: {connected} of {total} connected, {priority} of it by priority clients; assigned {assigned}, used {used}, waiting \
         {waiting}, overloads {overloads} (see `leaseway pool show`)"
    )
}

fn pool_as_json(pool: &Pool) -> Value {
    json!({
        "total": pool.total, "connected": pool.connected, "priority_connected": pool.priority_connected,
        "priority_assigned": pool.priority_assigned, "recharging": pool.recharging, "waiting": pool.waiting,
        "overloads": pool.overloads,
    })
}

fn holder_row(holder: &Holder) -> Vec<String> {
    vec![
        match holder {
            Holder { is_server: true, id, .. } => format!("{id} (node)"),
            Holder { is_gateway: true, id, .. } => format!("{id} (gateway)"),
            Holder { id, .. } => id.clone(),
        },
        number(holder.wants),
        number(holder.due),
        number(holder.granted),
        number(holder.held),
        holder.priority.to_string(),
        holder.subclients.to_string(),
        format!("{} s", holder.remaining_ms / 1000),
    ]
}

pub(crate) fn as_json(status: &GetStatusResponse) -> Value {
    let holder = |holder: &Holder| {
        json!({
            "id": holder.id, "is_server": holder.is_server, "priority": holder.priority,
            "subclients": holder.subclients, "wants": holder.wants, "due": holder.due, "granted": holder.granted,
            "held": holder.held, "remaining_ms": holder.remaining_ms, "is_gateway": holder.is_gateway,
        })
    };
    let terms = |terms: &Terms| {
        json!({
            "priority": terms.priority, "level": terms.level, "equal_share": terms.equal_share,
            "top_up": terms.top_up, "each": terms.each, "minimum": terms.minimum,
        })
    };
    let supply = |supply: &Supply| {
        json!({
            "version": supply.version, "remaining_ms": supply.remaining_ms, "outstanding": supply.outstanding,
            "terms": supply.terms.iter().map(terms).collect::<Vec<_>>(),
        })
    };
    let uplink = |uplink: &Uplink| {
        json!({
            "node": uplink.node, "parent": uplink.parent, "master": uplink.master, "up_ms": uplink.up_ms,
            "answered_ms": uplink.answered_ms, "failures": uplink.failures, "last_error": uplink.last_error,
            "resources": uplink.resources,
        })
    };
    let resource = |resource: &Resource| {
        json!({
            "resource": resource.resource_id, "algorithm": resource.algorithm,
            "capacity": (!is_unlimited(resource)).then_some(resource.capacity),
            "wants": resource.wants, "granted": resource.granted, "held": resource.held,
            "holders": resource.holders, "subclients": resource.subclients, "learning_ms": resource.learning_ms,
            "gateways": resource.gateways, "held_by_gateways": resource.held_by_gateways,
            "template": resource.template, "promises": resource.promises.as_ref().map(promises_as_json),
            "limit": resource.limit.as_ref().map(limit_as_json),
            "overridden": resource.overridden.as_ref().map(overridden_as_json),
            "overridden_groups": resource.overridden_group.iter().map(overridden_as_json).collect::<Vec<_>>(),
            "pool": resource.pool.as_ref().map(pool_as_json), "supply": resource.supply.as_ref().map(supply),
            "groups": resource.groups, "group": resource.group.iter().map(group_as_json).collect::<Vec<_>>(),
            "holder": resource.holder.iter().map(holder).collect::<Vec<_>>(),
        })
    };
    let ineligible = status.ineligible.as_ref();
    let ineligible = ineligible.map(|ineligible| json!({ "reason": ineligible.reason, "why": ineligible.why }));
    json!({
        "version": status.version, "server_id": status.server_id, "is_master": status.is_master,
        "master_address": status.master_address, "uptime_ms": status.uptime_ms,
        "config": { "source": status.config_source, "version": status.config_version, "error": status.config_error },
        "resources_total": status.resources_total,
        "resources": status.resources.iter().map(resource).collect::<Vec<_>>(),
        "next_page_token": status.next_page_token,
        "uplink": status.uplink.as_ref().map(uplink),
        "access": status.access,
        "ineligible": ineligible,
        "losses": status.losses,
    })
}
