//! Flags that `leaseway gateway` and the gateway of `leaseway serve` share. In both, the arguments with addresses have
//! the ids `gateway_rls`, `gateway_rlqs` and `gateway_http`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use leaseway_client::{Files, Transport, Window};
use leaseway_core::types::{Glob, Millis, PrincipalShare};
use leaseway_gateway::lease_table::{LeaseTableOptions, WithoutLease};
use leaseway_gateway::rlqs::{RlqsOptions, quotas::QuotaSettings};
use leaseway_gateway::{AnswerOptions, DeclareOptions, HeaderNames, HttpOptions, LongWindow, Options, RlsOptions};
use leaseway_server::ListenOption;

use crate::error::CliError;
use crate::run::gateway::xds::XdsFlags;
use crate::run::value_parsers::{at_least_one, rate};

#[derive(Args)]
#[command(group = clap::ArgGroup::new("rls_rules").args(["ratelimit_config", "rls_xds"]))]
pub(crate) struct GatewayFlags {
    /// Rules in the format of envoyproxy/ratelimit: YAML files, or directories of them. Reloaded when they change
    #[arg(long, value_name = "FILE|DIR,…", value_delimiter = ',', requires = "gateway_rls")]
    ratelimit_config: Vec<PathBuf>,
    /// Declare the limits of the rules to the cluster, so that its configuration needs no templates for them. Repeated
    /// when the rules change. Needs the right to `declare`
    #[arg(long, requires = "gateway_rls")]
    declare: bool,
    /// Windows for HTTP callers, such as a budget per minute or per day. PATTERN selects resources as in templates;
    /// PERMITS may be used in SECONDS, and unused permits are saved for up to SECONDS. The first matching pattern
    /// applies. The cluster's capacity still limits the total
    #[arg(
        long,
        value_name = "PATTERN=PERMITS/SECONDS,…",
        value_delimiter = ',',
        value_parser = long_window,
        requires = "gateway_http"
    )]
    window: Vec<LongWindow>,
    /// Maximum number of unsettled permit reservations made over HTTP (503 beyond)
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
        let GatewayFlags { ratelimit_config, declare: _, window, max_reservations, leases, quotas, rls, xds } = self;
        let RlsFlags { rls_merge_domains: merge, .. } = rls;
        let answers = rls.answers();
        let rls = match (listen.rls, xds.options(files, merge)?) {
            (None, _) => None,
            (Some(listen), Some(xds)) => Some(RlsOptions::subscribe(listen, xds)),
            (Some(listen), None) => Some(RlsOptions::read(listen, &ratelimit_config, merge)?),
        };
        let rls = rls.map(|rls| rls.answering(answers));
        let rls = match cluster.declare {
            Some(declare) => rls.map(|rls| rls.declaring(declare)),
            None => rls,
        };
        let idle_secs = cluster.idle_secs;
        Ok(Options {
            rls,
            rlqs: listen.rlqs.map(|listen| quotas.options(listen, idle_secs)),
            http: listen.http.map(|listen| HttpOptions { listen, max_reservations, windows: window }),
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
    /// Time that the first request for a resource waits for a lease; Envoy waits 20 ms by default
    #[arg(long, default_value_t = 15, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    first_wait_ms: u64,
    /// Decision while there is no lease: before the first one, and after it has expired and no server answers
    #[arg(long, default_value = "deny", value_enum)]
    without_lease: WithoutLeaseFlag,
    /// Patterns of resources whose use Envoy reports afterwards (`apply_on_stream_done`): hits that a request states are
    /// always charged, and requests are denied until the debt is repaid
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
        format!("expected PATTERN=PERMITS/SECONDS, such as tokens/*=100000/60, with 1 to {LONGEST_WINDOW_SECS} seconds")
    })?;
    let window = Window { length: Duration::from_secs(seconds.into()), rate: f64::from(permits) / f64::from(seconds) };
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
    /// Accept several rule files, or resources of a control plane, for one domain. Together they must be valid
    #[arg(long, requires = "gateway_rls")]
    rls_merge_domains: bool,
    /// Let all requests pass, and count those that would be refused as `shadow`
    #[arg(long, requires = "gateway_rls")]
    rls_shadow_mode: bool,
    /// Treat all rules as if they had `quota_mode`: a request is refused only if all its limits refuse it
    #[arg(long, requires = "gateway_rls")]
    rls_quota_mode: bool,
    /// Add headers to responses: limit, remaining requests and seconds until the reset, of the limit that is closest
    /// [without names: RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset]
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
    /// Send dynamic metadata with each answer: domain, descriptors, and the `metadata` of the rules that let it pass
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
    /// Validity of a quota assignment. Capacity that an Envoy gives up is free for others one second after it expires;
    /// Envoy looks for a lost gateway every 5 seconds. It must be the same at all gateways of an Envoy
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(2..=300))]
    assignment_secs: u32,
    /// Assumed demand of a new bucket per second, until its second report
    #[arg(long, default_value_t = 10.0, value_name = "RATE", value_parser = rate)]
    first_wants: f64,
    /// Maximum number of Envoys, including disconnected ones with valid assignments (RESOURCE_EXHAUSTED beyond)
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = at_least_one())]
    max_envoys: usize,
    /// Maximum number of buckets per Envoy; further buckets have no quota. --max-resources limits the buckets of all
    /// Envoys
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
