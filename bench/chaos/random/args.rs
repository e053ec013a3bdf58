//! What the command line says.

use std::{
    num::{NonZeroU32, NonZeroU64, NonZeroUsize},
    ops::Range,
    path::PathBuf,
    time::Duration,
};

use super::{
    layout::{ClusterShape, POOL, ROUTES, route},
    schedule::{Mishap, Plan},
    timing::PeerTiming,
};
use crate::{
    error::Error,
    flags::{seconds, word},
};

/// Draws from a seed what goes wrong and when, does that to real processes, and adds up the books of their clients.
///
/// At no moment may clients together believe in more than there is, nor may a gateway that is asked for each request let
/// more pass; when all is well again there has to be a master, and all clients, and the Envoys of a gateway, have to be
/// served. A run that fails is repeated with fewer and fewer mishaps, and the command that repeats it is printed.
/// Servers and clients of even seeds speak TLS with each other.
#[derive(Clone, clap::Args)]
pub(crate) struct RandomArgs {
    /// Which nodes are run.
    #[arg(long, value_enum, default_value = "three", value_name = "SHAPE")]
    pub(super) shape: ClusterShape,
    /// The first seed.
    #[arg(long, default_value = "1", value_name = "N")]
    pub(super) seed: u64,
    /// So many runs, each with the next seed.
    #[arg(long, default_value = "1", value_name = "N")]
    pub(super) seeds: NonZeroU64,
    /// How long things go wrong, in seconds; the last tenth of it they do not.
    #[arg(long = "for", default_value = "120", value_name = "S", value_parser = seconds)]
    pub(super) length: Duration,
    /// These mishaps only.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MISHAP,…")]
    pub(super) only: Vec<Mishap>,
    /// In a network namespace of the run's own, where cut links drop packets instead of holding back what they carry.
    ///
    /// Packets are also lost and overtaken. Needs Linux, iptables, and a right to make namespaces.
    #[arg(long)]
    pub(super) namespace: bool,
    /// Of the schedule that the seed gives, these alone: as the command for a failure that was made small has it.
    #[arg(long, value_delimiter = ',', value_name = "NUMBER,…")]
    pub(super) keep_strikes: Option<Vec<usize>>,
    /// Prints the schedule and runs nothing.
    #[arg(long)]
    pub(super) show: bool,
    /// Clients of the library, at all nodes together.
    #[arg(long, default_value = "40", value_name = "N")]
    pub(super) clients: NonZeroUsize,
    /// Clients of 2016's protocol. They count leases on the wall clock: seeds with clocks that jump ahead have none.
    #[arg(long, default_value = "6", value_name = "N")]
    pub(super) originals: usize,
    /// What there is of each resource at first.
    #[arg(long, default_value = "1000", value_name = "AMOUNT")]
    pub(super) capacity: NonZeroU32,
    /// How long leases last, in whole seconds.
    #[arg(long, default_value = "5", value_name = "S")]
    pub(super) lease: NonZeroU32,
    /// How often clients ask again, in whole seconds.
    #[arg(long, default_value = "1", value_name = "S")]
    pub(super) refresh: NonZeroU32,
    /// An interpreter with the package `leaseway`: clients of Python are among the holders.
    #[arg(long, value_name = "FILE")]
    pub(super) python: Option<PathBuf>,
    /// As for `leaseway serve`. [default: one-site, several-sites and 1000,3000,5000 in turn, each for two seeds]
    #[arg(long, value_name = "TIMING")]
    pub(super) timing: Option<PeerTiming>,
    /// How long it may take, when all is well again, until there are masters and all clients are served.
    #[arg(long, default_value = "60", value_name = "S", value_parser = seconds)]
    pub(super) patience: Duration,
    /// How many runs may be spent on making a failure small; 0: none.
    #[arg(long, default_value = "0", value_name = "RUNS")]
    pub(super) shrink: usize,
    /// Leaves this rule of the protocol out of the servers, and looks for the first seed whose books show it.
    ///
    /// `all`: one rule after the other, each with the shape, mishaps, leases and length that suit it, as a table.
    /// Only servers with the feature `planted` can: `cargo build -p leaseway --features planted`, then --server.
    #[arg(long, value_name = "FAULT")]
    pub(super) plant: Option<String>,
    /// The server; `serve` and its flags are added. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    pub(super) server: Option<String>,
    /// Also write what happened to a file.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Also write a page with the course of every run.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Also write the books of the last run, for people to look into.
    #[arg(long, value_name = "FILE")]
    pub(super) book: Option<PathBuf>,
    /// Keep what the servers said and their data, and say where.
    #[arg(long)]
    pub(super) keep: bool,
    /// What the auditor takes the capacity for, as a part of what it is: to see that it notices.
    #[arg(long, hide = true, default_value = "1", value_name = "PART")]
    pub(super) audit_part: f64,
}

impl RandomArgs {
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.refresh >= self.lease {
            let (refresh, lease) = (self.refresh, self.lease);
            return Err(Error::Usage(format!("--refresh {refresh} is not below --lease {lease}")));
        }
        if let Some(mishap) = self.only.iter().find(|mishap| !self.namespace && mishap.is_of_packets()) {
            return Err(Error::Usage(format!("--only {} needs --namespace", mishap.name())));
        }
        if self.length.is_zero() {
            return Err(Error::Usage("--for 0: no time shows nothing".into()));
        }
        Ok(())
    }

    pub(super) fn seeds(&self) -> Range<u64> {
        self.seed..self.seed.saturating_add(self.seeds.get())
    }

    pub(super) fn timing(&self, seed: u64) -> PeerTiming {
        self.timing.clone().unwrap_or_else(|| PeerTiming::in_turn(seed))
    }

    pub(super) fn plan(&self, seed: u64) -> Plan<'_> {
        Plan {
            shape: self.shape,
            length: self.length,
            lease: self.lease(),
            vote_lease: self.timing(seed).vote_lease,
            only: &self.only,
            in_namespace: self.namespace,
        }
    }

    pub(super) fn lease(&self) -> Duration {
        Duration::from_secs(self.lease.get().into())
    }

    pub(super) fn first_capacity(&self) -> f64 {
        f64::from(self.capacity.get())
    }

    /// How long a capacity that was cut may be believed in: twice the length of a lease at each level.
    pub(super) fn settle(&self) -> Duration {
        self.lease() * 2 * self.shape.levels()
    }

    /// What there is of a route while there is so much of the others.
    pub(super) fn of_route(&self, number: usize, capacity: f64) -> f64 {
        ROUTES[number] * capacity / self.first_capacity()
    }

    /// The configuration with this capacity; that of the pool stays.
    pub(super) fn configuration(&self, capacity: f64) -> String {
        let RandomArgs { lease, refresh, .. } = self;
        // Without a lease nothing passes: what is safe is no promise.
        let of_route = |number: usize| {
            format!(
                "- identifier_glob: {}
  capacity: {}
  safe_capacity: 0
  algorithm: {{kind: FAIR_SHARE, lease_length: {lease}, refresh_interval: {refresh}, \
                 parameters: {{min_request_interval: 0}}}}
",
                route(number),
                self.of_route(number, capacity)
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
{routes}- identifier_glob: \"*\"
  capacity: {capacity}
  algorithm:
    kind: FAIR_SHARE
    lease_length: {lease}
    refresh_interval: {refresh}
    parameters:
      min_request_interval: 0  # some ask all the time
",
            self.first_capacity()
        )
    }

    /// The flags that say what a schedule is drawn for, and with how many clients.
    pub(super) fn plan_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        flag("shape", word(&self.shape));
        flag("for", self.length.as_secs_f64().to_string());
        if !self.only.is_empty() {
            flag("only", self.only.iter().map(|mishap| mishap.name()).collect::<Vec<_>>().join(","));
        }
        for (name, value, usual) in [
            ("clients", self.clients.get() as u64, 40),
            ("originals", self.originals as u64, 6),
            ("capacity", u64::from(self.capacity.get()), 1000),
            ("lease", u64::from(self.lease.get()), 5),
            ("refresh", u64::from(self.refresh.get()), 1),
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

    /// What repeats one run, with these of its strikes.
    pub(super) fn command(&self, seed: u64, strikes: Option<&[usize]>) -> String {
        let mut words = ["leaseway-bench", "chaos", "random", "--seed"].map(str::to_owned).to_vec();
        words.extend([seed.to_string()]);
        words.extend(self.plan_words());
        let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        if let Some(strikes) = strikes {
            flag("keep-strikes", strikes.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
        }
        let python = self.python.as_ref().map(|path| path.display().to_string());
        for (name, value) in [("plant", &self.plant), ("server", &self.server), ("python", &python)] {
            value.iter().for_each(|value| flag(name, value.clone()));
        }
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
    }
}

#[cfg(test)]
impl RandomArgs {
    pub(super) fn of(flags: &str) -> RandomArgs {
        #[derive(clap::Parser)]
        struct Words {
            #[command(flatten)]
            args: RandomArgs,
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
    fn the_command_that_repeats_a_run_is_read_as_the_same() {
        let flags = "--shape tree --seed 7 --seeds 9 --for 30 --only kill,wipe --lease 4 --clients 12 --namespace \
                     --timing 40,100,200";
        let args = RandomArgs::of(flags);
        let command = args.command(8, Some(&[0, 3]));
        let again = RandomArgs::of(command.strip_prefix("leaseway-bench chaos random").unwrap());
        assert_eq!(again.command(8, again.keep_strikes.as_deref()), command);
        assert_eq!((again.seed, again.shape, again.only.len()), (8, ClusterShape::Tree, 2));
        assert!(!command.contains("originals"), "what is usual is not said: {command}");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (flags, word) in [("--refresh 5", "--refresh"), ("--for 0", "--for"), ("--only loss", "--namespace")] {
            assert!(RandomArgs::of(flags).check().unwrap_err().to_string().contains(word), "{flags}");
        }
        RandomArgs::of("").check().unwrap();
    }
}
