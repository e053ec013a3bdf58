//! `leaseway budget`: what is left of a budget, and changes of its amount until its period ends.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use leaseway_core::types::{escaped, readable};
use leaseway_proto::{
    admin::{
        SetOverrideRequest,
        set_override_request::{End, Value as SetTo},
    },
    status::{Budget, GetStatusRequest, Resource},
};
use serde_json::{Value, json};

use crate::{
    Outcome,
    connect::{Target, block_on},
    error::CliError,
    operate::admin::AdminTarget,
    output::{Output, print, print_json, utc},
};

#[derive(Subcommand)]
pub(crate) enum BudgetCommand {
    /// Show how much of a budget is spent, reserved and left in the current period
    Show(Show),
    /// Raise or lower the amount of the current period
    Adjust(Adjust),
    /// Make the template's whole amount available again in the current period
    Reset(Reset),
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

#[derive(Args)]
#[command(after_help = ADJUST_EXAMPLES)]
pub(crate) struct Adjust {
    /// Resource id of the budget
    resource: String,
    /// Amount to add, such as +500 or 500, or to take away, such as -200
    #[arg(value_name = "AMOUNT", allow_negative_numbers = true, value_parser = change)]
    change: f64,
    #[command(flatten)]
    operator: Operator,
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  leaseway budget reset team-a/tokens --why \"the tests of last night are not billed\""
)]
pub(crate) struct Reset {
    /// Resource id of the budget
    resource: String,
    #[command(flatten)]
    operator: Operator,
}

const ADJUST_EXAMPLES: &str = "\
Examples:
  leaseway budget adjust team-a/tokens +500000 --why \"launch day\"
  leaseway budget adjust team-a/tokens -200000 --why \"moved to team b\"

The change is an override of the amount, and replaces any other override of this resource. It ends with the period;
`leaseway capacity RESOURCE --clear` removes it earlier.
What was spent stays spent: if the new amount is less than that, clients get nothing until the period ends.";

/// How a budget is found and changed.
#[derive(Args)]
pub(crate) struct Operator {
    /// Reason for the change, shown in lists and the audit log
    #[arg(long, value_name = "TEXT")]
    why: String,
    /// File with the operators' token. Replaces --token-file at admin addresses
    #[arg(long, env = "LEASEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

impl BudgetCommand {
    pub(crate) fn run(self) -> Outcome {
        match self {
            BudgetCommand::Show(show) => show.run(),
            BudgetCommand::Adjust(Adjust { resource, change, operator }) => {
                block_on(operator.set(&resource, |found| (found.resource.capacity + change).max(0.0)))
            }
            BudgetCommand::Reset(Reset { resource, operator }) => block_on(operator.set(&resource, |found| {
                let regular = found.resource.overridden.as_ref().map(|set| set.template_capacity);
                regular.unwrap_or(found.resource.capacity) + found.budget.spent + found.budget.reserved
            })),
        }
    }
}

fn change(text: &str) -> Result<f64, String> {
    let change = text.parse::<f64>().ok().filter(|change| change.is_finite() && *change != 0.0);
    change.ok_or_else(|| format!("`{text}`: expected an amount to add, like +500, or to take away, like -200"))
}

/// A budget as its master reports it.
struct FoundBudget {
    resource: Resource,
    budget: Budget,
    /// Empty if the server has none, or the caller may not see it.
    admin_address: String,
}

async fn find(target: &Target, id: &str) -> Result<FoundBudget, CliError> {
    let request = GetStatusRequest { resource_id: id.to_owned(), page_size: 1, ..Default::default() };
    let seen = target.observe(&request, false).await?;
    let admin_address = seen.status.health.map(|health| health.admin_address).unwrap_or_default();
    let resource = seen.status.resources.into_iter().next();
    let found = resource.and_then(|resource| Some((resource.budget?, resource)));
    let (budget, resource) =
        found.ok_or_else(|| CliError::NoBudget { resource: id.to_owned(), address: seen.address })?;
    Ok(FoundBudget { resource, budget, admin_address })
}

impl Operator {
    /// Overrides the amount until a second before the period ends, when no lease is given.
    async fn set(&self, id: &str, amount: impl Fn(&FoundBudget) -> f64) -> Outcome {
        let found = find(&self.target, id).await?;
        let Some(end) = found.budget.period_end else {
            return Err(CliError::UnendingBudget { resource: id.to_owned() });
        };
        if found.admin_address.is_empty() {
            return Err(CliError::NoAdminAddress { resource: id.to_owned() });
        }
        let (before, after) = (found.resource.capacity, amount(&found));
        let request = SetOverrideRequest {
            pattern: id.to_owned(),
            group: String::new(),
            value: Some(SetTo::Amount(after)),
            end: Some(End::UntilUnix(end - 1)),
            why: self.why.clone(),
            above: true,
        };
        let admin = AdminTarget::beside(&self.target, &found.admin_address, self.admin_token_file.clone())?;
        let answer = admin.ask(async |mut client| client.set_override(request.clone()).await).await?;
        // A child node cannot have more than its parent lends.
        let after = answer.resource.first().map_or(after, |in_force| in_force.capacity);
        let counted = found.budget.spent + found.budget.reserved;
        let left = (after - counted).max(0.0);
        if self.output.is_json() {
            return print_json(json!({
                "resource": id, "amount_before": before, "amount": after, "left": left, "period_end": end,
            }));
        }
        print(format_args!(
            "{} has {} until {}; before: {}; {} left",
            escaped(id),
            readable(after),
            utc(end),
            readable(before),
            readable(left)
        ))
    }
}

impl Show {
    fn run(self) -> Outcome {
        let FoundBudget { resource, budget, .. } = block_on(find(&self.target, &self.resource))?;
        self.output.print(|| in_words(&resource, &budget), || as_json(&resource, &budget))
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
    let forecast = match (budget.forecast, budget.runs_out) {
        (_, Some(at)) => {
            format!("\nforecast   all will be spent at {}, if spending continues as in this period so far", utc(at))
        }
        (Some(spent), None) => format!("\nforecast   {} spent at the end of the period", of(spent)),
        (None, None) => String::new(),
    };
    let unknown = if budget.gone > 0.0 && budget.gone >= amount {
        "\n\nthe whole amount of this period counts as spent, because this server may have lost the record of what was\n\
         spent. To avoid this, start the first server of a budget with --data and --bootstrap"
    } else {
        ""
    };
    let carried = match budget.carried {
        0.0 => String::new(),
        carried => format!("\n  carried over from the period before: {}", readable(carried)),
    };
    let pace = budget.pace.map_or_else(String::new, |pace| format!("\npace       {}/s", readable(pace)));
    format!(
        "budget     {}\namount     {}{carried}\nperiod     {period}\nspent      {}\n  by holders that are gone, or unknown: \
         {}\nreserved   {} by {} live {}\nleft       {}{pace}{forecast}{unknown}",
        escaped(&resource.resource_id),
        readable(amount),
        of(budget.spent),
        readable(budget.gone),
        of(budget.reserved),
        resource.holders,
        if resource.holders == 1 { "holder" } else { "holders" },
        of(budget.left),
    )
}

fn as_json(resource: &Resource, budget: &Budget) -> Value {
    json!({
        "resource": resource.resource_id, "amount": resource.capacity, "carried": budget.carried, "period_start": budget.period_start,
        "period_end": budget.period_end, "spent": budget.spent, "gone": budget.gone, "reserved": budget.reserved,
        "left": budget.left, "pace": budget.pace, "forecast": budget.forecast,
        "runs_out": budget.runs_out, "holders": resource.holders,
    })
}
