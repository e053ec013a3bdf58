//! `leaseway gateway`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, builder::NonEmptyStringValueParser};
use leaseway_client::{
    ClientTls, Credentials, Token, Transport, Window,
    endpoint::{self, Endpoint},
};
use leaseway_core::{Glob, PrincipalShare};
use leaseway_gateway::{
    Gateway, HttpOptions, LongWindow, Options, RlsOptions,
    bridge::{BridgeOptions, WithoutLease},
};
use leaseway_server::{FrontendOptions, StopSignals, limits::Limits};
use tracing_subscriber::EnvFilter;

use crate::{
    Outcome,
    config::file_path,
    connect::found,
    error::CliError,
    listen_address::listen_address,
    output::say,
    quotas::QuotaFlags,
    run_file::Port,
    serve::{access::AccessFlags, checks, log, tls::ListenerTls},
};

/// Lets in callers that speak another protocol. A gateway is a client of the cluster: it holds leases and decides by them
/// itself; any number of gateways share what there is
#[derive(Args)]
#[command(group = clap::ArgGroup::new("protocol").args(["rls", "rlqs", "http"]).multiple(true).required(true))]
pub(crate) struct RunGateway {
    /// Where Envoys ask for each request (RLS, ShouldRateLimit)
    #[arg(
        long,
        env = "LEASEWAY_RLS",
        value_name = "ADDRESS",
        requires = "ratelimit_config",
        value_parser = listen_address
    )]
    rls: Option<SocketAddr>,
    /// The rules, as envoyproxy/ratelimit has them: YAML files, or directories of them. Read again when they change
    #[arg(long, env = "LEASEWAY_RATELIMIT_CONFIG", value_name = "FILE|DIR,…", value_delimiter = ',', requires = "rls")]
    ratelimit_config: Vec<PathBuf>,
    /// Where Envoys report what they let through and are assigned what they may (RLQS)
    #[arg(long, env = "LEASEWAY_RLQS", value_name = "ADDRESS", value_parser = listen_address)]
    rlqs: Option<SocketAddr>,
    /// Where everything else asks, by HTTP and JSON: leases and permits; besides /metrics, /healthz, /readyz
    #[arg(long, env = "LEASEWAY_HTTP", value_name = "ADDRESS", value_parser = listen_address)]
    http: Option<SocketAddr>,
    /// Budgets of a minute or a day at --http: resources, by patterns as templates have them, of which so many permits
    /// may be used in so many seconds, and what is not used can be saved up for as long. How many pass is up to the
    /// cluster. The first pattern that matches counts
    #[arg(
        long,
        env = "LEASEWAY_WINDOW",
        value_name = "PATTERN=PERMITS/SECONDS,…",
        value_delimiter = ',',
        value_parser = long_window,
        requires = "http"
    )]
    window: Vec<LongWindow>,
    /// Where to serve /metrics, /healthz and /readyz, if not at --http
    #[arg(long, env = "LEASEWAY_METRICS", value_name = "ADDRESS", value_parser = listen_address)]
    metrics: Option<SocketAddr>,
    /// Servers of the cluster; any of them will do, it names the master. https:// before an address means TLS, as
    /// --tls-ca does where there is no scheme [default: the peers of a running leaseway up, else 127.0.0.1:5100]
    #[arg(
        long,
        env = "LEASEWAY_SERVER",
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        value_parser = endpoint::read
    )]
    server: Vec<Endpoint>,
    /// A file with a token that tells the cluster who asks: sent over TLS, or to this machine; with --insecure always
    #[arg(long, env = "LEASEWAY_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// What the gateway calls itself: an id that no other client uses [default: HOST:PID:NUMBER]
    #[arg(long, env = "LEASEWAY_ID", value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,
    /// What to log: a level (error, warn, info, debug), or a filter like info,leaseway_gateway=debug
    #[arg(long, env = "LEASEWAY_LOG", default_value = "info", value_name = "FILTER", value_parser = log::filter)]
    log: EnvFilter,
    /// How it is logged: lines for people, or an object of JSON a line
    #[arg(long, env = "LEASEWAY_LOG_FORMAT", value_enum, default_value = "text", value_name = "FORM")]
    log_format: log::LogFormat,
    #[command(flatten)]
    without_lease: LeaseFlags,
    #[command(flatten)]
    quotas: QuotaFlags,
    /// A configuration whose `access:` says who may ask for which resources at this gateway; its templates mean nothing
    /// here. Read again when it changes
    #[arg(long, env = "LEASEWAY_CONFIG", value_name = "FILE", value_parser = file_path, help_heading = ACCESS)]
    config: Option<PathBuf>,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    tls: ListenerTls,
    #[command(flatten)]
    limits: GatewayLimits,
}

/// As [`AccessFlags`] has it.
const ACCESS: &str = "Access (`access:` in the configuration says who may do what)";

/// What holds where there is no lease.
#[derive(Args)]
#[command(next_help_heading = "Leases")]
struct LeaseFlags {
    /// The first request for a resource waits so many milliseconds for a lease; Envoy waits 20 by default
    #[arg(
        long,
        env = "LEASEWAY_FIRST_WAIT_MS",
        default_value_t = 15,
        value_name = "MS",
        value_parser = clap::value_parser!(u64).range(0..=60_000)
    )]
    first_wait_ms: u64,
    /// What becomes of requests while there is no lease: at first, and when leases have ended and no server answers
    #[arg(long, env = "LEASEWAY_WITHOUT_LEASE", default_value = "deny", value_enum)]
    without_lease: WithoutLeaseFlag,
    /// Resources, by patterns as templates have them, of which Envoy says what was used, rather than asks for it
    /// (`apply_on_stream_done`): hits count whether or not they are there, and nothing passes until they are paid back
    #[arg(long, env = "LEASEWAY_CHARGE", value_name = "PATTERN,…", value_delimiter = ',', value_parser = glob)]
    charge: Vec<Glob>,
    /// A resource is given back when it has not been asked for so many seconds, and for as long as its limit's window
    /// is
    #[arg(
        long,
        env = "LEASEWAY_IDLE_SECS",
        default_value_t = 60,
        value_name = "SECONDS",
        value_parser = checks::seconds()
    )]
    idle_secs: u64,
}

/// The longest that a limit's window is: a year.
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

/// Bounds on everything that requests can make grow.
#[derive(Args)]
#[command(next_help_heading = "Limits (beyond them RESOURCE_EXHAUSTED, unless it says otherwise)")]
struct GatewayLimits {
    /// Resources open at once; beyond, it is as if there were no lease
    #[arg(
        long,
        env = "LEASEWAY_MAX_RESOURCES",
        default_value_t = 200_000,
        value_name = "N",
        value_parser = checks::at_least_one()
    )]
    max_resources: usize,
    /// Reservations of permits, made by HTTP, that wait to be settled (503 beyond)
    #[arg(
        long,
        env = "LEASEWAY_MAX_RESERVATIONS",
        default_value_t = 100_000,
        value_name = "N",
        value_parser = checks::at_least_one()
    )]
    max_reservations: usize,
    /// Bytes of a message (OUT_OF_RANGE beyond). An Envoy reports all its buckets in one: some 100 bytes for each
    #[arg(
        long,
        env = "LEASEWAY_MAX_MESSAGE_BYTES",
        default_value_t = 1 << 20,
        value_name = "BYTES",
        value_parser = checks::message_bytes()
    )]
    max_message_bytes: usize,
    /// Open connections (closed at once beyond)
    #[arg(
        long,
        env = "LEASEWAY_MAX_CONNECTIONS",
        default_value_t = Limits::default().connections,
        value_name = "N",
        value_parser = checks::at_least_one()
    )]
    max_connections: usize,
    /// The part of any table (connections, resources, waiting bytes) that a lone address may fill, in per cent; the
    /// rest is there for other addresses. 100: there are no shares
    #[arg(
        long,
        env = "LEASEWAY_ADDRESS_SHARE",
        default_value_t = Limits::default().address_share,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    address_share: u8,
    /// Seconds within which a request must have come in full (DEADLINE_EXCEEDED beyond)
    #[arg(
        long,
        env = "LEASEWAY_REQUEST_SECS",
        default_value_t = Limits::default().request_secs,
        value_name = "SECONDS",
        value_parser = checks::seconds()
    )]
    request_secs: u64,
}

impl GatewayLimits {
    fn limits(&self) -> Limits {
        Limits {
            message_bytes: self.max_message_bytes,
            connections: self.max_connections,
            page_connections: self.max_connections,
            address_share: self.address_share,
            request_secs: self.request_secs,
            ..Limits::default()
        }
    }
}

impl RunGateway {
    pub(crate) fn run(self) -> Outcome {
        let transport = self.transport()?;
        log::start(self.log, self.log_format);
        #[cfg(feature = "planted")]
        crate::planted::plant()?;
        let options = Options {
            bridge: BridgeOptions {
                servers: found(Port::Clients, &self.server).addresses,
                transport,
                id: self.id,
                most_resources: self.limits.max_resources,
                share: PrincipalShare::new(f64::from(self.limits.address_share) / 100.0).unwrap_or_default(),
                idle: Duration::from_secs(self.without_lease.idle_secs),
                first_wait: Duration::from_millis(self.without_lease.first_wait_ms),
                charged: self.without_lease.charge,
                without_lease: match self.without_lease.without_lease {
                    WithoutLeaseFlag::Allow => WithoutLease::Allow,
                    WithoutLeaseFlag::Deny => WithoutLease::Deny,
                },
            },
            frontend: FrontendOptions {
                config: self.config,
                access: self.access.options(),
                tls: self.tls.options(None),
                limits: self.limits.limits(),
            },
            rlqs: self.rlqs.map(|listen| self.quotas.options(listen, self.without_lease.idle_secs)),
            rls: self.rls.map(|listen| RlsOptions { listen, rules: self.ratelimit_config }),
            http: self.http.map(|listen| HttpOptions {
                listen,
                max_reservations: self.limits.max_reservations,
                windows: self.window,
            }),
            metrics: self.metrics,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(CliError::Runtime)?;
        runtime.block_on(serve(options))
    }

    /// The way to the cluster: with the certificate that is shown to callers as well.
    fn transport(&self) -> Result<Transport, CliError> {
        let files = self.tls.files();
        let over_tls = endpoint::over_tls(&self.server, files.ca.is_some());
        let mut transport = Transport::new();
        if over_tls.map_err(|error| CliError::Flags(error.to_string()))? {
            transport = transport.with_tls(ClientTls::new(&Credentials::load(files)?, None)?);
        }
        if let Some(file) = &self.token_file {
            transport = transport.with_token(Token::file(file)?);
        }
        Ok(if self.access.insecure() { transport.with_clear_token() } else { transport })
    }
}

async fn serve(options: Options) -> Outcome {
    let mut stop = StopSignals::new().map_err(CliError::Runtime)?;
    let gateway = Gateway::start(options).await?;
    let addresses = gateway.addresses();
    // Without a reader of standard output the gateway serves all the same.
    if let Some(address) = addresses.rls {
        let _ = say(format_args!("serving RLS on {address}"));
    }
    if let Some(address) = addresses.rlqs {
        let _ = say(format_args!("serving RLQS on {address}"));
    }
    if let Some(address) = addresses.http {
        let _ = say(format_args!("serving HTTP on {address}"));
    }
    if let Some(address) = addresses.metrics {
        let _ = say(format_args!("serving metrics on {address}"));
    }
    stop.received().await;
    gateway.stop().await;
    Ok(())
}
