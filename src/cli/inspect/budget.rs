//! `leaseway budget`: what is left of a budget.

use clap::{Args, Subcommand};
use leaseway_core::types::{escaped, readable};
use leaseway_proto::status::{Budget, GetStatusRequest, Resource};
use serde_json::{Value, json};

use crate::{
    Outcome,
    connect::{Target, block_on},
    error::CliError,
    output::{Output, utc},
};

#[derive(Subcommand)]
pub(crate) enum BudgetCommand {
    /// Show what is spent, reserved and left of a budget in its period
    Show(Show),
}

#[derive(Args)]
#[command(after_help = "Example:\n  leaseway budget show team-a/tokens")]
pub(crate) struct Show {
    /// Resource id of the budget
    resource: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

impl BudgetCommand {
    pub(crate) fn run(self) -> Outcome {
        match self {
            BudgetCommand::Show(show) => show.run(),
        }
    }
}

impl Show {
    fn run(self) -> Outcome {
        let (resource, budget) = block_on(self.ask())?;
        self.output.print(|| in_words(&resource, &budget), || as_json(&resource, &budget))
    }

    async fn ask(&self) -> Result<(Resource, Budget), CliError> {
        let request = GetStatusRequest { resource_id: self.resource.clone(), page_size: 1, ..Default::default() };
        let seen = self.target.observe(&request, false).await?;
        let resource = seen.status.resources.into_iter().next();
        let found = resource.and_then(|resource| Some((resource.budget?, resource)));
        let (budget, resource) =
            found.ok_or_else(|| CliError::NoBudget { resource: self.resource.clone(), address: seen.address })?;
        Ok((resource, budget))
    }
}

fn in_words(resource: &Resource, budget: &Budget) -> String {
    let amount = resource.capacity;
    let of = |part: f64| {
        let percent = if amount > 0.0 { part / amount * 100.0 } else { 0.0 };
        format!("{} ({percent:.1} %)", readable(part))
    };
    let period = match budget.period_end {
        Some(end) => format!("{} to {}", utc(budget.period_start), utc(end)),
        None => "none: the amount is spent once".to_owned(),
    };
    format!(
        "budget     {}\namount     {}\nperiod     {period}\nspent      {}\n  of it by holders that are gone, or lost: {}\nreserved   {} by {} live holders\nleft       {}",
        escaped(&resource.resource_id),
        readable(amount),
        of(budget.spent),
        readable(budget.gone),
        of(budget.reserved),
        resource.holders,
        of(budget.left),
    )
}

fn as_json(resource: &Resource, budget: &Budget) -> Value {
    json!({
        "resource": resource.resource_id, "amount": resource.capacity, "period_start": budget.period_start,
        "period_end": budget.period_end, "spent": budget.spent, "gone": budget.gone, "reserved": budget.reserved,
        "left": budget.left, "holders": resource.holders,
    })
}
