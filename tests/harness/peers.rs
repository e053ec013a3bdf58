//! A node of several peers: real processes with directories of their own, on links that can be cut. The timing is slow
//! enough for busy machines.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use leaseway_process::link::Link;
use leaseway_proto::doorman::{GetCapacityResponse, Lease};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

use super::{
    binary,
    config::{ConfigFile, Template},
    doorman::{Doorman, one_of_ours},
    http,
    process::{Output, Process, Variables, leaseway},
    raw::Raw,
    server::free_addresses,
    slots::ServerSlot,
    wait::{eventually, runtime},
};

/// The names of peers.
pub(crate) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

pub(crate) struct Peers {
    /// None if the node has a parent.
    config: Option<ConfigFile>,
    flags: Vec<String>,
    variables: Vec<(String, String)>,
    directory: TempDir,
    members: Vec<Member>,
    /// The address at which each peer reaches each other peer.
    links: Vec<Vec<Link>>,
    _slot: Option<ServerSlot>,
}

struct Member {
    grpc: SocketAddr,
    http: SocketAddr,
    admin: SocketAddr,
    peer: SocketAddr,
    process: Option<Process>,
    doorman: Doorman,
}

/// Three peers that tests share, one test at a time: each uses resources and clients of its own. All peers run and no
/// link is cut. The configuration is [`Template::fair`] with a capacity of 100.
pub(crate) fn shared() -> MutexGuard<'static, Peers> {
    static SHARED: OnceLock<Mutex<Peers>> = OnceLock::new();
    let shared =
        SHARED.get_or_init(|| Mutex::new(Peers::start_shared(3, ConfigFile::of(&[Template::fair("*", 100.0)]), &[])));
    let mut peers = shared.lock().unwrap_or_else(PoisonError::into_inner);
    peers.recover();
    peers
}

impl Peers {
    /// Restarts stopped peers, restores cut links, and waits until every peer is ready.
    fn recover(&mut self) {
        for peer in self.all() {
            self.heal(peer);
            match &self.members[peer].process {
                Some(process) if process.ended().is_none() => process.signal(Signal::CONT),
                _ => self.run(peer, &[]),
            }
        }
        for peer in self.all() {
            eventually("the peer is ready", || (http::get(self.http(peer), "/readyz").status == 200).then_some(()));
        }
    }

    /// Bootstraps this many peers.
    pub(crate) fn start(number: usize, config: ConfigFile, flags: &[&str]) -> Peers {
        Peers::begin(number, Some(config), flags, &["--bootstrap"], Vec::new())
    }

    /// Like [`start`](Self::start), for a cluster that is never dropped.
    pub(crate) fn start_shared(number: usize, config: ConfigFile, flags: &[&str]) -> Peers {
        let mut peers = Peers::found(number, Some(config), flags, Vec::new());
        // This cluster would never return its slot, and other tests would wait for it.
        peers._slot = None;
        peers.all().for_each(|peer| peers.run(peer, &["--bootstrap"]));
        peers.master();
        peers
    }

    /// Like [`start`](Self::start), with environment variables.
    pub(crate) fn start_within(number: usize, config: ConfigFile, variables: Vec<(String, String)>) -> Peers {
        Peers::begin(number, Some(config), &[], &["--bootstrap"], variables)
    }

    /// Like [`start`](Self::start), with other flags than `--bootstrap`.
    pub(crate) fn start_with(number: usize, config: ConfigFile, flags: &[&str], first: &[&str]) -> Peers {
        Peers::begin(number, Some(config), flags, first, Vec::new())
    }

    /// Bootstraps the peers of a node below `parent` (addresses with commas).
    pub(crate) fn below(parent: &str, node: &str, number: usize, flags: &[&str]) -> Peers {
        let flags = [&["--parent", parent, "--node", node], flags].concat();
        Peers::begin(number, None, &flags, &["--bootstrap"], Vec::new())
    }

    /// Like [`below`](Self::below), with these peers as the parent.
    pub(crate) fn child(&self, node: &str, number: usize) -> Peers {
        Peers::below(&self.endpoints().join(","), node, number, &[])
    }

    fn begin(
        number: usize,
        config: Option<ConfigFile>,
        flags: &[&str],
        first: &[&str],
        variables: Vec<(String, String)>,
    ) -> Peers {
        let mut peers = Peers::found(number, config, flags, variables);
        for peer in 0..number {
            peers.run(peer, first);
        }
        peers.master();
        peers
    }

    /// Sets up directories and links without starting a process.
    pub(crate) fn found(
        number: usize,
        config: Option<ConfigFile>,
        flags: &[&str],
        variables: Vec<(String, String)>,
    ) -> Peers {
        let addresses = free_addresses(number * 4);
        let member = |of: &[SocketAddr]| Member {
            grpc: of[0],
            http: of[1],
            admin: of[2],
            peer: of[3],
            process: None,
            doorman: Doorman::over(channel(of[0])),
        };
        let members: Vec<_> = addresses.chunks(4).map(member).collect();
        let link = |to: &Member| Link::to(to.peer, runtime().handle()).unwrap();
        let links = members.iter().map(|_| members.iter().map(link).collect()).collect();
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let directory = tempfile::tempdir().unwrap();
        Peers { config, flags, variables, directory, members, links, _slot: Some(ServerSlot::take()) }
    }

    pub(crate) fn config(&self) -> &ConfigFile {
        self.config.as_ref().expect("the node has no parent")
    }

    pub(crate) fn data(&self, peer: usize) -> PathBuf {
        self.directory.path().join(NAMES[peer])
    }

    /// The value of `--peers` with which this peer names others.
    pub(crate) fn named(&self, peer: usize, others: &[usize]) -> String {
        let named = others.iter().map(|other| format!("{}={}", NAMES[*other], self.links[peer][*other].address()));
        named.collect::<Vec<_>>().join(",")
    }

    /// The command line of a peer with `others` in `--peers`. Without others it is a lone server.
    pub(crate) fn command(&self, peer: usize, others: &[usize]) -> Vec<String> {
        let Member { grpc, http, admin, peer: listen, .. } = &self.members[peer];
        let mut values = vec![
            ("--id", NAMES[peer].to_owned()),
            ("--listen", grpc.to_string()),
            ("--http", http.to_string()),
            ("--admin", admin.to_string()),
            ("--data", self.data(peer).display().to_string()),
            ("--timing", "100,500,900".to_owned()),
            ("--threads", "2".to_owned()),
        ];
        if !others.is_empty() {
            values.extend([("--peer-listen", listen.to_string()), ("--peers", self.named(peer, others))]);
        }
        values.extend(self.config.iter().map(|config| ("--config", config.path().to_owned())));
        let values = values.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        std::iter::once("serve".to_owned()).chain(values).chain(self.flags.iter().cloned()).collect()
    }

    /// Starts a peer that is not running.
    pub(crate) fn run(&mut self, peer: usize, flags: &[&str]) {
        let all: Vec<usize> = self.all().collect();
        self.run_naming(peer, &all, flags);
    }

    /// Like [`run`](Self::run), with these peers in `--peers`.
    pub(crate) fn run_naming(&mut self, peer: usize, others: &[usize], flags: &[&str]) {
        let process = self.launch(peer, others, &[], flags);
        self.serves(peer, process);
    }

    /// Like [`run`](Self::run), with environment variables.
    pub(crate) fn run_within(&mut self, peer: usize, variables: Variables<'_>) {
        let all: Vec<usize> = self.all().collect();
        let process = self.launch(peer, &all, variables, &[]);
        self.serves(peer, process);
    }

    /// Starts a peer that may refuse to start.
    pub(crate) fn launch(&self, peer: usize, others: &[usize], variables: Variables<'_>, flags: &[&str]) -> Process {
        let command = self.command(peer, others);
        let arguments: Vec<&str> = command.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        let own = self.variables.iter().map(|(name, value)| (&**name, &**value));
        let variables: Vec<_> = own.chain(variables.iter().copied()).collect();
        Process::start_server(binary::path(), &arguments, &variables)
    }

    fn serves(&mut self, peer: usize, process: Process) {
        eventually("the peer serves", || {
            let ended = process.ended();
            assert!(ended.is_none(), "peer {} exited during startup: {}", NAMES[peer], process.stderr());
            process.stdout().contains("admin on").then_some(())
        });
        self.members[peer].process = Some(process);
    }

    pub(crate) fn signal(&self, peer: usize, signal: Signal) {
        self.process(peer).signal(signal);
    }

    pub(crate) fn kill(&mut self, peer: usize) {
        self.signal(peer, Signal::KILL);
        self.members[peer].process.take().expect("the peer runs").finish();
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn stop(&mut self, peer: usize) -> Output {
        self.signal(peer, Signal::TERM);
        self.members[peer].process.take().expect("the peer runs").finish()
    }

    pub(crate) fn log(&self, peer: usize) -> String {
        self.process(peer).stderr()
    }

    pub(crate) fn process(&self, peer: usize) -> &Process {
        self.members[peer].process.as_ref().expect("the peer runs")
    }

    /// Cuts all links between this peer and the others.
    pub(crate) fn cut(&self, peer: usize) {
        self.links_of(peer).for_each(Link::cut);
    }

    pub(crate) fn heal(&self, peer: usize) {
        self.links_of(peer).for_each(Link::heal);
    }

    fn links_of(&self, peer: usize) -> impl Iterator<Item = &Link> {
        let away = self.links[peer].iter();
        away.chain(self.links.iter().map(move |links| &links[peer]))
    }

    pub(crate) fn doorman(&self, peer: usize) -> &Doorman {
        &self.members[peer].doorman
    }

    /// A client of the 2016 protocol.
    pub(crate) fn raw(&self, peer: usize) -> Raw {
        Raw::over(channel(self.grpc(peer)))
    }

    pub(crate) fn grpc(&self, peer: usize) -> SocketAddr {
        self.members[peer].grpc
    }

    pub(crate) fn admin(&self, peer: usize) -> SocketAddr {
        self.members[peer].admin
    }

    /// The peer's address for other peers.
    pub(crate) fn peer_address(&self, peer: usize) -> String {
        self.members[peer].peer.to_string()
    }

    pub(crate) fn http(&self, peer: usize) -> SocketAddr {
        self.members[peer].http
    }

    /// The addresses for clients.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.grpc.to_string()).collect()
    }

    pub(crate) fn all(&self) -> std::ops::Range<usize> {
        0..self.members.len()
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        self.all().filter(|peer| self.members[*peer].process.is_some())
    }

    /// Waits for a master.
    pub(crate) fn master(&self) -> usize {
        self.master_but(&[])
    }

    /// Waits for a master other than `those`.
    pub(crate) fn master_but(&self, those: &[usize]) -> usize {
        eventually("there is a master", || {
            let mut running = self.running().filter(|peer| !those.contains(peer));
            running.find(|peer| {
                let answer = self.doorman(*peer).try_discovery();
                answer.is_ok_and(|answer| answer.is_master == Some(true))
            })
        })
    }

    /// A running peer that is not the master.
    pub(crate) fn follower(&self) -> usize {
        let master = self.master();
        self.running().find(|peer| *peer != master).expect("another peer runs")
    }

    /// Runs an operator's command at this peer.
    pub(crate) fn operate(&self, peer: usize, arguments: &[&str]) -> Output {
        leaseway(&[arguments, &["--admin", &self.members[peer].admin.to_string()]].concat())
    }

    /// Like [`operate`](Self::operate), with retries while mastership moves.
    pub(crate) fn operated(&self, peer: usize, arguments: &[&str]) -> String {
        eventually("the command succeeds", || {
            let output = self.operate(peer, arguments);
            (output.code == Some(0)).then_some(output.stdout)
        })
    }

    /// The output of `leaseway status --json` of this peer.
    pub(crate) fn status(&self, peer: usize, arguments: &[&str]) -> Value {
        let server = self.grpc(peer).to_string();
        let output = leaseway(&[&["status", "--json", "--here", "--server", &server], arguments].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        serde_json::from_str(&output.stdout).unwrap()
    }

    pub(crate) fn client(&self, id: &str) -> Caller {
        Caller { id: id.into(), has: None }
    }
}

/// A client that tries the peers in turn until one answers, and echoes its lease.
pub(crate) struct Caller {
    id: String,
    has: Option<Lease>,
}

impl Caller {
    /// The answer of the first peer that answers.
    pub(crate) fn ask(&mut self, peers: &Peers, resource: &str, wants: f64) -> f64 {
        let lease = eventually("a master answers", || {
            peers.running().find_map(|peer| granted(self.try_ask(peers.doorman(peer), resource, wants)))
        });
        self.has = Some(lease);
        lease.capacity.expect("every lease has a capacity")
    }

    /// The end of its lease, in seconds since the epoch.
    pub(crate) fn until(&self) -> Option<i64> {
        self.has.and_then(|lease| lease.expiry_time)
    }

    /// The answer of this peer.
    pub(crate) fn try_ask(
        &self,
        doorman: &Doorman,
        resource: &str,
        wants: f64,
    ) -> Result<GetCapacityResponse, tonic::Status> {
        doorman.get(one_of_ours(&self.id, resource, wants, self.has))
    }
}

/// `None` if the response has no lease.
pub(crate) fn granted(answer: Result<GetCapacityResponse, tonic::Status>) -> Option<Lease> {
    answer.ok()?.response.into_iter().next()?.gets
}

/// Connects on first use, and again after a connection was lost.
pub(crate) fn channel(address: SocketAddr) -> Channel {
    let _inside = runtime().enter();
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let (patience, keep_alive) = (std::time::Duration::from_secs(2), std::time::Duration::from_secs(1));
    endpoint.connect_timeout(patience).timeout(patience).http2_keep_alive_interval(keep_alive).connect_lazy()
}
