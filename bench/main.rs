//! `leaseway-bench` measures capacity servers and tries to break them.
//!
//! - `load` measures one server. `compare` alternates between two servers and reports ratios, because absolute figures
//!   depend on the machine. `ceiling` is a bare tonic service to compare with.
//! - `simulate` runs servers and clients in virtual time; `chaos` runs real processes and injects faults. Both check
//!   that clients together never use more than the capacity.
//! - `hostile` attacks a server and measures what its well-behaved clients notice.
//! - `gateways` measures the gateways for HTTP and Envoy.
//! - `budgets` compares a budget with counters in Redis.
//! - `conform` checks a client library in any language against a scripted server.
//!
//! Any server that speaks the Doorman protocol can be measured with `load` and `compare`.

mod budgets;
mod chaos;
mod common;
mod compare;
mod conform;
mod gateways;
mod hostile;
mod load;
mod simulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::common::output;

/// The same allocator as in the server, so that only the logic of `ceiling` differs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure capacity servers that speak the Doorman protocol, and try to break them.
#[derive(Parser)]
#[command(name = "leaseway-bench", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  # Compare the server with the limit of this machine and gRPC library:
  leaseway-bench compare \\
      --a 'leaseway-bench ceiling --listen 127.0.0.1:{port}' \\
      --b 'leaseway serve --listen 127.0.0.1:{port} --http 127.0.0.1:0 --config leaseway.yaml'

  # Measure a server that is already running, with its CPU time per request:
  leaseway-bench load --target 127.0.0.1:5100 --server-pid \"$(pgrep -x leaseway)\"

  # Inject faults into real processes, and check that clients never use more than the capacity:
  leaseway-bench chaos --seed 1 --for 120

Quote ratios, not absolute figures. Run nothing else on the machine during a measurement.";

#[derive(Subcommand)]
enum Command {
    Budgets(budgets::BudgetsArgs),
    Ceiling(compare::ceiling::CeilingArgs),
    Chaos(Box<chaos::args::ChaosArgs>),
    Compare(compare::CompareArgs),
    Conform(conform::ConformArgs),
    Gateways(gateways::GatewaysArgs),
    Hostile(hostile::HostileArgs),
    Load(load::LoadArgs),
    Simulate(simulate::args::SimulateArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Budgets(args) => budgets::main(&args),
        Command::Ceiling(args) => compare::ceiling::main(&args),
        Command::Chaos(args) => chaos::main(&args),
        Command::Compare(args) => compare::main(&args),
        Command::Conform(args) => conform::main(&args),
        Command::Gateways(args) => gateways::main(&args),
        Command::Hostile(args) => hostile::main(&args),
        Command::Load(args) => load::main(&args),
        Command::Simulate(args) => simulate::main(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}
