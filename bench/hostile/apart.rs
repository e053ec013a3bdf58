//! The attacker on a core of its own, where it takes nothing of the others' time, as one on another machine does.

use std::{
    process::{self, Command},
    thread,
};

use crate::error::Error;

/// The core that is the attacker's.
#[derive(Clone, Copy)]
pub(super) struct Apart {
    core: usize,
}

impl Apart {
    /// Keeps this process, and what it starts from here on, off the last core.
    pub(super) fn arrange() -> Result<Apart, Error> {
        match thread::available_parallelism().map_or(1, usize::from) {
            0 | 1 => Err(Error::Usage("--apart: there is one core, which attacker and server have to share".into())),
            cores => {
                let core = cores - 1;
                taskset(&["-a"], &format!("0-{}", core - 1), process::id())?;
                Ok(Apart { core })
            }
        }
    }

    /// Puts a thread on it.
    pub(super) fn set(self, thread: u32) -> Result<(), Error> {
        taskset(&[], &self.core.to_string(), thread)
    }
}

fn taskset(flags: &[&str], cores: &str, id: u32) -> Result<(), Error> {
    let done = Command::new("taskset").args(flags).args(["-cp", cores, &id.to_string()]).output();
    let done = done.map_err(Error::io("run `taskset`, which --apart needs"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(Error::Usage(format!("--apart: taskset: {}", String::from_utf8_lossy(&done.stderr).trim())))
}
