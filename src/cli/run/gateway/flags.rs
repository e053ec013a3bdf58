//! Flags that `leaseway gateway` and the gateway of `leaseway serve` share. In both, the arguments with addresses have
//! the ids `gateway_rls`, `gateway_rlqs` and `gateway_http`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use leaseway_client::{Files, Transport, Window};
use leaseway_core::types::{Glob, Millis, PrincipalShare};
use leaseway_gateway::lease_table::{LeaseTableOptions, WithoutLease};
use leaseway_gateway::rlqs::{RlqsOptions, quotas::QuotaSettings};
use leaseway_gateway::{
    AnswerOptions, DeclareOptions, HeaderNames, HttpOptions, LongWindow, Options, PriceFile, RlsOptions, StatsOptions,
    Statsd,
};
use leaseway_server::ListenOption;

use crate::error::CliError;
use crate::run::gateway::xds::XdsFlags;
use crate::run::value_parsers::{at_least_one, listen_address, rate};

#[derive(Args)]
#[command(group = clap::ArgGroup::new("rls_rules").args(["ratelimit_config", "rls_xds"]))]
pub(crate) struct GatewayFlags {
    /// Rule files of envoyproxy/ratelimit, or directories of them. They are YAML, and reloaded when they change
    #[arg(long, value_name = "FILE|DIR,…", value_delimiter = ',', requires = "gateway_rls")]
    ratelimit_config: Vec<PathBuf>,
    /// Declare the limits of the rules to the cluster as templates, so that its configuration needs none for them.
    /// Repeated when the rules change. Needs the permission `declare`; `serve` also needs --data
    #[arg(long, requires = "gateway_rls")]
    declare: bool,
    /// Limits per time window for HTTP callers, such as tokens/*=100000/60. For each resource that matches PATTERN, all
    /// gateways together grant at most PERMITS in any SECONDS seconds, and never more than the cluster's capacity
    /// allows. The first matching pattern applies
    #[arg(
        long,
        value_name = "PATTERN=PERMITS/SECONDS,…",
        value_delimiter = ',',
        value_parser = long_window,
        requires = "gateway_http"
    )]
    window: Vec<LongWindow>,
    /// JSON file of prices per model, such as {"gpt-4o": {"input": 0.0000025, "output": 0.00001}}. HTTP callers may
    /// then send `model` and `usage` instead of the `amount` of a budget. Reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "gateway_http")]
    prices: Option<PathBuf>,
    /// Maximum number of unsettled HTTP reservations. Further ones are answered with 503
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = at_least_one())]
    max_reservations: usize,
    #[command(flatten)]
    leases: LeaseFlags,
    #[command(flatten)]
    quotas: QuotaFlags,
    #[command(flatten)]
    rls: RlsFlags,
    #[command(flatten)]
    xds: XdsFlags,
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
    /// Where to declare templates, if the flags ask for that.
    pub(crate) declare: Option<DeclareOptions>,
}

/// The listen addresses of a gateway.
#[derive(Clone, Copy)]
pub(crate) struct GatewayListen {
    pub(crate) rls: Option<ListenOption>,
    pub(crate) rlqs: Option<ListenOption>,
    pub(crate) http: Option<ListenOption>,
    pub(crate) metrics: Option<ListenOption>,
    pub(crate) plain_metrics: bool,
    pub(crate) probes: Option<ListenOption>,
}

impl GatewayFlags {
    pub(crate) fn declares(&self) -> bool {
        self.declare
    }

    /// Reads the rules. `files` are the certificate for a control plane, and its CA unless the flags have another. Must
    /// be called within a tokio runtime.
    pub(crate) fn options(self, cluster: Cluster, listen: GatewayListen, files: Files) -> Result<Options, CliError> {
        let GatewayFlags { ratelimit_config, declare: _, window, prices, max_reservations, leases, quotas, rls, xds } =
            self;
        let RlsFlags { rls_merge_domains: merge, .. } = rls;
        let (http, debug) = (rls.rls_http, rls.rls_debug);
        let stats = (rls.rls_ratelimit_metrics || rls.rls_statsd.is_some())
            .then(|| StatsOptions { statsd: rls.rls_statsd.clone() });
        let answers = rls.answers();
        let rls = match (listen.rls, xds.options(files, merge)?) {
            (None, _) => None,
            (Some(listen), Some(xds)) => Some(RlsOptions::subscribe(listen, xds)),
            (Some(listen), None) => Some(RlsOptions::read(listen, &ratelimit_config, merge)?),
        };
        let listener = |flag, address: Option<SocketAddr>| address.map(|address| ListenOption { flag, address });
        let rls = rls.map(|rls| {
            let mut rls = rls.answering(answers);
            (rls.http, rls.debug, rls.stats) = (listener("--rls-http", http), listener("--rls-debug", debug), stats);
            rls
        });
        let rls = match cluster.declare {
            Some(declare) => rls.map(|rls| rls.declaring(declare)),
            None => rls,
        };
        let prices = prices.as_deref().map(PriceFile::read).transpose()?;
        let idle_secs = cluster.idle_secs;
        Ok(Options {
            rls,
            rlqs: listen.rlqs.map(|listen| quotas.options(listen, idle_secs)),
            http: listen.http.map(|listen| HttpOptions { listen, max_reservations, windows: window, prices }),
            metrics: listen.metrics,
            plain_metrics: listen.plain_metrics,
            probes: listen.probes,
            lease_table: LeaseTableOptions {
                servers: cluster.servers,
                transport: cluster.transport,
                id: cluster.id,
                most_resources: cluster.max_resources,
                share: PrincipalShare::new(f64::from(cluster.address_share) / 100.0).unwrap_or_default(),
                idle: Duration::from_secs(idle_secs),
                first_wait: Duration::from_millis(leases.first_wait_ms),
                charged: leases.charge,
                saving: leases.bursts,
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
    /// Maximum time in milliseconds that the first request for a resource waits for a lease, 0 to 60000. Set Envoy's
    /// `timeout` (20 ms by default) to a longer time
    #[arg(long, default_value_t = 500, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    first_wait_ms: u64,
    /// Whether to allow or deny requests while the gateway has no lease: until the cluster first answers, and when a
    /// lease has expired because no server answers
    #[arg(long, default_value = "deny", value_enum)]
    without_lease: WithoutLeaseFlag,
    /// Patterns of resources that are charged after use, when a stream ends and Envoy reports its hits
    /// (`apply_on_stream_done`). All reported hits are charged; if they exceed the limit, requests are denied until the
    /// debt is repaid
    #[arg(long, value_name = "PATTERN,…", value_delimiter = ',', value_parser = glob)]
    charge: Vec<Glob>,
    /// Patterns of resources that allow bursts. Permits come at a constant rate, and unused ones are saved for up to
    /// one window. In one window, up to twice the limit can pass, plus the limit once for each gateway that starts
    #[arg(long, value_name = "PATTERN,…", value_delimiter = ',', value_parser = glob)]
    bursts: Vec<Glob>,
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
        format!("expected PATTERN=PERMITS/SECONDS, such as tokens/*=100000/60, with 1 to {LONGEST_WINDOW_SECS} seconds")
    })?;
    let rate = f64::from(permits) / f64::from(seconds);
    let window = Window { length: Duration::from_secs(seconds.into()), rate, slides: true };
    Ok(LongWindow { resources: glob(pattern)?, window })
}

fn glob(text: &str) -> Result<Glob, String> {
    Glob::new(text).map_err(|error| error.to_string())
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum WithoutLeaseFlag {
    /// Allow requests
    Allow,
    /// Deny requests as over the limit
    Deny,
}

#[derive(Args)]
#[command(next_help_heading = "Envoy's rate limit service (RLS)")]
struct RlsFlags {
    /// Listen address for callers without gRPC: /json and /healthcheck as in envoyproxy/ratelimit
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address, requires = "gateway_rls")]
    rls_http: Option<SocketAddr>,
    /// Additional listen address for /rlconfig and the other pages of --metrics
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address, requires = "gateway_rls")]
    rls_debug: Option<SocketAddr>,
    /// Also keep metrics under the names of envoyproxy/ratelimit
    #[arg(long, requires = "gateway_rls")]
    rls_ratelimit_metrics: bool,
    /// Statsd server for the metrics of envoyproxy/ratelimit. They are sent every 5 seconds, over UDP unless the
    /// address begins with tcp://
    #[arg(long, value_name = "HOST:PORT", requires = "gateway_rls")]
    rls_statsd: Option<Statsd>,
    /// Merge the rules of several files or xDS resources for the same domain. The merged rules must be valid
    #[arg(long, requires = "gateway_rls")]
    rls_merge_domains: bool,
    /// Let all requests pass. Metrics count those over the limit as `shadow`
    #[arg(long, requires = "gateway_rls")]
    rls_shadow_mode: bool,
    /// Use `quota_mode` for all rules. A request is then denied only if all limits that apply to it are reached
    #[arg(long, requires = "gateway_rls")]
    rls_quota_mode: bool,
    /// Add response headers about the limit that is closest to being reached: the limit, the remaining requests, and
    /// the seconds until the reset [names if none are given: RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset]
    #[arg(
        long,
        value_name = "LIMIT,REMAINING,RESET",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_parser = header_names,
        requires = "gateway_rls"
    )]
    rls_headers: Option<HeaderNames>,
    /// Add dynamic metadata to responses: the domain, the descriptors, and the `metadata` of rules that let the request
    /// pass
    #[arg(long, requires = "gateway_rls")]
    rls_dynamic_metadata: bool,
}

impl RlsFlags {
    fn answers(self) -> AnswerOptions {
        AnswerOptions {
            shadow_mode: self.rls_shadow_mode,
            quota_mode: self.rls_quota_mode,
            headers: self.rls_headers,
            dynamic_metadata: self.rls_dynamic_metadata,
        }
    }
}

/// Three names, or none for the defaults.
fn header_names(text: &str) -> Result<HeaderNames, String> {
    if text.is_empty() {
        return Ok(HeaderNames::default());
    }
    let is_name = |name: &&str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let names: Vec<&str> = text.split(',').filter(is_name).collect();
    match names[..] {
        [limit, remaining, reset] if text.split(',').count() == 3 => {
            Ok(HeaderNames { limit: limit.into(), remaining: remaining.into(), reset: reset.into() })
        }
        _ => Err("expected three names of headers, such as X-Limit,X-Remaining,X-Reset".to_owned()),
    }
}

#[derive(Args)]
#[command(next_help_heading = "Envoy quotas (RLQS)")]
struct QuotaFlags {
    /// Validity of a quota in seconds, 2 to 300. It must be the same at all gateways of an Envoy. A shorter one frees
    /// unused capacity sooner, one second after the quota expires. A longer one lets an Envoy keep its quota while it
    /// tries to reconnect to a lost gateway, every 5 seconds
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(2..=300))]
    assignment_secs: u32,
    /// Assumed demand of a new bucket in requests per second, until its second report
    #[arg(long, default_value_t = 10.0, value_name = "RATE", value_parser = rate)]
    first_wants: f64,
    /// Maximum number of Envoys; beyond it, streams fail with RESOURCE_EXHAUSTED. A disconnected Envoy counts until its
    /// quotas expire
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = at_least_one())]
    max_envoys: usize,
    /// Maximum number of buckets per Envoy. Further buckets get no quota. --max-resources limits the buckets of all
    /// Envoys together
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
