//! Load in a closed loop: a fixed number of requests in flight, each followed by the next as soon as it is answered. It
//! finds out what a request costs, not how a server copes with clients that do not wait.
//!
//! `workload` decides who asks for what, `connection` carries it, `worker` is the loop, `tally` and `measurement` are what
//! comes of it. `run` puts them together and is also what `compare` calls.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    num::NonZeroU32,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::runtime::{self, Runtime};

use crate::{
    error::Error,
    output::{note, print},
    signal::Interrupt,
};

use self::{
    connection::{DiscoverError, discover},
    workload::Wants,
};
pub(crate) use self::{
    measurement::Measurement,
    run::{Options, run},
};

mod connection;
mod measurement;
mod run;
mod tally;
mod worker;
mod workload;

/// Asks a running server for capacity as fast as it answers, and reports throughput, latency and cost.
///
/// The load is a closed loop of connections x in-flight requests, each from the next of `--clients` clients in random
/// order. Clients echo the lease they hold, as real ones do.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server to measure.
    #[arg(long, value_name = "HOST:PORT")]
    target: String,
    /// Distinct client ids.
    #[arg(long, default_value = "1000", value_name = "N")]
    clients: NonZeroU32,
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    pub(crate) common: Common,
    /// Process id of the server, on this machine: adds its CPU time per request and its memory to the result.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ShapeArgs {
    /// Connections to open.
    #[arg(long, default_value = "16", value_name = "C")]
    connections: NonZeroU32,
    /// Requests in flight on each connection.
    #[arg(long, default_value = "16", value_name = "F")]
    in_flight: NonZeroU32,
}

/// What `load` and `compare` have in common.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common {
    /// How long to measure.
    #[arg(long, default_value = "3", value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// How long to run before measuring, in seconds.
    #[arg(long, default_value = "1", value_name = "S", value_parser = seconds)]
    pub(crate) warmup: Duration,
    /// Distinct resources.
    #[arg(long, default_value = "1", value_name = "K")]
    resources: NonZeroU32,
    /// Resources that one request asks for.
    #[arg(long, default_value = "1", value_name = "R")]
    resources_per_request: NonZeroU32,
    /// Resources are called PREFIX-0, PREFIX-1 …: choose what the server's configuration matches.
    #[arg(long, default_value = "resource", value_name = "PREFIX")]
    resource_prefix: String,
    /// How much clients want: `fixed:10`; `uniform:1-100` (random, but stable for each client); `changing` or
    /// `changing:1-100` (new in every request).
    #[arg(long, default_value = "uniform:1-100", value_name = "PATTERN")]
    wants: Wants,
    /// Repeats the same choice of clients and wants.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Threads of the load generator. More take cores from a server on the same machine.
    #[arg(long, default_value = "1", value_name = "N")]
    threads: NonZeroU32,
}

impl Common {
    /// What one run takes.
    pub(crate) fn duration(&self) -> Duration {
        self.warmup + self.seconds
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let Common { resources, resources_per_request, seconds, .. } = self;
        if resources_per_request > resources {
            return Err(Error::Usage(format!(
                "--resources-per-request {resources_per_request} is more than --resources {resources}"
            )));
        }
        if seconds.is_zero() {
            return Err(Error::Usage("--seconds 0 measures nothing".into()));
        }
        Ok(())
    }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected a number of seconds, at most a day".into())
}

pub(crate) fn main(args: &Args) -> Result<(), Error> {
    let options = Options {
        target: resolve(&args.target)?,
        clients: args.clients.get(),
        connections: args.shape.connections.get(),
        in_flight: args.shape.in_flight.get(),
        server_pid: args.server_pid,
        common: &args.common,
    };
    options.common.check()?;
    let interrupt = Interrupt::watch()?;
    find_master(options.target)?;
    if let Some(warning) = options.warning() {
        note(&warning);
    }

    let total = args.common.duration();
    let bar = ProgressBar::new(u64::try_from(total.as_millis()).unwrap_or(u64::MAX));
    bar.set_style(ProgressStyle::with_template("{bar:40} {msg}").expect("the template is a constant"));
    let measurement = run(&options, &interrupt, |live| {
        bar.set_position(u64::try_from(live.elapsed.as_millis()).unwrap_or(u64::MAX));
        bar.set_message(live.text());
    });
    bar.finish_and_clear();
    let measurement = measurement?;
    if args.json {
        print(&serde_json::to_string_pretty(&measurement).expect("a measurement has string keys only"))
    } else {
        print(&measurement.lines().join("\n"))
    }
}

pub(crate) fn resolve(target: &str) -> Result<SocketAddr, Error> {
    let addresses = target.to_socket_addrs();
    let reason = |why: String| Error::Usage(format!("--target {target}: {why}; expected HOST:PORT, as 127.0.0.1:5100"));
    addresses.map_err(|error| reason(error.to_string()))?.next().ok_or_else(|| reason("no such host".into()))
}

/// Fails unless a Doorman server answers at `target` and is the master.
pub(crate) fn find_master(target: SocketAddr) -> Result<(), Error> {
    let runtime = current_thread()?;
    match runtime.block_on(discover(target)) {
        Ok(answer) if answer.is_master == Some(true) => Ok(()),
        Ok(answer) => {
            let master = answer.mastership.and_then(|mastership| mastership.master_address);
            let master = master.map_or("it does not know who is".into(), |address| format!("{address} is"));
            Err(Error::NotMaster { target, master })
        }
        Err(DiscoverError::Unreachable(reason)) => Err(Error::Unreachable { target, reason }),
        Err(DiscoverError::NotDoorman(reason)) => Err(Error::NotDoorman { target, reason }),
    }
}

fn current_thread() -> Result<Runtime, Error> {
    runtime::Builder::new_current_thread().enable_all().build().map_err(Error::io("start a runtime"))
}
