//! One process: how it is started, what it says, and how it ends.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write as _},
    os::unix::{
        fs::FileExt as _,
        process::{CommandExt as _, ExitStatusExt as _},
    },
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid},
};

use crate::{lines::each_line, tether};

/// How long a process that is no longer needed may take to stop by itself before it is killed.
const STOP_PATIENCE: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(5);

/// Where one of the streams of a process goes.
pub enum Output {
    /// Into a file, which is read at any time.
    Kept(File),
    /// Line by line to a function, on a thread of its own.
    Lines(Box<dyn FnMut(&str) + Send>),
}

/// What is to be started, and how. By default it reads nothing, and what it says is lost.
pub struct Start {
    command: Command,
    output: Option<Output>,
    errors: Option<Output>,
    has_group: bool,
}

impl Start {
    /// `program` as it stands, without a shell.
    pub fn new(program: impl AsRef<OsStr>) -> Start {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Start { command, output: None, errors: None, has_group: false }
    }

    /// With these arguments.
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Start {
        self.command.args(arguments);
        self
    }

    /// With these variables besides those of this process.
    pub fn variables(mut self, variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>) -> Start {
        self.command.envs(variables);
        self
    }

    /// Without the variables of this process whose names begin with `prefix`, except `kept`. What is set afterwards
    /// stays.
    pub fn without(mut self, prefix: &str, kept: Option<&str>) -> Start {
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(prefix.as_bytes()) && kept.is_none_or(|kept| name != kept) {
                self.command.env_remove(name);
            }
        }
        self
    }

    /// With something to read: [`Process::tell`].
    pub fn reading(mut self) -> Start {
        self.command.stdin(Stdio::piped());
        self
    }

    /// Stopped when this process is gone, if it calls [`tether::obey`].
    pub fn tethered(mut self) -> Start {
        tether::tie(&mut self.command);
        self.reading()
    }

    /// In a group of its own, which signals then go to: what it starts is ended with it. Ctrl-C reaches this process
    /// alone, which has to pass it on.
    pub fn in_group(mut self) -> Start {
        self.command.process_group(0);
        self.has_group = true;
        self
    }

    /// Where its two streams go.
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

/// One of the streams of a process that runs.
enum Stream {
    Lost,
    Kept(File),
    Read(JoinHandle<()>),
}

impl Stream {
    fn of(output: Option<Output>, pipe: Option<impl Read + Send + 'static>) -> Stream {
        match (output, pipe) {
            (Some(Output::Kept(file)), _) => Stream::Kept(file),
            (Some(Output::Lines(heard)), Some(pipe)) => Stream::Read(thread::spawn(|| each_line(pipe, heard))),
            _ => Stream::Lost,
        }
    }

    /// What was kept of it, from `start` on. The place at which the process writes is left as it is.
    fn said(&self, start: impl FnOnce(u64) -> u64) -> String {
        let Stream::Kept(file) = self else { return String::new() };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let start = start(length);
        let mut bytes = vec![0; usize::try_from(length - start).unwrap_or_default()];
        let read = file.read_at(&mut bytes, start).unwrap_or_default();
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }
}

/// A process that was started here. It ends with this value: asked to at first, killed soon after.
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

    /// What it has said so far on standard output, where that is kept.
    pub fn output(&self) -> String {
        self.output.said(|_| 0)
    }

    /// What it has said so far on standard error, where that is kept.
    pub fn errors(&self) -> String {
        self.errors.said(|_| 0)
    }

    /// The last so many bytes of what it has said on standard error, where that is kept.
    pub fn last_words(&self, most: u64) -> String {
        self.errors.said(|length| length.saturating_sub(most))
    }

    /// Gives it something to read.
    pub fn tell(&mut self, text: &str) -> io::Result<()> {
        self.child.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(text.as_bytes()))
    }

    /// The end of what it reads.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Sends a signal to it, or to its group. Nothing happens if it has ended: its number stays its own until this
    /// value is gone, so that no other process is hit.
    pub fn signal(&self, signal: Signal) {
        let Some(id) = self.pid() else { return };
        let _ = if self.has_group { kill_process_group(id, signal) } else { kill_process(id, signal) };
    }

    /// How it has ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        // Without reaping it, see `signal`.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.pid()?), options).ok()??;
        let code = status.exit_status().map(|code| code << 8);
        Some(ExitStatus::from_raw(code.or(status.terminating_signal()).unwrap_or_default()))
    }

    /// Whether it ends within `patience`.
    pub fn ends_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.ended().is_none() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL);
        }
        true
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Calls `then` once it has ended and its lines have all been heard, from a thread of its own.
    pub fn on_end(&mut self, then: impl FnOnce() + Send + 'static) {
        let id = self.pid();
        let streams = [&mut self.output, &mut self.errors].map(|stream| std::mem::replace(stream, Stream::Lost));
        thread::spawn(move || {
            // Without reaping it, see `signal`.
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
        self.ends_within(STOP_PATIENCE);
        // Also if it has ended: what it started may still be there.
        self.signal(Signal::KILL);
        let _ = self.child.wait();
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
            assert!(Instant::now() < deadline, "waited in vain");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn what_a_process_says_and_how_it_ends_is_known() {
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
    fn what_a_process_started_ends_with_it() {
        // The shell ignores SIGTERM and has a child of its own, which prints its process id.
        let process = kept("trap '' TERM; sleep 60 & echo $!; wait; wait");
        let grandchild: u32 = eventually(|| process.output().trim().parse().ok());
        drop(process);
        let runs = || fs::read_to_string(format!("/proc/{grandchild}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        eventually(|| (!runs()).then_some(()));
    }

    #[test]
    fn a_paused_process_goes_on_and_one_that_is_told_something_reads_it() {
        let file = || Output::Kept(tempfile::tempfile().expect("a file"));
        let mut process = shell("read word; echo $word").reading().output(file(), file()).start().expect("a shell");
        process.signal(Signal::STOP);
        process.tell("hello\n").expect("it reads");
        assert!(!process.ends_within(Duration::from_millis(100)), "it is paused");
        process.signal(Signal::CONT);
        assert!(process.ends_within(TIMEOUT) && process.output() == "hello\n");
    }

    #[test]
    fn the_end_is_told_after_the_last_line() {
        let (told, heard) = mpsc::channel();
        let (line, end) = (told.clone(), told);
        let output = Output::Lines(Box::new(move |text| line.send(Some(text.to_owned())).expect("the test listens")));
        let errors = Output::Kept(tempfile::tempfile().expect("a file"));
        let mut process = shell("echo one; echo two").output(output, errors).start().expect("a shell");
        process.on_end(move || end.send(None).expect("the test listens"));
        assert_eq!(heard.iter().collect::<Vec<_>>(), [Some("one".into()), Some("two".into()), None]);
        assert!(process.ended().is_some_and(|status| status.success()));
    }
}
