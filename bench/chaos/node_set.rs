//! The peers of a node as processes of this machine, and the links between them.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use leaseway_client::Transport;
use leaseway_process::{Signal, link::Link, ports};
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::{
    args::{ChaosArgs, name},
    fault::ChaosFault,
    observer::Incarnations,
};
use crate::{
    certificates::Certificates,
    error::Error,
    flags::word,
    output::note,
    server::{Server, server_words},
    tls,
};

/// How long a process may take to end after SIGTERM.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

const CONFIGURATION: &str = "leaseway.yaml";

pub(super) struct NodeSet {
    peers: Vec<Peer>,
    /// `links[i][j]`: over it peer `i` reaches peer `j`.
    links: Vec<Vec<Link>>,
    incarnations: Incarnations,
    /// As clients reach the peers.
    transport: Transport,
    /// Last: what is in it belongs to processes. Deleted with it, unless it is to be kept.
    _directory: TempDir,
}

struct Peer {
    name: String,
    grpc: SocketAddr,
    words: Vec<String>,
    directory: PathBuf,
    server: Option<Server>,
}

impl NodeSet {
    /// Everything but the processes. Links are served on `runtime`.
    pub(super) fn prepare(args: &ChaosArgs, runtime: &Handle) -> Result<NodeSet, Error> {
        let mut directory = tempfile::tempdir().map_err(Error::io("create a directory for the peers"))?;
        if args.keep {
            directory.disable_cleanup(true);
            note(&format!("logs and data of the peers are in {}", directory.path().display()));
        }
        let configuration = directory.path().join(CONFIGURATION);
        fs::write(&configuration, args.configuration()).map_err(Error::io("write the configuration"))?;
        let peers = args.peers.get();
        let addresses: Vec<_> = (0..peers).map(addresses).collect::<Result<_, _>>()?;
        let links = links(&addresses, runtime)?;
        let server = server_words(args.server.as_deref())?;
        let certificates =
            args.tls.then(|| Certificates::make(&server, directory.path(), &hosts(&addresses))).transpose()?;
        let transport = tls::transport(certificates.as_ref().map(Certificates::client).transpose()?);
        let prepare = |number: usize| {
            let directory = directory.path().join(name(number));
            fs::create_dir(&directory).map_err(Error::io("create a directory for a peer"))?;
            let mut words = server.clone();
            words.extend(flags(args, number, addresses[number], &links[number], &directory));
            let secured = certificates.iter().flat_map(Certificates::flags);
            words.extend(secured.flat_map(|(flag, value)| [flag.to_owned(), value]));
            Ok(Peer { name: name(number), grpc: addresses[number][0], words, directory, server: None })
        };
        let peers = (0..peers).map(prepare).collect::<Result<_, Error>>()?;
        let incarnations = Incarnations::of(links.len());
        Ok(NodeSet { peers, links, incarnations, transport, _directory: directory })
    }

    /// Starts all peers for the first time ever.
    pub(super) fn bootstrap(&mut self, args: &ChaosArgs) -> Result<(), Error> {
        let flags: &[&str] = if args.has_data() { &["--bootstrap"] } else { &[] };
        (0..self.peers.len()).try_for_each(|peer| self.start(peer, flags))
    }

    fn start(&mut self, number: usize, flags: &[&str]) -> Result<(), Error> {
        let peer = &mut self.peers[number];
        let log = peer.directory.join("log");
        let log = OpenOptions::new().create(true).append(true).read(true).open(&log);
        let mut words = peer.words.clone();
        words.extend(flags.iter().map(|&flag| flag.to_owned()));
        self.incarnations.begin(number);
        peer.server = Some(Server::start(&words, &log.map_err(Error::io("open the log of a peer"))?)?);
        Ok(())
    }

    pub(super) fn incarnations(&self) -> &Incarnations {
        &self.incarnations
    }

    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(super) fn grpc(&self) -> Vec<SocketAddr> {
        self.peers.iter().map(|peer| peer.grpc).collect()
    }

    pub(super) fn names(&self, peers: &[usize]) -> Vec<String> {
        peers.iter().map(|&peer| self.peers[peer].name.clone()).collect()
    }

    /// Fails if a process has ended that was not asked to.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.peers.iter().filter_map(|peer| peer.server.as_ref()).try_for_each(Server::check)
    }

    /// Does it. What has to be undone later is undone by [`end`](Self::end).
    pub(super) fn inflict(&mut self, fault: ChaosFault, victims: &[usize]) {
        for &victim in victims {
            match fault {
                ChaosFault::Kill | ChaosFault::Minority | ChaosFault::Wipe => self.signal(victim, Signal::KILL),
                ChaosFault::Term => self.signal(victim, Signal::TERM),
                ChaosFault::Pause => self.signal(victim, Signal::STOP),
                ChaosFault::CutMaster | ChaosFault::CutOne | ChaosFault::CutAll => {
                    self.links_of(victim).for_each(Link::cut)
                }
                ChaosFault::Mixed => unreachable!("chance has been decided by then"),
            }
        }
        if fault.ends_processes() {
            victims.iter().for_each(|&victim| self.peers[victim].server.iter_mut().for_each(Server::expect_end));
        }
    }

    /// Whether it can be undone: processes have ended that were asked to, or have had time enough.
    pub(super) fn can_end(&self, fault: ChaosFault, victims: &[usize], since: Duration) -> bool {
        let ended = |&victim: &usize| self.peers[victim].server.as_ref().is_none_or(Server::has_ended);
        !fault.ends_processes() || since >= STOP_PATIENCE || victims.iter().all(ended)
    }

    pub(super) fn end(&mut self, fault: ChaosFault, victims: &[usize]) -> Result<(), Error> {
        for &victim in victims {
            match fault {
                ChaosFault::Pause => self.signal(victim, Signal::CONT),
                ChaosFault::CutMaster | ChaosFault::CutOne | ChaosFault::CutAll => {
                    self.links_of(victim).for_each(Link::heal)
                }
                _ => {
                    // Kills what SIGTERM did not end.
                    self.peers[victim].server = None;
                    if fault == ChaosFault::Wipe {
                        let data = data(&self.peers[victim].directory);
                        fs::remove_dir_all(data).map_err(Error::io("delete the data of a peer"))?;
                    }
                    self.start(victim, &[])?;
                }
            }
        }
        Ok(())
    }

    fn signal(&self, peer: usize, signal: Signal) {
        self.peers[peer].server.iter().for_each(|server| server.signal(signal));
    }

    /// Links from it and to it.
    fn links_of(&self, peer: usize) -> impl Iterator<Item = &Link> {
        self.links[peer].iter().chain(self.links.iter().map(move |from| &from[peer]))
    }
}

/// Each peer has a loopback address to itself, where no outgoing connection takes its port while it is away. Where
/// there is but one such address (outside of Linux), that has to do.
fn host(peer: usize) -> Ipv4Addr {
    let [high, low] = [std::process::id() >> 8, std::process::id()].map(|part| (part & 0xff) as u8);
    Ipv4Addr::new(127, 100 + high % 100, low, 1 + u8::try_from(peer).unwrap_or(u8::MAX - 1))
}

/// Where a peer listens, for clients, for peers and for operators, as long as the set lives: it comes back where it
/// was.
pub(super) fn addresses(peer: usize) -> Result<[SocketAddr; 3], Error> {
    let found = ports::free(host(peer), 3).or_else(|_| ports::free(Ipv4Addr::LOCALHOST, 3));
    found.map(|found| [found[0], found[1], found[2]]).map_err(Error::io("find free ports"))
}

/// Everything that peers and clients dial: peers reach each other over links on loopback.
pub(super) fn hosts(addresses: &[[SocketAddr; 3]]) -> Vec<String> {
    let own = addresses.iter().flatten().map(|address| address.ip().to_string());
    own.chain(["127.0.0.1".to_owned()]).collect::<BTreeSet<_>>().into_iter().collect()
}

fn links(addresses: &[[SocketAddr; 3]], runtime: &Handle) -> Result<Vec<Vec<Link>>, Error> {
    let link = |to: &[SocketAddr; 3]| Link::to(to[1], runtime);
    let from = |_| addresses.iter().map(link).collect::<Result<Vec<_>, _>>();
    addresses.iter().map(from).collect::<Result<_, _>>().map_err(Error::io("listen for peers"))
}

fn data(directory: &Path) -> PathBuf {
    directory.join("data")
}

/// What follows `serve`.
fn flags(args: &ChaosArgs, number: usize, own: [SocketAddr; 3], links: &[Link], directory: &Path) -> Vec<String> {
    let anywhere = || "127.0.0.1:0".to_owned();
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let configuration = text(directory.with_file_name(CONFIGURATION));
    let mut flags = vec![
        ("--listen", own[0].to_string()),
        ("--http", anywhere()),
        ("--config", configuration),
        ("--id", name(number)),
    ];
    if args.has_data() {
        // No operator asks, and the default address would be the same for all.
        flags.extend([
            ("--data", text(data(directory))),
            ("--admin", anywhere()),
            ("--handover", word(&args.handover)),
        ]);
        flags.extend(args.timing.iter().map(|timing| ("--timing", timing.clone())));
    }
    if links.len() > 1 {
        let peers = links.iter().enumerate().map(|(to, link)| format!("{}={}", name(to), link.address()));
        flags.extend([("--peers", peers.collect::<Vec<_>>().join(",")), ("--peer-listen", own[1].to_string())]);
    }
    flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_peer_is_reached_over_a_link_for_each_direction() {
        let addresses: Vec<_> = (0..3).map(|peer| addresses(peer).unwrap()).collect();
        let links = links(&addresses, &Handle::current()).unwrap();
        let args = ChaosArgs::example();
        let mut named = Vec::new();
        for number in 0..3 {
            let flags = flags(&args, number, addresses[number], &links[number], Path::new("/set/peer"));
            let value = |flag: &str| flags[flags.iter().position(|word| word == flag).unwrap() + 1].clone();
            assert_eq!((value("--config"), value("--data")), ("/set/leaseway.yaml".into(), "/set/peer/data".into()));
            assert_eq!(value("--peer-listen"), addresses[number][1].to_string());
            let peers = value("--peers");
            let peers: Vec<_> = peers.split(',').map(|peer| peer.split_once('=').unwrap()).collect();
            assert!(peers.iter().map(|(name, _)| *name).eq(["a", "b", "c"]), "{flags:?}");
            named.extend(peers.into_iter().map(|(_, address)| address.to_owned()));
        }
        named.sort();
        named.dedup();
        assert_eq!(named.len(), 9, "a link for each direction of each pair");
    }
}
