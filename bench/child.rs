//! Processes that we started and that never outlive us: signals, last words, and the end of a whole group.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    process::{self, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::Error;

/// How long it may take to stop by itself before it is killed.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// How much of a failed process's output is repeated.
const SAID_MAX: u64 = 2_000;

/// A process, its group and its output. It and whatever it starts end with this value.
pub(crate) struct Child {
    child: process::Child,
    command: String,
    output: File,
    /// Whether somebody has asked it to end.
    ends: bool,
}

impl Child {
    /// Runs `words` as they stand, without a shell. What it says goes to `output`, which must be readable, too.
    pub(crate) fn start(words: &[String], output: File) -> Result<Child, Error> {
        let command = words.join(" ");
        let copy = || output.try_clone().map(Stdio::from).map_err(Error::io("use the output file of a process"));
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(copy()?)
            .stderr(copy()?)
            // A group of its own, so that what it starts is ended too; Ctrl-C reaches us alone and we pass it on.
            .process_group(0)
            .spawn()
            .map_err(|source| Error::Spawn { command: command.clone(), source })?;
        Ok(Child { child, command, output, ends: false })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From now on it may end.
    pub(crate) fn expect_end(&mut self) {
        self.ends = true;
    }

    /// Fails, with what it said last, if it has ended unexpectedly.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        if self.ends {
            return Ok(());
        }
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failed(format!("ended ({status})"))),
            Err(source) => Err(Error::Io { what: format!("watch `{}`", self.command), source }),
        }
    }

    pub(crate) fn failed(&mut self, what: String) -> Error {
        let said = self.last_words().unwrap_or_default();
        let said = if said.trim().is_empty() { String::new() } else { format!("; it said:\n{}", said.trim_end()) };
        Error::Server { command: self.command.clone(), what, said }
    }

    fn last_words(&mut self) -> io::Result<String> {
        let length = self.output.seek(SeekFrom::End(0))?;
        self.output.seek(SeekFrom::Start(length.saturating_sub(SAID_MAX)))?;
        let mut bytes = Vec::new();
        self.output.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, signal); // gone already is fine
        }
    }

    /// Whether it has ended within `patience`.
    pub(crate) fn ends_within(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The group's number stays ours until `wait`, so no stranger can be hit.
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        self.ends_within(STOP_PATIENCE);
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::process::cpu_time;

    fn start(script: &str) -> Child {
        let words = ["sh", "-c", script].map(str::to_owned);
        Child::start(&words, tempfile::tempfile().unwrap()).unwrap()
    }

    #[test]
    fn a_server_that_ends_is_reported_with_its_last_words() {
        let mut server = start("echo cannot bind; exit 3");
        let deadline = Instant::now() + Duration::from_secs(5);
        while server.check().is_ok() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let error = server.check().unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("cannot bind"), "{error}");
    }

    #[test]
    fn what_a_server_started_ends_with_it() {
        // The shell ignores SIGTERM and has a child of its own, which prints its process id.
        let mut server = start("trap '' TERM; sleep 60 & echo $!; wait; wait");
        let deadline = Instant::now() + Duration::from_secs(5);
        let grandchild = loop {
            if let Ok(pid) = server.last_words().unwrap().trim().parse::<u32>() {
                break pid;
            }
            assert!(Instant::now() < deadline, "the shell said nothing");
            thread::sleep(Duration::from_millis(5));
        };
        assert!(cpu_time(grandchild).is_ok());
        drop(server);
        let gone = || !fs::read_to_string(format!("/proc/{grandchild}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        while !gone() {
            assert!(Instant::now() < deadline, "the grandchild is still there");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
