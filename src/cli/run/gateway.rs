//! `leaseway gateway`.

pub(crate) mod flags;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, builder::NonEmptyStringValueParser};
use leaseway_client::endpoint::Endpoint;
use leaseway_client::{ClientTls, Credentials, Token, Transport, endpoint};
use leaseway_gateway::{Addresses, Gateway, GatewayError, install_metrics};
use leaseway_server::{ExtraServices, ExtraServicesOptions, ListenOption, StopSignals, config::limits::Limits};
use tracing_subscriber::EnvFilter;

use self::flags::{Cluster, GatewayFlags, GatewayListen};
use crate::Outcome;
use crate::connect::found;
use crate::error::{CliError, Port};
use crate::operate::config::file_path;
use crate::output::print;
use crate::run::access::AccessFlags;
use crate::run::log;
use crate::run::tls::ListenerTls;
use crate::run::value_parsers::{at_least_one, listen_address, message_bytes, seconds};

#[derive(Args)]
#[command(group = clap::ArgGroup::new("protocol").args(["gateway_rls", "gateway_rlqs", "gateway_http"]).multiple(true).required(true))]
pub(crate) struct RunGateway {
    /// Where Envoys ask for each request (RLS, ShouldRateLimit)
    #[arg(
        id = "gateway_rls",
        long = "rls",
        value_name = "ADDRESS",
        requires = "ratelimit_config",
        value_parser = listen_address
    )]
    rls: Option<SocketAddr>,
    /// Where Envoys report what they let through and are assigned what they may (RLQS)
    #[arg(id = "gateway_rlqs", long = "rlqs", value_name = "ADDRESS", value_parser = listen_address)]
    rlqs: Option<SocketAddr>,
    /// Where everything else asks, by HTTP and JSON: leases and permits; besides /metrics, /healthz, /readyz
    #[arg(id = "gateway_http", long = "http", value_name = "ADDRESS", value_parser = listen_address)]
    http: Option<SocketAddr>,
    /// Where to serve /metrics, /healthz and /readyz, if not at --http
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    metrics: Option<SocketAddr>,
    /// Servers of the cluster; any of them will do, it names the master. https:// before an address means TLS, as
    /// --tls-ca does where there is no scheme [default: the peers of a running leaseway up, else 127.0.0.1:5100]
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', value_parser = endpoint::read)]
    server: Vec<Endpoint>,
    /// A file with a token that tells the cluster who asks: sent over TLS, or to this machine; with --insecure always
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// What the gateway calls itself: an id that no other client uses [default: HOST:PID:NUMBER]
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,
    /// What to log: a level (error, warn, info, debug), or a filter like info,leaseway_gateway=debug
    #[arg(long, default_value = "info", value_name = "FILTER", value_parser = log::filter)]
    log: EnvFilter,
    /// How it is logged: lines for people, or an object of JSON a line
    #[arg(long, value_enum, default_value = "text", value_name = "FORM")]
    log_format: log::LogFormat,
    /// A resource is given back when it has not been asked for so many seconds, and for as long as its limit's window
    /// is
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = seconds(), help_heading = "Leases")]
    idle_secs: u64,
    #[command(flatten)]
    gateway: GatewayFlags,
    /// A configuration whose `access:` says who may ask for which resources at this gateway; its templates mean nothing
    /// here. Read again when it changes
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
const ACCESS: &str = "Access (`access:` in the configuration says who may do what)";

#[derive(Args)]
#[command(next_help_heading = "Limits (beyond them RESOURCE_EXHAUSTED, unless it says otherwise)")]
struct GatewayLimits {
    /// Resources open at once; beyond, it is as if there were no lease
    #[arg(long, default_value_t = 200_000, value_name = "N", value_parser = at_least_one())]
    max_resources: usize,
    /// Bytes of a message (OUT_OF_RANGE beyond). An Envoy reports all its buckets in one: some 100 bytes for each
    #[arg(long, default_value_t = 1 << 20, value_name = "BYTES", value_parser = message_bytes())]
    max_message_bytes: usize,
    /// Open connections (closed at once beyond)
    #[arg(long, default_value_t = Limits::default().connections, value_name = "N", value_parser = at_least_one())]
    max_connections: usize,
    /// The part of any table (connections, resources, waiting bytes) that a lone address may fill, in per cent; the
    /// rest is there for other addresses. 100: there are no shares
    #[arg(
        long,
        default_value_t = Limits::default().address_share,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    address_share: u8,
    /// Seconds within which a request must have come in full (DEADLINE_EXCEEDED beyond)
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
        let transport = self.transport()?;
        log::start(self.log.clone(), self.log_format);
        #[cfg(feature = "planted")]
        crate::run::plant_fault()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(CliError::Runtime)?;
        runtime.block_on(self.serve(transport))
    }

    async fn serve(self, transport: Transport) -> Outcome {
        let mut stop = StopSignals::new().map_err(CliError::Runtime)?;
        let cluster = Cluster {
            servers: found(Port::Clients, &self.server).addresses,
            transport,
            id: self.id,
            max_resources: self.limits.max_resources,
            idle_secs: self.idle_secs,
            address_share: self.limits.address_share,
        };
        let listen = GatewayListen {
            rls: self.rls.map(|address| ListenOption { flag: "--rls", address }),
            rlqs: self.rlqs.map(|address| ListenOption { flag: "--rlqs", address }),
            http: self.http.map(|address| ListenOption { flag: "--http", address }),
            metrics: self.metrics.map(|address| ListenOption { flag: "--metrics", address }),
        };
        let prometheus = install_metrics();
        let options = self.gateway.options(cluster, listen)?;
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

    /// The transport to the cluster, with the certificate that is also shown to callers.
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

/// Prints the gateway's addresses. Ignores a closed standard output.
pub(crate) fn print_addresses(addresses: Addresses) {
    let Addresses { rls, rlqs, http, metrics } = addresses;
    for (what, address) in [("RLS", rls), ("RLQS", rlqs), ("HTTP", http), ("metrics", metrics)] {
        if let Some(address) = address {
            let _ = print(format_args!("serving {what} on {address}"));
        }
    }
}
