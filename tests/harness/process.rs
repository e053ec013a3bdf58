//! A `leaseway` process. It ends with the test.

use std::{path::Path, process::ExitStatus, thread};

use leaseway_process::{Signal, Start};

use super::{binary, wait::eventually};

/// Additional environment variables.
pub(crate) type Variables<'a> = &'a [(&'a str, &'a str)];

/// The directory in which `leaseway up` stores the addresses of its peers.
const RUN_DIR: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/run");

pub(crate) struct Process(leaseway_process::Process);

/// The output of a process that has ended.
#[derive(Debug)]
pub(crate) struct Output {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `leaseway` to its end.
pub(crate) fn leaseway(arguments: &[&str]) -> Output {
    Process::start(arguments, &[]).finish()
}

/// Like [`leaseway`], with input.
pub(crate) fn leaseway_reading(arguments: &[&str], input: &str) -> Output {
    let mut process = Process::start_reading(arguments, &[]);
    process.0.tell(input).unwrap();
    process.0.close_input();
    process.finish()
}

impl Process {
    pub(crate) fn start(arguments: &[&str], variables: Variables<'_>) -> Process {
        Process::run(Start::new(binary::path()), arguments, variables)
    }

    /// Starts a server or gateway that stops when the test process ends, even if its value is never dropped.
    pub(crate) fn start_server(binary: &Path, arguments: &[&str], variables: Variables<'_>) -> Process {
        Process::run(Start::new(binary).tethered(), arguments, variables)
    }

    /// Starts another program.
    pub(crate) fn start_program(path: &Path, arguments: &[&str], variables: Variables<'_>) -> Process {
        Process::run(Start::new(path), arguments, variables)
    }

    /// Like [`start_program`](Self::start_program), with a pipe as its standard input.
    pub(crate) fn start_program_reading(path: &Path, arguments: &[&str]) -> Process {
        Process::run(Start::new(path).reading(), arguments, &[])
    }

    /// Like [`start`](Self::start), with a pipe as its standard input.
    pub(crate) fn start_reading(arguments: &[&str], variables: Variables<'_>) -> Process {
        Process::run(Start::new(binary::path()).reading(), arguments, variables)
    }

    fn run(start: Start, arguments: &[&str], variables: Variables<'_>) -> Process {
        let kept = || leaseway_process::Output::Kept(tempfile::tempfile().unwrap());
        // Removes variables of the developer's environment.
        let start = start.without("LEASEWAY_", None).variables([("LEASEWAY_RUN_DIR", RUN_DIR)]);
        let start = start.arguments(arguments).variables(variables.iter().copied());
        Process(start.output(kept(), kept()).start().unwrap())
    }

    pub(crate) fn tell(&mut self, text: &str) {
        self.0.tell(text).unwrap();
    }

    pub(crate) fn close_input(&mut self) {
        self.0.close_input();
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn stdout(&self) -> String {
        self.0.output()
    }

    pub(crate) fn stderr(&self) -> String {
        self.0.errors()
    }

    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.0.ended()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.0.signal(signal);
    }

    pub(crate) fn finish(self) -> Output {
        let status = eventually("the process ends", || self.ended());
        Output { code: status.code(), stdout: self.stdout(), stderr: self.stderr() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let output = self.stderr();
        if thread::panicking() && !output.is_empty() {
            eprintln!("--- standard error of the process ---\n{output}--- end ---");
        }
    }
}
