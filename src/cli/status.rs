//! `leaseway status`.

use clap::Args;
use leaseway_proto::status::{
    GetStatusRequest, GetStatusResponse, Holder, Pool, Resource, Supply, Terms, Uplink, status_client::StatusClient,
};
use serde_json::{Value, json};

use crate::{
    Outcome,
    connect::{Target, block_on, refused},
    error::CliError,
    output::{learning, number, say, table},
};

/// Shows a server and its resources, or one resource and who holds it.
#[derive(Args)]
pub(crate) struct ShowStatus {
    /// Only this resource, with its holders
    resource: Option<String>,
    /// At most so many rows
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rows: u32,
    /// Prints the answer as JSON
    #[arg(long)]
    json: bool,
    /// Asks this server and nobody else, also if another is the master
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
        if self.json {
            return say(as_json(&status));
        }
        self.print(&status)
    }

    async fn ask(&self) -> Result<GetStatusResponse, CliError> {
        let request = GetStatusRequest {
            resource_id: self.resource.clone().unwrap_or_default(),
            page_size: self.rows,
            page_token: String::new(),
        };
        let answer = self.ask_at(self.target.address(), request.clone()).await?;
        if answer.is_master || answer.master_address.is_empty() || self.here {
            return Ok(answer);
        }
        // Only the master knows who has what.
        self.ask_at(&answer.master_address, request).await
    }

    async fn ask_at(&self, address: &str, request: GetStatusRequest) -> Result<GetStatusResponse, CliError> {
        let channel = self.target.connect_to(address).await?;
        let answer = StatusClient::new(channel).get_status(request).await;
        Ok(answer.map_err(|status| refused(address, &status))?.into_inner())
    }

    fn print(&self, status: &GetStatusResponse) -> Outcome {
        say(format_args!(
            "server {} (leaseway {}), {}, up for {} s",
            status.server_id,
            status.version,
            standing(status),
            status.uptime_ms / 1000
        ))?;
        if let Some(absence) = &status.takes_no_part {
            say(&absence.why)?;
        }
        say(format_args!("configuration: {}, version {}", status.config_source, status.config_version))?;
        if let Some(uplink) = &status.uplink {
            say(place(uplink))?;
        }
        if !status.config_error.is_empty() {
            say(format_args!(
                "the newest configuration was refused, the one before is in force:\n{}",
                status.config_error
            ))?;
        }
        say("")?;
        if status.resources.is_empty() {
            return say("no resources yet: one comes to life when somebody asks for it");
        }
        let rows: Vec<_> =
            std::iter::once(resource_heading()).chain(status.resources.iter().map(resource_row)).collect();
        say(table(&rows))?;
        if self.resource.is_some() {
            for resource in &status.resources {
                if let Some(pool) = &resource.pool {
                    say(pool_line(pool))?;
                }
                if let Some(supply) = &resource.supply {
                    say(lent(supply))?;
                }
                if let Some(promised) = resource.promised {
                    let (promised, unheard) = (number(promised), resource.unheard);
                    say(format_args!("promised {promised} in all; not heard from since this master began: {unheard}"))?;
                }
            }
            let holders = status.resources.iter().flat_map(|resource| &resource.holder);
            let rows: Vec<_> = std::iter::once(holder_heading()).chain(holders.map(holder_row)).collect();
            say("")?;
            say(table(&rows))?;
        }
        if !status.next_page_token.is_empty() {
            say(format_args!("... there are more than {} rows: see --rows, or the server's /debug/status", self.rows))?;
        }
        Ok(())
    }
}

fn standing(status: &GetStatusResponse) -> String {
    match (status.is_master, status.master_address.as_str()) {
        (true, _) => "master".to_owned(),
        (false, "") => "not the master, and knows of none".to_owned(),
        (false, master) => format!("not the master, {master} is"),
    }
}

/// Where the node is in its tree, and how it gets on there.
fn place(uplink: &Uplink) -> String {
    let (node, parents) = (&uplink.node, uplink.parent.join(", "));
    if uplink.master.is_empty() {
        return format!("node {node}, parent at {parents}: the master of this node asks there");
    }
    let answered = match uplink.answered_ms {
        Some(ago) => format!("answered {} ago", seconds(ago)),
        None => format!("has not answered in {}", seconds(uplink.up_ms)),
    };
    let failures = match (uplink.failures, uplink.last_error.as_str()) {
        (0, _) => String::new(),
        (failures, error) => format!("\n{failures} failures in a row, the last: {error}"),
    };
    format!("node {node}, parent at {parents}: {} {answered}{failures}", uplink.master)
}

fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1000.0)
}

/// What a node with a parent has of a resource.
fn lent(supply: &Supply) -> String {
    let state = match supply {
        Supply { edition: 0, .. } => "the parent has lent nothing yet".to_owned(),
        Supply { remaining_ms: 0, .. } => "what the parent lent has ended".to_owned(),
        supply => format!("lent by the parent for another {}", seconds(supply.remaining_ms)),
    };
    let told = supply.outstanding.map(|told| format!("; it was told that {} is outstanding", number(told)));
    let terms: String = supply.terms.iter().map(|terms| format!("\nit divides priority {}", said(terms))).collect();
    format!("{state}{}{terms}", told.unwrap_or_default())
}

fn said(terms: &Terms) -> String {
    let by = match terms {
        Terms { level: Some(level), .. } => format!("by the level {} per client", number(*level)),
        Terms { each: Some(each), .. } => format!("{} for each client", number(*each)),
        Terms { equal_share: Some(equal), top_up, .. } => {
            let part = number(top_up.unwrap_or_default());
            format!("by equal shares of {} and {part} of what is wanted beyond", number(*equal))
        }
        _ => "so that everybody gets what they want".to_owned(),
    };
    format!("{} {by}", terms.priority)
}

fn heading(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn resource_heading() -> Vec<String> {
    heading(&["RESOURCE", "CAPACITY", "WANTS", "GRANTED", "HELD", "CLIENTS", "LEARNING", "ALGORITHM", "TEMPLATE"])
}

fn resource_row(resource: &Resource) -> Vec<String> {
    vec![
        resource.resource_id.clone(),
        number(resource.capacity),
        number(resource.wants),
        number(resource.granted),
        number(resource.held),
        resource.subclients.to_string(),
        learning(resource.learning_ms),
        resource.algorithm.clone(),
        if resource.template.is_empty() { "(none)".to_owned() } else { resource.template.clone() },
    ]
}

fn pool_line(pool: &Pool) -> String {
    let Pool { total, connected, priority_connected, priority_assigned, recharging, waiting, overloads } = *pool;
    let [total, connected, priority] = [total, connected, priority_connected].map(number);
    let [assigned, used] = [priority_assigned, recharging].map(number);
    format!(
        "pool: {connected} of {total} connected, {priority} of it by priority clients; assigned {assigned}, used {used}, waiting \
         {waiting}, overloads {overloads} (`leaseway pool` knows more)"
    )
}

fn pool_as_json(pool: &Pool) -> Value {
    json!({
        "total": pool.total, "connected": pool.connected, "priority_connected": pool.priority_connected,
        "priority_assigned": pool.priority_assigned, "recharging": pool.recharging, "waiting": pool.waiting,
        "overloads": pool.overloads,
    })
}

fn holder_heading() -> Vec<String> {
    heading(&["CLIENT", "WANTS", "DUE", "HAS", "HELD", "PRIORITY", "CLIENTS", "HELD FOR"])
}

fn holder_row(holder: &Holder) -> Vec<String> {
    vec![
        if holder.is_server { format!("{} (node)", holder.id) } else { holder.id.clone() },
        number(holder.wants),
        number(holder.due),
        number(holder.granted),
        number(holder.held),
        holder.priority.to_string(),
        holder.subclients.to_string(),
        format!("{} s", holder.remaining_ms / 1000),
    ]
}

fn as_json(status: &GetStatusResponse) -> Value {
    let holder = |holder: &Holder| {
        json!({
            "id": holder.id, "is_server": holder.is_server, "priority": holder.priority,
            "subclients": holder.subclients, "wants": holder.wants, "due": holder.due, "granted": holder.granted,
            "held": holder.held, "remaining_ms": holder.remaining_ms,
        })
    };
    let terms = |terms: &Terms| {
        json!({
            "priority": terms.priority, "level": terms.level, "equal_share": terms.equal_share,
            "top_up": terms.top_up, "each": terms.each,
        })
    };
    let supply = |supply: &Supply| {
        json!({
            "edition": supply.edition, "remaining_ms": supply.remaining_ms, "outstanding": supply.outstanding,
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
            "resource": resource.resource_id, "algorithm": resource.algorithm, "capacity": resource.capacity,
            "wants": resource.wants, "granted": resource.granted, "held": resource.held,
            "holders": resource.holders, "subclients": resource.subclients, "learning_ms": resource.learning_ms,
            "template": resource.template, "promised": resource.promised, "unheard": resource.unheard,
            "pool": resource.pool.as_ref().map(pool_as_json), "supply": resource.supply.as_ref().map(supply),
            "holder": resource.holder.iter().map(holder).collect::<Vec<_>>(),
        })
    };
    let absence = status.takes_no_part.as_ref();
    let absence = absence.map(|absence| json!({ "reason": absence.reason, "why": absence.why }));
    json!({
        "version": status.version, "server_id": status.server_id, "is_master": status.is_master,
        "master_address": status.master_address, "uptime_ms": status.uptime_ms,
        "config": { "source": status.config_source, "version": status.config_version, "error": status.config_error },
        "resources_total": status.resources_total,
        "resources": status.resources.iter().map(resource).collect::<Vec<_>>(),
        "next_page_token": status.next_page_token,
        "uplink": status.uplink.as_ref().map(uplink),
        "takes_no_part": absence,
    })
}
