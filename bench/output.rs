//! The one place that prints. Results go to stdout, whole and flushed, so that a reader at the other end of a pipe gets
//! them at once; everything a person needs to know meanwhile goes to stderr.

use std::io::{self, Write};

use crate::error::Error;

/// Prints a result. A reader that has gone away (`| head`) is an error, so that a long run does not go on for nobody.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .map_err(|source| Error::Io { what: "print".into(), source })
}

/// Tells the person at the terminal something. Nobody there is no reason to stop.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
