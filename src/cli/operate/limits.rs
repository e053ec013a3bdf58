//! `leaseway limits`: the capacities of single resources.

mod file;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use leaseway_core::types::{escaped, parse_quantity};
use leaseway_proto::admin::{Limit, LimitChange, ListLimitsRequest, SetLimitsRequest, SetLimitsResponse};
use serde_json::{Value, json};

use crate::Outcome;
use crate::connect::block_on;
use crate::error::CliError;
use crate::operate::admin::{AdminTarget, Client};
use crate::output::{Output, note, number, print, print_json, progress, table, utc};

/// Number of limits in one call. A call is stored by the peers as a whole.
const TOGETHER: usize = 5000;
const PAGE_SIZE: u32 = 10_000;

pub(crate) const EXAMPLES: &str = "\
Examples:
  leaseway limits set tenant/acme --capacity 500        500 per second, in place of the template's capacity
  leaseway limits set key/7f --capacity 60000/min       1000 per second
  leaseway limits list --prefix tenant/
  leaseway limits delete tenant/acme                    return to the template's capacity
  leaseway limits import limits.csv                     lines like `tenant/acme,500`; up to a million
  leaseway limits export > limits.csv

The peers keep limits until they are deleted. Clients get the new capacity with their next refresh. A resource takes all other settings
from its template; without one, clients share it fairly (FAIR_SHARE). Overrides (`leaseway capacity`) take precedence.";

#[derive(Subcommand)]
pub(crate) enum LimitsCommand {
    /// Set the limit of a resource. It replaces the template's capacity
    Set(Set),
    /// Show the limit of a resource
    Get(Get),
    /// List the limits
    List(List),
    /// Delete limits, so that the capacities of templates apply again
    Delete(Delete),
    /// Import limits from CSV. The columns are `resource` and `capacity`
    Import(Import),
    /// Print limits as CSV. `limits import` reads it
    Export(Export),
}

#[derive(Args)]
pub(crate) struct Set {
    /// Resource id
    resource: String,
    /// Capacity, such as 40, 60000/min or 1M/day. Rates are stored per second
    #[arg(long, value_parser = capacity, allow_negative_numbers = true)]
    capacity: f64,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct Get {
    /// Resource id
    resource: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct List {
    /// Only limits whose ids begin with this
    #[arg(long, default_value = "")]
    prefix: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct Delete {
    /// Resource ids
    #[arg(required = true)]
    resources: Vec<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct Import {
    /// CSV file; - reads standard input
    file: PathBuf,
    /// Delete limits that are not in the file
    #[arg(long)]
    prune: bool,
    /// Import only limits of resources whose ids begin with this text. --prune then deletes only such limits
    #[arg(long, default_value = "", requires = "prune")]
    prefix: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct Export {
    /// Only limits whose ids begin with this
    #[arg(long, default_value = "")]
    prefix: String,
    #[command(flatten)]
    target: AdminTarget,
}

#[derive(Args)]
pub(crate) struct Common {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

fn capacity(text: &str) -> Result<f64, String> {
    parse_quantity(text)
        .filter(|capacity| capacity.is_finite() && *capacity >= 0.0)
        .ok_or_else(|| format!("`{text}`: expected a number like 40 or a rate like 60000/min"))
}

impl LimitsCommand {
    pub(crate) fn run(self) -> Outcome {
        block_on(async {
            match self {
                LimitsCommand::Set(set) => set.run().await,
                LimitsCommand::Get(get) => get.run().await,
                LimitsCommand::List(list) => list.run().await,
                LimitsCommand::Delete(delete) => delete.run().await,
                LimitsCommand::Import(import) => import.run().await,
                LimitsCommand::Export(export) => export.run().await,
            }
        })
    }
}

impl AdminTarget {
    async fn set_limits(&self, change: Vec<LimitChange>) -> Result<SetLimitsResponse, CliError> {
        let request = SetLimitsRequest { change };
        self.ask(async |mut client: Client| client.set_limits(request.clone()).await).await
    }

    /// Visits all limits in pages.
    async fn for_each_limit(&self, prefix: &str, mut visit: impl FnMut(Limit)) -> Result<(), CliError> {
        let mut request = ListLimitsRequest { prefix: prefix.into(), page_size: PAGE_SIZE, ..Default::default() };
        loop {
            let page = self.ask(async |mut client: Client| client.list_limits(request.clone()).await).await?;
            page.limit.into_iter().for_each(&mut visit);
            if page.next_after.is_empty() {
                return Ok(());
            }
            request.after = page.next_after;
        }
    }
}

impl Set {
    async fn run(self) -> Outcome {
        let Set { resource, capacity, common } = self;
        let change = LimitChange { resource_id: resource.clone(), capacity: Some(capacity) };
        let set = common.target.set_limits(vec![change]).await?;
        let name = escaped(&resource);
        let text = || format!("{name} has the limit {}; its clients get it with their next refresh", number(capacity));
        common
            .output
            .print(text, || json!({ "resource": resource, "capacity": capacity, "replaced": set.replaced == 1 }))
    }
}

impl Get {
    async fn run(self) -> Outcome {
        let Get { resource, common } = self;
        let request = ListLimitsRequest { resource_id: resource.clone(), ..Default::default() };
        let found = common.target.ask(async |mut client: Client| client.list_limits(request.clone()).await).await?;
        let Some(limit) = found.limit.first() else { return Err(CliError::NoLimit { resource }) };
        let text = || {
            format!(
                "{} has the limit {}, set by {} at {}",
                escaped(&resource),
                number(limit.capacity),
                escaped(&limit.by),
                utc(limit.at_unix)
            )
        };
        common.output.print(text, || as_json(limit))
    }
}

impl List {
    async fn run(self) -> Outcome {
        let List { prefix, common } = self;
        let mut limits = Vec::new();
        common.target.for_each_limit(&prefix, |limit| limits.push(limit)).await?;
        if common.output.is_json() {
            return print_json(json!({ "limits": limits.iter().map(as_json).collect::<Vec<_>>() }));
        }
        if limits.is_empty() {
            return print("no limits: every resource has the capacity of its template");
        }
        let row = |limit: &Limit| {
            vec![limit.resource_id.clone(), number(limit.capacity), utc(limit.at_unix), limit.by.clone()]
        };
        print(table(&["RESOURCE", "CAPACITY", "SET", "BY"], limits.iter().map(row)))
    }
}

impl Delete {
    async fn run(self) -> Outcome {
        let Delete { resources, common } = self;
        let named = resources.iter();
        let changes = named.map(|resource| LimitChange { resource_id: resource.clone(), capacity: None }).collect();
        let removed = common.target.set_limits(changes).await?.removed;
        if let (0, [resource]) = (removed, resources.as_slice()) {
            return Err(CliError::NoLimit { resource: resource.clone() });
        }
        let unknown = resources.len() as u64 - removed;
        let others = if unknown > 0 { format!("; {unknown} of the resources had none") } else { String::new() };
        let text = || format!("{removed} limits deleted, the capacities of templates apply again{others}");
        common.output.print(text, || json!({ "removed": removed, "unknown": unknown }))
    }
}

impl Import {
    async fn run(self) -> Outcome {
        let changes = file::read(&self.file)?;
        let bar = progress("importing limits");
        let mut sum = SetLimitsResponse::default();
        let mut done = 0;
        for part in changes.chunks(TOGETHER) {
            let set = self.common.target.set_limits(part.to_vec()).await;
            let set = set.map_err(|error| self.stopped(done, error))?;
            done += part.len();
            sum.added += set.added;
            sum.replaced += set.replaced;
            bar.set(format!("importing limits: {done} of {}", changes.len()));
        }
        if self.prune {
            sum.removed = self.prune(&changes).await.map_err(|error| self.stopped(done, error))?;
        }
        drop(bar);
        let SetLimitsResponse { added, replaced, removed } = sum;
        let text = || format!("{added} limits added, {replaced} replaced, {removed} deleted");
        self.common.output.print(text, || json!({ "added": added, "replaced": replaced, "removed": removed }))
    }

    fn stopped(&self, done: usize, error: CliError) -> CliError {
        match done {
            0 => error,
            _ => CliError::ImportStopped { file: self.file.clone(), done, error: Box::new(error) },
        }
    }

    /// Deletes the limits that are not in the file.
    async fn prune(&self, changes: &[LimitChange]) -> Result<u64, CliError> {
        let mut kept: Vec<&str> = changes.iter().map(|change| change.resource_id.as_str()).collect();
        kept.sort_unstable();
        let mut others = Vec::new();
        let visit = |limit: Limit| {
            if kept.binary_search(&limit.resource_id.as_str()).is_err() {
                others.push(LimitChange { resource_id: limit.resource_id, capacity: None });
            }
        };
        self.common.target.for_each_limit(&self.prefix, visit).await?;
        let mut removed = 0;
        for part in others.chunks(TOGETHER) {
            removed += self.common.target.set_limits(part.to_vec()).await?.removed;
        }
        Ok(removed)
    }
}

impl Export {
    async fn run(self) -> Outcome {
        let mut limits = Vec::new();
        self.target.for_each_limit(&self.prefix, |limit| limits.push(limit)).await?;
        file::print(&limits)?;
        note(format_args!("{} limits", limits.len()));
        Ok(())
    }
}

fn as_json(limit: &Limit) -> Value {
    json!({
        "resource": limit.resource_id, "capacity": limit.capacity, "at_unix": limit.at_unix, "by": limit.by,
    })
}
