//! A `leaseway` process: what it is told, what it says, how it ends. It never outlives the test.

use std::{
    io::{Read, Write as _},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use rustix::process::{Pid, Signal};

use super::{binary, wait::eventually};

/// Variables for a process besides those that all have.
pub(crate) type Variables<'a> = &'a [(&'a str, &'a str)];

pub(crate) struct Process {
    child: Child,
    stdout: Reader,
    stderr: Reader,
}

/// All that a process that has ended has said.
#[derive(Debug)]
pub(crate) struct Said {
    /// `None`: a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `leaseway` to its end.
pub(crate) fn leaseway(arguments: &[&str]) -> Said {
    Process::start(arguments, &[]).finish()
}

/// As [`leaseway`], with something to read.
pub(crate) fn leaseway_reading(arguments: &[&str], input: &str) -> Said {
    let mut process = Process::start_reading(arguments, &[]);
    process.child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    process.finish()
}

impl Process {
    pub(crate) fn start(arguments: &[&str], variables: Variables<'_>) -> Process {
        Process::start_with(arguments, variables, Stdio::null())
    }

    /// With a pipe to read from.
    pub(crate) fn start_reading(arguments: &[&str], variables: Variables<'_>) -> Process {
        Process::start_with(arguments, variables, Stdio::piped())
    }

    /// The end of what it reads.
    pub(crate) fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    fn start_with(arguments: &[&str], variables: Variables<'_>, stdin: Stdio) -> Process {
        let mut command = Command::new(binary::path());
        // What the developer has set is not meant for the tests.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LEASEWAY_")) {
            command.env_remove(name);
        }
        command.args(arguments).envs(variables.iter().copied());
        let mut child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Reader::of(child.stdout.take().unwrap());
        let stderr = Reader::of(child.stderr.take().unwrap());
        Process { child, stdout, stderr }
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.so_far()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.so_far()
    }

    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Said {
        let status = eventually("the process ends", || self.ended());
        Said { code: status.code(), stdout: self.stdout.all(), stderr: self.stderr.all() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let said = self.stderr.all();
        if thread::panicking() && !said.is_empty() {
            eprintln!("--- the process said ---\n{said}--- end ---");
        }
    }
}

/// Reads along, so that a full pipe stops nobody.
struct Reader {
    text: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn of(mut pipe: impl Read + Send + 'static) -> Reader {
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let into = Arc::clone(&text);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
            }
        });
        Reader { text, thread: Some(thread) }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// To the end, which comes when the process has ended.
    fn all(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.so_far()
    }
}
