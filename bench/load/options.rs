//! The options of a load.

use std::{net::SocketAddr, num::NonZeroU32, time::Duration};

use leaseway_process::usage::{self, Memory};

use crate::{
    common::{error::Error, percent, seconds, tls::TlsFlags},
    load::{
        connection::Dialer,
        workload::{Population, WantsPattern},
    },
};

/// Options of both `load` and `compare`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common {
    /// The length of the measurement, in seconds.
    #[arg(long, default_value = "3", value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// The length of the warm-up, in seconds.
    #[arg(long, default_value = "1", value_name = "S", value_parser = seconds)]
    pub(crate) warmup: Duration,
    /// Run an open loop with this total number of requests per second. Requests begin when they are due, whether or not
    /// earlier ones were answered. Latencies count from that time.
    #[arg(long, value_name = "R", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Give all clients a lease before the measurement. Leases should be longer than the run.
    #[arg(long)]
    pub(crate) fill: bool,
    /// The percentage of requests that come from new clients. Each replaces a client that leaves; half of these release
    /// their leases, the others just stop.
    #[arg(long, default_value = "0", value_name = "P", value_parser = percent)]
    churn: f64,
    /// The number of resources in each request.
    #[arg(long, default_value = "1", value_name = "R")]
    resources_per_request: NonZeroU32,
    /// Resources are named PREFIX-0, PREFIX-1 … The server's configuration must match these names.
    #[arg(long, default_value = "resource", value_name = "PREFIX")]
    resource_prefix: String,
    /// The wants of clients: `uniform:1-100` (random, but constant for each client), `changing:1-100` (random in each
    /// request), or `climbing:20` (in 20 % of requests, 1.5 times the client's capacity).
    #[arg(long, default_value = "uniform:1-100", value_name = "PATTERN")]
    wants: WantsPattern,
    /// Clients ignore answers to all but their latest request, and tell the server so, as Leaseway clients do. A new
    /// master then frees at once the capacity that they give up. Leases must be longer than the run.
    #[arg(long)]
    drops_late: bool,
    /// The seed for the order of clients and their wants.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Number of threads of the load generator. They take cores from a server on the same machine. With --rate each has
    /// a second thread that paces it, whose CPU time is not counted.
    #[arg(long, default_value = "1", value_name = "N")]
    threads: NonZeroU32,
    #[command(flatten)]
    pub(crate) tls: TlsFlags,
}

impl Common {
    pub(crate) fn resource_prefix(&self) -> &str {
        &self.resource_prefix
    }

    pub(crate) fn duration(&self) -> Duration {
        self.warmup + self.seconds
    }

    /// An open loop of clients with one resource each.
    pub(crate) fn steady(rate: f64, seconds: Duration) -> Common {
        Common {
            seconds,
            warmup: Duration::from_millis(300),
            rate: Some(rate),
            fill: true,
            churn: 0.0,
            resources_per_request: NonZeroU32::MIN,
            resource_prefix: "resource".into(),
            wants: WantsPattern::Uniform(1..=100),
            drops_late: false,
            seed: 1,
            threads: NonZeroU32::MIN,
            tls: TlsFlags::default(),
        }
    }

    pub(crate) fn check(&self, resources: NonZeroU32) -> Result<(), Error> {
        let Common { resources_per_request, seconds, .. } = self;
        if *resources_per_request > resources {
            return Err(Error::Usage(format!(
                "--resources-per-request {resources_per_request} is more than --resources {resources}"
            )));
        }
        if seconds.is_zero() {
            return Err(Error::Usage("--seconds must be above 0".into()));
        }
        Ok(())
    }
}

pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.1..=1e7).contains(rate));
    rate.ok_or_else(|| "expected requests per second, from 0.1 to 1e7".into())
}

#[derive(Clone)]
pub(crate) struct Options<'a> {
    /// At least one server. The first is used first.
    pub(crate) targets: Vec<SocketAddr>,
    pub(crate) clients: u32,
    pub(crate) resources: u32,
    pub(crate) connections: u32,
    pub(crate) in_flight: u32,
    /// The process of the first target.
    pub(crate) server_pid: Option<u32>,
    pub(crate) dialer: Dialer,
    pub(crate) common: &'a Common,
}

impl Options<'_> {
    pub(crate) fn population(&self) -> Population {
        Population {
            clients: self.clients,
            resources: self.resources,
            resources_per_request: self.common.resources_per_request.get(),
            resource_prefix: self.common.resource_prefix.clone(),
            wants: self.common.wants.clone(),
            churn: self.common.churn,
            drops_late: self.common.drops_late,
            seed: self.common.seed,
        }
    }

    /// The memory of the server. `None` without --server-pid.
    pub(crate) fn memory(&self) -> Result<Option<Memory>, Error> {
        self.server_pid.map(|pid| usage::memory(pid).map_err(Error::process(pid))).transpose()
    }

    pub(crate) fn cpu_time(&self) -> Result<Option<Duration>, Error> {
        self.server_pid.map(|pid| usage::cpu_time(pid).map_err(Error::process(pid))).transpose()
    }

    pub(crate) fn threads(&self) -> u32 {
        self.common.threads.get().min(self.clients).min(self.connections)
    }
}

/// A warning if there are fewer clients than requests in flight.
pub(crate) fn warning(clients: u32, connections: u32, in_flight: u32) -> Option<String> {
    let in_flight = u64::from(connections) * u64::from(in_flight);
    (u64::from(clients) < in_flight).then(|| {
        format!(
            "note: {in_flight} requests in flight from {clients} clients: some send a request before the previous one is answered, which \
             real clients do not, and echo a lease that is not their newest"
        )
    })
}
