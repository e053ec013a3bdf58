//! The log as JSON: an object a line.

use std::fmt::{self, Debug};

use leaseway_core::escaped;
use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    registry::LookupSpan,
};

/// `time`, `level`, `target`, `message`, and below `fields` those of the event, with their types.
pub(super) struct Objects;

impl<S, N> FormatEvent<S, N> for Objects
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        writeln!(writer, "{}", line(&time, event))
    }
}

/// Nothing in it begins a line, or is obeyed by a terminal.
fn line(time: &str, event: &Event<'_>) -> String {
    let mut collected = Collected::default();
    event.record(&mut collected);
    let Collected { mut fields } = collected;
    let message = fields.remove("message").unwrap_or_default();
    // What comes by way of the crate `log` says there where it comes from.
    let target = fields.remove("log.target").unwrap_or_else(|| event.metadata().target().into());
    fields.retain(|name, _| !name.starts_with("log."));
    let object = serde_json::json!({
        "time": time, "level": event.metadata().level().as_str(), "target": target, "message": message,
        "fields": fields,
    });
    escaped(&object.to_string()).into_owned()
}

#[derive(Default)]
struct Collected {
    fields: Map<String, Value>,
}

impl Collected {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Collected {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.insert(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    /// JSON has no infinity and no NaN: those are words.
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, if value.is_finite() { Value::from(value) } else { value.to_string().into() });
    }
}
