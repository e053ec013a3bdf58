//! `leaseway pool watch`: the events of a pool. When the stream ends with its master, the command subscribes at the
//! next.

use std::time::Duration;

use clap::{Args, ValueEnum};
use leaseway_core::types::escaped;
use leaseway_proto::pools::{EventKind, PoolEvent, SubscribeRequest};
use serde_json::{Value, json};
use tonic::Streaming;

use super::{name, rounded};
use crate::Outcome;
use crate::error::CliError;
use crate::operate::admin::{AdminTarget, Pools};
use crate::output::{Output, in_words, note, number, print, print_json, utc_millis};

/// The pause before another subscription while there is no master.
const RETRY_DELAY: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(crate) struct Watch {
    /// Resource id of the pool
    resource: String,
    /// Omit events of free clients. They have no assignment
    #[arg(long)]
    priority_only: bool,
    /// Print only when priority clients exceed the total (underrun), and when they fit again (relieved)
    #[arg(long)]
    underrun_only: bool,
    /// Print only these kinds of events
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND,…")]
    only: Vec<Kind>,
    /// Exit after this number of events
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// A client got capacity, and had none before
    Connected,
    /// A client lost all its capacity
    Disconnected,
    /// A client's capacity changed, or its cost rose by the step that the template configures
    Update,
    /// The total capacity of the pool changed
    Total,
    /// Priority clients exceed the total
    Underrun,
    /// Priority clients fit into the total again
    Relieved,
    /// A client lost its assignment and has more than a free client may have
    Downgraded,
    /// A client's cost reached the value that `leaseway pool alarm` set
    Alarm,
}

impl Kind {
    fn event(self) -> EventKind {
        match self {
            Kind::Connected => EventKind::ConnectedNow,
            Kind::Disconnected => EventKind::Disconnected,
            Kind::Update => EventKind::Update,
            Kind::Total => EventKind::Total,
            Kind::Underrun => EventKind::Underrun,
            Kind::Relieved => EventKind::Relieved,
            Kind::Downgraded => EventKind::Downgraded,
            Kind::Alarm => EventKind::Alarm,
        }
    }
}

enum End {
    /// All requested events have been printed.
    Enough,
    /// The stream ended; another may follow.
    Lost(String),
}

impl Watch {
    pub(super) async fn run(self) -> Outcome {
        let mut left = self.events.unwrap_or(u64::MAX);
        let mut stream = match self.subscribe().await {
            // Peers that were just started elect a master soon.
            Err(why) if why.awaits_master() => {
                note(format_args!("{}; waiting for a master", in_words(&why)));
                self.again().await?
            }
            // Any other error of the first subscription is a mistake in the command.
            first => first?,
        };
        loop {
            match self.print(&mut stream, &mut left).await? {
                End::Enough => return Ok(()),
                End::Lost(why) => {
                    note(format_args!("the stream has ended ({}); looking for the master", escaped(&why)))
                }
            }
            stream = self.again().await?;
        }
    }

    async fn subscribe(&self) -> Result<Streaming<PoolEvent>, CliError> {
        let request = SubscribeRequest {
            resource_id: self.resource.clone(),
            priority_only: self.priority_only,
            underrun_only: self.underrun_only,
            kind: self.only.iter().map(|kind| kind.event().into()).collect(),
        };
        self.target.ask_pools(async |mut client: Pools| client.subscribe(request.clone()).await).await
    }

    /// Subscribes, and retries as long as no master can be reached.
    async fn again(&self) -> Result<Streaming<PoolEvent>, CliError> {
        loop {
            match self.subscribe().await {
                Err(
                    CliError::NoAdmin { .. }
                    | CliError::CutOff { .. }
                    | CliError::NoMasterNow { .. }
                    | CliError::NotMaster { .. }
                    | CliError::NoAnswer { .. }
                    | CliError::TooManyRedirects { .. }
                    | CliError::Refused { code: tonic::Code::DeadlineExceeded | tonic::Code::Cancelled, .. },
                ) => tokio::time::sleep(RETRY_DELAY).await,
                other => return other,
            }
        }
    }

    async fn print(&self, stream: &mut Streaming<PoolEvent>, left: &mut u64) -> Result<End, CliError> {
        while *left > 0 {
            match stream.message().await {
                Ok(Some(event)) if self.output.is_json() => print_json(as_json(&event))?,
                Ok(Some(event)) => print(as_text(&event))?,
                Ok(None) => return Ok(End::Lost("closed by the server".into())),
                Err(status) => return Ok(End::Lost(status.message().to_owned())),
            }
            *left -= 1;
        }
        Ok(End::Enough)
    }
}

fn kind_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Unspecified => "unknown",
        EventKind::Begin => "begin",
        EventKind::ConnectedNow => "connected",
        EventKind::Disconnected => "disconnected",
        EventKind::Update => "update",
        EventKind::Total => "total",
        EventKind::Underrun => "UNDERRUN",
        EventKind::Relieved => "relieved",
        EventKind::Downgraded => "DOWNGRADED",
        EventKind::Alarm => "ALARM",
        EventKind::Gap => "GAP",
    }
}

fn as_text(event: &PoolEvent) -> String {
    let totals = event.totals.unwrap_or_default();
    let about = match &event.client {
        Some(client) => {
            let standing = if client.is_priority { "priority" } else { "free" };
            let cost = match (client.time_cost, client.request_cost) {
                (0.0, 0.0) => String::new(),
                (time, request) => format!(", cost {} + {}", rounded(time), rounded(request)),
            };
            format!("{} has {} ({standing}{cost})", name(client.holder.as_ref()), number(client.capacity))
        }
        None => match event.kind() {
            EventKind::Gap => "some events were lost here".to_owned(),
            EventKind::Begin => "subscribed; all events from here on are printed".to_owned(),
            _ => String::new(),
        },
    };
    let cause = if event.cause.is_empty() { String::new() } else { format!(": {}", escaped(&event.cause)) };
    let deadline = match totals.underrun_ms {
        Some(left) => format!("; priority clients are disconnected in {} s", rounded(left as f64 / 1000.0)),
        None => String::new(),
    };
    let line = format!(
        "{}  {:<12}  {}{cause}  [{} of {} connected, {} priority{deadline}]",
        utc_millis(event.at_unix_ms),
        kind_name(event.kind()),
        about,
        number(totals.connected),
        number(totals.total),
        number(totals.priority_connected),
    );
    // Without a client and a cause, the totals follow the kind.
    if about.is_empty() && cause.is_empty() { line.replacen("    [", "  [", 1) } else { line }
}

fn as_json(event: &PoolEvent) -> Value {
    let totals = event.totals.unwrap_or_default();
    let client = event.client.as_ref().map(|client| {
        let holder = client.holder.clone().unwrap_or_default();
        json!({
            "id": holder.id, "is_server": holder.is_server, "capacity": client.capacity,
            "is_priority": client.is_priority, "time_cost": client.time_cost, "request_cost": client.request_cost,
        })
    });
    json!({
        "event": kind_name(event.kind()).to_lowercase(), "seq": event.seq, "at_unix_ms": event.at_unix_ms, "total": totals.total,
        "connected": totals.connected, "priority_connected": totals.priority_connected,
        "underrun_ms": totals.underrun_ms, "client": client, "cause": event.cause,
    })
}

#[cfg(test)]
mod tests {
    use leaseway_proto::pools::{EventClient, Holder, Totals};

    use super::*;

    fn event(kind: EventKind) -> PoolEvent {
        PoolEvent {
            kind: kind.into(),
            seq: 7,
            at_unix_ms: 1_700_000_000_123,
            totals: Some(Totals { total: 30.0, connected: 20.0, priority_connected: 10.0, underrun_ms: None }),
            ..PoolEvent::default()
        }
    }

    fn about(kind: EventKind, cause: &str) -> PoolEvent {
        let client = EventClient {
            holder: Some(Holder { id: "acme".into(), is_server: false }),
            capacity: 10.0,
            is_priority: true,
            time_cost: 12.34,
            request_cost: 3.0,
        };
        PoolEvent { client: Some(client), cause: cause.into(), ..event(kind) }
    }

    #[test]
    fn an_event_is_a_line_with_client_kind_cause_and_totals() {
        assert_eq!(
            as_text(&about(EventKind::Update, "its assignment has changed")),
            "2023-11-14T22:13:20.123Z  update        acme has 10 (priority, cost 12.3 + 3): its assignment has changed  \
             [20 of 30 connected, 10 priority]"
        );
        assert_eq!(
            as_text(&event(EventKind::Begin)),
            "2023-11-14T22:13:20.123Z  begin         subscribed; all events from here on are printed  [20 of 30 \
             connected, 10 priority]"
        );
        assert_eq!(
            as_text(&event(EventKind::Total)),
            "2023-11-14T22:13:20.123Z  total         [20 of 30 connected, 10 priority]"
        );
    }

    #[test]
    fn a_deadline_is_printed() {
        let mut underrun = event(EventKind::Underrun);
        underrun.totals = underrun.totals.map(|totals| Totals { underrun_ms: Some(5_000), ..totals });
        let text = as_text(&underrun);
        assert!(text.contains("UNDERRUN") && text.contains("priority clients are disconnected in 5 s"), "{text}");
        assert_eq!(as_json(&underrun)["underrun_ms"], 5_000);
    }

    #[test]
    fn kinds_are_selected_by_the_names_that_are_printed() {
        for kind in Kind::value_variants() {
            let name = kind.to_possible_value().expect("none is hidden").get_name().to_owned();
            assert_eq!(kind_name(kind.event()).to_lowercase(), name);
        }
    }
}
