//! `leaseway pool watch`: what happens in a pool, line by line. A stream ends with its master; this goes on with the
//! next.

use std::time::Duration;

use clap::{Args, ValueEnum};
use leaseway_core::escaped;
use leaseway_proto::pools::{EventKind, PoolEvent, SubscribeRequest};
use serde_json::{Value, json};
use tonic::Streaming;

use super::name;
use crate::{
    Outcome,
    error::CliError,
    operate::admin::AdminTarget,
    output::{Output, format::number, in_words, note, say, say_json},
};

/// The pause before it asks again when there is no master.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Prints what happens in a pool, one event a line, until it is stopped. When the master is lost it goes on with the
/// next one, and says so: what happened in between is not told. The next one is found from the peers that --admin
/// names: with one address only, it waits until that peer is there again.
#[derive(Args)]
pub(crate) struct Watch {
    /// The pool
    resource: String,
    /// Nothing about free clients
    #[arg(long)]
    priority_only: bool,
    /// Only when priority clients have more than the total, and when they have not any more
    #[arg(long)]
    underrun_only: bool,
    /// Only these
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND,…")]
    only: Vec<Kind>,
    /// Ends after so many events
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// A client has capacity and had none
    Connected,
    /// A client has none any more
    Disconnected,
    /// A client's capacity has changed, or it has cost so much more
    Update,
    /// The total has moved
    Total,
    /// Priority clients have more than the total
    Underrun,
    /// They have not any more
    Relieved,
    /// A client without an assignment has more than a free one may have
    Downgraded,
    /// A client has cost as much as `leaseway pool alarm` said
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

/// How a stream ended.
enum End {
    /// As many events as were asked for.
    Enough,
    /// It is over, and there may be another.
    Lost(String),
}

impl Watch {
    pub(super) async fn run(self) -> Outcome {
        let mut left = self.events.unwrap_or(u64::MAX);
        let mut stream = match self.subscribe().await {
            // Peers that have just been started elect one in a moment.
            Err(why) if why.is_for_want_of_a_master() => {
                note(format_args!("{}; waiting for a master", in_words(&why)));
                self.again().await?
            }
            // If not even the first stream can be had for another reason, something is wrong with the command.
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
        self.target
            .ask_pools(async |mut client: crate::operate::admin::Pools| client.subscribe(request.clone()).await)
            .await
    }

    /// For as long as it takes, if it is mastership that is missing.
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
                Ok(Some(event)) if self.output.is_json() => say_json(as_json(&event))?,
                Ok(Some(event)) => say(as_text(&event))?,
                Ok(None) => return Ok(End::Lost("without a word".into())),
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
                (time, request) => format!(", cost {} + {}", tenth(time), tenth(request)),
            };
            format!("{} has {} ({standing}{cost})", name(client.holder.as_ref()), number(client.capacity))
        }
        None => match event.kind() {
            EventKind::Gap => "events are missing here".to_owned(),
            EventKind::Begin => "from here on nothing is missing".to_owned(),
            _ => String::new(),
        },
    };
    let cause = if event.cause.is_empty() { String::new() } else { format!(": {}", escaped(&event.cause)) };
    let deadline = match totals.underrun_ms {
        Some(left) => format!("; priority clients lose theirs in {} s", tenth(left as f64 / 1000.0)),
        None => String::new(),
    };
    let line = format!(
        "{}  {:<12}  {}{cause}  [{} of {} connected, {} priority{deadline}]",
        clock(event.at_unix_ms),
        kind_name(event.kind()),
        about,
        number(totals.connected),
        number(totals.total),
        number(totals.priority_connected),
    );
    // Without a client there is nothing between kind and totals.
    if about.is_empty() && cause.is_empty() { line.replacen("    [", "  [", 1) } else { line }
}

fn tenth(value: f64) -> String {
    number((value * 10.0).round() / 10.0)
}

/// To the millisecond.
fn clock(unix_ms: i64) -> String {
    let ms = Duration::from_millis(u64::try_from(unix_ms).unwrap_or(0).min(LAST_MS));
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + ms).to_string()
}

/// What no calendar has becomes the last that one has.
const LAST_MS: u64 = 253_402_300_799_999;

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
            "2023-11-14T22:13:20.123Z  begin         from here on nothing is missing  [20 of 30 connected, 10 priority]"
        );
        assert_eq!(
            as_text(&event(EventKind::Total)),
            "2023-11-14T22:13:20.123Z  total         [20 of 30 connected, 10 priority]"
        );
    }

    #[test]
    fn a_deadline_is_said() {
        let mut underrun = event(EventKind::Underrun);
        underrun.totals = underrun.totals.map(|totals| Totals { underrun_ms: Some(5_000), ..totals });
        let text = as_text(&underrun);
        assert!(text.contains("UNDERRUN") && text.contains("priority clients lose theirs in 5 s"), "{text}");
        assert_eq!(as_json(&underrun)["underrun_ms"], 5_000);
    }

    #[test]
    fn every_kind_can_be_asked_for_by_the_name_it_is_printed_with() {
        for kind in Kind::value_variants() {
            let name = kind.to_possible_value().expect("none is hidden").get_name().to_owned();
            assert_eq!(kind_name(kind.event()).to_lowercase(), name);
        }
    }

    #[test]
    fn moments_that_no_calendar_has_do_not_stop_the_stream() {
        assert_eq!(clock(-1), "1970-01-01T00:00:00.000Z");
        assert_eq!(clock(i64::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn json_has_the_general_format() {
        let json = as_json(&about(EventKind::ConnectedNow, "it asked"));
        assert_eq!((&json["event"], &json["client"]["id"]), (&json!("connected"), &json!("acme")));
        assert_eq!((&json["client"]["time_cost"], &json["client"]["request_cost"]), (&json!(12.34), &json!(3.0)));
        assert_eq!(
            (&json["total"], &json["connected"], &json["priority_connected"]),
            (&json!(30.0), &json!(20.0), &json!(10.0))
        );
    }
}
