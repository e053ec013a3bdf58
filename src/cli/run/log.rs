//! The log: its filter, its format, and escaping, so that no logged value can forge a line.

mod objects;

use std::fmt;
use std::fmt::Debug;
use std::io::IsTerminal as _;

use leaseway_core::{
    policy::parameters::nearest,
    types::{escaped, escaped_lines},
};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use self::objects::Objects;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Our crates that log.
const TARGETS: [&str; 6] =
    ["leaseway", "leaseway_client", "leaseway_core", "leaseway_gateway", "leaseway_raft", "leaseway_server"];

/// Parses a filter of `--log`. Unknown words are refused: tracing would take them for crates, and log nothing else.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, String> {
    text.split(',').try_for_each(|directive| check(directive.trim()))?;
    EnvFilter::builder().parse(text).map_err(|error| format!("{error}; {EXPECTED}"))
}

const EXPECTED: &str =
    "expected off, error, warn, info, debug or trace, optionally for single crates, like info,leaseway_server=debug";

fn check(directive: &str) -> Result<(), String> {
    let (target, level) = directive.rsplit_once('=').unwrap_or(("", directive));
    let level = level.to_ascii_lowercase();
    let did_you_mean = |word: &str, among: &[&'static str]| {
        nearest(word, among.iter().copied()).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
    };
    if !LEVELS.contains(&level.as_str()) {
        return Err(format!("unknown log level `{level}`{}; {EXPECTED}", did_you_mean(&level, &LEVELS)));
    }
    let of = target.split("::").next().unwrap_or_default();
    if of.starts_with("lease") && !TARGETS.contains(&of) {
        return Err(format!("unknown crate `{of}`{}; {EXPECTED}", did_you_mean(of, &TARGETS)));
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Human-readable lines that begin with the time
    Text,
    /// One JSON object per line
    Json,
}

/// Starts logging to standard error.
pub(crate) fn start(filter: EnvFilter, format: LogFormat) {
    let colours = std::io::stderr().is_terminal() && format == LogFormat::Text;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    if format == LogFormat::Json {
        return log.event_format(Objects).init();
    }
    log.fmt_fields(debug_fn(|writer, field, value| write(writer, field.name(), value))).init();
}

/// Escapes fields, so that an event stays on its line. A message may have several lines: the others begin with `|`
/// instead of a time.
fn write(writer: &mut Writer<'_>, name: &str, value: &dyn Debug) -> fmt::Result {
    let text = format!("{value:?}");
    match name {
        "message" => write!(writer, "{}", escaped_lines(&text).replace('\n', "\n    | ")),
        name if name.starts_with("log.") => Ok(()),
        name => write!(writer, " {name}={}", escaped(&text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_levels_for_all_targets_or_for_one() {
        for text in ["info", "WARN", "info,openraft=off", "leaseway_server::grpc=debug,error", "off"] {
            assert!(filter(text).is_ok(), "{text}");
        }
        for (text, says) in [
            ("wat", "unknown log level `wat`"),
            ("inof", "did you mean `info`?"),
            ("info,openraft=verbose", "unknown log level `verbose`"),
            ("bogus=wat=1", "unknown log level `1`"),
            ("", "unknown log level ``"),
            ("leaseway_sever=debug", "did you mean `leaseway_server`?"),
        ] {
            let error = filter(text).expect_err(text);
            assert!(error.contains(says) && error.contains("like info,leaseway_server=debug"), "{error}");
        }
    }

    #[test]
    fn no_field_can_forge_a_line() {
        let mut line = String::new();
        let mut writer = Writer::new(&mut line);
        let forged = format_args!("a\n2026-01-01T00:00:00Z ERROR all is lost\u{1b}[2J").to_string();
        write(&mut writer, "message", &format_args!("refused:\nline 2\u{1b}")).expect("written");
        write(&mut writer, "id", &format_args!("{forged}")).expect("written");
        assert_eq!(line, "refused:\n    | line 2\\u001b id=a\\n2026-01-01T00:00:00Z ERROR all is lost\\u001b[2J");
    }
}
