//! A machine that is suspended, as the processes on it see that: they do not run, and `CLOCK_MONOTONIC` stands still.
//!
//! No machine is: the process is stopped, and a library that is loaded before all others takes the time off its clock.

use std::{fs, path::PathBuf, time::Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{preload, process::Process};

/// What processes are to be started with that it can suspend.
pub(crate) struct Suspension {
    directory: TempDir,
    library: String,
}

/// A process that is suspended.
pub(crate) struct Suspended<'a> {
    process: &'a Process,
    since: Instant,
    lost: PathBuf,
}

impl Suspension {
    pub(crate) fn new() -> Suspension {
        let directory = tempfile::tempdir().unwrap();
        let library = preload::library(directory.path(), "suspended");
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
        assert!(lost.exists(), "the process was started with the variables");
        process.signal(Signal::STOP);
        Suspended { process, since: Instant::now(), lost }
    }
}

impl Suspended<'_> {
    pub(crate) fn wake(self) {
        // The time before the signal is in it: at most a little too much is taken off.
        let lost = i64::try_from(self.since.elapsed().as_nanos()).unwrap();
        fs::write(&self.lost, lost.to_ne_bytes()).unwrap();
        self.process.signal(Signal::CONT);
    }
}
