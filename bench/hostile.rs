//! A real server, well-behaved clients, and an attacker: what an attack costs the server, and whether the clients
//! notice.
//!
//! `attack` has the attacks. The `attacker` makes them on a thread of its own, as a caller of methods or with raw frames.
//! The `target` is the server, at which newcomers arrive during the attack. `run` puts these together, and `report` is
//! the result.

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

/// Attack a server, and measure what its well-behaved clients notice.
///
/// For each attack a server is started on free loopback ports. Well-behaved clients at 127.0.0.1 send requests at a
/// constant rate, in an open loop, undisturbed and under attack from 127.0.0.2 in turns. Meanwhile newcomers from
/// 127.0.0.3 connect, ask for leases, and read /healthz. The table shows what the attacker sent, what that cost the
/// server, the p99 of well-behaved requests in both cases, and the ratio of neighbouring runs.
///
/// Attacker, clients and server share the cores of this machine, so --attack-rate bounds the attacker. The table shows
/// how many cores attacker and server used: if that is all there are, the ratio is that of a busy machine.
///
/// It fails if a well-behaved request failed or was left out of an answer, if a newcomer got no lease, or if the
/// server's memory grew beyond the budget of the attack; never for speed.
#[derive(clap::Args)]
#[command(after_long_help = HOSTILE_EXAMPLES)]
pub(crate) struct HostileArgs {
    /// The server; `serve` and its flags are added. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Make these attacks only. [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<Attack>,
    /// TLS on all listeners, with certificates from `leaseway certs`. The attacker needs none, because the server does
    /// not ask for client certificates.
    #[arg(long)]
    tls: bool,
    /// How often to make each attack, each time after an undisturbed run.
    #[arg(long, default_value = "3", value_name = "N")]
    reps: NonZeroU32,
    /// The length of a run, in seconds.
    #[arg(long, default_value = "2", value_name = "S", value_parser = seconds)]
    seconds: Duration,
    /// Well-behaved requests per second.
    #[arg(long, default_value = "2000", value_name = "R", value_parser = rate)]
    rate: f64,
    /// Well-behaved clients. With fewer clients some ask again too soon and are left out of an answer.
    #[arg(long, default_value = "10000", value_name = "N")]
    clients: NonZeroU32,
    /// Connections of the well-behaved clients.
    #[arg(long, default_value = "8", value_name = "N")]
    connections: NonZeroU32,
    /// The maximum of frames, calls and connections that the attacker makes per second. Each 16 KiB of long messages
    /// counts, and each 20 entries of calls.
    #[arg(long, default_value = "5000", value_name = "R", value_parser = rate)]
    attack_rate: f64,
    /// Connections of attacks that consist of connections. This program and the server need a file descriptor for each
    /// (`ulimit -n`).
    #[arg(long, default_value = "2000", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    attack_connections: u32,
    /// Also write all results to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const HOSTILE_EXAMPLES: &str = "\
Examples:
  # All attacks (some six minutes):
  leaseway-bench hostile --json hostile.json

  # Two of them, over TLS, ten times as fast:
  leaseway-bench hostile --tls --only rapid-reset,ping --attack-rate 50000

  # More connections than a server takes by default:
  leaseway-bench hostile --only silent,half-headers --attack-connections 9000

What bounds each attack: docs/benchmarks.md#under-attack.";

pub(crate) fn main(args: &HostileArgs) -> Result<(), Error> {
    if args.seconds.is_zero() {
        return Err(Error::Usage("--seconds 0 measures nothing".into()));
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
