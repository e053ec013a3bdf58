//! Prints and writes results. Results go to standard output, flushed; everything else goes to standard error.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::common::error::Error;

/// Prints a result. A closed pipe (`| head`) is an error, so that a long run does not go on unread.
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
