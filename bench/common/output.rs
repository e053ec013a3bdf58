//! Prints and writes results. Results go to standard output, flushed; everything else goes to standard error.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::common::error::Error;

/// Prints a result. A closed pipe (`| head`) is an error, so that a long run stops if nobody reads its output.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .map_err(|source| Error::Io { what: "print".into(), source })
}

/// Prints a message. A closed terminal is not an error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

pub(crate) fn json(result: &impl Serialize) -> String {
    serde_json::to_string_pretty(result).expect("results have string keys only")
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

pub(crate) fn write_json(path: Option<&Path>, result: &impl Serialize) -> Result<(), Error> {
    path.map_or(Ok(()), |path| write(path, &(json(result) + "\n")))
}

/// The command line, so that a result can be reproduced.
pub(crate) fn arguments() -> Vec<String> {
    std::env::args().skip(1).collect()
}

pub(crate) fn progress(steps: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    bar.set_style(ProgressStyle::with_template(template).expect("templates are constants"));
    bar
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Machine {
    /// Cores that this process may use.
    pub(crate) cores: usize,
    pub(crate) cpu: Option<String>,
    pub(crate) kernel: Option<String>,
    pub(crate) version: String,
    pub(crate) optimised: bool,
    /// When the measurement ended.
    pub(crate) at: String,
}

impl Machine {
    pub(crate) fn read() -> Machine {
        let read = |path| fs::read_to_string(path).ok();
        Machine {
            cores: thread::available_parallelism().map_or(1, usize::from),
            cpu: read("/proc/cpuinfo").as_deref().and_then(model),
            kernel: read("/proc/sys/kernel/osrelease").map(|release| release.trim().to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            optimised: !cfg!(debug_assertions),
            at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        }
    }

    /// One line, without the time.
    pub(crate) fn text(&self) -> String {
        let Machine { cores, cpu, kernel, version, optimised, .. } = self;
        let cpu = cpu.as_ref().map_or(String::new(), |cpu| format!(" ({cpu})"));
        let kernel = kernel.as_ref().map_or(String::new(), |kernel| format!(", kernel {kernel}"));
        let cores = if *cores == 1 { "1 core".into() } else { format!("{cores} cores") };
        let build = if *optimised { "" } else { ", a debug build" };
        format!("{cores}{cpu}{kernel}; leaseway-bench {version}{build}")
    }
}

fn model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The width of a table that fits a terminal, in characters.
const WIDTH: usize = 130;

/// Renders a Markdown table. The first `left` columns are text, the others are numbers.
pub(crate) fn render<R: AsRef<[T]>, T: AsRef<str>>(head: &[&str], left: usize, rows: &[R]) -> String {
    let widths: Vec<usize> = (0..head.len()).map(|column| width(head, rows, column)).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::from("|");
        for (column, (cell, &width)) in cells.zip(&widths).enumerate() {
            let cell = if column < left { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") };
            line.push_str(&cell);
        }
        line
    };
    let rule = widths.iter().enumerate().map(|(column, &width)| {
        if column < left { format!("{}|", "-".repeat(width + 2)) } else { format!("{}:|", "-".repeat(width + 1)) }
    });
    let mut lines = vec![line(&mut head.iter().copied()), format!("|{}", rule.collect::<String>())];
    lines.extend(rows.iter().map(|row| line(&mut row.as_ref().iter().map(AsRef::as_ref))));
    lines.join("\n")
}

fn width<R: AsRef<[T]>, T: AsRef<str>>(head: &[&str], rows: &[R], column: usize) -> usize {
    let cells = rows.iter().filter_map(|row| row.as_ref().get(column)).map(AsRef::as_ref);
    cells.chain([head[column]]).map(|cell| cell.chars().count()).max().unwrap_or_default()
}

/// Like [`render`], for tables that may be too wide. A single row becomes one line per column. A table of several rows
/// shows only the columns that fit, and names the others.
pub(crate) fn fitted(head: &[&str], left: usize, rows: &[Vec<String>]) -> String {
    if let [row] = rows {
        let pairs: Vec<_> = head.iter().zip(row).map(|(title, cell)| [*title, cell.as_str()]).collect();
        return render(&["what", "value"], 2, &pairs);
    }
    let mut taken = 1;
    let (shown, others): (Vec<usize>, Vec<usize>) = (0..head.len()).partition(|&column| {
        let room = width(head, rows, column) + 3;
        let fits = taken + room <= WIDTH;
        taken += if fits { room } else { 0 };
        fits
    });
    let titles = |columns: &[usize]| columns.iter().map(|&column| head[column]).collect::<Vec<_>>();
    let of = |row: &Vec<String>| shown.iter().map(|&column| row[column].clone()).collect::<Vec<_>>();
    let table = render(&titles(&shown), left, &rows.iter().map(of).collect::<Vec<_>>());
    match titles(&others).join(", ") {
        none if none.is_empty() => table,
        others => format!("{table}\n\nwith --wide, or in --json, also: {others}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// The spread of these values. `None` without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = values.first().zip(values.last())?;
        let middle = values.len() / 2;
        let even = values.len().is_multiple_of(2);
        let median = if even { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] };
        Some(Spread { median, min, max })
    }

    /// `median (min..max)`, the only value, or a dash if it is not finite.
    pub(crate) fn text(self, number: impl Fn(f64) -> String) -> String {
        let Spread { median, min, max } = self;
        match (median.is_finite(), number(min) == number(max)) {
            (false, _) => "-".into(),
            (true, true) => number(median),
            (true, false) => format!("{} ({}..{})", number(median), number(min), number(max)),
        }
    }

    pub(crate) fn digits(self, digits: usize) -> String {
        self.text(|value| format!("{value:.digits$}"))
    }

    /// Like [`digits`](Self::digits); a dash for `None`.
    pub(crate) fn show(spread: Option<Spread>, digits: usize) -> String {
        spread.map_or("-".into(), |spread| spread.digits(digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_left_aligned_and_numbers_are_right_aligned() {
        let expected = "\
| row | ms    |
|-----|------:|
| A   |    12 |
| A/B | 1.500 |";
        // A heading is aligned like its column.
        assert_eq!(render(&["row", "ms"], 1, &[["A", "12"], ["A/B", "1.500"]]), expected.replace("ms    ", "   ms "));
    }

    #[test]
    fn a_single_row_becomes_lines_and_wide_tables_lose_columns() {
        let head = ["row", "ms", "long", "last"];
        let row = |name: &str| vec![name.into(), "12".into(), "x".repeat(200), "1".into()];
        let shown = fitted(&head, 1, &[row("A")]);
        assert!(shown.starts_with("| what | value") && shown.contains("| ms   | 12 "), "{shown}");
        let shown = fitted(&head, 1, &[row("A"), row("B")]);
        assert_eq!(shown.lines().next(), Some("| row | ms | last |"));
        assert!(shown.ends_with("also: long"), "{shown}");
    }

    #[test]
    fn the_median_of_an_even_number_of_values_is_a_midpoint() {
        let of = |values: &[f64], digits| Spread::show(Spread::of(values.iter().copied()), digits);
        assert_eq!(of(&[3.0, 1.0, 2.0], 1), "2.0 (1.0..3.0)");
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0], 1), "2.5 (1.0..4.0)");
        assert_eq!(of(&[7.0], 0), "7");
        assert_eq!(of(&[99.991, 99.993], 2), "99.99", "what reads the same is one figure");
        assert_eq!((of(&[], 2), of(&[f64::NAN], 2)), ("-".into(), "-".into()));
    }
}
