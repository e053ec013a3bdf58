//! What the command line says, and what follows from it.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    ops::Range,
    path::PathBuf,
    time::Duration,
};

use super::fault::ChaosFault;
use crate::{
    error::Error,
    flags::{Handover, seconds},
};

/// Starts the peers of a node on this machine, puts real clients on them, breaks things, and adds up what happens.
///
/// Every client writes down what it may use; the books are added up at the end, and no server is asked. Peers reach
/// each other over links of our own, one for each direction of each pair, so that links can be cut while processes run.
#[derive(clap::Args)]
pub(crate) struct ChaosArgs {
    /// The server; `serve` and its flags are added. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    pub(super) server: Option<String>,
    /// Peers of the node. One alone is a server without peers.
    #[arg(long, default_value = "3", value_name = "N")]
    pub(super) peers: NonZeroUsize,
    /// Clients, all of this process.
    #[arg(long, default_value = "1000", value_name = "N")]
    pub(super) clients: NonZeroUsize,
    /// Besides, clients of 2016's protocol: they send no tokens, know no hints, and believe in leases until they end.
    #[arg(long, default_value = "0", value_name = "N")]
    pub(super) originals: usize,
    /// What there is of each resource. [default: four fifths of what clients want on average, so that it is scarce]
    #[arg(long, value_name = "AMOUNT")]
    capacity: Option<f64>,
    /// How the capacity is divided.
    #[arg(long, default_value = "FAIR_SHARE", value_name = "KIND")]
    pub(super) algorithm: String,
    /// When capacity that one client gives up may go to another: `confirmed` or `prompt`. With `prompt` books may well
    /// be above the capacity for moments, and the run then fails.
    #[arg(long, value_name = "RULE")]
    pub(super) reuse: Option<String>,
    /// How long leases last, in whole seconds.
    #[arg(long, default_value = "10", value_name = "S")]
    pub(super) lease: NonZeroU32,
    /// How often clients ask again, in whole seconds.
    #[arg(long, default_value = "2", value_name = "S")]
    pub(super) refresh: NonZeroU32,
    /// What a new master knows: `promises`, or what it learns from clients. One peer alone that learns has no data.
    #[arg(long, default_value = "promises", value_name = "HOW")]
    pub(super) handover: Handover,
    /// As for `leaseway serve`.
    #[arg(long, value_name = "TIMING")]
    pub(super) timing: Option<String>,
    /// What is done.
    #[arg(long, default_value = "kill", value_name = "FAULT")]
    pub(super) fault: ChaosFault,
    /// How often.
    #[arg(long, default_value = "50", value_name = "N")]
    pub(super) rounds: u32,
    /// How long a fault lasts, in seconds; a process that was killed is started again then.
    #[arg(long, default_value = "2", value_name = "S", value_parser = seconds)]
    pub(super) down: Duration,
    /// How long peers and clients are left alone between rounds, in seconds.
    #[arg(long, default_value = "3", value_name = "S", value_parser = seconds)]
    pub(super) settle: Duration,
    /// Repeats the same wants, victims and choice of faults.
    #[arg(long, default_value = "1", value_name = "N")]
    pub(super) seed: u64,
    /// Also write everything that was measured to a file.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Also write the books, for `audit`.
    #[arg(long, value_name = "FILE")]
    pub(super) book: Option<PathBuf>,
    /// TLS everywhere, with certificates that `leaseway certs` makes: clients and peers show theirs.
    #[arg(long)]
    pub(super) tls: bool,
    /// Keep what the servers said and their data, and say where.
    #[arg(long)]
    pub(super) keep: bool,
    /// What the auditor takes the capacity for: to see that it notices.
    #[arg(long, hide = true, value_name = "AMOUNT")]
    audit_capacity: Option<f64>,
}

impl ChaosArgs {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.fault.check(self.peers.get())?;
        if self.peers.get() > NAMES {
            return Err(Error::Usage(format!("--peers {}: at most {NAMES}", self.peers)));
        }
        if self.refresh >= self.lease {
            let (refresh, lease) = (self.refresh, self.lease);
            return Err(Error::Usage(format!("--refresh {refresh} is not below --lease {lease}")));
        }
        let capacity = self.capacity();
        if !(capacity.is_finite() && capacity > 0.0) {
            return Err(Error::Usage(format!("--capacity {capacity}: expected a finite number above 0")));
        }
        Ok(())
    }

    pub(super) fn capacity(&self) -> f64 {
        self.capacity
            .unwrap_or_else(|| (0.8 * (self.clients.get() + self.originals) as f64 * mean_wants()).max(1.0).round())
    }

    pub(super) fn audited_capacity(&self) -> f64 {
        self.audit_capacity.unwrap_or_else(|| self.capacity())
    }

    pub(super) fn lease(&self) -> Duration {
        Duration::from_secs(self.lease.get().into())
    }

    /// A lone server that is to learn needs no place for what it would remember.
    pub(super) fn has_data(&self) -> bool {
        self.peers.get() > 1 || self.handover == Handover::Promises
    }

    /// The configuration of all peers.
    pub(super) fn configuration(&self) -> String {
        let ChaosArgs { algorithm, lease, refresh, reuse, .. } = self;
        let reuse = reuse.as_ref().map_or_else(String::new, |rule| format!("      reuse: {rule}\n"));
        format!(
            "resources:
- identifier_glob: \"*\"
  capacity: {}
  algorithm:
    kind: {algorithm}
    lease_length: {lease}
    refresh_interval: {refresh}
    parameters:
      min_request_interval: 0  # the probe asks all the time
{reuse}",
            self.capacity()
        )
    }
}

/// What a client wants: something between.
pub(super) const WANTS: Range<f64> = 1.0..100.0;

pub(super) fn mean_wants() -> f64 {
    f64::midpoint(WANTS.start, WANTS.end)
}

/// How long after a fault there may be no master, or clients without new leases.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Peers are called a, b, c …
const NAMES: usize = 26;

pub(super) fn name(peer: usize) -> String {
    char::from(b'a' + u8::try_from(peer).unwrap_or(u8::MAX - b'a')).to_string()
}

#[cfg(test)]
impl ChaosArgs {
    fn of(flags: &str) -> ChaosArgs {
        let line = format!("leaseway-bench chaos {flags}");
        match <crate::Cli as clap::Parser>::parse_from(line.split_ascii_whitespace()).command {
            crate::Command::Chaos(line) => line.rounds,
            _ => unreachable!("the line says chaos"),
        }
    }

    pub(super) fn example() -> ChaosArgs {
        ChaosArgs::of("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_consistent_and_scarce() {
        let args = ChaosArgs::example();
        args.check().unwrap();
        assert_eq!((args.capacity(), args.audited_capacity()), (40400.0, 40400.0));
        assert!(args.has_data());
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (flags, word) in [
            ("--peers 1 --fault wipe", "wipe"),
            ("--peers 27", "27"),
            ("--refresh 10", "--refresh"),
            ("--capacity 0", "--capacity"),
            ("--capacity NaN", "--capacity"),
        ] {
            let said = ChaosArgs::of(flags).check().unwrap_err().to_string();
            assert!(said.contains(word), "{flags}: {said}");
        }
    }

    #[test]
    fn the_configuration_says_what_the_flags_say() {
        let text =
            ChaosArgs::of("--capacity 500 --reuse prompt --lease 20 --refresh 5 --algorithm STATIC").configuration();
        for line in ["capacity: 500", "reuse: prompt", "lease_length: 20", "refresh_interval: 5", "kind: STATIC"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!ChaosArgs::example().configuration().contains("reuse"));
    }

    #[test]
    fn peers_have_short_names() {
        assert_eq!((name(0), name(2), name(25)), ("a".into(), "c".into(), "z".into()));
    }
}
