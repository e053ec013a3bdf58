//! `leaseway serve`.

mod checks;
mod gateway;
mod limits;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, builder::NonEmptyStringValueParser};
use leaseway_core::Millis;
use leaseway_server::{
    Addresses, AdminOptions, Handover, Options, ParentOptions, PeerOptions, Server, Skew, TakeOver, Timing,
};
use tracing_subscriber::EnvFilter;

use self::{gateway::PreparedGateway, limits::LimitFlags};
use crate::{
    Outcome,
    operate::config::file_path,
    output::say,
    run::{
        access::AccessFlags, gateway::say_where, listen_address::listen_address, log, tls::ListenerTls, value_parsers,
    },
};

/// Runs a server. Without --config and --parent it is a development server.
#[derive(Args)]
pub(crate) struct Serve {
    /// Where to serve gRPC: the Doorman protocol, status, push hints, health, reflection
    #[arg(
        long,
        env = "LEASEWAY_LISTEN",
        default_value = "127.0.0.1:5100",
        value_name = "ADDRESS",
        value_parser = listen_address
    )]
    listen: SocketAddr,
    /// Where to serve HTTP: the page at /, its JSON below /api/v1, /metrics, /healthz, /readyz, /debug/…
    #[arg(
        long,
        env = "LEASEWAY_HTTP",
        default_value = "127.0.0.1:5150",
        value_name = "ADDRESS",
        value_parser = listen_address
    )]
    http: SocketAddr,
    /// The configuration: YAML, as Doorman has it. `leaseway config example` prints one
    #[arg(long, env = "LEASEWAY_CONFIG", value_name = "FILE", value_parser = file_path)]
    config: Option<PathBuf>,
    /// What the server calls itself [default: the address it advertises]
    #[arg(long, env = "LEASEWAY_ID", value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,
    /// Where clients reach it, if that is not where it listens
    #[arg(long, env = "LEASEWAY_ADVERTISE", value_name = "HOST:PORT", value_parser = value_parsers::reachable)]
    advertise: Option<String>,
    /// Threads that serve requests [default: one for each core]
    #[arg(long, env = "LEASEWAY_THREADS", value_name = "N", value_parser = value_parsers::threads())]
    threads: Option<usize>,
    /// What to log: a level (error, warn, info, debug), or a filter like info,leaseway_server=debug
    #[arg(
        long,
        env = "LEASEWAY_LOG",
        default_value = "info,openraft=off",
        value_name = "FILTER",
        value_parser = log::filter
    )]
    log: EnvFilter,
    /// How it is logged: lines for people, or an object of JSON a line
    #[arg(long, env = "LEASEWAY_LOG_FORMAT", value_enum, default_value = "text", value_name = "FORM")]
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
    tls: ListenerTls,
    #[command(flatten)]
    peer_tls: PeerTlsFlags,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    faults: FaultFlags,
}

/// Where this node's capacity comes from, if not from a configuration.
#[derive(Args)]
#[command(next_help_heading = "A place in a tree")]
struct ParentFlags {
    /// Where the capacity comes from: gRPC addresses of the parent node's peers. It says how much of everything there
    /// is for this node, and how it is divided; a --config has `access:` alone. https:// before an address means TLS,
    /// as --tls-ca does where there is no scheme
    #[arg(long, env = "LEASEWAY_PARENT", value_name = "HOST:PORT,…", value_delimiter = ',')]
    parent: Vec<String>,
    /// A file with a token that says which node this is, for a parent with a policy. Sent over TLS or to this machine
    /// only; read again when it changes
    #[arg(long, env = "LEASEWAY_PARENT_TOKEN_FILE", value_name = "FILE", requires = "parent")]
    parent_token_file: Option<PathBuf>,
    /// What this node is called at its parent, the same for all its peers; no two children of a parent may share one
    /// [default: the --id of a server without --peers]
    #[arg(
        long,
        env = "LEASEWAY_NODE",
        value_name = "NAME",
        requires = "parent",
        value_parser = NonEmptyStringValueParser::new()
    )]
    node: Option<String>,
}

impl ParentFlags {
    fn options(self) -> Option<ParentOptions> {
        let ParentFlags { parent, parent_token_file, node } = self;
        (!parent.is_empty()).then_some(ParentOptions { addresses: parent, token: parent_token_file, node })
    }
}

/// The data directory and the peers of this node.
#[derive(Args)]
#[command(next_help_heading = "Memory and peers")]
struct PeerFlags {
    /// Where promises, configuration and votes are kept, so that a restart forgets nothing. Without it nothing is
    /// remembered
    #[arg(long, env = "LEASEWAY_DATA", value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// All peers of this node and where they listen for each other, this one (--id) included: a=10.0.0.1:5120,b=…
    /// Itself alone: a server that others can be added to (`leaseway peers add`)
    #[arg(
        long,
        env = "LEASEWAY_PEERS",
        value_name = "NAME=HOST:PORT,…",
        value_delimiter = ',',
        requires = "data",
        requires = "id"
    )]
    peers: Vec<PeerAddress>,
    /// Where to listen for peers [default: this peer's address in --peers]
    #[arg(
        long,
        env = "LEASEWAY_PEER_LISTEN",
        value_name = "ADDRESS",
        requires = "peers",
        value_parser = listen_address
    )]
    peer_listen: Option<SocketAddr>,
    /// A secret that all peers share, and that is never sent; without it or certificates they only listen on loopback
    #[arg(long, env = "LEASEWAY_PEER_SECRET_FILE", value_name = "FILE", requires = "peers")]
    peer_secret_file: Option<PathBuf>,
    /// The first start ever: nothing was promised yet. Give it to all peers; later starts take no notice of it
    #[arg(long, env = "LEASEWAY_BOOTSTRAP", requires = "data")]
    bootstrap: bool,
    /// The first start in place of another server, a Doorman server say, whose clients go on: stop that one first.
    /// Until its leases must have ended clients get back what they have, and new ones what others give up; then all is
    /// divided, and promises are kept from the start, also if a master dies meanwhile. So many seconds, or as long as
    /// the longest lease of the configuration: give more if the other server had longer ones (its `lease_length`
    /// counts, not ours). Give it to all peers, instead of --bootstrap; later starts take no notice of it
    #[arg(
        long,
        env = "LEASEWAY_TAKE_OVER",
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "longest",
        requires = "data",
        conflicts_with_all = ["bootstrap", "parent"]
    )]
    take_over: Option<TakeOverFlag>,
    /// What a new master knows: all that was promised, or what holders tell it while it learns
    #[arg(long, env = "LEASEWAY_HANDOVER", default_value = "promises", value_enum)]
    handover: HandoverFlag,
    /// How soon a silent master is replaced: one-site, several-sites, or HEARTBEAT,MIN,MAX in milliseconds; the same
    /// for all peers
    #[arg(long, env = "LEASEWAY_TIMING", default_value = "one-site", value_name = "TIMING", requires = "data")]
    timing: TimingFlag,
}

/// Certificates of peers.
#[derive(Args)]
#[command(next_help_heading = "TLS")]
struct PeerTlsFlags {
    /// The CA of peers, if that is another than --tls-ca
    #[arg(long, env = "LEASEWAY_PEER_TLS_CA", value_name = "FILE", requires = "tls_cert", requires = "peers")]
    peer_tls_ca: Option<PathBuf>,
}

/// What operators can change.
#[derive(Args)]
#[command(next_help_heading = "Operators")]
struct AdminFlags {
    /// Where `leaseway pool`, and with --data `leaseway config apply` and `leaseway peers`, are served [default:
    /// 127.0.0.1:5160 with --data, nowhere without]
    #[arg(long, env = "LEASEWAY_ADMIN", value_name = "ADDRESS", value_parser = listen_address)]
    admin: Option<SocketAddr>,
    /// A file with the token that operators must send; without it only loopback is served
    #[arg(long, env = "LEASEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
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

/// The default of `--admin`.
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5160);

impl PeerFlags {
    /// Without a data directory nothing is remembered, and there are no peers.
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
            timing: self.timing.0,
        })
    }
}

impl FaultFlags {
    fn skew(&self) -> Skew {
        Skew { offset_ms: self.clock_offset_ms, rate: self.clock_rate }
    }
}

/// A peer in --peers.
#[derive(Clone)]
struct PeerAddress {
    name: String,
    address: String,
}

impl std::str::FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<PeerAddress, String> {
        let expected = || format!("`{text}`: expected NAME=HOST:PORT, like a=10.0.0.1:5120");
        let (name, address) = text.split_once('=').ok_or_else(expected)?;
        if name.is_empty() {
            return Err(expected());
        }
        let address = value_parsers::reachable(address).map_err(|why| format!("{}; {why}", expected()))?;
        Ok(PeerAddress { name: name.to_owned(), address })
    }
}

/// How long another server's leases may last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakeOverFlag(TakeOver);

/// No lease is longer: a configuration with a longer one is refused.
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
    /// The peers keep what was promised: a new master serves at once
    Promises,
    /// A new master listens for a lease length before it divides, as Doorman does
    Learning,
}

/// How soon a silent master is replaced.
#[derive(Clone, Copy)]
struct TimingFlag(Timing);

impl std::str::FromStr for TimingFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<TimingFlag, String> {
        let expected = || format!("`{text}`: expected one-site, several-sites, or HEARTBEAT,MIN,MAX in milliseconds");
        match text {
            "one-site" => return Ok(TimingFlag(Timing::ONE_SITE)),
            "several-sites" => return Ok(TimingFlag(Timing::SEVERAL_SITES)),
            _ => {}
        }
        let numbers: Vec<u64> = text.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| expected())?;
        let [heartbeat, min, max] = numbers[..] else { return Err(expected()) };
        Timing::new(heartbeat, min, max).map(TimingFlag).map_err(|error| error.to_string())
    }
}

/// Deliberate errors of the clock.
#[derive(Args)]
#[command(next_help_heading = "Faults on purpose")]
struct FaultFlags {
    /// The wall clock is wrong by so many milliseconds
    #[arg(
        long,
        env = "LEASEWAY_CLOCK_OFFSET_MS",
        default_value_t = 0,
        value_name = "MS",
        value_parser = value_parsers::clock_offset_ms,
        allow_hyphen_values = true,
        hide_short_help = true
    )]
    clock_offset_ms: i64,
    /// The clock runs so many times as fast as it should
    #[arg(
        long,
        env = "LEASEWAY_CLOCK_RATE",
        default_value_t = 1.0,
        value_name = "FACTOR",
        value_parser = value_parsers::clock_rate,
        allow_hyphen_values = true,
        hide_short_help = true
    )]
    clock_rate: f64,
}

impl Serve {
    pub(crate) fn run(self) -> Outcome {
        self.check()?;
        log::start(self.log.clone(), self.log_format);
        #[cfg(feature = "planted")]
        crate::run::planted::plant()?;
        leaseway_server::block_on(self.serve())
    }

    async fn serve(self) -> Outcome {
        let limits = self.limits.limits();
        let gateway = self.gateway.prepare(&self.tls, &limits)?;
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
            admin: self.admin.options(self.peers.data.is_some()),
            peers: self.peers.options(),
            parent: self.parent.options(),
            access: self.access.options(),
            tls: self.tls.options(self.peer_tls.peer_tls_ca),
            skew: self.faults.skew(),
            extra_listeners: gateway.iter().flat_map(PreparedGateway::listeners).collect(),
        };
        let mut server = Server::start(options).await?;
        let gateway = match gateway {
            Some(gateway) => Some(gateway.start(&server).await?),
            None => None,
        };
        announcement.say(server.addresses());
        if let Some(gateway) = &gateway {
            say_where(gateway.addresses());
        }
        server.serve_until_stopped().await;
        if let Some(gateway) = gateway.filter(|_| !server.has_failed()) {
            gateway.stop().await;
        }
        Ok(server.stop().await?)
    }
}

/// What the server says on standard output once it serves.
struct Announcement {
    is_tls: bool,
    /// It has a data directory.
    keeps: bool,
    name: String,
    /// The addresses of the parent; empty without one.
    parent: String,
}

impl Announcement {
    /// Without a reader of standard output the server serves all the same.
    fn say(&self, addresses: Addresses) {
        let Addresses { grpc, http, peers, admin } = addresses;
        let (scheme, ask) = if self.is_tls { ("https", " --tls-ca FILE") } else { ("http", "") };
        let _ = say(format_args!(
            "serving gRPC on {grpc}, HTTP on {http}\n  ask it:   leaseway get alice mysql 40 --server {grpc}{ask}\n  look:     {scheme}://{http}/"
        ));
        if !self.parent.is_empty() {
            let _ = say(format_args!("capacity and templates come from the parent at {}", self.parent));
        }
        if let Some(admin) = admin {
            let _ = match peers {
                Some(peers) => say(format_args!("peer {} on {peers}, admin on {admin}", self.name)),
                None if self.keeps => say(format_args!("no peers, admin on {admin}")),
                None => say(format_args!("admin on {admin}; what is changed there is forgotten with this process")),
            };
        }
    }
}
