//! Books of clients, on the clock of the machine: what the auditor reads, and so what several processes write alike.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, BufWriter, Write as _},
    path::Path,
    time::Instant,
};

use leaseway_client::LeaseChange;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// From this moment on a client may use so much. A line of a book.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BookLine {
    /// The machine's monotonic clock, in microseconds: the same for all processes.
    pub(crate) at_us: u64,
    pub(crate) client: String,
    pub(crate) resource: String,
    pub(crate) capacity: f64,
}

/// The clock that all processes of this machine share, and what it was at a moment that we know otherwise.
#[derive(Clone, Copy)]
pub(crate) struct MachineClock {
    known: Instant,
    us: u64,
}

impl MachineClock {
    /// To be read before the first entry is written.
    pub(crate) fn read() -> MachineClock {
        let known = Instant::now();
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        MachineClock { known, us: seconds * 1_000_000 + nanos / 1_000 }
    }

    pub(crate) fn us(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.known);
        self.us + u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn lines(&self, entries: Vec<LeaseChange>) -> Vec<BookLine> {
        let line = |entry: LeaseChange| BookLine {
            at_us: self.us(entry.at.into_std()),
            client: entry.client.to_string(),
            resource: entry.resource.to_string(),
            capacity: entry.capacity,
        };
        entries.into_iter().map(line).collect()
    }
}

/// Adds the lines of a book.
pub(crate) fn read(book: &Path, lines: &mut Vec<BookLine>) -> Result<(), Error> {
    let file = File::open(book).map_err(Error::io(format!("read {}", book.display())))?;
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(Error::io(format!("read {}", book.display())))?;
        let line =
            parse(&line).map_err(|why| Error::Usage(format!("{}, line {}: {why}", book.display(), number + 1)))?;
        lines.push(line);
    }
    Ok(())
}

fn parse(line: &str) -> Result<BookLine, String> {
    let line: BookLine = serde_json::from_str(line).map_err(|error| error.to_string())?;
    if line.capacity.is_nan() || line.capacity < 0.0 {
        return Err(format!("capacity: is {}, expected a number that is not below 0", line.capacity));
    }
    Ok(line)
}

/// Writes a book as `audit` reads it.
pub(crate) fn write(lines: &[BookLine], path: &Path) -> Result<(), Error> {
    let failed = || Error::io(format!("write {}", path.display()));
    let mut file = BufWriter::new(File::create(path).map_err(failed())?);
    for line in lines {
        let line = serde_json::to_string(line).expect("a line has string keys only");
        writeln!(file, "{line}").map_err(failed())?;
    }
    file.flush().map_err(failed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::audit;

    /// Bytes of a line are changed: it is refused in words, or what it says can be added up.
    #[test]
    fn what_is_no_line_of_a_book_is_refused_in_words() {
        let seed = br#"{"at_us":1000,"client":"a","resource":"r","capacity":2.5}"#;
        bolero::check!().with_iterations(20_000).for_each(|changes: &[u8]| {
            let mut bytes = seed.to_vec();
            for change in changes.chunks_exact(2) {
                let at = usize::from(change[0]) % bytes.len();
                bytes[at] = change[1];
            }
            match parse(&String::from_utf8_lossy(&bytes)) {
                Ok(line) => {
                    let later = BookLine { at_us: line.at_us.saturating_add(5), capacity: 0.0, ..line.clone() };
                    assert_eq!(audit(vec![line, later], 100.0).len(), 1);
                }
                Err(why) => assert!(!why.is_empty()),
            }
        });
    }
}
