//! `leaseway-bench`: how fast is a capacity server, and what does a request cost it?
//!
//! Absolute figures move with the machine, so everything here aims at ratios: `ceiling` is a server that does nothing,
//! the most that this stack of libraries allows; `load` measures one server; `compare` runs two in turns and divides.
//!
//! `gateways` measures gateways: the cost of a request, many descriptors, one limit at several of them.
//!
//! `chaos` starts the peers of a node, breaks things, and has the books of real clients added up.
//!
//! `hostile` starts a server, attacks it, and measures what its well-behaved clients notice.
//!
//! `soak` runs one server with short leases for a long time, and looks whether anything grows.
//!
//! `limiter` measures the client's rate limiter, which needs no server.
//!
//! `simulate` needs none either: it runs the state machines of servers and clients in virtual time.
//!
//! `report` makes a page of what `load`, `compare`, `simulate`, `chaos` and `fleet` have written as JSON.
//!
//! Any server that speaks the Doorman protocol can be measured, not only ours.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod audit;
mod book;
mod ceiling;
mod certificates;
mod chaos;
mod chart;
mod clients;
mod compare;
#[cfg(test)]
mod end_to_end;
mod error;
mod failover;
mod flags;
mod fleet;
mod gateways;
mod hostile;
mod limiter;
mod load;
mod machine;
mod output;
mod overload;
mod report;
mod runtime;
mod server;
mod signal;
mod simulate;
mod soak;
mod spread;
mod table;
mod tls;

/// The same as the server's, so that the ceiling differs from it by what it leaves out alone.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures capacity servers that speak the Doorman protocol, and the limiter that clients keep to their capacity with.
#[derive(Parser)]
#[command(name = "leaseway-bench", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  # What is the most that this machine and gRPC library allow?
  leaseway-bench compare \\
      --a 'leaseway-bench ceiling --listen 127.0.0.1:{port}' \\
      --b 'leaseway serve --listen 127.0.0.1:{port} --http 127.0.0.1:0 --config leaseway.yaml'

  # One server that is already running, with its CPU time per request:
  leaseway-bench load --target 127.0.0.1:5100 --server-pid \"$(pgrep -x leaseway)\"

  # Pictures and tables of what was measured, in one file:
  leaseway-bench report compare.json load.json --html page.html

Quote ratios, not absolute figures, and run nothing else on the machine meanwhile.";

#[derive(Subcommand)]
enum Command {
    Audit(audit::AuditArgs),
    Ceiling(ceiling::CeilingArgs),
    Chaos(Box<chaos::ChaosLine>),
    Load(load::LoadArgs),
    Compare(compare::CompareArgs),
    Gateways(gateways::GatewaysArgs),
    Failover(failover::FailoverArgs),
    Fleet(fleet::FleetArgs),
    Hostile(hostile::HostileArgs),
    Limiter(limiter::LimiterArgs),
    Overload(overload::OverloadArgs),
    Report(report::ReportArgs),
    Simulate(simulate::SimulateArgs),
    Soak(soak::SoakArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Audit(args) => audit::main(&args),
        Command::Ceiling(args) => ceiling::main(&args),
        Command::Chaos(args) => chaos::main(&args),
        Command::Load(args) => load::main(&args),
        Command::Compare(args) => compare::main(&args),
        Command::Gateways(args) => gateways::main(&args),
        Command::Failover(args) => failover::main(&args),
        Command::Fleet(args) => fleet::main(&args),
        Command::Hostile(args) => hostile::main(&args),
        Command::Limiter(args) => limiter::main(&args),
        Command::Overload(args) => overload::main(&args),
        Command::Report(args) => report::main(&args),
        Command::Simulate(args) => simulate::main(&args),
        Command::Soak(args) => soak::main(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}
