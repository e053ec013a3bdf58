//! `leaseway capacity`: temporary overrides of the capacities of templates, and of their rules for groups.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{ArgGroup, Args};
use leaseway_core::types::{escaped, parse_quantity};
use leaseway_proto::admin::set_override_request::{End, Value as SetTo};
use leaseway_proto::admin::{
    GroupRule, ListOverridesRequest, OverriddenResource, Override, SetOverrideRequest, SetOverrideResponse, r#override,
};
use serde_json::{Value, json};

use crate::Outcome;
use crate::connect::block_on;
use crate::operate::admin::{AdminTarget, Client};
use crate::output::{Output, note, number, print, print_json, table, utc};

#[derive(Args)]
#[command(
    after_help = EXAMPLES,
    group(ArgGroup::new("end").args(["length", "until"])),
    group(ArgGroup::new("rule").args(["maximum", "minimum", "weight"]).multiple(true).requires_all(["path", "end", "why"])),
    group(ArgGroup::new("what").args(["capacity", "maximum", "minimum", "weight", "clear"]).multiple(true)),
)]
pub(crate) struct Capacity {
    /// Resource id, or a pattern such as api-*
    #[arg(requires = "what")]
    resource: Option<String>,
    /// Capacity: a number such as 40, a rate such as 60000/min or 1M/day, or a percentage of the template's capacity,
    /// such as 50%
    #[arg(value_name = "CAPACITY", requires_all = ["end", "why"], allow_negative_numbers = true)]
    capacity: Option<CapacityArgument>,
    /// Override the rule of this group, given by its path such as acme/web
    #[arg(long = "group", value_name = "PATH", requires_all = ["resource", "what"], conflicts_with_all = ["capacity", "above"])]
    path: Option<String>,
    /// Maximum share of the group: a number or a rate
    #[arg(long, value_name = "AMOUNT", value_parser = quantity, allow_negative_numbers = true)]
    maximum: Option<f64>,
    /// Guaranteed share of the group: a number or a rate. A group never gets more than its clients want
    #[arg(long, value_name = "AMOUNT", value_parser = quantity, allow_negative_numbers = true)]
    minimum: Option<f64>,
    /// Weight of the group, 1 to 1000. A group of weight 3 counts as three groups
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    weight: Option<u32>,
    /// Duration of the override, such as 90s, 10m or 2h. At most 32 days
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    length: Option<Duration>,
    /// End of the override, such as 2026-05-01T10:30:00Z. At most 32 days ahead
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_rfc3339_weak)]
    until: Option<SystemTime>,
    /// Reason for the override, shown in lists and the audit log; required
    #[arg(long, value_name = "TEXT", requires = "what")]
    why: Option<String>,
    /// Allow a capacity above the template's
    #[arg(long, requires = "capacity")]
    above: bool,
    /// Remove the override. RESOURCE and --group must be those of the override
    #[arg(long, conflicts_with_all = ["capacity", "rule", "end", "why"])]
    clear: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

const EXAMPLES: &str = "\
Examples:
  leaseway capacity mysql 50% --for 10m --why \"replica is down\"   half of the template's capacity
  leaseway capacity 'api-*' 3k/min --for 2h --why \"vendor asked\"  50 per second for each resource that matches
  leaseway capacity                                              list the overrides
  leaseway capacity mysql --clear                                return to the template's capacity
  leaseway capacity api --group acme/web --maximum 600/min --for 1h --why \"runaway job\"
                                                                 at most 10 per second for the clients of acme/web

Clients get the new capacity with their next refresh. On a child node, an override can only lower what the node passes on.
For permanent changes, edit the configuration and run `leaseway config apply`.";

impl Capacity {
    pub(crate) fn run(self) -> Outcome {
        block_on(async {
            match &self.resource {
                None => self.list().await,
                Some(resource) => self.set(resource).await,
            }
        })
    }

    async fn list(&self) -> Outcome {
        let list = async |mut client: Client| client.list_overrides(ListOverridesRequest {}).await;
        let answer = self.target.ask(list).await?;
        if self.output.is_json() {
            return print_json(json!({ "overrides": answer.r#override.iter().map(as_json).collect::<Vec<_>>() }));
        }
        if answer.r#override.is_empty() {
            return print("no overrides: every resource has the capacity of its template");
        }
        let rows = answer.r#override.iter();
        if rows.clone().any(|set| !set.group.is_empty()) {
            let heading = ["RESOURCE", "GROUP", "SET TO", "REMAINING", "UNTIL", "BY", "WHY"];
            return print(table(&heading, rows.map(|set| row(set, true))));
        }
        let heading = ["RESOURCE", "CAPACITY", "REMAINING", "UNTIL", "BY", "WHY"];
        print(table(&heading, rows.map(|set| row(set, false))))
    }

    async fn set(&self, resource: &str) -> Outcome {
        let request = SetOverrideRequest {
            pattern: resource.to_owned(),
            group: self.path.clone().unwrap_or_default(),
            value: self.value(),
            end: self.end(),
            why: self.why.clone().unwrap_or_default(),
            above: self.above,
        };
        let set = async |mut client: Client| client.set_override(request.clone()).await;
        let answer = self.target.ask(set).await?;
        if self.output.is_json() {
            return print_json(answer_as_json(&answer));
        }
        let name = escaped(resource);
        let group = self.path.as_deref().map(escaped);
        let (of, flag) = match &group {
            Some(group) => (format!("the group {group} of {name}"), format!(" --group {group}")),
            None => (name.to_string(), String::new()),
        };
        match &answer.r#override {
            Some(set) => print(format_args!(
                "{of} has {} until {} ({} left); `leaseway capacity {name}{flag} --clear` removes the override",
                set_to(set),
                utc((set.until_unix_ms / 1000) as i64),
                left(set.remaining_ms)
            ))?,
            None if group.is_some() => {
                print(format_args!("override of {of} removed; the template's rule applies again"))?
            }
            None => print(format_args!("override of {of} removed; the template's capacity applies again"))?,
        }
        if answer.resource.is_empty() {
            note(
                "no active resource matches; the override applies to matching resources that are created before it ends",
            );
            return Ok(());
        }
        let amount = |amount: Option<f64>| amount.map_or_else(|| "-".to_owned(), number);
        let row = |one: &OverriddenResource| match group {
            Some(_) => vec![one.resource_id.clone(), amount(one.group_wants), amount(one.group_share)],
            None => vec![one.resource_id.clone(), number(one.template_capacity), number(one.capacity)],
        };
        let heading =
            if group.is_some() { ["RESOURCE", "WANTS", "SHARE"] } else { ["RESOURCE", "TEMPLATE", "CAPACITY"] };
        print(table(&heading, answer.resource.iter().map(row)))?;
        let more = answer.resources.saturating_sub(answer.resource.len() as u64);
        if more > 0 { print(format_args!("... and {more} more")) } else { Ok(()) }
    }

    /// `None` removes the override.
    fn value(&self) -> Option<SetTo> {
        let (weight, minimum, maximum) = (self.weight, self.minimum, self.maximum);
        match self.capacity {
            Some(CapacityArgument::Amount(amount)) => Some(SetTo::Amount(amount)),
            Some(CapacityArgument::Part(part)) => Some(SetTo::Factor(part)),
            None => (!self.clear).then_some(SetTo::Rule(GroupRule { weight, minimum, maximum })),
        }
    }

    fn end(&self) -> Option<End> {
        let length = self.length.map(|length| End::LengthMs(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)));
        length.or_else(|| {
            let until = self.until?.duration_since(UNIX_EPOCH).unwrap_or_default();
            Some(End::UntilUnix(i64::try_from(until.as_secs()).unwrap_or(i64::MAX)))
        })
    }
}

fn row(set: &Override, with_group: bool) -> Vec<String> {
    let group = if set.group.is_empty() { "-" } else { &set.group };
    let mut row = vec![set.pattern.clone()];
    row.extend(with_group.then(|| group.to_owned()));
    row.extend([
        set_to(set),
        left(set.remaining_ms),
        utc((set.until_unix_ms / 1000) as i64),
        set.by.clone(),
        set.why.clone(),
    ]);
    row
}

/// In the notation of the command line.
fn set_to(set: &Override) -> String {
    let above = if set.above { " (--above)" } else { "" };
    match &set.value {
        Some(r#override::Value::Amount(amount)) => format!("{}{above}", number(*amount)),
        Some(r#override::Value::Factor(factor)) => format!("{}%{above}", number(factor * 100.0)),
        Some(r#override::Value::Rule(GroupRule { weight, minimum, maximum })) => {
            let weight = weight.map(|weight| weight.to_string());
            let parts = [("maximum", maximum.map(number)), ("minimum", minimum.map(number)), ("weight", weight)];
            let parts: Vec<String> =
                parts.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?))).collect();
            parts.join(", ")
        }
        None => "?".to_owned(),
    }
}

fn left(ms: u64) -> String {
    humantime::format_duration(Duration::from_secs(ms.div_ceil(1000))).to_string()
}

pub(crate) fn as_json(set: &Override) -> Value {
    let (capacity, factor, rule) = match set.value {
        Some(r#override::Value::Amount(amount)) => (Some(amount), None, None),
        Some(r#override::Value::Factor(factor)) => (None, Some(factor), None),
        Some(r#override::Value::Rule(rule)) => (None, None, Some(rule)),
        None => (None, None, None),
    };
    json!({
        "pattern": set.pattern, "group": rule.map(|_| &set.group), "capacity": capacity, "factor": factor,
        "above": set.above, "maximum": rule.and_then(|rule| rule.maximum),
        "minimum": rule.and_then(|rule| rule.minimum), "weight": rule.and_then(|rule| rule.weight),
        "from_unix_ms": set.from_unix_ms, "until_unix_ms": set.until_unix_ms, "remaining_ms": set.remaining_ms,
        "by": set.by, "why": set.why,
    })
}

fn answer_as_json(answer: &SetOverrideResponse) -> Value {
    let resources = answer.resource.iter().map(|one| {
        json!({
            "resource": one.resource_id, "template_capacity": one.template_capacity, "capacity": one.capacity,
            "group_wants": one.group_wants, "group_share": one.group_share,
        })
    });
    json!({
        "override": answer.r#override.as_ref().map(as_json), "replaced": answer.replaced,
        "resources": resources.collect::<Vec<_>>(), "resources_total": answer.resources,
    })
}

fn quantity(text: &str) -> Result<f64, String> {
    let amount = parse_quantity(text).filter(|amount| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| format!("`{text}`: expected a number like 40, or a rate like 60000/min"))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum CapacityArgument {
    Amount(f64),
    Part(f64),
}

impl std::str::FromStr for CapacityArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<CapacityArgument, String> {
        let value = match text.strip_suffix('%') {
            Some(digits) => digits.trim().parse().ok().map(|percent: f64| CapacityArgument::Part(percent / 100.0)),
            None => parse_quantity(text).map(CapacityArgument::Amount),
        };
        let is_valid = |value: &CapacityArgument| match *value {
            CapacityArgument::Amount(value) | CapacityArgument::Part(value) => value.is_finite() && value >= 0.0,
        };
        value.filter(is_valid).ok_or_else(|| {
            format!("`{text}`: expected a number like 40, a rate like 60000/min, or a percentage like 50%")
        })
    }
}
