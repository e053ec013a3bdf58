//! `leaseway config plan`: the effect of a file on the current clients.

use std::path::PathBuf;

use clap::Args;
use leaseway_core::types::escaped;
use leaseway_proto::admin::{
    DueChange, Forecast, GroupChange, PlanConfigRequest, PlanConfigResponse, ResourcePlan, SettingChange,
};
use leaseway_server::config::Loaded;
use serde_json::{Value, json};

use super::{differences, in_force, read};
use crate::Outcome;
use crate::connect::block_on;
use crate::error::CliError;
use crate::operate::admin::AdminTarget;
use crate::output::{Output, number, print, print_json, progress, table};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanFile {
    /// Configuration file (YAML, Doorman-compatible)
    #[arg(value_parser = super::file_path)]
    file: PathBuf,
    /// Show only this resource
    #[arg(long, value_name = "RESOURCE")]
    resource: Option<String>,
    #[command(flatten)]
    shown: PlanRows,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

const EXAMPLES: &str = "\
Examples:
  leaseway config plan lower.yaml                         show the largest changes
  leaseway config plan lower.yaml --resource mysql --holders 1000
  leaseway config plan lower.yaml --json | jq '.resources[] | select(.forecast.over_capacity > 0) | .resource'";

#[derive(Args, Clone, Copy)]
pub(super) struct PlanRows {
    /// Resources to show, largest relative change first
    #[arg(long, default_value_t = 20, value_name = "NUMBER")]
    rows: u32,
    /// Clients to show per resource, largest change first
    #[arg(long, default_value_t = 5, value_name = "NUMBER")]
    pub(super) holders: u32,
}

impl PlanFile {
    pub(crate) fn run(self) -> Outcome {
        let loaded = read(&self.file)?;
        let source = self.file.display().to_string();
        let plan = block_on(ask(&self.target, &loaded, &source, self.resource.as_deref(), self.shown.holders))?;
        if self.output.is_json() {
            return print_json(as_json(&plan));
        }
        let before = block_on(in_force(&self.target, &loaded))?;
        print(differences::as_text(&before.compare(&loaded)?))?;
        print_plan(&plan, self.shown)
    }
}

/// Asks the master for the plan. Mistakes in the file are an error.
pub(super) async fn ask(
    target: &AdminTarget,
    loaded: &Loaded,
    source: &str,
    resource: Option<&str>,
    holders: u32,
) -> Result<PlanConfigResponse, CliError> {
    let request = PlanConfigRequest {
        text: loaded.text.clone(),
        source: source.to_owned(),
        resource_id: resource.unwrap_or_default().to_owned(),
        holders,
    };
    // Planning may take seconds, so one attempt gets the whole time limit.
    let progress = progress("computing the plan");
    let plan = target.ask_once(async |mut client| client.plan_config(request.clone()).await).await;
    drop(progress);
    let plan = plan?;
    if plan.mistakes.is_empty() {
        return Ok(plan);
    }
    Err(CliError::ConfigRefused { address: target.addresses(), mistakes: plan.mistakes.join("\n") })
}

/// Prints the totals of each resource, then the clients that change.
pub(super) fn print_plan(plan: &PlanConfigResponse, shown: PlanRows) -> Outcome {
    let changed = plan.resource.len() as u64 + plan.left_out;
    let of = changed + plan.unchanged;
    if changed == 0 {
        return print(format_args!("none of {of} resources would change"));
    }
    let rows = plan.resource.iter().take(shown.rows as usize);
    print("")?;
    let heading = ["RESOURCE", "CAPACITY", "DUE", "CLIENTS", "GAIN", "LOSE", "TO EXPIRE FIRST"];
    print(table(&heading, rows.clone().map(row)))?;
    for resource in rows {
        print_resource(resource)?;
    }
    print("")?;
    if changed > u64::from(shown.rows) {
        print(format_args!(
            "... and {} more resources would change; --rows shows more",
            changed - u64::from(shown.rows)
        ))?;
    }
    let sum = |count: fn(&Forecast) -> u64| {
        plan.resource.iter().filter_map(|plan| plan.forecast.as_ref()).map(count).sum::<u64>()
    };
    print(format_args!(
        "{changed} of {of} resources would change; {} would gain, {} would lose",
        clients(sum(|forecast| forecast.gaining)),
        clients(sum(|forecast| forecast.losing)),
    ))
}

fn clients(count: u64) -> String {
    if count == 1 { "1 client".to_owned() } else { format!("{count} clients") }
}

fn row(plan: &ResourcePlan) -> Vec<String> {
    let Some(forecast) = &plan.forecast else { return vec![plan.resource_id.clone()] };
    let moved = |holders: u64, amount: f64| match holders {
        0 => String::new(),
        holders => format!("{} ({holders})", number(amount)),
    };
    let to_end = forecast.over_due + forecast.unclaimed;
    vec![
        plan.resource_id.clone(),
        from_to(
            &capacity(&plan.algorithm_before, forecast.capacity_before),
            &capacity(&plan.algorithm_after, forecast.capacity_after),
        ),
        forecast.due_after.map_or_else(|| "unknown".to_owned(), |after| change(forecast.due_before, after)),
        forecast.subclients.to_string(),
        moved(forecast.gaining, forecast.gained),
        moved(forecast.losing, forecast.lost),
        if to_end > 0.0 { number(to_end) } else { String::new() },
    ]
}

fn change(before: f64, after: f64) -> String {
    from_to(&number(before), &number(after))
}

fn from_to(before: &str, after: &str) -> String {
    if before == after { before.to_owned() } else { format!("{before} → {after}") }
}

/// The capacity under an algorithm.
fn capacity(algorithm: &str, capacity: f64) -> String {
    if algorithm == "NO_ALGORITHM" { "unlimited".to_owned() } else { number(capacity) }
}

fn print_resource(plan: &ResourcePlan) -> Outcome {
    print(format_args!("\n{}: {}", escaped(&plan.resource_id), otherwise(plan)))?;
    let Some(forecast) = &plan.forecast else { return Ok(()) };
    for sentence in &forecast.sentences {
        print(format_args!("  {sentence}"))?;
    }
    if !forecast.group.is_empty() {
        print(table(&["  GROUP", "WANTS", "DUE NOW", "DUE THEN"], forecast.group.iter().map(group_row)))?;
    }
    if forecast.change.is_empty() {
        return Ok(());
    }
    let heading = ["  CLIENT", "WANTS", "HELD", "DUE NOW", "DUE THEN"];
    print(table(&heading, forecast.change.iter().map(holder_row)))?;
    let more = (forecast.gaining + forecast.losing).saturating_sub(forecast.change.len() as u64);
    if more > 0 { print(format_args!("  ... and {} more; --holders shows more", clients(more))) } else { Ok(()) }
}

fn group_row(group: &GroupChange) -> Vec<String> {
    let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), number);
    vec![format!("  {}", group.path), number(group.wants), share(group.before), share(group.after)]
}

fn holder_row(holder: &DueChange) -> Vec<String> {
    let node = if holder.is_server { format!(" (node of {})", clients(holder.subclients)) } else { String::new() };
    let numbers = [holder.wants, holder.held, holder.before, holder.after].map(number);
    std::iter::once(format!("  {}{node}", holder.id)).chain(numbers).collect()
}

/// Describes the changes of the template and its settings.
fn otherwise(plan: &ResourcePlan) -> String {
    let name =
        |template: &String| if template.is_empty() { "no template".to_owned() } else { format!("template {template}") };
    let [before, after] = [&plan.template_before, &plan.template_after].map(name);
    let template = (before != after).then(|| format!("{before} → {after}"));
    let setting = |SettingChange { field, from, to }: &SettingChange| format!("{field} {from} → {to}");
    let all = template.into_iter().chain(plan.setting.iter().map(setting));
    escaped(&all.collect::<Vec<_>>().join(", ")).into_owned()
}

fn as_json(plan: &PlanConfigResponse) -> Value {
    let setting = |change: &SettingChange| json!({ "field": change.field, "from": change.from, "to": change.to });
    let holder = |holder: &DueChange| {
        json!({
            "id": holder.id, "is_server": holder.is_server, "subclients": holder.subclients, "wants": holder.wants,
            "held": holder.held, "due_before": holder.before, "due_after": holder.after,
        })
    };
    let group = |group: &GroupChange| json!({ "path": group.path, "wants": group.wants, "due_before": group.before, "due_after": group.after });
    let forecast = |forecast: &Forecast| {
        json!({
            "groups": forecast.group.iter().map(group).collect::<Vec<_>>(),
            "capacity_before": forecast.capacity_before, "capacity_after": forecast.capacity_after,
            "holders": forecast.holders, "subclients": forecast.subclients, "wants": forecast.wants,
            "held": forecast.held, "due_before": forecast.due_before, "due_after": forecast.due_after,
            "gaining": forecast.gaining, "gained": forecast.gained, "losing": forecast.losing, "lost": forecast.lost,
            "over_capacity": forecast.over_capacity, "over_due": forecast.over_due, "unclaimed": forecast.unclaimed, "until_ms": forecast.until_ms,
            "learning_ms": forecast.learning_ms, "changes": forecast.change.iter().map(holder).collect::<Vec<_>>(),
        })
    };
    let resource = |plan: &ResourcePlan| {
        json!({
            "resource": plan.resource_id, "template_before": plan.template_before,
            "template_after": plan.template_after, "algorithm_before": plan.algorithm_before,
            "algorithm_after": plan.algorithm_after, "settings": plan.setting.iter().map(setting).collect::<Vec<_>>(),
            "forecast": plan.forecast.as_ref().map(forecast),
        })
    };
    json!({
        "in_force": plan.in_force, "warnings": plan.warnings, "unchanged": plan.unchanged, "left_out": plan.left_out,
        "resources": plan.resource.iter().map(resource).collect::<Vec<_>>(),
    })
}
