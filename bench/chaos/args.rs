//! What the command line says, and what follows from it.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use super::plan::Fault;
use crate::{error::Error, load::seconds};

/// Starts the peers of a node on this machine, puts real clients on them, breaks things, and adds up what happens.
///
/// Every client writes down what it may use; the books are added up at the end, and no server is asked. Peers reach
/// each other over links of our own, one for each direction of each pair, so that links can be cut while processes run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server; `serve` and its flags are added. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    pub(super) server: Option<String>,
    /// Peers of the node. One alone is a server without peers.
    #[arg(long, default_value = "3", value_name = "N")]
    pub(super) peers: NonZeroUsize,
    /// Clients, all of this process.
    #[arg(long, default_value = "1000", value_name = "N")]
    pub(super) clients: NonZeroUsize,
    /// Pools of connections that clients share; a pool opens one for about every forty clients.
    #[arg(long, default_value = "1", value_name = "N")]
    pub(super) connections: NonZeroUsize,
    /// What there is of each resource. [default: four fifths of what clients want on average, so that it is scarce]
    #[arg(long, value_name = "AMOUNT")]
    capacity: Option<f64>,
    /// What a client wants: something between.
    #[arg(long, default_value = "1-100", value_name = "A-B")]
    pub(super) wants: Range,
    /// So many clients a second want something else; 0: nobody ever does.
    #[arg(long, default_value = "20", value_name = "N")]
    pub(super) stir: u32,
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
    /// Clocks of the peers are off: the first not at all, the last by so many milliseconds; and every other one runs
    /// fast by that part, the others slow.
    #[arg(long, value_name = "MS[,RATE]")]
    pub(super) skew: Option<Skew>,
    /// What is done.
    #[arg(long, default_value = "kill", value_name = "FAULT")]
    pub(super) fault: Fault,
    /// How often.
    #[arg(long, default_value = "50", value_name = "N")]
    pub(super) rounds: u32,
    /// How long a fault lasts, in seconds; a process that was killed is started again then.
    #[arg(long, default_value = "2", value_name = "S", value_parser = seconds)]
    pub(super) down: Duration,
    /// How long everybody is left alone between rounds, in seconds.
    #[arg(long, default_value = "3", value_name = "S", value_parser = seconds)]
    pub(super) settle: Duration,
    /// How long after a fault there may be no master, or clients without new leases, in seconds.
    #[arg(long, default_value = "30", value_name = "S", value_parser = seconds)]
    pub(super) patience: Duration,
    /// Instead of rounds: many clients come and go, some without a word; then three masters are killed one after the
    /// other. Shows how much stays reserved for those who are gone.
    #[arg(long)]
    pub(super) gone: bool,
    /// Repeats the same wants, victims and choice of faults.
    #[arg(long, default_value = "1", value_name = "N")]
    pub(super) seed: u64,
    /// Also write everything that was measured to a file.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Also write the books, for `audit`.
    #[arg(long, value_name = "FILE")]
    pub(super) book: Option<PathBuf>,
    /// Keep what the servers said and their data, and say where.
    #[arg(long)]
    pub(super) keep: bool,
    /// What the auditor takes the capacity for: to see that it notices.
    #[arg(long, hide = true, value_name = "AMOUNT")]
    audit_capacity: Option<f64>,
}

impl Args {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.fault.check(self.peers.get())?;
        if self.peers.get() > NAMES {
            return Err(Error::Usage(format!("--peers {}: at most {NAMES}", self.peers)));
        }
        if self.refresh >= self.lease {
            let (refresh, lease) = (self.refresh, self.lease);
            return Err(Error::Usage(format!("--refresh {refresh} is not below --lease {lease}")));
        }
        if self.wants.most <= 0.0 {
            return Err(Error::Usage("--wants: somebody has to want something".into()));
        }
        let capacity = self.capacity();
        if !(capacity.is_finite() && capacity > 0.0) {
            return Err(Error::Usage(format!("--capacity {capacity}: expected a finite number above 0")));
        }
        Ok(())
    }

    pub(super) fn capacity(&self) -> f64 {
        self.capacity.unwrap_or_else(|| (0.8 * self.clients.get() as f64 * self.wants.mean()).max(1.0).round())
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
        let Args { algorithm, lease, refresh, reuse, .. } = self;
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

/// Peers are called a, b, c …
const NAMES: usize = 26;

pub(super) fn name(peer: usize) -> String {
    char::from(b'a' + u8::try_from(peer).unwrap_or(u8::MAX - b'a')).to_string()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Handover {
    /// Peers remember what the master promised.
    Promises,
    /// A new master listens before it decides.
    Learning,
}

impl Handover {
    pub(super) fn name(self) -> &'static str {
        match self {
            Handover::Promises => "promises",
            Handover::Learning => "learning",
        }
    }
}

/// From A to B.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    least: f64,
    most: f64,
}

impl Range {
    pub(super) fn mean(self) -> f64 {
        (self.least + self.most) / 2.0
    }

    pub(super) fn draw(self, random: &mut fastrand::Rng) -> f64 {
        self.least + random.f64() * (self.most - self.least)
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Range, String> {
        let parsed = text.split_once('-').and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
        match parsed {
            Some((least, most)) if 0.0 <= least && least <= most && f64::is_finite(most) => Ok(Range { least, most }),
            _ => Err("expected A-B with 0 <= A <= B, as 1-100".into()),
        }
    }
}

/// How wrong clocks are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Skew {
    offset_ms: u64,
    rate: f64,
}

impl Skew {
    /// Flags for one of the peers.
    pub(super) fn flags(self, peer: usize, peers: usize) -> [String; 4] {
        let offset = self.offset_ms * peer as u64 / (peers as u64 - 1).max(1);
        let rate = if peer.is_multiple_of(2) { 1.0 - self.rate } else { 1.0 + self.rate };
        ["--clock-offset-ms".into(), offset.to_string(), "--clock-rate".into(), rate.to_string()]
    }
}

impl FromStr for Skew {
    type Err = String;

    fn from_str(text: &str) -> Result<Skew, String> {
        let (offset, rate) = text.split_once(',').unwrap_or((text, "0"));
        match (offset.parse(), rate.parse()) {
            (Ok(offset_ms), Ok(rate)) if (0.0..1.0).contains(&rate) => Ok(Skew { offset_ms, rate }),
            _ => Err("expected milliseconds and perhaps a rate below 1, as 500 or 500,0.001".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::{Cli, Command};

    fn args(flags: &str) -> Args {
        let line = format!("leaseway-bench chaos {flags}");
        match Cli::try_parse_from(line.split_ascii_whitespace()).unwrap().command {
            Command::Chaos(args) => *args,
            _ => unreachable!("the line says chaos"),
        }
    }

    #[test]
    fn defaults_are_consistent_and_scarce() {
        let args = args("");
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
            ("--wants 0-0", "--wants"),
            ("--capacity 0", "--capacity"),
            ("--capacity NaN", "--capacity"),
        ] {
            let said = args(flags).check().unwrap_err().to_string();
            assert!(said.contains(word), "{flags}: {said}");
        }
    }

    #[test]
    fn ranges_and_skews_are_parsed() {
        assert_eq!("1-100".parse(), Ok(Range { least: 1.0, most: 100.0 }));
        assert_eq!("0.5-0.5".parse::<Range>().unwrap().mean(), 0.5);
        for wrong in ["", "1", "5-1", "-1-5", "1-inf", "a-b", "1-NaN"] {
            assert!(wrong.parse::<Range>().is_err(), "{wrong:?} was accepted");
        }
        assert_eq!("500,0.01".parse(), Ok(Skew { offset_ms: 500, rate: 0.01 }));
        assert_eq!("500".parse(), Ok(Skew { offset_ms: 500, rate: 0.0 }));
        for wrong in ["", "x", "-5", "5,1", "5,-0.1", "5,"] {
            assert!(wrong.parse::<Skew>().is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn skews_spread_over_the_peers() {
        let skew = Skew { offset_ms: 100, rate: 0.25 };
        let all: Vec<_> = (0..3).map(|peer| skew.flags(peer, 3).join(" ")).collect();
        assert_eq!(all[0], "--clock-offset-ms 0 --clock-rate 0.75");
        assert_eq!(all[1], "--clock-offset-ms 50 --clock-rate 1.25");
        assert_eq!(all[2], "--clock-offset-ms 100 --clock-rate 0.75");
        assert_eq!(skew.flags(0, 1)[1], "0");
    }

    #[test]
    fn the_configuration_says_what_the_flags_say() {
        let text = args("--capacity 500 --reuse prompt --lease 20 --refresh 5 --algorithm STATIC").configuration();
        for line in ["capacity: 500", "reuse: prompt", "lease_length: 20", "refresh_interval: 5", "kind: STATIC"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!args("").configuration().contains("reuse"));
    }

    #[test]
    fn peers_have_short_names() {
        assert_eq!((name(0), name(2), name(25)), ("a".into(), "c".into(), "z".into()));
    }
}
