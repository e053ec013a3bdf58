//! Flags that `leaseway gateway` and the gateway of `leaseway serve` share. In both, the arguments with addresses have the
//! ids `gateway_rls`, `gateway_rlqs` and `gateway_http`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use leaseway_client::{Transport, Window};
use leaseway_core::types::{Glob, Millis, PrincipalShare};
use leaseway_gateway::lease_table::{LeaseTableOptions, WithoutLease};
use leaseway_gateway::rlqs::{RlqsOptions, quotas::QuotaSettings};
use leaseway_gateway::{GatewayError, HttpOptions, LongWindow, Options, RlsOptions};
use leaseway_server::ListenOption;

use crate::run::value_parsers::{at_least_one, rate};

#[derive(Args)]
pub(crate) struct GatewayFlags {
    /// The rules, as envoyproxy/ratelimit has them: YAML files, or directories of them. Read again when they change
    #[arg(long, value_name = "FILE|DIR,…", value_delimiter = ',', requires = "gateway_rls")]
    ratelimit_config: Vec<PathBuf>,
    /// Budgets of a minute or a day for callers by HTTP: resources, by patterns as templates have them, of which so many permits
    /// may be used in so many seconds, and what is not used can be saved up for as long. How many pass is up to the
    /// cluster. The first pattern that matches counts
    #[arg(
        long,
        value_name = "PATTERN=PERMITS/SECONDS,…",
        value_delimiter = ',',
        value_parser = long_window,
        requires = "gateway_http"
    )]
    window: Vec<LongWindow>,
    /// Reservations of permits, made by HTTP, that wait to be settled (503 beyond)
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = at_least_one())]
    max_reservations: usize,
    #[command(flatten)]
    leases: LeaseFlags,
    #[command(flatten)]
    quotas: QuotaFlags,
}

/// The cluster that a gateway leases from, and its limits.
pub(crate) struct Cluster {
    /// Servers of the node as `host:port`.
    pub(crate) servers: Vec<String>,
    pub(crate) transport: Transport,
    /// The gateway's id, if it was given one.
    pub(crate) id: Option<String>,
    pub(crate) max_resources: usize,
    /// Seconds after which an unused resource is released.
    pub(crate) idle_secs: u64,
    /// The share of `max_resources` that one caller may use, in per cent.
    pub(crate) address_share: u8,
}

/// The addresses of a gateway.
#[derive(Clone, Copy)]
pub(crate) struct GatewayListen {
    pub(crate) rls: Option<ListenOption>,
    pub(crate) rlqs: Option<ListenOption>,
    pub(crate) http: Option<ListenOption>,
    pub(crate) metrics: Option<ListenOption>,
}

impl GatewayFlags {
    /// Reads the rules. Must be called within a tokio runtime.
    pub(crate) fn options(self, cluster: Cluster, listen: GatewayListen) -> Result<Options, GatewayError> {
        let GatewayFlags { ratelimit_config, window, max_reservations, leases, quotas } = self;
        let idle_secs = cluster.idle_secs;
        Ok(Options {
            rls: listen.rls.map(|listen| RlsOptions::read(listen, &ratelimit_config)).transpose()?,
            rlqs: listen.rlqs.map(|listen| quotas.options(listen, idle_secs)),
            http: listen.http.map(|listen| HttpOptions { listen, max_reservations, windows: window }),
            metrics: listen.metrics,
            lease_table: LeaseTableOptions {
                servers: cluster.servers,
                transport: cluster.transport,
                id: cluster.id,
                most_resources: cluster.max_resources,
                share: PrincipalShare::new(f64::from(cluster.address_share) / 100.0).unwrap_or_default(),
                idle: Duration::from_secs(idle_secs),
                first_wait: Duration::from_millis(leases.first_wait_ms),
                charged: leases.charge,
                without_lease: match leases.without_lease {
                    WithoutLeaseFlag::Allow => WithoutLease::Allow,
                    WithoutLeaseFlag::Deny => WithoutLease::Deny,
                },
            },
        })
    }
}

#[derive(Args)]
#[command(next_help_heading = "Leases")]
struct LeaseFlags {
    /// The first request for a resource waits so many milliseconds for a lease; Envoy waits 20 by default
    #[arg(long, default_value_t = 15, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    first_wait_ms: u64,
    /// What becomes of requests while there is no lease: at first, and when leases have ended and no server answers
    #[arg(long, default_value = "deny", value_enum)]
    without_lease: WithoutLeaseFlag,
    /// Resources, by patterns as templates have them, of which Envoy says what was used, rather than asks for it
    /// (`apply_on_stream_done`): hits count whether or not they are there, and nothing passes until they are paid back
    #[arg(long, value_name = "PATTERN,…", value_delimiter = ',', value_parser = glob)]
    charge: Vec<Glob>,
}

/// The longest window of a limit: one year.
const LONGEST_WINDOW_SECS: u32 = 31_536_000;

fn long_window(text: &str) -> Result<LongWindow, String> {
    let read = || {
        let (pattern, budget) = text.rsplit_once('=')?;
        let (permits, seconds) = budget.split_once('/')?;
        let permits: u32 = permits.parse().ok().filter(|permits| *permits > 0)?;
        let seconds: u32 = seconds.parse().ok().filter(|seconds| (1..=LONGEST_WINDOW_SECS).contains(seconds))?;
        Some((pattern, permits, seconds))
    };
    let (pattern, permits, seconds) = read().ok_or_else(|| {
        format!("expected PATTERN=PERMITS/SECONDS, as tokens/*=100000/60, of 1 to {LONGEST_WINDOW_SECS} seconds")
    })?;
    let window = Window { length: Duration::from_secs(seconds.into()), rate: f64::from(permits) / f64::from(seconds) };
    Ok(LongWindow { resources: glob(pattern)?, window })
}

fn glob(text: &str) -> Result<Glob, String> {
    Glob::new(text).map_err(|error| error.to_string())
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum WithoutLeaseFlag {
    /// They pass
    Allow,
    /// They are over limit
    Deny,
}

#[derive(Args)]
#[command(next_help_heading = "Quotas of Envoys (RLQS)")]
struct QuotaFlags {
    /// An Envoy may go by what it was told for so many seconds, if it is told nothing else. What it gives up is free
    /// for others when they are over, and one second more; it looks for a lost gateway every five. The same at all gateways
    /// of the same Envoys
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(2..=300))]
    assignment_secs: u32,
    /// What a bucket wants per second until the second report of it says more
    #[arg(long, default_value_t = 10.0, value_name = "RATE", value_parser = rate)]
    first_wants: f64,
    /// Envoys, with those that have gone and may still go by what they were told (RESOURCE_EXHAUSTED beyond)
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = at_least_one())]
    max_envoys: usize,
    /// Buckets of an Envoy (none beyond has a quota), and of all together as many as --max-resources
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = at_least_one())]
    max_buckets: usize,
}

impl QuotaFlags {
    fn options(&self, listen: ListenOption, idle_secs: u64) -> RlqsOptions {
        let envoy = QuotaSettings {
            assignment_secs: self.assignment_secs,
            idle: Millis::from_secs(idle_secs),
            first_wants: self.first_wants,
            max_buckets: self.max_buckets,
        };
        RlqsOptions { listen, envoy, most_envoys: self.max_envoys }
    }
}
