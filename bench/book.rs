//! Books of clients, on the clock of the machine: what the auditor reads, and so what several processes write alike.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
    time::Instant,
};

use leaseway_client::Entry;

use crate::{audit::Line, error::Error};

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

    pub(crate) fn lines(&self, entries: Vec<Entry>) -> Vec<Line> {
        let line = |entry: Entry| Line {
            at_us: self.us(entry.at.into_std()),
            client: entry.client.to_string(),
            resource: entry.resource.to_string(),
            capacity: entry.capacity,
        };
        entries.into_iter().map(line).collect()
    }
}

/// Writes a book as `audit` reads it.
pub(crate) fn write(lines: &[Line], path: &Path) -> Result<(), Error> {
    let failed = || Error::io(format!("write {}", path.display()));
    let mut file = BufWriter::new(File::create(path).map_err(failed())?);
    for line in lines {
        let line = serde_json::to_string(line).expect("a line has string keys only");
        writeln!(file, "{line}").map_err(failed())?;
    }
    file.flush().map_err(failed())
}
