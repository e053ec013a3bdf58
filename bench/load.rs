//! Load on a server, in a closed or an open loop. The closed loop keeps a fixed number of requests in flight, and sends
//! the next one when one is answered; it measures the cost of a request. The open loop sends requests on schedule,
//! whether or not earlier ones were answered; it measures the latency for independent clients.
//!
//! A `workload` chooses the client and the content of each request. A `generator` starts the threads, each of which has
//! its own connections; a schedule paces an open loop. A `measurement` is the result. `run` combines these, also for
//! `compare`.

pub(crate) mod connection;
pub(crate) mod generator;
pub(crate) mod measurement;
pub(crate) mod options;
mod renewals;
pub(crate) mod run;
pub(crate) mod workload;

use std::{
    net::{SocketAddr, ToSocketAddrs},
    num::NonZeroU32,
    time::Duration,
};

use serde::Serialize;

use crate::{
    common::{
        error::Error,
        output::{Machine, arguments, json, millis, note, print, progress},
        seconds,
        server::Interrupt,
    },
    load::{
        connection::{Dialer, find_master, follow_to_master},
        measurement::{Filled, Measurement},
        options::{Common, Options, warning},
        renewals::Renewals,
        run::{Crowd, run},
    },
};

/// Send requests for capacity to a running server, and measure throughput, latency and cost.
///
/// Without `--rate` the load is a closed loop with a fixed number of requests in flight (connections x in-flight), as
/// fast as the server answers. Requests come from `--clients` clients in random order. Clients echo their last lease as
/// real clients do, even if it has ended, because the time until their next request may be long. Latencies are those of
/// a server with this number of requests in flight.
///
/// With `--rate` the load is an open loop: requests begin when they are due, whether or not earlier ones were answered,
/// and latencies count from that time. So if a server stops for a second, all requests of that second count as late (no
/// coordinated omission).
#[derive(clap::Args)]
#[command(after_long_help = LOAD_EXAMPLES)]
pub(crate) struct LoadArgs {
    /// The servers. Requests go to the master, as named by the first server that answers, and follow it if it changes.
    /// With --server-pid the first server must be the master.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', required = true)]
    target: Vec<String>,
    /// The number of client ids.
    #[arg(long, default_value = "1000", value_name = "N")]
    clients: NonZeroU32,
    /// The number of resources.
    #[arg(long, default_value = "1", value_name = "K")]
    resources: NonZeroU32,
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    pub(crate) common: Common,
    /// The process id of the server, on this machine. Adds its CPU time per request and its memory to the result.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Measure instead the renewal of this number of leases, of as many resources, by one client: by a stream of
    /// renewals (nothing, 1 % and everything changed), by GetCapacity with 1,000 entries, and by idle clients of the
    /// library. Needs --server-pid, a refresh interval of 5 s and min_request_interval 0.
    #[arg(long, value_name = "N", requires = "server_pid", conflicts_with_all = ["json", "resources", "clients"])]
    renew: Option<NonZeroU32>,
    /// With --renew, the time to measure an idle client, in seconds.
    #[arg(long, default_value = "30", value_name = "S", value_parser = seconds)]
    idle: Duration,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

const LOAD_EXAMPLES: &str = "\
Examples:
  # How fast is the server, and what does a request cost? (4 seconds)
  leaseway-bench load --target 127.0.0.1:5100 --server-pid \"$(pgrep -x leaseway)\"

  # How long do clients wait at 20,000 requests a second, while some leave and new ones come?
  leaseway-bench load --target 127.0.0.1:5100 --rate 20000 --churn 1 --seconds 30

  # What does it cost a gateway and its server to renew 100,000 leases?
  leaseway-bench load --target 127.0.0.1:5100 --renew 100000 --server-pid \"$(pgrep -x leaseway)\"

  # A million clients, all with a lease at the start. Leases should last for minutes:
  leaseway-bench load --target 127.0.0.1:5100 --clients 1000000 --fill --server-pid \"$(pgrep -x leaseway)\"";

#[derive(clap::Args)]
struct ShapeArgs {
    /// The number of connections.
    #[arg(long, default_value = "16", value_name = "C")]
    connections: NonZeroU32,
    /// Requests in flight on each connection; with --rate, the maximum.
    #[arg(long, default_value = "16", value_name = "F")]
    in_flight: NonZeroU32,
}

#[derive(Serialize)]
pub(crate) struct LoadReport {
    /// The command line.
    pub(crate) arguments: Vec<String>,
    pub(crate) machine: Machine,
    pub(crate) target: String,
    pub(crate) clients: u32,
    pub(crate) resources: u32,
    /// Connections x requests in flight.
    pub(crate) load: String,
    pub(crate) filled: Option<Filled>,
    pub(crate) measurement: Measurement,
}

pub(crate) fn main(args: &LoadArgs) -> Result<(), Error> {
    args.common.check(args.resources)?;
    let interrupt = Interrupt::watch()?;
    if let (Some(leases), Some(server_pid)) = (args.renew, args.server_pid) {
        let (target, prefix) = (resolve(&args.target[0])?, args.common.resource_prefix());
        let (seconds, idle) = (args.common.seconds, args.idle);
        return Renewals { target, server_pid, leases, prefix, seconds, idle }.run(&interrupt);
    }
    let dialer = Dialer::new(args.common.tls.client()?);
    let options = Options {
        targets: targets(args, &dialer)?,
        clients: args.clients.get(),
        resources: args.resources.get(),
        connections: args.shape.connections.get(),
        in_flight: args.shape.in_flight.get(),
        server_pid: args.server_pid,
        dialer,
        common: &args.common,
    };
    if let Some(warning) = warning(options.clients, options.connections, options.in_flight) {
        note(&warning);
    }
    let mut crowd = Crowd::new(&options);
    let measurement = measure(&options, &mut crowd, &interrupt)?;
    for doubt in measurement.doubts(crowd.filled) {
        note(&format!("warning: {doubt}"));
    }
    if args.json {
        let report = LoadReport {
            arguments: arguments(),
            machine: Machine::read(),
            target: options.targets[0].to_string(),
            clients: options.clients,
            resources: options.resources,
            load: format!("{}x{}", options.connections, options.in_flight),
            filled: crowd.filled,
            measurement,
        };
        return print(&json(&report));
    }
    let filled = crowd.filled.iter().map(Filled::line);
    print(&filled.chain(measurement.lines()).collect::<Vec<_>>().join("\n"))
}

/// The master, followed by the other servers of --target.
fn targets(args: &LoadArgs, dialer: &Dialer) -> Result<Vec<SocketAddr>, Error> {
    let mut targets = args.target.iter().map(|target| resolve(target)).collect::<Result<Vec<_>, _>>()?;
    if args.server_pid.is_some() {
        // CPU time per request is only right if the measured process serves the requests.
        find_master(targets[0], dialer)?;
        targets.truncate(1);
        return Ok(targets);
    }
    let master = follow_to_master(&targets, dialer)?;
    if !targets.contains(&master) {
        note(&format!("note: {} is not the master; going to {master}", targets[0]));
    }
    targets.retain(|target| *target != master);
    targets.insert(0, master);
    Ok(targets)
}

fn measure(options: &Options<'_>, crowd: &mut Crowd, interrupt: &Interrupt) -> Result<Measurement, Error> {
    if options.common.fill {
        let bar = progress(options.clients.into(), "{bar:40} {pos}/{len} clients have a lease, {msg}");
        crowd.fill(options, interrupt, |live| {
            bar.set_position(live.leased());
            bar.set_message(live.text().to_owned());
        })?;
        bar.finish_and_clear();
    }
    let bar = progress(millis(options.common.duration()), "{bar:40} {msg}");
    let measurement = run(options, crowd, interrupt, |elapsed, live| {
        bar.set_position(millis(elapsed));
        bar.set_message(live.text().to_owned());
    });
    bar.finish_and_clear();
    measurement
}

pub(crate) fn resolve(target: &str) -> Result<SocketAddr, Error> {
    let addresses = target.to_socket_addrs();
    let reason = |why: String| Error::Usage(format!("--target {target}: {why}; expected HOST:PORT, as 127.0.0.1:5100"));
    addresses.map_err(|error| reason(error.to_string()))?.next().ok_or_else(|| reason("no such host".into()))
}
