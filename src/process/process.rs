//! A child process: starting it, reading its output, and ending it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use crate::tether;

/// How long a dropped process may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The destination of an output stream.
pub enum Output {
    /// A file, which can be read at any time.
    Kept(File),
    /// A function that gets each line, on a thread of its own.
    Lines(Box<dyn FnMut(&str) + Send>),
}

/// A command to start. By default its input is empty, and its output is discarded.
pub struct Start {
    command: Command,
    output: Option<Output>,
    errors: Option<Output>,
    has_group: bool,
}

impl Start {
    pub fn new(program: impl AsRef<OsStr>) -> Start {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Start { command, output: None, errors: None, has_group: false }
    }

    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Start {
        self.command.args(arguments);
        self
    }

    /// Adds environment variables to those of this process.
    pub fn variables(mut self, variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>) -> Start {
        self.command.envs(variables);
        self
    }

    /// Removes the inherited environment variables that begin with `prefix`, except `kept`. Variables added later stay.
    pub fn without(mut self, prefix: &str, kept: Option<&str>) -> Start {
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(prefix.as_bytes()) && kept.is_none_or(|kept| name != kept) {
                self.command.env_remove(name);
            }
        }
        self
    }

    /// Connects standard input to [`Process::tell`].
    pub fn reading(mut self) -> Start {
        self.command.stdin(Stdio::piped());
        self
    }

    /// Stops the child when this process is gone, if the child calls [`tether::obey`].
    pub fn tethered(mut self) -> Start {
        tether::tie(&mut self.command);
        self.reading()
    }

    /// Starts the child in a process group of its own, so that signals reach its children, too. Ctrl-C then does not
    /// reach the child, only this process.
    pub fn in_group(mut self) -> Start {
        self.command.process_group(0);
        self.has_group = true;
        self
    }

    pub fn output(mut self, output: Output, errors: Output) -> Start {
        (self.output, self.errors) = (Some(output), Some(errors));
        self
    }

    pub fn start(mut self) -> io::Result<Process> {
        let stdio = |output: &Option<Output>| match output {
            Some(Output::Kept(file)) => file.try_clone().map(Stdio::from),
            Some(Output::Lines(_)) => Ok(Stdio::piped()),
            None => Ok(Stdio::null()),
        };
        self.command.stdout(stdio(&self.output)?).stderr(stdio(&self.errors)?);
        let mut child = self.command.spawn()?;
        let output = Stream::of(self.output, child.stdout.take());
        let errors = Stream::of(self.errors, child.stderr.take());
        Ok(Process { child, output, errors, has_group: self.has_group })
    }
}

/// An output stream of a running process.
enum Stream {
    Discarded,
    Kept(File),
    Read(JoinHandle<()>),
}

impl Stream {
    fn of(output: Option<Output>, pipe: Option<impl Read + Send + 'static>) -> Stream {
        match (output, pipe) {
            (Some(Output::Kept(file)), _) => Stream::Kept(file),
            (Some(Output::Lines(take)), Some(pipe)) => Stream::Read(thread::spawn(|| each_line(pipe, take))),
            _ => Stream::Discarded,
        }
    }

    /// The content of the file from `start` on. The file position of the process is not moved.
    fn content(&self, start: impl FnOnce(u64) -> u64) -> String {
        let Stream::Kept(file) = self else { return String::new() };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let start = start(length);
        let mut bytes = vec![0; usize::try_from(length - start).unwrap_or_default()];
        let read = file.read_at(&mut bytes, start).unwrap_or_default();
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }
}

/// A child process. On drop it gets SIGTERM, and SIGKILL after [`STOP_TIMEOUT`].
pub struct Process {
    child: Child,
    output: Stream,
    errors: Stream,
    has_group: bool,
}

impl Process {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Standard output so far. Empty unless it is kept in a file.
    pub fn output(&self) -> String {
        self.output.content(|_| 0)
    }

    /// Standard error so far. Empty unless it is kept in a file.
    pub fn errors(&self) -> String {
        self.errors.content(|_| 0)
    }

    /// The last bytes of standard error, at most `most`. Empty unless it is kept in a file.
    pub fn last_words(&self, most: u64) -> String {
        self.errors.content(|length| length.saturating_sub(most))
    }

    /// Writes to standard input.
    pub fn tell(&mut self, text: &str) -> io::Result<()> {
        self.child.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(text.as_bytes()))
    }

    /// Closes standard input.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Sends a signal to the process or its group. It cannot reach an unrelated process that reuses the id, because the
    /// child is not reaped before this handle is dropped.
    pub fn signal(&self, signal: Signal) {
        let Some(id) = self.pid() else { return };
        let _ = if self.has_group { kill_process_group(id, signal) } else { kill_process(id, signal) };
    }

    /// The exit status, if the process has ended.
    pub fn ended(&self) -> Option<ExitStatus> {
        // NOWAIT: not reaped, see `signal`.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.pid()?), options).ok()??;
        let code = status.exit_status().map(|code| code << 8);
        Some(ExitStatus::from_raw(code.or(status.terminating_signal()).unwrap_or_default()))
    }

    /// Waits for the end. Returns false at the timeout.
    pub fn ends_within(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while self.ended().is_none() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        true
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Calls `then` on a thread of its own, once the process has ended and all its lines were passed on.
    pub fn on_end(&mut self, then: impl FnOnce() + Send + 'static) {
        let id = self.pid();
        let streams = [&mut self.output, &mut self.errors].map(|stream| std::mem::replace(stream, Stream::Discarded));
        thread::spawn(move || {
            // NOWAIT: not reaped, see `signal`.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while id.is_some_and(|id| matches!(waitid(WaitId::Pid(id), options), Err(Errno::INTR))) {}
            for stream in streams {
                if let Stream::Read(thread) = stream {
                    let _ = thread.join();
                }
            }
            then();
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        self.ends_within(STOP_TIMEOUT);
        // Its children may still run, even if it has ended.
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Longer lines are split, so that memory is bounded.
const MAX_LINE: u64 = 64 << 10;

/// Calls `take` with each line, without its terminator.
fn each_line(from: impl Read, mut take: impl FnMut(&str)) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    // An error means that the other side is gone.
    while let Ok(1..) = from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
        take(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::mpsc};

    use super::*;

    fn shell(script: &str) -> Start {
        Start::new("sh").arguments(["-c", script])
    }

    fn kept(script: &str) -> Process {
        let file = || Output::Kept(tempfile::tempfile().expect("a file"));
        shell(script).in_group().output(file(), file()).start().expect("there is a shell")
    }

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn eventually<T>(mut probe: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = probe() {
                return found;
            }
            assert!(Instant::now() < deadline, "timed out");
            thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn output_and_exit_status_are_kept() {
        let process = kept("echo out; echo cannot bind >&2; exit 3");
        assert!(process.ends_within(TIMEOUT));
        let status = process.ended().expect("it has ended");
        assert_eq!((status.code(), status.to_string().as_str()), (Some(3), "exit status: 3"));
        assert_eq!(
            (process.output(), process.errors(), process.last_words(5)),
            ("out\n".into(), "cannot bind\n".into(), "bind\n".into())
        );
        let process = kept("kill -KILL $$");
        assert!(process.ends_within(TIMEOUT) && process.ended().is_some_and(|status| status.signal() == Some(9)));
    }

    #[test]
    fn a_process_group_ends_with_its_process() {
        // The shell ignores SIGTERM, and prints the process id of its child.
        let process = kept("trap '' TERM; sleep 60 & echo $!; wait; wait");
        let grandchild: u32 = eventually(|| process.output().trim().parse().ok());
        drop(process);
        let runs = || fs::read_to_string(format!("/proc/{grandchild}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        eventually(|| (!runs()).then_some(()));
    }

    #[test]
    fn a_paused_process_resumes_and_reads_its_input() {
        let file = || Output::Kept(tempfile::tempfile().expect("a file"));
        let mut process = shell("read word; echo $word").reading().output(file(), file()).start().expect("a shell");
        process.signal(Signal::STOP);
        process.tell("hello\n").expect("it reads");
        assert!(!process.ends_within(Duration::from_millis(100)), "it is paused");
        process.signal(Signal::CONT);
        assert!(process.ends_within(TIMEOUT) && process.output() == "hello\n");
    }

    #[test]
    fn the_end_is_reported_after_the_last_line() {
        let (send, receive) = mpsc::channel();
        let (line, end) = (send.clone(), send);
        let output = Output::Lines(Box::new(move |text| line.send(Some(text.to_owned())).expect("the test listens")));
        let errors = Output::Kept(tempfile::tempfile().expect("a file"));
        let mut process = shell("echo one; echo two").output(output, errors).start().expect("a shell");
        process.on_end(move || end.send(None).expect("the test listens"));
        assert_eq!(receive.iter().collect::<Vec<_>>(), [Some("one".into()), Some("two".into()), None]);
        assert!(process.ended().is_some_and(|status| status.success()));
    }

    #[test]
    fn invalid_utf_8_is_replaced_and_long_lines_are_split() {
        let long = [b'x'; MAX_LINE as usize + 1];
        let split = |text: &[u8]| {
            let mut lines = Vec::new();
            each_line(text, |line| lines.push(line.to_owned()));
            lines
        };
        assert_eq!(split(b"one\n\ntwo\r\n\xff!"), ["one", "", "two", "\u{fffd}!"]);
        assert_eq!(split(&long).iter().map(String::len).collect::<Vec<_>>(), [MAX_LINE as usize, 1]);
    }
}
