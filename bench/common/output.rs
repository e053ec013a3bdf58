//! The one place that prints and writes results. Results go to stdout, whole and flushed, so that a reader at the other
//! end of a pipe gets them at once; everything a person needs to know meanwhile goes to stderr.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::common::error::Error;

/// Prints a result. A reader that has gone away (`| head`) is an error, so that a long run does not go on unread.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .map_err(|source| Error::Io { what: "print".into(), source })
}

/// Tells the person at the terminal something. A terminal that is gone is no reason to stop.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

pub(crate) fn json(result: &impl Serialize) -> String {
    serde_json::to_string_pretty(result).expect("results have string keys only")
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

/// Writes a result, if it is to be written.
pub(crate) fn write_json(path: Option<&Path>, result: &impl Serialize) -> Result<(), Error> {
    path.map_or(Ok(()), |path| write(path, &(json(result) + "\n")))
}

/// The command line, so that a result can be repeated.
pub(crate) fn arguments() -> Vec<String> {
    std::env::args().skip(1).collect()
}

/// How far a run is, in so many steps.
pub(crate) fn progress(steps: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    bar.set_style(ProgressStyle::with_template(template).expect("templates are constants"));
    bar
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
