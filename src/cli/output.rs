//! The one place that prints. Nothing that comes from elsewhere - an id, what a server says - moves a cursor, begins a
//! line or hides: it is written out (see [`escaped`]).

pub(crate) mod files;
mod form;
pub(crate) mod format;

use std::{
    fmt::Display,
    io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use leaseway_core::{escaped, escaped_lines};
use serde_json::Value;

pub(crate) use self::form::Output;
use crate::error::CliError;

/// A result, on standard output, with the lines that it has: names in it are [`escaped`] before.
pub(crate) fn say(text: impl Display) -> Result<(), CliError> {
    print(&escaped_lines(&text.to_string()))
}

/// A result as JSON, on one line. Integers beyond 2^53 are strings: programs that read numbers as doubles would take
/// another for them.
pub(crate) fn say_json(value: Value) -> Result<(), CliError> {
    print(&escaped(&exact(value).to_string()))
}

/// A file that is kept elsewhere: to the letter, unless a terminal would obey it.
pub(crate) fn say_file(text: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() { say(text.replace('\t', "    ")) } else { print(text) }
}

/// A reader that has gone away (`| head`) is not an error.
fn print(text: &str) -> Result<(), CliError> {
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

/// What went wrong, on standard error, where nothing can be done about a further failure.
pub(crate) fn complain(error: &CliError) {
    note(format_args!("leaseway: {}", in_words(error)));
}

/// What went wrong, on as many lines as it has to have.
pub(crate) fn in_words(error: &CliError) -> String {
    let text = error.to_string();
    if error.has_lines() { escaped_lines(&text).into_owned() } else { escaped(&text).into_owned() }
}

/// Something besides the result, on standard error.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", escaped_lines(&text.to_string()));
}

/// Something lasts: shown at a terminal until this is dropped.
pub(crate) struct Progress(ProgressBar);

/// Nothing is shown of what is over in a moment, or where standard error is no terminal.
pub(crate) fn progress(what: &'static str) -> Progress {
    let bar = ProgressBar::new_spinner().with_message(what);
    let shape = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
    bar.set_style(shape.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(200));
    Progress(bar)
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Asks at a terminal whether to go on; only a plain yes is one.
pub(crate) fn ask(question: &str) -> Result<bool, CliError> {
    let mut out = io::stdout().lock();
    write!(out, "{question}").and_then(|()| out.flush()).map_err(CliError::Output)?;
    let mut answer = String::new();
    // So much is enough for any answer.
    io::stdin().lock().take(64).read_line(&mut answer).map_err(CliError::Output)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Columns, as wide as need be; the first is to the left, the others to the right. Each cell is [`escaped`].
pub(crate) fn table(rows: &[Vec<String>]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn cells_hold_nothing_that_a_terminal_obeys() {
        let rows = [vec!["a\n\u{1b}[2J".into(), "b".into()], vec!["long".into(), "1000".into()]];
        assert_eq!(table(&rows), "a\\n\\u001b[2J     b\nlong          1000");
    }

    #[test]
    fn tables_line_up() {
        let rows = [vec!["a".into(), "b".into()], vec!["long".into(), "1000".into()]];
        assert_eq!(table(&rows), "a        b\nlong  1000");
    }
}
