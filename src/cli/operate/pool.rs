//! `leaseway pool`: assignments, connected clients and events of a pool.

mod clients;
mod show;
mod watch;

use clap::{Args, Subcommand};
use leaseway_core::types::escaped;
use leaseway_proto::pools::assigned::Amount;
use leaseway_proto::pools::report_load_request::Load;
use leaseway_proto::pools::{
    Assigned, GetClientCapacityRequest, Holder, Memory, ReportLoadRequest, ReportLoadResponse, SetAlarmRequest,
    SetClientCapacityRequest, SetClientCapacityResponse,
};
use serde_json::{Value, json};

use crate::Outcome;
use crate::connect::block_on;
use crate::error::CliError;
use crate::operate::admin::{AdminTarget, Pools};
use crate::output::{Output, note, number, print, print_json};

#[derive(Subcommand)]
pub(crate) enum PoolCommand {
    /// Show a pool's limits, clients and use
    Show(show::ShowPool),
    /// Assign capacity to a client. That makes it a priority client; `none` removes the assignment
    Set(SetAssignment),
    /// Show the assignment and state of a client
    Get(GetAssignment),
    /// List clients with capacity, assignment and cost
    Clients(clients::ListClients),
    /// Print the events of a pool until interrupted. Continues after a change of master
    Watch(watch::Watch),
    /// Tell the cluster how much the protected service can serve now. The template must have a capacity_floor or capacity_ceiling
    Load(ReportLoad),
    /// Set an alarm: an event is emitted when a client's cost reaches a value. A new master forgets alarms, so set them
    /// again
    Alarm(Alarm),
}

pub(crate) const EXAMPLES: &str = "\
A pool is a resource whose template says `kind: PRIORITY_POOL`. Clients with an assignment
are priority clients; all others are free clients, which get `min_capacity` if there is room.

  leaseway pool show searches                summarize the pool
  leaseway pool set acme searches 40         assign 40 to acme, ahead of free clients
  leaseway pool set acme searches 25%        assign a quarter of the total
  leaseway pool set acme searches none       remove the assignment
  leaseway pool clients searches --only assigned
  leaseway pool watch searches               print events as they happen
  leaseway pool alarm acme searches 10000    emit an event at this cost
  leaseway pool load searches 80%            report that 80 % can be served now

A server without --data needs --admin ADDRESS for these commands, and forgets their effect when it stops.";

impl PoolCommand {
    pub(crate) fn run(self) -> Outcome {
        match self {
            PoolCommand::Show(show) => block_on(show.run()),
            PoolCommand::Set(set) => block_on(set.run()),
            PoolCommand::Get(get) => block_on(get.run()),
            PoolCommand::Clients(clients) => block_on(clients.run()),
            PoolCommand::Watch(watch) => block_on(watch.run()),
            PoolCommand::Load(load) => block_on(load.run()),
            PoolCommand::Alarm(alarm) => block_on(alarm.run()),
        }
    }
}

/// A holder of capacity in a pool.
#[derive(Args)]
struct Who {
    /// Id of the client
    client: String,
    /// Resource id of the pool
    resource: String,
    /// CLIENT is the name of a child node (`serve --node`)
    #[arg(long)]
    node: bool,
}

impl Who {
    fn holder(&self) -> Option<Holder> {
        Some(Holder { id: self.client.clone(), is_server: self.node })
    }
}

#[derive(Args)]
pub(crate) struct SetAssignment {
    #[command(flatten)]
    who: Who,
    /// Assignment: a number, a percentage of the total such as 25%, or `none`
    #[arg(value_name = "CAPACITY", allow_negative_numbers = true)]
    capacity: Portion,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl SetAssignment {
    async fn run(self) -> Outcome {
        let amount = self.capacity.to_assign();
        let request = SetClientCapacityRequest {
            resource_id: self.who.resource.clone(),
            holder: self.who.holder(),
            assigned: Some(Assigned { amount: Some(amount) }),
        };
        let set = async |mut client: Pools| client.set_client_capacity(request.clone()).await;
        let answer = self.target.ask_pools(set).await?;
        if self.output.is_json() {
            let SetClientCapacityResponse { before, .. } = &answer;
            return print_json(
                json!({ "before": assigned_as_json(before.as_ref()), "memory": memory_name(answer.memory()) }),
            );
        }
        let (client, resource) = (escaped(&self.who.client), escaped(&self.who.resource));
        print(match amount {
            Amount::Capacity(0.0) => {
                format!("{client} is a free client of {resource}; before: {}", text(answer.before.as_ref()))
            }
            _ => format!(
                "{client} has {} of {resource} assigned; before: {}",
                text(request.assigned.as_ref()),
                text(answer.before.as_ref())
            ),
        })?;
        warn_of_forgetting(answer.memory());
        Ok(())
    }
}

#[derive(Args)]
pub(crate) struct GetAssignment {
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl GetAssignment {
    async fn run(self) -> Outcome {
        let request = GetClientCapacityRequest { resource_id: self.who.resource.clone(), holder: self.who.holder() };
        let get = async |mut client: Pools| client.get_client_capacity(request.clone()).await;
        let answer = self.target.ask_pools(get).await?;
        let assigned = answer.assigned.as_ref();
        if self.output.is_json() {
            let client = answer.client.as_ref().map(clients::as_json);
            return print_json(json!({ "assigned": assigned_as_json(assigned), "client": client }));
        }
        print(text(assigned))?;
        print(clients::stands(answer.client.as_ref()))
    }
}

#[derive(Args)]
pub(crate) struct ReportLoad {
    /// Resource id; it need not be a pool
    resource: String,
    /// Current capacity: a number, a percentage of the template's capacity such as 80%, or `none` to restore the
    /// template's capacity
    #[arg(value_name = "CAPACITY", allow_negative_numbers = true)]
    capacity: Portion,
    /// Validity of the report in seconds [default: until the next report, even after a restart]
    #[arg(long, value_name = "SECONDS")]
    valid: Option<u64>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl ReportLoad {
    async fn run(self) -> Outcome {
        let request = ReportLoadRequest {
            resource_id: self.resource.clone(),
            load: self.capacity.to_report(),
            valid_ms: self.valid.map(|seconds| seconds.saturating_mul(1000)),
        };
        let report = async |mut client: Pools| client.report_load(request.clone()).await;
        let answer = self.target.ask_pools(report).await?;
        let ReportLoadResponse { capacity, floor, ceiling, .. } = answer;
        if self.output.is_json() {
            let memory = memory_name(answer.memory());
            return print_json(json!({ "capacity": capacity, "floor": floor, "ceiling": ceiling, "memory": memory }));
        }
        let (now, floor, ceiling) = (number(capacity), number(floor), number(ceiling));
        print(format_args!(
            "{} has {now} now; load reports can set it from {floor} to {ceiling}",
            escaped(&self.resource)
        ))?;
        if self.valid.is_none() {
            warn_of_forgetting(answer.memory());
        }
        Ok(())
    }
}

#[derive(Args)]
pub(crate) struct Alarm {
    #[command(flatten)]
    who: Who,
    /// Cost at which the event is emitted; `none` cancels the alarm. Cost is capacity times seconds connected, plus
    /// units used, each weighted by the template
    #[arg(value_name = "COST", allow_negative_numbers = true)]
    mark: Portion,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl Alarm {
    async fn run(self) -> Outcome {
        let mark = self.mark.to_mark()?;
        let request = SetAlarmRequest { resource_id: self.who.resource.clone(), holder: self.who.holder(), mark };
        let set = async |mut client: Pools| client.set_alarm(request.clone()).await;
        self.target.ask_pools(set).await?;
        let Who { resource, client, node } = &self.who;
        let text = || match mark {
            Some(mark) => {
                let (client, mark) = (escaped(client), number(mark));
                format!("an alarm is emitted when {client} has cost {mark}; a new master forgets the alarm")
            }
            None => format!("no alarm is set for {}", escaped(client)),
        };
        let json = || json!({ "resource": resource, "client": client, "is_server": node, "mark": mark });
        self.output.print(text, json)
    }
}

/// An amount, a part, or `none`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Portion {
    Amount(f64),
    Part(f64),
    Nothing,
}

impl Portion {
    /// For `set`: `none` assigns 0.
    fn to_assign(self) -> Amount {
        match self {
            Portion::Amount(amount) => Amount::Capacity(amount),
            Portion::Part(part) => Amount::Share(part),
            Portion::Nothing => Amount::Capacity(0.0),
        }
    }

    /// For `load`: `none` withdraws the report, while 0 is a report.
    fn to_report(self) -> Option<Load> {
        match self {
            Portion::Amount(amount) => Some(Load::Capacity(amount)),
            Portion::Part(part) => Some(Load::Factor(part)),
            Portion::Nothing => None,
        }
    }

    /// For `alarm`: `none` removes the alarm, while 0 triggers it immediately.
    fn to_mark(self) -> Result<Option<f64>, CliError> {
        match self {
            Portion::Amount(mark) => Ok(Some(mark)),
            Portion::Part(_) => Err(CliError::PartOfNothing),
            Portion::Nothing => Ok(None),
        }
    }
}

impl std::str::FromStr for Portion {
    type Err = String;

    fn from_str(text: &str) -> Result<Portion, String> {
        let expected = || format!("`{text}`: expected a number like 40, a percentage like 25%, or `none`");
        if text == "none" {
            return Ok(Portion::Nothing);
        }
        let (digits, is_part) = text.strip_suffix('%').map_or((text, false), |digits| (digits, true));
        let value: f64 = digits.trim().parse().map_err(|_| expected())?;
        if !value.is_finite() || value < 0.0 {
            return Err(expected());
        }
        Ok(match is_part {
            true => Portion::Part(value / 100.0),
            false => Portion::Amount(value),
        })
    }
}

fn text(assigned: Option<&Assigned>) -> String {
    match assigned.and_then(|assigned| assigned.amount) {
        None => "nothing".to_owned(),
        Some(Amount::Capacity(capacity)) => number(capacity),
        Some(Amount::Share(share)) => format!("{}%", number(share * 100.0)),
    }
}

fn assigned_as_json(assigned: Option<&Assigned>) -> Value {
    match assigned.and_then(|assigned| assigned.amount) {
        None => Value::Null,
        Some(Amount::Capacity(capacity)) => json!({ "capacity": capacity }),
        Some(Amount::Share(share)) => json!({ "share": share }),
    }
}

fn memory_name(memory: Memory) -> &'static str {
    match memory {
        Memory::Unspecified => "unknown",
        Memory::Quorum => "quorum",
        Memory::Process => "process",
    }
}

/// Printed for a pool of a server without a data directory.
const NOT_KEPT: &str = "the server runs without --data: it loses assignments, balances and costs when it stops; balances \
     and costs are also lost when the pool has had no requests for a while";

fn warn_of_forgetting(memory: Memory) {
    if memory == Memory::Process {
        note("the server runs without --data: it loses this setting when it stops");
    }
}

/// Rounded to a tenth, because costs change all the time.
fn rounded(value: f64) -> String {
    number((value * 10.0).round() / 10.0)
}

/// The name of a holder in tables.
fn name(holder: Option<&Holder>) -> String {
    match holder {
        Some(Holder { id, is_server: true }) => format!("{} (node)", escaped(id)),
        Some(Holder { id, .. }) => escaped(id).into_owned(),
        None => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_percentages_and_none_are_parsed() {
        for (text, portion) in [
            ("40", Portion::Amount(40.0)),
            ("2.5", Portion::Amount(2.5)),
            ("25%", Portion::Part(0.25)),
            ("12.5 %", Portion::Part(0.125)),
            ("0", Portion::Amount(0.0)),
            ("0%", Portion::Part(0.0)),
            ("none", Portion::Nothing),
        ] {
            assert_eq!(text.parse(), Ok(portion), "{text}");
        }
        for bad in ["", "%", "-1", "nan", "inf", "forty", "1e999"] {
            assert!(bad.parse::<Portion>().expect_err(bad).contains("expected a number"), "{bad}");
        }
    }

    #[test]
    fn none_and_zero_differ_for_reports_and_alarms() {
        let zero: Portion = "0".parse().expect("a number");
        assert_eq!(zero.to_assign(), Amount::Capacity(0.0));
        assert_eq!(zero.to_report(), Some(Load::Capacity(0.0)), "nothing can be served");
        assert_eq!(zero.to_mark().ok(), Some(Some(0.0)), "the alarm is emitted immediately");
        assert_eq!(Portion::Nothing.to_assign(), Amount::Capacity(0.0));
        assert_eq!(Portion::Nothing.to_report(), None);
        assert_eq!(Portion::Nothing.to_mark().ok(), Some(None));
        assert!(Portion::Part(0.5).to_mark().is_err());
    }
}
