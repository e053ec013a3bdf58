//! Simulates a suspended machine: its processes do not run, and `CLOCK_MONOTONIC` stops. The process is
//! stopped, and a preloaded library subtracts the time from its clock.

use std::{fs, path::PathBuf, time::Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{foreign, process::Process};

/// The variables of processes that can be suspended.
pub(crate) struct Suspension {
    directory: TempDir,
    library: String,
}

pub(crate) struct Suspended<'a> {
    process: &'a Process,
    since: Instant,
    lost: PathBuf,
}

impl Suspension {
    pub(crate) fn new() -> Suspension {
        let directory = tempfile::tempdir().unwrap();
        let library = foreign::preload_library(directory.path(), "suspended");
        Suspension { directory, library }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        vec![("LD_PRELOAD".into(), self.library.clone()), ("SUSPENDED".into(), self.path(""))]
    }

    pub(crate) fn suspend<'a>(&self, process: &'a Process) -> Suspended<'a> {
        let lost = PathBuf::from(self.path(&process.id().to_string()));
        assert!(lost.exists(), "the process was started without the variables of `suspension`");
        process.signal(Signal::STOP);
        Suspended { process, since: Instant::now(), lost }
    }
}

impl Suspended<'_> {
    pub(crate) fn wake(self) {
        // Includes the time before the signal, so that slightly too much is subtracted.
        let lost = i64::try_from(self.since.elapsed().as_nanos()).unwrap();
        fs::write(&self.lost, lost.to_ne_bytes()).unwrap();
        self.process.signal(Signal::CONT);
    }
}
