//! `leaseway serve`.

mod gateway;
mod limits;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, builder::NonEmptyStringValueParser};
use leaseway_core::types::Millis;
use leaseway_server::{
    AccessOptions, Addresses, AdminOptions, Handover, Options, ParentOptions, PeerOptions, Server, Skew, TakeOver,
    Timing, WebhookOptions, WebhookUrl,
};
use tracing_subscriber::EnvFilter;

use self::limits::LimitFlags;
use crate::Outcome;
use crate::error::CliError;
use crate::operate::config::file_path;
use crate::output::print;
use crate::run::access::AccessFlags;
use crate::run::gateway::print_addresses;
use crate::run::log;
use crate::run::tls::ListenerTls;
use crate::run::value_parsers::{clock_offset_ms, clock_rate, listen_address, reachable, threads};

#[derive(Args)]
pub(crate) struct Serve {
    /// Listen address for gRPC clients. It serves the Doorman protocol, refresh hints, status, health checks and
    /// reflection
    #[arg(long, default_value = "127.0.0.1:5100", value_name = "ADDRESS", value_parser = listen_address)]
    listen: SocketAddr,
    /// Listen address for HTTP. It serves the web page at /, JSON under /api/v1, /metrics, /healthz and /readyz
    #[arg(long, default_value = "127.0.0.1:5150", value_name = "ADDRESS", value_parser = listen_address)]
    http: SocketAddr,
    /// Configuration file (YAML, Doorman-compatible). Without --data, the server reloads it when it changes. With
    /// --data, the server reads it on the first start only; later changes need `leaseway config apply`. Without this
    /// flag, every resource has a capacity of 100; see `leaseway config example`
    #[arg(long, value_name = "FILE", value_parser = file_path)]
    config: Option<PathBuf>,
    /// Unique name of this server [default: the advertised address]
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,
    /// Address at which clients reach this server [default: --listen]
    #[arg(long, value_name = "HOST:PORT", value_parser = reachable)]
    advertise: Option<String>,
    /// Number of worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads())]
    threads: Option<usize>,
    /// Log level or filter, such as info,leaseway_server=debug. Levels are off, error, warn, info, debug and trace
    #[arg(long, default_value = "info,openraft=off", value_name = "FILTER", value_parser = log::filter)]
    log: EnvFilter,
    /// Log format: text, or JSON lines
    #[arg(long, value_enum, default_value = "text", value_name = "FORM")]
    log_format: log::LogFormat,
    #[command(flatten)]
    gateway: gateway::ServerGateway,
    #[command(flatten)]
    parent: ParentFlags,
    #[command(flatten)]
    peers: PeerFlags,
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    events: EventFlags,
    #[command(flatten)]
    tls: ListenerTls,
    #[command(flatten)]
    peer_tls: PeerTlsFlags,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    faults: FaultFlags,
}

/// The parent node, from which this node gets its capacity.
#[derive(Args)]
#[command(next_help_heading = "Tree")]
struct ParentFlags {
    /// gRPC addresses of the parent's peers. The parent provides capacity and templates; --config may then contain only
    /// `access:`. To use TLS, write https:// before each address, or pass --tls-ca
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    parent: Vec<String>,
    /// File with this node's token for the parent. Sent only over TLS or to loopback; reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "parent")]
    parent_token_file: Option<PathBuf>,
    /// Name of this node at its parent. It must be the same for all peers of this node, and unique among the parent's
    /// children [default: --id, if there is no --peers]
    #[arg(long, value_name = "NAME", requires = "parent", value_parser = NonEmptyStringValueParser::new())]
    node: Option<String>,
}

impl ParentFlags {
    fn options(self) -> Option<ParentOptions> {
        let ParentFlags { parent, parent_token_file, node } = self;
        (!parent.is_empty()).then_some(ParentOptions { addresses: parent, token: parent_token_file, node })
    }
}

/// The data directory, and the peers of this node.
#[derive(Args)]
#[command(next_help_heading = "Persistence and peers")]
struct PeerFlags {
    /// Data directory, one per peer. Without it, a restart loses all state
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// All peers of this node, including this one (--id), each with the address of its peer listener, such as
    /// a=10.0.0.1:5120. Add others later with `leaseway peers add`. Needs --data
    #[arg(long, value_name = "NAME=HOST:PORT,…", value_delimiter = ',', requires = "data", requires = "id")]
    peers: Vec<PeerAddress>,
    /// Listen address for other peers [default: this peer's address in --peers]
    #[arg(long, value_name = "ADDRESS", requires = "peers", value_parser = listen_address)]
    peer_listen: Option<SocketAddr>,
    /// File with a secret that all peers share. Peers prove that they know it, without sending it. Without a secret or
    /// TLS certificates, peers listen on loopback only
    #[arg(long, value_name = "FILE", requires = "peers")]
    peer_secret_file: Option<PathBuf>,
    /// Bootstrap a new cluster. Pass it to every peer on the first start, with --data; it is ignored afterwards
    #[arg(long, requires = "data")]
    bootstrap: bool,
    /// Bootstrap a cluster that replaces another server, such as Doorman. Stop that server first. Until its leases have
    /// expired, existing clients keep their capacity and new clients get only capacity that others give up. SECONDS is
    /// the longest remaining lease of the old server [default: the longest lease in the configuration]. Pass it to
    /// every peer instead of --bootstrap; it is ignored afterwards
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "longest",
        requires = "data",
        conflicts_with_all = ["bootstrap", "parent"]
    )]
    take_over: Option<TakeOverFlag>,
    /// How a new master learns of existing leases
    #[arg(long, default_value = "promises", value_enum)]
    handover: HandoverFlag,
    /// Election timing: one-site, several-sites (for round trips of up to 0.2 s), or HEARTBEAT,MIN,MAX: the heartbeat
    /// interval and the range of the election timeout in milliseconds. Must be the same for all peers
    #[arg(long, default_value = "one-site", value_name = "TIMING", requires = "data", value_parser = timing)]
    timing: Timing,
}

#[derive(Args)]
#[command(next_help_heading = "TLS")]
struct PeerTlsFlags {
    /// File with the CA (PEM) of the peers' certificates [default: --tls-ca]
    #[arg(long, value_name = "FILE", requires = "tls_cert", requires = "peers")]
    peer_tls_ca: Option<PathBuf>,
}

#[derive(Args)]
#[command(next_help_heading = "Events")]
struct EventFlags {
    /// URL that gets an HTTP POST when a budget reaches a threshold. It is signed as in Standard Webhooks, and repeated
    /// for up to a day until the receiver answers 2xx
    #[arg(long, value_name = "URL", requires = "webhook_secret_file")]
    webhook: Option<WebhookUrl>,
    /// File with the secret that signs posts to --webhook. The secret has at least 16 bytes, or is `whsec_` followed by
    /// base64
    #[arg(long, value_name = "FILE", requires = "webhook")]
    webhook_secret_file: Option<PathBuf>,
}

impl EventFlags {
    fn options(self) -> Option<WebhookOptions> {
        let (url, secret) = self.webhook.zip(self.webhook_secret_file)?;
        Some(WebhookOptions { url, secret })
    }
}

#[derive(Args)]
#[command(next_help_heading = "Administration")]
struct AdminFlags {
    /// Listen address for operator commands, such as `leaseway config`, `peers` and `pool` [default: 127.0.0.1:5160
    /// with --data, none without]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    admin: Option<SocketAddr>,
    /// File with the operators' token. Without a token or an access policy, --admin must be loopback
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

impl AdminFlags {
    fn options(self, keeps_anything: bool) -> Option<AdminOptions> {
        Some(AdminOptions { listen: self.listen(keeps_anything)?, token_file: self.admin_token_file })
    }

    fn listen(&self, keeps_anything: bool) -> Option<SocketAddr> {
        self.admin.or(keeps_anything.then_some(ADMIN))
    }
}

/// The default of `--admin` with a data directory.
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5160);

impl PeerFlags {
    /// Without a data directory there are no peers.
    fn options(self) -> Option<PeerOptions> {
        Some(PeerOptions {
            data: self.data?,
            peers: self.peers.into_iter().map(|peer| (peer.name, peer.address)).collect(),
            listen: self.peer_listen,
            secret_file: self.peer_secret_file,
            bootstrap: self.bootstrap,
            take_over: self.take_over.map(|TakeOverFlag(take_over)| take_over),
            handover: match self.handover {
                HandoverFlag::Promises => Handover::Promises,
                HandoverFlag::Learning => Handover::Learning,
            },
            timing: self.timing,
        })
    }
}

/// An entry of `--peers`.
#[derive(Clone)]
struct PeerAddress {
    name: String,
    address: String,
}

impl std::str::FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<PeerAddress, String> {
        let expected = || format!("`{text}`: expected NAME=HOST:PORT, like a=10.0.0.1:5120");
        let (name, address) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(expected)?;
        let address = reachable(address).map_err(|why| format!("{}; {why}", expected()))?;
        Ok(PeerAddress { name: name.to_owned(), address })
    }
}

/// The maximum remaining length of another server's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakeOverFlag(TakeOver);

/// The longest lease that a configuration may have.
const LONGEST_LEASE_SECS: f64 = 31.0 * 86400.0;

impl std::str::FromStr for TakeOverFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<TakeOverFlag, String> {
        if text == "longest" {
            return Ok(TakeOverFlag(TakeOver::LongestLease));
        }
        match text.parse::<f64>() {
            Ok(seconds) if seconds > 0.0 && seconds <= LONGEST_LEASE_SECS => {
                Ok(TakeOverFlag(TakeOver::For(Millis((seconds * 1000.0).ceil() as u64))))
            }
            _ => Err(format!("`{text}`: expected seconds, more than 0 and at most 31 days, or `longest`")),
        }
    }
}

impl std::fmt::Display for TakeOverFlag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            TakeOver::LongestLease => f.write_str("longest"),
            TakeOver::For(length) => write!(f, "{}", length.0 as f64 / 1000.0),
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum HandoverFlag {
    /// Peers replicate leases; a new master serves at once
    Promises,
    /// A new master waits one lease length for clients to report their leases, like Doorman
    Learning,
}

/// Parses a preset or custom election timing.
fn timing(text: &str) -> Result<Timing, String> {
    let expected = || format!("`{text}`: expected one-site, several-sites, or HEARTBEAT,MIN,MAX in milliseconds");
    match text {
        "one-site" => return Ok(Timing::ONE_SITE),
        "several-sites" => return Ok(Timing::SEVERAL_SITES),
        _ => {}
    }
    let numbers: Vec<u64> = text.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| expected())?;
    let [heartbeat, min, max] = numbers[..] else { return Err(expected()) };
    Timing::new(heartbeat, min, max).map_err(|error| error.to_string())
}

/// Deliberate clock errors, for tests.
#[derive(Args)]
struct FaultFlags {
    /// Error of the wall clock in milliseconds
    #[arg(
        long,
        default_value_t = 0,
        value_name = "MS",
        value_parser = clock_offset_ms,
        allow_hyphen_values = true,
        hide = true
    )]
    clock_offset_ms: i64,
    /// Speed of the clock, relative to the real one
    #[arg(
        long,
        default_value_t = 1.0,
        value_name = "FACTOR",
        value_parser = clock_rate,
        allow_hyphen_values = true,
        hide = true
    )]
    clock_rate: f64,
}

impl Serve {
    pub(crate) fn run(self) -> Outcome {
        self.check()?;
        log::start(self.log.clone(), self.log_format);
        #[cfg(feature = "planted")]
        crate::run::plant_fault()?;
        leaseway_server::block_on(self.serve())
    }

    async fn serve(self) -> Outcome {
        let limits = self.limits.limits();
        let admin = self.admin.options(self.peers.data.is_some());
        let gateway = self.gateway.prepare(&self.tls, &limits, admin.as_ref().filter(|_| self.peers.data.is_some()))?;
        let announcement = Announcement {
            is_tls: self.tls.are_for_listeners(),
            keeps: self.peers.data.is_some(),
            name: self.id.clone().unwrap_or_default(),
            parent: self.parent.parent.join(", "),
        };
        let options = Options {
            listen: self.listen,
            http: self.http,
            config: self.config,
            id: self.id,
            advertise: self.advertise,
            threads: self.threads,
            limits,
            admin,
            peers: self.peers.options(),
            parent: self.parent.options(),
            access: AccessOptions { webhook: self.events.options(), ..self.access.options() },
            tls: self.tls.options(self.peer_tls.peer_tls_ca),
            skew: Skew { offset_ms: self.faults.clock_offset_ms, rate: self.faults.clock_rate },
            extra_readiness: gateway.as_ref().and_then(leaseway_gateway::Options::readiness),
            extra_listeners: gateway.iter().flat_map(leaseway_gateway::Options::listeners).collect(),
        };
        let mut server = Server::start(options).await?;
        let gateway = match gateway {
            Some(options) => Some(gateway::start(options, &server).await?),
            None => None,
        };
        announcement.print(server.addresses());
        if let Some(gateway) = &gateway {
            print_addresses(gateway.addresses());
        }
        server.serve_until_stopped().await;
        if let Some(gateway) = gateway.filter(|_| !server.has_failed()) {
            gateway.stop().await;
        }
        Ok(server.stop().await?)
    }
}

/// The lines that the server prints when it is ready.
struct Announcement {
    is_tls: bool,
    /// There is a data directory.
    keeps: bool,
    name: String,
    /// The addresses of the parent; empty without one.
    parent: String,
}

impl Announcement {
    /// Prints the addresses. Ignores a closed standard output.
    fn print(&self, addresses: Addresses) {
        let Addresses { grpc, http, peers, admin } = addresses;
        let (scheme, ask) = if self.is_tls { ("https", " --tls-ca FILE") } else { ("http", "") };
        let _ = print(format_args!(
            "serving gRPC on {grpc}, HTTP on {http}\n  ask it:   leaseway get alice mysql 40 --server {grpc}{ask}\n  look:     {scheme}://{http}/"
        ));
        if !self.parent.is_empty() {
            let _ = print(format_args!("capacity and templates come from the parent at {}", self.parent));
        }
        if let Some(admin) = admin {
            let _ = match peers {
                Some(peers) => print(format_args!("peer {} on {peers}, admin on {admin}", self.name)),
                None if self.keeps => print(format_args!("no peers, admin on {admin}")),
                None => print(format_args!("admin on {admin}; changes made there are lost when this process stops")),
            };
        }
    }
}

impl Serve {
    fn check(&self) -> Result<(), CliError> {
        self.check_peers()?;
        let admin = self.admin.listen(self.peers.data.is_some());
        let own = self.peers.peers.iter().find(|peer| self.id.as_ref() == Some(&peer.name));
        let peer_listen = self.peers.peer_listen.or_else(|| own.and_then(|peer| peer.address.parse().ok()));
        let flag = if self.peers.peer_listen.is_some() { "--peer-listen" } else { "this peer's address in --peers" };
        let listening =
            [("--listen", Some(self.listen)), ("--http", Some(self.http)), ("--admin", admin), (flag, peer_listen)];
        for (index, (flag, address)) in listening.iter().enumerate() {
            let Some(address) = address else { continue };
            let before =
                listening[..index].iter().find(|(_, other)| other.is_some_and(|other| collide(other, *address)));
            if let Some((other, _)) = before {
                return Err(CliError::Flags(format!(
                    "{other} and {flag} use the same address, {address}; give each its own port"
                )));
            }
        }
        Ok(())
    }

    fn check_peers(&self) -> Result<(), CliError> {
        let peers = &self.peers.peers;
        for (index, peer) in peers.iter().enumerate() {
            if let Some(other) = peers[..index].iter().find(|other| other.address == peer.address) {
                return Err(CliError::Flags(format!(
                    "--peers: {} and {} have the same address, {}; give each peer its own",
                    other.name, peer.name, peer.address
                )));
            }
        }
        if !peers.is_empty() && self.listen.ip().is_unspecified() && self.advertise.is_none() {
            return Err(CliError::Flags(format!(
                "--listen {} is a wildcard address, so other peers cannot redirect clients here; pass a reachable \
                 address with --advertise HOST:PORT",
                self.listen
            )));
        }
        Ok(())
    }
}

/// Port 0 never collides, because the system chooses another each time.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && (one.ip() == other.ip() || everywhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_address_uses_the_port_on_all_addresses() {
        let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        assert!(collide(address("0.0.0.0:5100"), address("127.0.0.1:5100")));
        assert!(collide(address("127.0.0.1:5100"), address("127.0.0.1:5100")));
        assert!(!collide(address("127.0.0.2:5100"), address("127.0.0.1:5100")));
        assert!(!collide(address("127.0.0.1:0"), address("127.0.0.1:0")));
    }
}
