//! The program that drives a client library: one command a line, one line in answer.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Duration, timeout},
};

/// The time limit of an answer, beyond the time that the command itself takes. Programs of some languages start slowly.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The answer to a command for something that the library does not have.
pub(crate) const UNSUPPORTED: &str = "unsupported";

/// What the library may use of a resource, and why.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Usable {
    pub(crate) capacity: f64,
    /// `lease`, `fallback` or `unknown`.
    pub(crate) basis: String,
}

pub(crate) struct Driver {
    _process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Driver {
    /// Starts the program, with environment variables.
    pub(crate) fn start(command: &[String], variables: &[(String, String)]) -> Result<Driver, String> {
        let mut process = Command::new(&command[0])
            .args(&command[1..])
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start `{}`: {error}", command.join(" ")))?;
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        Ok(Driver { _process: process, input, output })
    }

    /// Sends a command. Returns the answer.
    pub(crate) async fn send(&mut self, command: &str) -> Result<String, String> {
        self.send_within(command, Duration::ZERO).await
    }

    async fn send_within(&mut self, command: &str, takes: Duration) -> Result<String, String> {
        let failed = |error| format!("`{command}`: {error}");
        self.input.write_all(format!("{command}\n").as_bytes()).await.map_err(failed)?;
        self.input.flush().await.map_err(failed)?;
        match timeout(ANSWER_TIMEOUT + takes, self.output.next_line()).await {
            Err(_) => Err(format!("`{command}` is not answered")),
            Ok(Err(error)) => Err(failed(error)),
            Ok(Ok(None)) => Err(format!("the program ended at `{command}`")),
            Ok(Ok(Some(line))) if line.starts_with("error") => Err(format!("`{command}`: {line}")),
            Ok(Ok(Some(line))) => Ok(line),
        }
    }

    /// Sends a command whose answer is `ok`.
    pub(crate) async fn expect_ok(&mut self, command: &str) -> Result<(), String> {
        match self.send(command).await?.as_str() {
            "ok" => Ok(()),
            other => Err(format!("`{command}`: expected ok, got {other}")),
        }
    }

    pub(crate) async fn usable(&mut self, resource: &str) -> Result<Usable, String> {
        let line = self.send(&format!("capacity {resource}")).await?;
        let unreadable = || format!("`capacity {resource}`: expected NUMBER BASIS, got {line}");
        let (capacity, basis) = line.split_once(' ').ok_or_else(unreadable)?;
        Ok(Usable { capacity: capacity.parse().map_err(|_| unreadable())?, basis: basis.to_owned() })
    }

    /// Takes permits without waiting.
    pub(crate) async fn allow(&mut self, resource: &str, permits: u32) -> Result<bool, String> {
        let answer = self.send(&format!("allow {resource} {permits}")).await?;
        answer.parse().map_err(|_| format!("`allow`: expected true or false, got {answer}"))
    }

    /// Takes single permits of a rate, waiting for each, for so many seconds. Returns their number.
    pub(crate) async fn count(&mut self, resource: &str, seconds: u32) -> Result<u32, String> {
        let command = format!("count {resource} {seconds}");
        let answer = self.send_within(&command, Duration::from_secs(seconds.into())).await?;
        answer.parse().map_err(|_| format!("`count`: expected a number, got {answer}"))
    }

    /// Opens a budget.
    pub(crate) async fn open_budget(&mut self, resource: &str) -> Result<(), String> {
        match self.send_optional(&format!("budget {resource}"), Duration::ZERO).await?.as_str() {
            "ok" => Ok(()),
            other => Err(format!("`budget {resource}`: expected ok or unsupported, got {other}")),
        }
    }

    /// Sends a command for something that not every library has. The error is [`UNSUPPORTED`] if this one does not.
    async fn send_optional(&mut self, command: &str, takes: Duration) -> Result<String, String> {
        let answer = self.send_within(command, takes).await?;
        if answer == UNSUPPORTED { Err(answer) } else { Ok(answer) }
    }

    /// The number of resources from which on the library renews leases by a stream.
    pub(crate) async fn streams(&mut self) -> Result<usize, String> {
        let answer = self.send_optional("streams", Duration::ZERO).await?;
        answer.parse().map_err(|_| format!("`streams`: expected a number or unsupported, got {answer}"))
    }

    /// Takes permits and amounts of several limits (`NAME=N,…`) without waiting. Returns the limit that refuses.
    pub(crate) async fn try_all(&mut self, limits: &str) -> Result<Option<String>, String> {
        let command = format!("all {limits} 0");
        let answer = self.send_optional(&command, Duration::ZERO).await?;
        match answer.split_once(' ') {
            None if answer == "true" => Ok(None),
            Some(("refused", limit)) => Ok(Some(limit.to_owned())),
            _ => Err(format!("`{command}`: expected true or refused NAME, got {answer}")),
        }
    }

    /// The same, waiting at most this long.
    pub(crate) async fn all(&mut self, limits: &str, seconds: u32) -> Result<bool, String> {
        self.wait_for_all("all", limits, seconds).await
    }

    /// The same without a time limit. The caller cancels the wait after these seconds.
    pub(crate) async fn cancelled(&mut self, limits: &str, seconds: u32) -> Result<bool, String> {
        self.wait_for_all("cancel", limits, seconds).await
    }

    async fn wait_for_all(&mut self, command: &str, limits: &str, seconds: u32) -> Result<bool, String> {
        let command = format!("{command} {limits} {seconds}");
        let answer = self.send_optional(&command, Duration::from_secs(seconds.into())).await?;
        answer.parse().map_err(|_| format!("`{command}`: expected true or false, got {answer}"))
    }

    /// Two callers take and return `n` of two limits again and again, each in another order. Returns how often each
    /// was served.
    pub(crate) async fn opposite(&mut self, limits: [&str; 2], n: u32, seconds: u32) -> Result<[u32; 2], String> {
        let command = format!("opposite {} {} {n} {seconds}", limits[0], limits[1]);
        let answer = self.send_optional(&command, Duration::from_secs(seconds.into())).await?;
        let counts = answer.split_once(' ').and_then(|(one, other)| Some([one.parse().ok()?, other.parse().ok()?]));
        counts.ok_or_else(|| format!("`{command}`: expected two numbers, got {answer}"))
    }

    /// Spends an amount of a budget. Waits for the allowance, but no longer than this; 0 seconds do not wait.
    pub(crate) async fn spend(&mut self, resource: &str, amount: u32, seconds: u32) -> Result<bool, String> {
        let command = format!("spend {resource} {amount} {seconds}");
        let answer = self.send_within(&command, Duration::from_secs(seconds.into())).await?;
        answer.parse().map_err(|_| format!("`spend`: expected true or false, got {answer}"))
    }

    /// Reserves an amount of a budget, like [`spend`](Self::spend).
    pub(crate) async fn reserve(&mut self, resource: &str, amount: u32, seconds: u32) -> Result<bool, String> {
        let command = format!("reserve {resource} {amount} {seconds}");
        let answer = self.send_within(&command, Duration::from_secs(seconds.into())).await?;
        answer.parse().map_err(|_| format!("`reserve`: expected true or false, got {answer}"))
    }

    /// The start of the current period of a budget, in Unix seconds.
    pub(crate) async fn period(&mut self, resource: &str) -> Result<Option<i64>, String> {
        let answer = self.send(&format!("period {resource}")).await?;
        if answer == "none" {
            return Ok(None);
        }
        answer.parse().map(Some).map_err(|_| format!("`period`: expected a number or none, got {answer}"))
    }

    /// What may be spent of a budget now.
    pub(crate) async fn left(&mut self, resource: &str) -> Result<f64, String> {
        let answer = self.send(&format!("left {resource}")).await?;
        answer.parse().map_err(|_| format!("`left`: expected a number, got {answer}"))
    }
}
