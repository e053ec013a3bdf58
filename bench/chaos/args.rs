//! The command line of `chaos`.

use std::{
    num::{NonZeroU64, NonZeroUsize},
    ops::Range,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use crate::{
    chaos::{
        layout::{ClusterShape, OF_PERIODS, ONCE, POOL, ROUTES, route},
        schedule::{Fault, Plan},
    },
    common::{error::Error, seconds, word},
};

/// The initial capacity of each resource, and the capacity of the pool.
pub(crate) const FIRST_CAPACITY: f64 = 1000.0;

pub(crate) const REFRESH: Duration = Duration::from_secs(1);

const PERIOD_SECS: u32 = 20;
/// What may be spent of a budget per second. Clients want more, so that they exhaust it.
const SPENT_PER_SEC: f64 = 20.0;

/// Inject faults into real servers, and check that clients never use more than the capacity.
///
/// The seed determines the faults and their times. All processes and clients run on this machine. At no time may the
/// leases that clients believe in exceed the capacity together, nor may gateways allow more requests. After the last
/// fault, each node must have a master, all peers must follow it, and all clients must be served. A failed run prints
/// the command that repeats it; --shrink also searches for a smaller schedule that fails.
///
/// Servers and clients use TLS if the seed is even.
#[derive(Clone, clap::Args)]
pub(crate) struct ChaosArgs {
    /// The number of nodes, and of peers in each.
    #[arg(long, value_enum, default_value = "three", value_name = "SHAPE")]
    pub(crate) shape: ClusterShape,
    /// The first seed.
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) seed: u64,
    /// The number of runs, each with the next seed.
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) seeds: NonZeroU64,
    /// The length of the schedule, in seconds. All faults end before the last tenth of it.
    #[arg(long = "for", default_value = "120", value_name = "S", value_parser = seconds)]
    pub(crate) length: Duration,
    /// Inject only these kinds of faults.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FAULT,…")]
    pub(crate) only: Vec<Fault>,
    /// Run in a network namespace, where cut links drop packets. Without it, they only hold data back.
    ///
    /// Adds faults that lose and reorder packets. Needs Linux, iptables, and permission to create namespaces.
    #[arg(long)]
    pub(crate) namespace: bool,
    /// Inject only the faults with these numbers in the schedule. --shrink prints this flag.
    #[arg(long, value_delimiter = ',', value_name = "NUMBER,…")]
    pub(crate) keep_faults: Option<Vec<usize>>,
    /// Print the schedule and exit.
    #[arg(long)]
    pub(crate) show: bool,
    /// Number of library clients, over all nodes.
    #[arg(long, default_value = "40", value_name = "N")]
    pub(crate) clients: NonZeroUsize,
    /// Number of clients of the 2016 protocol. They use the wall clock, so runs in which clocks jump ahead have none.
    #[arg(long, default_value = "6", value_name = "N")]
    pub(crate) legacy_clients: usize,
    /// The length of leases, in whole seconds.
    #[arg(long, default_value = "5", value_name = "S", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) lease: u32,
    /// Add clients in another language, driven by this command as by `conform`. Can be repeated.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) driver: Vec<String>,
    /// The `--timing` of the servers. [default: one-site, several-sites and 1000,3000,5000 in turn, each for two seeds]
    #[arg(long, value_name = "TIMING")]
    pub(crate) timing: Option<PeerTiming>,
    /// The time allowed for recovery after the last fault, in seconds.
    #[arg(long, default_value = "60", value_name = "S", value_parser = seconds)]
    pub(crate) patience: Duration,
    /// Maximum number of runs to shrink a failing schedule. 0 does not shrink it.
    #[arg(long, default_value = "0", value_name = "RUNS")]
    pub(crate) shrink: usize,
    /// Plant a fault: the servers leave out this rule of the protocol. Search for the first seed that reveals it.
    ///
    /// `all` tries every rule with a shape, faults, leases and length that are likely to reveal it, and prints a table.
    /// The servers need the feature `planted`: `cargo build -p leaseway --features planted`, then --server.
    #[arg(long, value_name = "RULE")]
    pub(crate) plant: Option<String>,
    /// The server command, to which `serve` and its flags are added. [default: `leaseway` beside this program, or in
    /// PATH]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) server: Option<String>,
    /// Also write the report to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Keep the logs and data of the servers, and print their directory.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Make the auditor assume only this fraction of the capacity, to show that it detects overuse.
    #[arg(long, hide = true, default_value = "1", value_name = "PART")]
    pub(crate) audit_part: f64,
}

impl ChaosArgs {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(kind) = self.only.iter().find(|kind| !self.namespace && kind.is_of_packets()) {
            return Err(Error::Usage(format!("--only {} needs --namespace", kind.name())));
        }
        if self.length.is_zero() {
            return Err(Error::Usage("--for must be above 0".into()));
        }
        Ok(())
    }

    pub(crate) fn seeds(&self) -> Range<u64> {
        self.seed..self.seed.saturating_add(self.seeds.get())
    }

    pub(crate) fn timing(&self, seed: u64) -> PeerTiming {
        self.timing.clone().unwrap_or_else(|| PeerTiming::in_turn(seed))
    }

    pub(crate) fn plan(&self, seed: u64) -> Plan<'_> {
        Plan {
            shape: self.shape,
            length: self.length,
            lease: self.lease(),
            vote_lease: self.timing(seed).vote_lease,
            only: &self.only,
            in_namespace: self.namespace,
        }
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_secs(self.lease.into())
    }

    /// The time for which clients may believe in a capacity after it was cut: two lease lengths for each level.
    pub(crate) fn settle(&self) -> Duration {
        self.lease() * 2 * self.shape.levels()
    }

    /// The capacity of a route when the other resources have `capacity`.
    fn of_route(number: usize, capacity: f64) -> f64 {
        ROUTES[number] * capacity / FIRST_CAPACITY
    }

    /// The amount of a budget.
    pub(crate) fn amount(&self, budget: &str) -> f64 {
        let seconds = if budget == ONCE { self.length.as_secs_f64() } else { f64::from(PERIOD_SECS) };
        (SPENT_PER_SEC * seconds).floor()
    }

    /// The configuration with this capacity. The capacity of the pool does not change.
    pub(crate) fn configuration(&self, capacity: f64) -> String {
        let (lease, refresh) = (self.lease, REFRESH.as_secs());
        // The safe capacity is 0, so that no request passes without a lease.
        let of_route = |number: usize| {
            format!(
                "- identifier_glob: {}
  capacity: {}
  safe_capacity: 0
  algorithm: {{kind: FAIR_SHARE, lease_length: {lease}, refresh_interval: {refresh}, \
                 parameters: {{min_request_interval: 0}}}}
",
                route(number),
                ChaosArgs::of_route(number, capacity)
            )
        };
        let routes: String = (0..ROUTES.len()).map(of_route).collect();
        format!(
            "resources:
- identifier_glob: {POOL}*
  capacity: {}
  algorithm:
    kind: PRIORITY_POOL
    lease_length: {lease}
    refresh_interval: {refresh}
    parameters:
      min_capacity: 20
      min_request_interval: 0
- identifier_glob: {ONCE}
  capacity: {}
  algorithm: {{kind: BUDGET, lease_length: 4, refresh_interval: 1, parameters: {{period: none}}}}
- identifier_glob: {OF_PERIODS}
  capacity: {}
  algorithm: {{kind: BUDGET, lease_length: 4, refresh_interval: 1, parameters: {{period: {PERIOD_SECS}s}}}}
{routes}- identifier_glob: \"*\"
  capacity: {capacity}
  algorithm:
    kind: FAIR_SHARE
    lease_length: {lease}
    refresh_interval: {refresh}
    parameters:
      min_request_interval: 0  # some ask all the time
",
            FIRST_CAPACITY,
            self.amount(ONCE),
            self.amount(OF_PERIODS)
        )
    }

    /// The flags that determine the schedule and the clients, for the command that repeats a run.
    pub(crate) fn plan_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        flag("shape", word(&self.shape));
        flag("for", self.length.as_secs_f64().to_string());
        if !self.only.is_empty() {
            flag("only", self.only.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(","));
        }
        for (name, value, usual) in [
            ("clients", self.clients.get() as u64, 40),
            ("legacy-clients", self.legacy_clients as u64, 6),
            ("lease", self.lease.into(), 5),
        ] {
            if value != usual {
                flag(name, value.to_string());
            }
        }
        if self.namespace {
            words.push("--namespace".to_owned());
        }
        words.extend(self.timing.iter().flat_map(|timing| ["--timing".to_owned(), timing.flag.clone()]));
        words
    }

    /// The command that repeats a run. `faults`: with only these of its faults.
    pub(crate) fn command(&self, seed: u64, faults: Option<&[usize]>) -> String {
        let mut words = ["leaseway-bench", "chaos", "--seed"].map(str::to_owned).to_vec();
        words.extend([seed.to_string()]);
        words.extend(self.plan_words());
        let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        if let Some(faults) = faults {
            flag("keep-faults", faults.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
        }
        for (name, value) in [("plant", &self.plant), ("server", &self.server)] {
            value.iter().for_each(|value| flag(name, value.clone()));
        }
        self.driver.iter().for_each(|command| flag("driver", command.clone()));
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
    }
}

/// Seeds use these timings in turn, to test short and long vote leases.
const IN_TURN: [&str; 3] = ["one-site", "several-sites", "1000,3000,5000"];

/// The timing of elections, as `leaseway serve --timing` accepts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerTiming {
    /// The value for the server.
    pub(crate) flag: String,
    pub(crate) heartbeat: Duration,
    /// The time for which a peer leases its vote to a master.
    pub(crate) vote_lease: Duration,
}

impl FromStr for PeerTiming {
    type Err = String;

    fn from_str(text: &str) -> Result<PeerTiming, String> {
        let [heartbeat, _, longest] = match text {
            "one-site" => [50, 150, 250],
            "several-sites" => [250, 750, 1250],
            _ => {
                let numbers: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
                let expected = "expected one-site, several-sites, or HEARTBEAT,MIN,MAX in milliseconds";
                numbers.ok().and_then(|numbers| numbers.try_into().ok()).ok_or(expected)?
            }
        };
        let [heartbeat, vote_lease] = [heartbeat, longest].map(Duration::from_millis);
        Ok(PeerTiming { flag: text.to_owned(), heartbeat, vote_lease })
    }
}

impl PeerTiming {
    /// The default timing of a seed. Two successive seeds share one, because only one of them uses TLS.
    pub(crate) fn in_turn(seed: u64) -> PeerTiming {
        let turn = (seed / 2 % IN_TURN.len() as u64) as usize;
        IN_TURN[turn].parse().expect("it is one of ours")
    }
}

#[cfg(test)]
impl ChaosArgs {
    pub(crate) fn of(flags: &str) -> ChaosArgs {
        #[derive(clap::Parser)]
        struct Words {
            #[command(flatten)]
            args: ChaosArgs,
        }
        let flags = shlex::split(flags).expect("no quote is left open");
        let words = std::iter::once("random".to_owned()).chain(flags);
        <Words as clap::Parser>::parse_from(words).args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_repeats_a_run_parses_to_the_same_arguments() {
        let flags = "--shape tree --seed 7 --seeds 9 --for 30 --only kill,wipe --lease 4 --clients 12 --namespace \
                     --timing 40,100,200";
        let args = ChaosArgs::of(flags);
        let command = args.command(8, Some(&[0, 3]));
        let again = ChaosArgs::of(command.strip_prefix("leaseway-bench chaos").unwrap());
        assert_eq!(again.command(8, again.keep_faults.as_deref()), command);
        assert_eq!((again.seed, again.shape, again.only.len()), (8, ClusterShape::Tree, 2));
        assert!(!command.contains("legacy-clients"), "defaults are left out: {command}");
    }

    #[test]
    fn contradictory_flags_are_refused() {
        for (flags, word) in [("--for 0", "--for"), ("--only loss", "--namespace")] {
            assert!(ChaosArgs::of(flags).check().unwrap_err().to_string().contains(word), "{flags}");
        }
        ChaosArgs::of("").check().unwrap();
    }
}
