//! All output of the binary, and the files that commands write. Text from elsewhere (ids, messages of servers) is
//! [`escaped`], so that it cannot control the terminal, forge lines or hide.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
pub(crate) use leaseway_core::types::readable as number;
use leaseway_core::types::{escaped, escaped_lines};
use serde_json::Value;

use crate::{Outcome, error::CliError};

/// Prints a result to standard output, possibly of several lines. Names in it must be [`escaped`] before.
pub(crate) fn print(text: impl Display) -> Result<(), CliError> {
    write_line(&escaped_lines(&text.to_string()))
}

/// Prints a result as JSON on one line. Integers beyond 2^53 become strings, because many programs read numbers as
/// doubles.
pub(crate) fn print_json(value: Value) -> Result<(), CliError> {
    write_line(&escaped(&exact(value).to_string()))
}

/// Prints a file unchanged, except at a terminal, where it is escaped.
pub(crate) fn print_file(text: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() { print(text.replace('\t', "    ")) } else { write_line(text) }
}

/// A closed pipe (`| head`) is not an error.
fn write_line(text: &str) -> Result<(), CliError> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Output(error)),
        _ => Ok(()),
    }
}

fn exact(value: Value) -> Value {
    const MAX_EXACT: u64 = 1 << 53;
    match value {
        Value::Number(number)
            if number.as_i64().map_or(number.is_u64(), |number| number.unsigned_abs() > MAX_EXACT) =>
        {
            Value::String(number.to_string())
        }
        Value::Array(values) => values.into_iter().map(exact).collect(),
        Value::Object(values) => values.into_iter().map(|(name, value)| (name, exact(value))).collect(),
        other => other,
    }
}

/// Prints the error of the command to standard error.
pub(crate) fn print_error(error: &CliError) {
    note(format_args!("leaseway: {}", in_words(error)));
}

/// The escaped message of an error.
pub(crate) fn in_words(error: &CliError) -> String {
    let text = error.to_string();
    if error.has_lines() { escaped_lines(&text).into_owned() } else { escaped(&text).into_owned() }
}

/// Prints something besides the result to standard error. Failures are ignored.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", escaped_lines(&text.to_string()));
}

/// A progress indicator at the terminal, removed when this is dropped.
pub(crate) struct Progress(ProgressBar);

/// Shows progress if standard error is a terminal.
pub(crate) fn progress(what: &'static str) -> Progress {
    let bar = ProgressBar::new_spinner().with_message(what);
    let shape = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
    bar.set_style(shape.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(200));
    Progress(bar)
}

impl Progress {
    pub(crate) fn set(&self, what: String) {
        self.0.set_message(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Asks a yes-or-no question at the terminal. Anything but yes is no. Fails without a terminal to read the answer from.
pub(crate) fn confirm(question: &str) -> Result<(), CliError> {
    if !io::stdin().is_terminal() {
        return Err(CliError::NotConfirmed);
    }
    let mut out = io::stdout().lock();
    write!(out, "{question}").and_then(|()| out.flush()).map_err(CliError::Output)?;
    let mut answer = String::new();
    // No valid answer is longer.
    io::stdin().lock().take(64).read_line(&mut answer).map_err(CliError::Output)?;
    let is_yes = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    if is_yes { Ok(()) } else { Err(CliError::Declined) }
}

/// A table with a heading. The first column is aligned to the left, the others to the right.
pub(crate) fn table<const N: usize>(heading: &[&str; N], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let heading = heading.iter().map(|name| (*name).to_owned()).collect();
    table_without_heading(&std::iter::once(heading).chain(rows).collect::<Vec<_>>())
}

/// Like [`table`], without a heading. Each cell is [`escaped`].
pub(crate) fn table_without_heading(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(|cell| escaped(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let line = |row: &Vec<std::borrow::Cow<'_, str>>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Seconds since the epoch in UTC.
pub(crate) fn utc(unix: i64) -> String {
    humantime::format_rfc3339_seconds(moment(unix.saturating_mul(1000))).to_string()
}

/// Milliseconds since the epoch in UTC.
pub(crate) fn utc_millis(unix_ms: i64) -> String {
    humantime::format_rfc3339_millis(moment(unix_ms)).to_string()
}

/// Values outside the calendar become its first or last moment.
fn moment(unix_ms: i64) -> SystemTime {
    const LAST: u64 = 253_402_300_799_999;
    UNIX_EPOCH + Duration::from_millis(u64::try_from(unix_ms).unwrap_or(0).min(LAST))
}

/// The remaining time in learning mode, or `no`.
pub(crate) fn learning(left_ms: u64) -> String {
    if left_ms == 0 { "no".to_owned() } else { format!("{} s", left_ms.div_ceil(1000)) }
}

/// A word quoted for a shell. A word that cannot be quoted (a NUL) is returned as it is.
pub(crate) fn shell_quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), |quoted| quoted.into_owned())
}

/// Writes a file that only its owner can read. An existing file is an error unless it may be replaced.
pub(crate) fn write_new(path: &Path, bytes: &[u8], replace: bool) -> Result<(), CliError> {
    if !replace && path.exists() {
        return Err(CliError::FileExists { path: path.to_owned() });
    }
    write_file(path, bytes, 0o600).map_err(|error| CliError::Data { path: path.to_owned(), error })
}

/// Writes a file atomically, with its permissions from the start.
pub(crate) fn write_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

/// `-o text|json`: the flags of every command that prints a result.
#[derive(Args)]
pub(crate) struct Output {
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORM", default_value = "text")]
    output: Form,
    /// Same as -o json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Readable text
    Text,
    /// One line of JSON; see docs/reference/json.md
    Json,
}

impl Output {
    pub(crate) fn is_json(&self) -> bool {
        self.json || self.output == Form::Json
    }

    /// Prints a result in the requested form.
    pub(crate) fn print<T: Display>(&self, text: impl FnOnce() -> T, json: impl FnOnce() -> Value) -> Outcome {
        if self.is_json() { print_json(json()) } else { print(text()) }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct PrintsSomething {
        #[command(flatten)]
        output: Output,
    }

    #[test]
    fn json_is_chosen_by_either_flag() {
        let is_json = |arguments: &[&str]| {
            let command = PrintsSomething::try_parse_from([&["command"], arguments].concat());
            command.map(|command| command.output.is_json()).map_err(|error| error.kind())
        };
        assert_eq!([is_json(&[]), is_json(&["-o", "text"])], [Ok(false); 2]);
        assert_eq!([is_json(&["--json"]), is_json(&["-ojson"]), is_json(&["--output", "json"])], [Ok(true); 3]);
        assert_eq!(is_json(&["--json", "-o", "text"]), Err(clap::error::ErrorKind::ArgumentConflict));
    }

    #[test]
    fn every_moment_can_be_printed() {
        assert_eq!(utc(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!((utc(-5), utc(i64::MAX)), ("1970-01-01T00:00:00Z".into(), "9999-12-31T23:59:59Z".into()));
        assert_eq!(utc_millis(i64::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn integers_that_a_double_cannot_hold_are_strings() {
        let value =
            serde_json::json!({ "small": 1_u64 << 53, "large": [(1_u64 << 53) + 1, i64::MIN], "half": 0.5e300 });
        let expected = serde_json::json!({
            "small": 1_u64 << 53, "large": ["9007199254740993", "-9223372036854775808"], "half": 0.5e300,
        });
        assert_eq!(exact(value), expected);
    }

    #[test]
    fn tables_line_up_and_their_cells_are_escaped() {
        let rows = [vec!["a\n\u{1b}[2J".into(), "b".into()], vec!["long".into(), "1000".into()]];
        assert_eq!(table_without_heading(&rows), "a\\n\\u001b[2J     b\nlong          1000");
    }
}
