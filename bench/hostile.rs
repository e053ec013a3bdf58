//! A real server, well-behaved clients, and a stranger that means harm: what an attack costs the server, and whether
//! others notice.
//!
//! `attack` has the attacks, `stranger` is the thread that makes them, over a `wire` that counts, as a `caller` of
//! methods or with `frames` of its own. `victim` is the server, `newcomers` come to it while it is attacked, `siege`
//! puts them together, `apart` on cores if that is wanted, and `report` is what comes of it.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use self::{apart::Apart, attack::Attack, report::HostileReport, siege::Siege};
use crate::{
    error::Error,
    flags::seconds,
    load::rate,
    machine::Machine,
    output::{arguments, print, progress, write_json},
    signal::Interrupt,
};

mod apart;
mod attack;
mod caller;
mod frames;
mod newcomers;
mod report;
mod sent;
mod siege;
mod stranger;
mod victim;
mod wire;

/// Attacks a server as strangers could, and measures what its well-behaved clients notice.
///
/// For each attack a server is started on free loopback ports. Well-behaved clients at 127.0.0.1 ask it at a steady
/// rate, in an open loop; for a while nothing else happens, and then a stranger at 127.0.0.2 attacks it, in turns.
/// Meanwhile newcomers from 127.0.0.3 make connections, ask for leases, and read /healthz. The table has what the
/// attacker sent, what that cost the server, and the p99 of the well-behaved, undisturbed and under attack, with the
/// ratio of neighbouring runs.
///
/// Attacker, clients and server share the cores of this machine, so an attacker without bounds would measure nothing
/// but their lack. --attack-rate bounds it, and the table shows how many cores it and the server kept busy: where both
/// together come near what there is, the ratio is that of a busy machine, and says nothing about the server.
///
/// It fails if a request of a well-behaved client failed or was left out of an answer, if a newcomer got no lease, or
/// if the server's memory grew beyond the budget of the attack; never for speed.
#[derive(clap::Args)]
#[command(after_long_help = HOSTILE_EXAMPLES)]
pub(crate) struct HostileArgs {
    /// The server; `serve` and its flags are added. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Only these attacks. [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<Attack>,
    /// TLS on all listeners, with certificates that `leaseway certs` makes. The stranger needs none: the server asks
    /// its callers for no certificates.
    #[arg(long)]
    tls: bool,
    /// Times that each attack is made, each after a while without.
    #[arg(long, default_value = "3", value_name = "N")]
    reps: NonZeroU32,
    /// How long to measure undisturbed, and how long under attack.
    #[arg(long, default_value = "2", value_name = "S", value_parser = seconds)]
    seconds: Duration,
    /// Requests a second of the well-behaved.
    #[arg(long, default_value = "2000", value_name = "R", value_parser = rate)]
    rate: f64,
    /// Well-behaved clients. With fewer one may ask again before it was answered, and is left out of an answer.
    #[arg(long, default_value = "10000", value_name = "N")]
    clients: NonZeroU32,
    /// Connections of the well-behaved.
    #[arg(long, default_value = "8", value_name = "N")]
    connections: NonZeroU32,
    /// What the attacker does in a second, at most: frames, calls and connections; of long messages each
    /// 16 KiB counts, and of calls every 20 entries.
    #[arg(long, default_value = "5000", value_name = "R", value_parser = rate)]
    attack_rate: f64,
    /// The attacker on the last core, all else on the others (with `taskset`): what it takes of the machine is not
    /// taken from the server, as if it were on another machine.
    #[arg(long)]
    apart: bool,
    /// Connections of an attack that consists of connections. This program and the server need a descriptor for each
    /// (`ulimit -n`).
    #[arg(long, default_value = "2000", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    attack_connections: u32,
    /// MiB by which the server's memory may grow under each attack: to see that it is noticed.
    #[arg(long, hide = true, value_name = "MIB")]
    budget: Option<u64>,
    /// Also write everything that was measured to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const HOSTILE_EXAMPLES: &str = "\
Examples:
  # All attacks (some six minutes):
  leaseway-bench hostile --json hostile.json

  # Two of them, over TLS, ten times as fast:
  leaseway-bench hostile --tls --only rapid-reset,ping --attack-rate 50000

  # Where the attacker takes none of the server's time:
  leaseway-bench hostile --apart

  # More connections than a server takes by default:
  leaseway-bench hostile --only silent,half-headers --attack-connections 9000

What bounds each attack: docs/benchmarks.md#under-attack.";

pub(crate) fn main(args: &HostileArgs) -> Result<(), Error> {
    if args.seconds.is_zero() {
        return Err(Error::Usage("--seconds 0 measures nothing".into()));
    }
    let interrupt = Interrupt::watch()?;
    let apart = args.apart.then(Apart::arrange).transpose()?;
    let attacks = match &args.only[..] {
        [] => <Attack as clap::ValueEnum>::value_variants(),
        only => only,
    };
    let bar = progress(attacks.len() as u64 * u64::from(args.reps.get()) * 2, "{bar:40} {pos}/{len} {msg}");
    let mut done = Vec::new();
    let outcome = attacks.iter().try_for_each(|&attack| {
        done.push(Siege::lay(args, attack, apart, &interrupt, &bar)?.raise()?);
        Ok(())
    });
    bar.finish_and_clear();
    // Those that were finished are worth something even if a later one was not.
    let report = HostileReport { arguments: arguments(), machine: Machine::read(), tls: args.tls, attacks: done };
    write_json(args.json.as_deref(), &report)?;
    print(&report.text())?;
    outcome.and(report.verdict())
}
