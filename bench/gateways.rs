//! `leaseway-bench gateways` measures gateways: the cost of a request, many descriptors, and one limit at several
//! gateways. Everything is started here, on free loopback ports.
//!
//! `services` has the baselines, and `cluster` starts gateways and baselines. `lanes` sends requests. `versus`,
//! `descriptors` and `shares` are the measurements.

pub(crate) mod cluster;
pub(crate) mod descriptors;
pub(crate) mod lanes;
pub(crate) mod services;
pub(crate) mod shares;
pub(crate) mod versus;

use std::{net::SocketAddr, num::NonZeroU32, time::Duration};

use crate::common::{error::Error, seconds};

/// Measure gateways: the cost of a request, many descriptors, and one limit at several gateways.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct GatewaysArgs {
    #[command(subcommand)]
    command: GatewaysCommand,
}

const EXAMPLES: &str = "\
Examples:
  # A gateway, and a tonic (gRPC) or axum (HTTP) service that allows everything:
  leaseway-bench gateways rls
  leaseway-bench gateways http

  # 100,000 descriptors at one gateway: time until all have a lease, cost, and time until all are released:
  leaseway-bench gateways descriptors --descriptors 100000

  # One limit at five gateways with uneven traffic, compared with counters in Redis and an even split (needs redis-server):
  leaseway-bench gateways shares";

#[derive(clap::Subcommand)]
enum GatewaysCommand {
    Rls(versus::VersusArgs),
    Http(versus::VersusArgs),
    Descriptors(descriptors::DescriptorsArgs),
    Shares(shares::SharesArgs),
    Serve(services::ServiceArgs),
}

/// The options of the load.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AskArgs {
    /// The number of connections.
    #[arg(long, default_value = "4", value_name = "C")]
    pub(crate) connections: NonZeroU32,
    /// Requests in flight on each gRPC connection; an HTTP/1.1 connection has one.
    #[arg(long, default_value = "16", value_name = "F")]
    pub(crate) in_flight: NonZeroU32,
    /// The length of the measurement, in seconds.
    #[arg(long, default_value = "5", value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// The length of the warm-up, in seconds.
    #[arg(long, default_value = "1", value_name = "S", value_parser = seconds)]
    pub(crate) warmup: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// Envoy's ShouldRateLimit.
    Rls,
    /// Permits over HTTP.
    Http,
}

/// The address of a service, and its process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) protocol: Protocol,
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
}

pub(crate) fn main(args: &GatewaysArgs) -> Result<(), Error> {
    match &args.command {
        GatewaysCommand::Rls(args) => versus::main(Protocol::Rls, args),
        GatewaysCommand::Http(args) => versus::main(Protocol::Http, args),
        GatewaysCommand::Descriptors(args) => descriptors::main(args),
        GatewaysCommand::Shares(args) => shares::main(args),
        GatewaysCommand::Serve(args) => services::main(args),
    }
}
