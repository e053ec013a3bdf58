//! Processes under test. A process is started from a command, watched, and killed when it is dropped. Errors quote its
//! output.

use std::{
    fs::File,
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use leaseway_process::{Output, Process, Signal, Start, ports};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::common::error::Error;

/// The maximum length of quoted output, in bytes.
const SAID_MAX: u64 = 2_000;

/// A process under test. It is killed, with its children, when this value is dropped.
pub(crate) struct Server {
    process: Process,
    command: String,
    may_end: bool,
}

impl Server {
    /// Runs `words` without a shell. Output is appended to `log`.
    pub(crate) fn start(words: &[String], log: &File) -> Result<Server, Error> {
        let command = words.join(" ");
        let copy = || log.try_clone().map(Output::Kept).map_err(Error::io("use the output file of a process"));
        let start = Start::new(&words[0]).arguments(&words[1..]).tethered().in_group().output(copy()?, copy()?);
        let process = start.start().map_err(|source| Error::Spawn { command: command.clone(), source })?;
        Ok(Server { process, command, may_end: false })
    }

    /// Runs `template` with `{port}` replaced by a free port. Returns the address.
    pub(crate) fn listening(template: &str) -> Result<(Server, SocketAddr), Error> {
        let address = ports::free(Ipv4Addr::LOCALHOST, 1).map_err(Error::io("find a free port"))?[0];
        let log = tempfile::tempfile().map_err(Error::io("create a temporary file"))?;
        Ok((Server::start(&words(template, address.port())?, &log)?, address))
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// From now on the process may exit.
    pub(crate) fn expect_end(&mut self) {
        self.may_end = true;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    pub(crate) fn ends_within(&self, patience: Duration) -> bool {
        self.process.ends_within(patience)
    }

    /// Polls until `probe` succeeds. Fails if the process ends, or if that takes longer than `patience`.
    pub(crate) fn await_ready(
        &self,
        patience: Duration,
        interrupt: &Interrupt,
        mut probe: impl FnMut() -> Result<(), String>,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + patience;
        loop {
            // Check the process first: if another process has taken the port, the probe would reach that one.
            self.check()?;
            match probe() {
                Ok(()) => return self.check(),
                Err(error) if Instant::now() >= deadline => {
                    return Err(self.failed(format!("is not ready after {} s: {error}", patience.as_secs())));
                }
                Err(_) => interrupt.poll(|| {})?,
            }
        }
    }

    /// Fails with the last output of the process if it has exited unexpectedly.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.process.ended() {
            Some(status) if !self.may_end => Err(self.failed(format!("ended ({status})"))),
            _ => Ok(()),
        }
    }

    pub(crate) fn failed(&self, what: String) -> Error {
        let said = self.process.last_words(SAID_MAX);
        let said = if said.trim().is_empty() { said } else { format!("; it said:\n{}", said.trim_end()) };
        Error::Server { command: self.command.clone(), what, said }
    }
}

/// Splits the command as a shell would, but without a shell, so that the process id is that of the server.
fn words(template: &str, port: u16) -> Result<Vec<String>, Error> {
    let words = shlex::split(template).ok_or_else(|| Error::Usage(format!("`{template}` has an unfinished quote")))?;
    if !words.iter().any(|word| word.contains("{port}")) {
        return Err(Error::Usage(format!(
            "`{template}` does not contain {{port}}: write it where the server is told its port, as in \
             --listen 127.0.0.1:{{port}}"
        )));
    }
    Ok(words.into_iter().map(|word| word.replace("{port}", &port.to_string())).collect())
}

/// The command of `--server` with `serve`. Without one, `leaseway` beside this program or in PATH.
pub(crate) fn server_words(command: Option<&str>) -> Result<Vec<String>, Error> {
    let mut words = match command {
        Some(command) => shlex::split(command)
            .filter(|words| !words.is_empty())
            .ok_or_else(|| Error::Usage(format!("--server `{command}` is no command")))?,
        None => vec![beside_us().unwrap_or_else(|| PathBuf::from("leaseway")).to_string_lossy().into_owned()],
    };
    if !words.iter().any(|word| word == "serve") {
        words.push("serve".into());
    }
    Ok(words)
}

fn beside_us() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("leaseway");
    beside.is_file().then_some(beside)
}

/// Runs the program of the command `server` with other arguments, and returns its output.
pub(crate) fn said_by(server: &[String], words: &[&str]) -> Result<String, Error> {
    let program = server.iter().map(String::as_str).take_while(|word| *word != "serve");
    let words: Vec<&str> = program.chain(words.iter().copied()).collect();
    let command = words.join(" ");
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|source| Error::Spawn { command: command.clone(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = format!("; it said:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    Err(Error::Server { command, what: format!("ended ({})", output.status), said })
}

/// The interval at which waits check their condition and the interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Set once a signal asks this process to stop.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches for signals on a thread of its own, for callers that block.
    pub(crate) fn watch() -> Result<Interrupt, Error> {
        let interrupt = Interrupt::default();
        let flag = interrupt.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(Error::io("watch for signals"))?;
        let mut signals = runtime.block_on(async { Signals::new() }).map_err(Error::io("watch for signals"))?;
        thread::spawn(move || {
            runtime.block_on(signals.any());
            flag.0.store(true, Ordering::Relaxed);
        });
        Ok(interrupt)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Sleeps for one poll interval, and calls `meanwhile`.
    pub(crate) fn poll(&self, meanwhile: impl FnMut()) -> Result<(), Error> {
        self.sleep_until(Instant::now() + POLL_INTERVAL, meanwhile)
    }

    /// Sleeps until `when` and calls `meanwhile` at every poll interval, unless interrupted.
    pub(crate) fn sleep_until(&self, when: Instant, mut meanwhile: impl FnMut()) -> Result<(), Error> {
        loop {
            self.check()?;
            meanwhile();
            let left = when.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(POLL_INTERVAL));
        }
    }
}

/// SIGINT or SIGTERM.
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    /// Catches these signals, so that they no longer kill the process. Must be called inside a runtime.
    pub(crate) fn new() -> io::Result<Signals> {
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(crate) async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_say_serve_and_more_by_itself() {
        assert_eq!(server_words(Some("nice 'my server'")).unwrap(), ["nice", "my server", "serve"]);
        assert_eq!(server_words(Some("lw serve --threads 1")).unwrap(), ["lw", "serve", "--threads", "1"]);
        assert_eq!(server_words(None).unwrap().last().unwrap(), "serve");
        for wrong in ["", "lw 'serve"] {
            assert!(server_words(Some(wrong)).is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn commands_are_split_and_given_their_port() {
        assert_eq!(words("srv --at '127.0.0.1:{port}' 'a b'", 7).unwrap(), ["srv", "--at", "127.0.0.1:7", "a b"]);
        assert!(words("srv --at 127.0.0.1:5100", 7).unwrap_err().to_string().contains("{port}"));
        assert!(words("srv '{port}", 7).is_err());
        assert!(words("", 7).is_err());
    }
}
