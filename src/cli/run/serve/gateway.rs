//! A gateway in the process of a server.

use std::net::SocketAddr;

use clap::Args;
use leaseway_client::{ClientTls, Credentials, Token, Transport};
use leaseway_gateway::{DeclareOptions, Gateway, GatewayError, Options};
use leaseway_server::{AdminOptions, ListenOption, Server, config::limits::Limits};

use crate::error::CliError;
use crate::run::gateway::flags::{Cluster, GatewayFlags, GatewayListen};
use crate::run::tls::ListenerTls;
use crate::run::value_parsers::listen_address;

/// Seconds after which the gateway releases an unused resource.
const IDLE_SECS: u64 = 60;

/// A gateway under the server's policy, certificates and limits.
#[derive(Args)]
#[command(next_help_heading = "Embedded gateway (see `leaseway gateway`)")]
pub(crate) struct ServerGateway {
    /// Listen address for Envoy's rate limit service (RLS). Needs --ratelimit-config or --rls-xds
    #[arg(
        id = "gateway_rls",
        long = "gateway-rls",
        value_name = "ADDRESS",
        requires = "rls_rules",
        value_parser = listen_address
    )]
    rls: Option<SocketAddr>,
    /// Listen address for Envoy's rate limit quota service (RLQS)
    #[arg(id = "gateway_rlqs", long = "gateway-rlqs", value_name = "ADDRESS", value_parser = listen_address)]
    rlqs: Option<SocketAddr>,
    /// Listen address for HTTP callers (JSON)
    #[arg(id = "gateway_http", long = "gateway-http", value_name = "ADDRESS", value_parser = listen_address)]
    http: Option<SocketAddr>,
    #[command(flatten)]
    flags: GatewayFlags,
}

impl ServerGateway {
    /// Checks the flags and reads the rules before the server starts. Returns `None` if no gateway is configured. The
    /// gateway reaches other peers with the server's certificate.
    pub(super) fn prepare(
        self,
        tls: &ListenerTls,
        limits: &Limits,
        admin: Option<&AdminOptions>,
    ) -> Result<Option<Options>, CliError> {
        let listen = GatewayListen {
            rls: self.rls.map(|address| ListenOption { flag: "--gateway-rls", address }),
            rlqs: self.rlqs.map(|address| ListenOption { flag: "--gateway-rlqs", address }),
            http: self.http.map(|address| ListenOption { flag: "--gateway-http", address }),
            metrics: None,
            plain_metrics: false,
            probes: None,
        };
        if listen.rls.is_none() && listen.rlqs.is_none() && listen.http.is_none() {
            return Ok(None);
        }
        let mut transport = Transport::new();
        if tls.are_for_listeners() {
            transport = transport.with_tls(ClientTls::new(&Credentials::load(tls.files())?, None)?);
        }
        let declare = self.flags.declares().then(|| declaring(&transport, admin)).transpose()?;
        let cluster = Cluster {
            servers: Vec::new(),
            transport,
            id: None,
            max_resources: limits.resources,
            idle_secs: IDLE_SECS,
            address_share: limits.address_share,
            declare,
        };
        Ok(Some(self.flags.options(cluster, listen, tls.files())?))
    }
}

/// Declares at the admin address of this server, which redirects to the master, with the token of operators. The
/// address is known when the server has started.
fn declaring(transport: &Transport, admin: Option<&AdminOptions>) -> Result<DeclareOptions, CliError> {
    let Some(admin) = admin else {
        return Err(CliError::Flags("--declare needs --data, because the server stores the declarations".into()));
    };
    let mut transport = transport.clone();
    if let Some(file) = &admin.token_file {
        transport = transport.with_token(Token::file(file)?).with_clear_token();
    }
    Ok(DeclareOptions { addresses: Vec::new(), transport })
}

/// Where this process reaches the admin listener. Its certificate is for the advertised host.
fn admin_address(server: &Server) -> Option<String> {
    let admin = server.addresses().admin?;
    if admin.ip().is_loopback() {
        return Some(admin.to_string());
    }
    let host = server.advertised().rsplit_once(':').map_or(server.advertised(), |(host, _)| host);
    Some(format!("{host}:{}", admin.port()))
}

/// Starts the gateway as a client of the server, over in-process connections. If another peer is master, the gateway
/// reaches it over the network.
pub(super) async fn start(mut options: Options, server: &Server) -> Result<Gateway, GatewayError> {
    let in_process = server.in_process();
    let lease_table = &mut options.lease_table;
    lease_table.servers = vec![server.advertised().to_owned()];
    lease_table.id = Some(format!("{}:gateway", server.id()));
    lease_table.transport =
        lease_table.transport.clone().with_in_process(server.advertised(), move || in_process.channel());
    if let Some(declare) = options.rls.as_mut().and_then(|rls| rls.declare.as_mut()) {
        declare.addresses = admin_address(server).into_iter().collect();
    }
    Gateway::start(options, server.extra_services(), server.prometheus()).await
}
