//! The one place that prints.

use std::{
    fmt::Display,
    io::{self, Write as _},
    time::{Duration, UNIX_EPOCH},
};

use crate::error::CliError;

/// A result, on standard output. A reader that has gone away (`| head`) is not an error.
pub(crate) fn say(text: impl Display) -> Result<(), CliError> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Output(error)),
        _ => Ok(()),
    }
}

/// What went wrong, on standard error, where nothing can be done about a further failure.
pub(crate) fn complain(error: &CliError) {
    note(format_args!("leaseway: {error}"));
}

/// Something besides the result, on standard error.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Columns, as wide as need be; the first is to the left, the others to the right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A number for people: whole if it is, else at most six digits behind the point.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A moment in seconds since the epoch. What no calendar has (a clock that was set wrong) becomes the nearest that one has.
pub(crate) fn utc(unix: i64) -> String {
    const LAST: u64 = 253_402_300_799;
    let seconds = u64::try_from(unix).unwrap_or(0).min(LAST);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

/// How much longer a resource learns, if it does.
pub(crate) fn learning(left_ms: u64) -> String {
    if left_ms == 0 { "no".to_owned() } else { format!("{} s", left_ms.div_ceil(1000)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(number(40.0), "40");
        assert_eq!(number(100.0 / 3.0), "33.333333");
        assert_eq!(number(0.0), "0");
        assert_eq!(number(-1.0), "-1");
    }

    #[test]
    fn every_moment_can_be_shown() {
        assert_eq!(utc(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(utc(-5), "1970-01-01T00:00:00Z");
        assert_eq!(utc(i64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn tables_line_up() {
        let rows = [vec!["a".into(), "b".into()], vec!["long".into(), "1000".into()]];
        assert_eq!(table(&rows), "a        b\nlong  1000");
    }
}
