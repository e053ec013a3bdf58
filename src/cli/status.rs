//! `leaseway status`.

use clap::Args;
use leaseway_proto::status::{
    GetStatusRequest, GetStatusResponse, Holder, Pool, Resource, status_client::StatusClient,
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
        say(format_args!("configuration: {}, version {}", status.config_source, status.config_version))?;
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
    let resource = |resource: &Resource| {
        json!({
            "resource": resource.resource_id, "algorithm": resource.algorithm, "capacity": resource.capacity,
            "wants": resource.wants, "granted": resource.granted, "held": resource.held,
            "holders": resource.holders, "subclients": resource.subclients, "learning_ms": resource.learning_ms,
            "template": resource.template, "promised": resource.promised, "unheard": resource.unheard,
            "pool": resource.pool.as_ref().map(pool_as_json), "holder": resource.holder.iter().map(holder).collect::<Vec<_>>(),
        })
    };
    json!({
        "version": status.version, "server_id": status.server_id, "is_master": status.is_master,
        "master_address": status.master_address, "uptime_ms": status.uptime_ms,
        "config": { "source": status.config_source, "version": status.config_version, "error": status.config_error },
        "resources_total": status.resources_total,
        "resources": status.resources.iter().map(resource).collect::<Vec<_>>(),
        "next_page_token": status.next_page_token,
    })
}
