//! `leaseway gateway`.

pub(crate) mod flags;
pub(crate) mod ratelimit_env;
mod xds;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, builder::NonEmptyStringValueParser};
use leaseway_client::endpoint::Endpoint;
use leaseway_client::{ClientTls, Credentials, Token, Transport, endpoint};
use leaseway_gateway::{Addresses, DeclareOptions, Gateway, GatewayError, install_metrics};
use leaseway_server::{ExtraServices, ExtraServicesOptions, ListenOption, StopSignals, config::limits::Limits};
use tracing_subscriber::EnvFilter;

use self::flags::{Cluster, GatewayFlags, GatewayListen};
use crate::Outcome;
use crate::connect::found;
use crate::error::{CliError, Port};
use crate::operate::{admin::admin_endpoint, config::file_path};
use crate::output::print;
use crate::run::access::AccessFlags;
use crate::run::log;
use crate::run::tls::ListenerTls;
use crate::run::value_parsers::{at_least_one, listen_address, message_bytes, seconds};

#[derive(Args)]
#[command(group = clap::ArgGroup::new("protocol").args(["gateway_rls", "gateway_rlqs", "gateway_http"]).multiple(true).required(true))]
pub(crate) struct RunGateway {
    /// Listen address for Envoy's rate limit service (RLS). Needs --ratelimit-config or --rls-xds
    #[arg(
        id = "gateway_rls",
        long = "rls",
        value_name = "ADDRESS",
        requires = "rls_rules",
        value_parser = listen_address
    )]
    rls: Option<SocketAddr>,
    /// Listen address for Envoy's rate limit quota service (RLQS)
    #[arg(id = "gateway_rlqs", long = "rlqs", value_name = "ADDRESS", value_parser = listen_address)]
    rlqs: Option<SocketAddr>,
    /// Listen address for HTTP callers (JSON). It also serves /metrics, /healthz and /readyz
    #[arg(id = "gateway_http", long = "http", value_name = "ADDRESS", value_parser = listen_address)]
    http: Option<SocketAddr>,
    /// Listen address for /metrics, /healthz and /readyz. --http serves them, too
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    metrics: Option<SocketAddr>,
    /// Serve --metrics without TLS, even with --tls-cert
    #[arg(long, requires = "metrics")]
    plain_metrics: bool,
    /// Listen address without TLS for probes: /healthz, /readyz, and /healthcheck as in envoyproxy/ratelimit
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    probes: Option<SocketAddr>,
    /// Servers of the cluster. Any of them redirects to the master. To use TLS, write https:// before each address, or
    /// pass --tls-ca [default: the peers of a running leaseway up, else 127.0.0.1:5100]
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', value_parser = endpoint::read)]
    server: Vec<Endpoint>,
    /// Accept the environment variables of envoyproxy/ratelimit. Flags and the variables of Leaseway take precedence
    // Applied before the command line is parsed.
    #[arg(long)]
    ratelimit_env: bool,
    /// File with the gateway's token for the cluster. Sent only over TLS or to loopback, unless --insecure is given
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Admin addresses of the cluster for --declare. Any of them redirects to the master [default: the peers of a
    /// running leaseway up, else 127.0.0.1:5160]
    #[arg(
        long,
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        value_parser = admin_endpoint,
        requires = "declare"
    )]
    declare_admin: Vec<Endpoint>,
    /// File with the token for --declare, such as the operators' token [default: --token-file]
    #[arg(long, value_name = "FILE", requires = "declare")]
    declare_token_file: Option<PathBuf>,
    /// Unique client id of the gateway [default: HOST:PID:NUMBER]
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,
    /// Log level or filter, such as info,leaseway_gateway=debug. Levels are off, error, warn, info, debug and trace
    #[arg(long, default_value = "info", value_name = "FILTER", value_parser = log::filter)]
    log: EnvFilter,
    /// Log format: text, or JSON lines
    #[arg(long, value_enum, default_value = "text", value_name = "FORM")]
    log_format: log::LogFormat,
    /// Time after which the lease of an unused resource is released, but at least the window of its limit
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = seconds(), help_heading = "Leases")]
    idle_secs: u64,
    #[command(flatten)]
    gateway: GatewayFlags,
    /// Configuration file with an `access:` section. It controls who may use which resources; templates in it are
    /// ignored. Reloaded when it changes
    #[arg(long, value_name = "FILE", value_parser = file_path, help_heading = ACCESS)]
    config: Option<PathBuf>,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    tls: ListenerTls,
    #[command(flatten)]
    limits: GatewayLimits,
}

/// The heading of [`AccessFlags`].
const ACCESS: &str = "Access (policy: `access:` in the configuration)";

#[derive(Args)]
#[command(next_help_heading = "Limits (requests beyond them fail with RESOURCE_EXHAUSTED, unless noted)")]
struct GatewayLimits {
    /// Maximum number of open resources. Beyond it, requests for further resources are decided by --without-lease
    #[arg(long, default_value_t = 200_000, value_name = "N", value_parser = at_least_one())]
    max_resources: usize,
    /// Maximum size of a gRPC message (larger ones fail with OUT_OF_RANGE). An Envoy reports all its buckets in one
    /// message, about 100 bytes each
    #[arg(long, default_value_t = 1 << 20, value_name = "BYTES", value_parser = message_bytes())]
    max_message_bytes: usize,
    /// Maximum number of open connections. Beyond it, the gateway closes the new connection or one that has been idle
    /// for long
    #[arg(long, default_value_t = Limits::default().connections, value_name = "N", value_parser = at_least_one())]
    max_connections: usize,
    /// Maximum percentage that one caller may use of the limits on connections, resources and buffers. A caller is an
    /// identity, or an address without one. 100 disables this limit
    #[arg(
        long,
        default_value_t = Limits::default().address_share,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    address_share: u8,
    /// Time limit for receiving a request (slower ones fail with DEADLINE_EXCEEDED)
    #[arg(long, default_value_t = Limits::default().request_secs, value_name = "SECONDS", value_parser = seconds())]
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
        let transport = self.transport(&self.server, self.token_file.as_ref())?;
        let declare = self.gateway.declares().then(|| self.declaring()).transpose()?;
        log::start(self.log.clone(), self.log_format);
        #[cfg(feature = "planted")]
        crate::run::plant_fault()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(CliError::Runtime)?;
        runtime.block_on(self.serve(transport, declare))
    }

    async fn serve(self, transport: Transport, declare: Option<DeclareOptions>) -> Outcome {
        let mut stop = StopSignals::new().map_err(CliError::Runtime)?;
        let cluster = Cluster {
            servers: found(Port::Clients, &self.server).addresses,
            transport,
            id: self.id,
            max_resources: self.limits.max_resources,
            idle_secs: self.idle_secs,
            address_share: self.limits.address_share,
            declare,
        };
        let listen = GatewayListen {
            rls: self.rls.map(|address| ListenOption { flag: "--rls", address }),
            rlqs: self.rlqs.map(|address| ListenOption { flag: "--rlqs", address }),
            http: self.http.map(|address| ListenOption { flag: "--http", address }),
            metrics: self.metrics.map(|address| ListenOption { flag: "--metrics", address }),
            plain_metrics: self.plain_metrics,
            probes: self.probes.map(|address| ListenOption { flag: "--probes", address }),
        };
        let prometheus = install_metrics();
        let options = self.gateway.options(cluster, listen, self.tls.files())?;
        let services = ExtraServicesOptions {
            config: self.config,
            access: self.access.options(),
            tls: self.tls.options(None),
            limits: self.limits.limits(),
        };
        let services = ExtraServices::open(services, &options.listeners()).map_err(GatewayError::from)?;
        let gateway = Gateway::start(options, services, prometheus).await?;
        print_addresses(gateway.addresses());
        stop.received().await;
        gateway.stop().await;
        Ok(())
    }

    /// Where the gateway declares templates.
    fn declaring(&self) -> Result<DeclareOptions, CliError> {
        // With the default of one of them, rules could be declared to another cluster than the one that grants leases.
        let missing = match (self.server.is_empty(), self.declare_admin.is_empty()) {
            (false, true) => {
                Some("with --server, --declare needs --declare-admin, the admin address of the same cluster")
            }
            (true, false) => Some("--declare-admin needs --server, the client address of the same cluster"),
            _ => None,
        };
        if let Some(missing) = missing {
            return Err(CliError::Flags(missing.to_owned()));
        }
        let token = self.declare_token_file.as_ref().or(self.token_file.as_ref());
        let transport = self.transport(&self.declare_admin, token)?;
        Ok(DeclareOptions { addresses: found(Port::Operators, &self.declare_admin).addresses, transport })
    }

    /// The transport to these servers, with the certificate that is also shown to callers.
    fn transport(&self, servers: &[Endpoint], token: Option<&PathBuf>) -> Result<Transport, CliError> {
        let files = self.tls.files();
        let over_tls = endpoint::over_tls(servers, files.ca.is_some());
        let mut transport = Transport::new();
        if over_tls.map_err(|error| CliError::Flags(error.to_string()))? {
            transport = transport.with_tls(ClientTls::new(&Credentials::load(files)?, None)?);
        }
        if let Some(file) = token {
            transport = transport.with_token(Token::file(file)?);
        }
        Ok(if self.access.insecure() { transport.with_clear_token() } else { transport })
    }
}

/// Prints the gateway's addresses. Ignores a closed standard output.
pub(crate) fn print_addresses(addresses: Addresses) {
    let Addresses { rls, rlqs, http, metrics, probes, rls_http, rls_debug } = addresses;
    let of_rls = [("RLS", rls), ("RLS over HTTP", rls_http), ("RLS debug pages", rls_debug)];
    let others = [("RLQS", rlqs), ("HTTP", http), ("metrics", metrics), ("probes", probes)];
    for (what, address) in of_rls.into_iter().chain(others) {
        if let Some(address) = address {
            let _ = print(format_args!("serving {what} on {address}"));
        }
    }
}
