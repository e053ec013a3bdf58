//! The log as JSON, one object per line.

use std::fmt::{self, Debug};

use leaseway_core::types::escaped;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats an event as an object with `time`, `level`, `target` and `message`. Its other fields are under `fields`,
/// with their types.
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

/// The JSON of an event, with control characters escaped.
fn line(time: &str, event: &Event<'_>) -> String {
    let mut collected = Collected::default();
    event.record(&mut collected);
    let Collected { mut fields } = collected;
    let message = fields.remove("message").unwrap_or_default();
    // Events from the crate `log` have their target in a field.
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

    /// JSON has neither infinity nor NaN: they become strings.
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, if value.is_finite() { Value::from(value) } else { value.to_string().into() });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt as _};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Written {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().expect("no test panics with it").push(line("now", event));
        }
    }

    #[test]
    fn fields_keep_their_types_and_values() {
        let lines = Written::default();
        let subscriber = tracing_subscriber::registry().with(lines.clone());
        let id = "a\n\u{1b}[2J\u{202e}\"}";
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "t", count = 3, low = -1, part = 0.5, none = f64::NAN, is = true, id, "said {id}");
        });
        let lines = lines.0.lock().expect("no test panics with it");
        assert!(!lines[0].contains(|c: char| c.is_control() || c == '\u{202e}'), "{}", lines[0]);
        let object: Value = serde_json::from_str(&lines[0]).expect("JSON");
        let expected = serde_json::json!({
            "time": "now", "level": "WARN", "target": "t", "message": format!("said {id}"),
            "fields": { "count": 3, "low": -1, "part": 0.5, "none": "NaN", "is": true, "id": id },
        });
        assert_eq!(object, expected);
    }
}
