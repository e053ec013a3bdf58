//! Attacks a real server, and measures the cost for the server and the effect on well-behaved clients.
//!
//! `attack` has the attacks. `attacker` runs them on its own thread, as a caller of methods or with raw frames.
//! `target` is the server, and the newcomers that connect to it during an attack. `run` combines these, and `report`
//! has the results.

pub(crate) mod attack;
pub(crate) mod attacker;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod target;

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use crate::{
    common::{
        error::Error,
        output::{Machine, arguments, print, progress, write_json},
        seconds,
        server::Interrupt,
    },
    hostile::{attack::Attack, report::HostileReport, run::AttackRun},
    load::options::rate,
};

/// Attack a server, and measure the effect on its well-behaved clients.
///
/// For each attack a server is started on free loopback ports. Well-behaved clients at 127.0.0.1 send requests at a
/// constant rate (open loop), alternately undisturbed and under attack from 127.0.0.2. Meanwhile newcomers from
/// 127.0.0.3 connect, ask for leases, and read /healthz. The table shows the traffic of the attacker, its cost for the
/// server, the p99 of well-behaved requests without and with the attack, and the ratio of neighboring runs.
///
/// Attacker, clients and server share the cores of this machine, so --attack-rate limits the attacker. The table shows
/// how many cores attacker and server used. If they used all of them, the ratio is that of a busy machine.
///
/// The command fails if a well-behaved request failed or was left out of an answer, if a newcomer got no lease, or if
/// the server's memory grew beyond the budget of the attack. It never fails because of speed.
#[derive(clap::Args)]
#[command(after_long_help = HOSTILE_EXAMPLES)]
pub(crate) struct HostileArgs {
    /// The server; `serve` and its flags are added. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Run only these attacks. [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<Attack>,
    /// Use TLS on all listeners, with certificates from `leaseway certs`. The server does not ask for client
    /// certificates, so the attacker needs none.
    #[arg(long)]
    tls: bool,
    /// Number of runs of each attack, each after an undisturbed run.
    #[arg(long, default_value = "3", value_name = "N")]
    reps: NonZeroU32,
    /// The length of a run, in seconds.
    #[arg(long, default_value = "2", value_name = "S", value_parser = seconds)]
    seconds: Duration,
    /// Rate of well-behaved requests, per second.
    #[arg(long, default_value = "2000", value_name = "R", value_parser = rate)]
    rate: f64,
    /// Number of well-behaved clients. If there are too few, they ask before the minimum request interval has passed
    /// and are left out of answers.
    #[arg(long, default_value = "10000", value_name = "N")]
    clients: NonZeroU32,
    /// Number of connections of the well-behaved clients.
    #[arg(long, default_value = "8", value_name = "N")]
    connections: NonZeroU32,
    /// Maximum rate of the attacker, per second: frames, calls and connections. A long message counts once for each 16
    /// KiB, a long call once for each 20 entries.
    #[arg(long, default_value = "5000", value_name = "R", value_parser = rate)]
    attack_rate: f64,
    /// Number of connections in attacks by many connections. This program and the server need a file descriptor for
    /// each (`ulimit -n`).
    #[arg(long, default_value = "2000", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    attack_connections: u32,
    /// Also write all results to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const HOSTILE_EXAMPLES: &str = "\
Examples:
  # All attacks (about six minutes):
  leaseway-bench hostile --json hostile.json

  # Two attacks over TLS, at ten times the rate:
  leaseway-bench hostile --tls --only rapid-reset,ping --attack-rate 50000

  # More connections than one address may have:
  leaseway-bench hostile --only silent,half-headers --attack-connections 9000

docs/benchmarks.md#under-attack says what limits each attack.";

pub(crate) fn main(args: &HostileArgs) -> Result<(), Error> {
    if args.seconds.is_zero() {
        return Err(Error::Usage("--seconds must be above 0".into()));
    }
    let interrupt = Interrupt::watch()?;
    let attacks = match &args.only[..] {
        [] => <Attack as clap::ValueEnum>::value_variants(),
        only => only,
    };
    let bar = progress(attacks.len() as u64 * u64::from(args.reps.get()) * 2, "{bar:40} {pos}/{len} {msg}");
    let mut done = Vec::new();
    let outcome = attacks.iter().try_for_each(|&attack| {
        done.push(AttackRun::start(args, attack, &interrupt, &bar)?.run()?);
        Ok(())
    });
    bar.finish_and_clear();
    // Finished attacks are reported even if a later one failed.
    let report = HostileReport { arguments: arguments(), machine: Machine::read(), tls: args.tls, attacks: done };
    write_json(args.json.as_deref(), &report)?;
    print(&report.text())?;
    outcome.and(report.verdict())
}
