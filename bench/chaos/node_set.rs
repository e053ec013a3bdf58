//! The peers of a node as processes of this machine, and the links between them.

use std::{
    fs::{self, OpenOptions},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use leaseway_process::{Signal, link::Link, ports};
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::{
    args::{ChaosArgs, name},
    fault::ChaosFault,
    observer::Incarnations,
};
use crate::{error::Error, flags::word, output::note, server::Server};

/// How long a process may take to end after SIGTERM.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct NodeSet {
    peers: Vec<Peer>,
    /// `links[i][j]`: over it peer `i` reaches peer `j`. None has one to itself.
    links: Vec<Vec<Option<Link>>>,
    incarnations: Incarnations,
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
        let configuration = directory.path().join("leaseway.yaml");
        fs::write(&configuration, args.configuration()).map_err(Error::io("write the configuration"))?;
        let peers = args.peers.get();
        let ports: Vec<_> = (0..peers).map(Ports::find).collect::<Result<_, _>>()?;
        let links = links(&ports, runtime)?;
        let server = server_words(args.server.as_deref())?;
        let start = |(number, ports): (usize, &Ports)| {
            let name = name(number);
            let directory = directory.path().join(&name);
            fs::create_dir(&directory).map_err(Error::io("create a directory for a peer"))?;
            let mut words = server.clone();
            words.extend(ports.flags(&name, &configuration));
            if args.has_data() {
                words.extend(data_flags(args, &directory));
            }
            if peers > 1 {
                words.extend(peer_flags(number, ports, &links[number]));
            }
            Ok(Peer { name, grpc: ports.grpc, words, directory, server: None })
        };
        let peers: Vec<_> = ports.iter().enumerate().map(start).collect::<Result<_, Error>>()?;
        let incarnations = Incarnations::of(peers.len());
        Ok(NodeSet { peers, links, incarnations, _directory: directory })
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

    /// Undoes it.
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
        self.links[peer].iter().chain(self.links.iter().map(move |from| &from[peer])).flatten()
    }
}

/// Where a peer listens, as long as the set lives: it comes back where it was.
struct Ports {
    grpc: SocketAddr,
    http: SocketAddr,
    peer: SocketAddr,
}

impl Ports {
    fn find(peer: usize) -> Result<Ports, Error> {
        let found = ports::free(host(peer), 3).or_else(|_| ports::free(Ipv4Addr::LOCALHOST, 3));
        let found = found.map_err(Error::io("find free ports"))?;
        Ok(Ports { grpc: found[0], http: found[1], peer: found[2] })
    }

    fn flags(&self, name: &str, configuration: &Path) -> Vec<String> {
        let configuration = configuration.to_string_lossy();
        let (grpc, http) = (self.grpc.to_string(), self.http.to_string());
        let flags = ["--listen", &grpc, "--http", &http, "--config", &configuration, "--id", name];
        flags.map(str::to_owned).to_vec()
    }
}

/// Each peer has a loopback address to itself, where no outgoing connection takes its port while it is away. Where
/// there is but one such address (outside of Linux), that has to do.
fn host(peer: usize) -> Ipv4Addr {
    let [high, low] = [std::process::id() >> 8, std::process::id()].map(|part| (part & 0xff) as u8);
    Ipv4Addr::new(127, 100 + high % 100, low, 1 + u8::try_from(peer).unwrap_or(u8::MAX - 1))
}

fn links(ports: &[Ports], runtime: &Handle) -> Result<Vec<Vec<Option<Link>>>, Error> {
    let link = |from: usize, to: usize| (from != to).then(|| Link::to(ports[to].peer, runtime)).transpose();
    let from = |from: usize| (0..ports.len()).map(|to| link(from, to)).collect::<Result<Vec<_>, _>>();
    (0..ports.len()).map(from).collect::<Result<_, _>>().map_err(Error::io("listen for peers"))
}

fn data(directory: &Path) -> PathBuf {
    directory.join("data")
}

fn data_flags(args: &ChaosArgs, directory: &Path) -> Vec<String> {
    let data = data(directory).to_string_lossy().into_owned();
    // No operator asks, and the default address would be the same for all.
    let mut flags =
        ["--data", &data, "--admin", "127.0.0.1:0", "--handover", &word(&args.handover)].map(str::to_owned).to_vec();
    flags.extend(args.timing.iter().flat_map(|timing| ["--timing".to_owned(), timing.clone()]));
    flags
}

fn peer_flags(number: usize, own: &Ports, links: &[Option<Link>]) -> Vec<String> {
    let address = |link: &Option<Link>| link.as_ref().map_or_else(|| own.peer.to_string(), Link::address);
    let peers: Vec<_> = links.iter().enumerate().map(|(to, link)| format!("{}={}", name(to), address(link))).collect();
    debug_assert!(links[number].is_none(), "no peer reaches itself over a link");
    ["--peers", &peers.join(","), "--peer-listen", &own.peer.to_string()].map(str::to_owned).to_vec()
}

/// The command up to `serve`.
fn server_words(command: Option<&str>) -> Result<Vec<String>, Error> {
    let mut words = match command {
        Some(command) => shlex::split(command)
            .filter(|words| !words.is_empty())
            .ok_or_else(|| Error::Usage(format!("--server `{command}` is no command")))?,
        None => vec![beside_us().unwrap_or_else(|| PathBuf::from("leaseway")).to_string_lossy().into_owned()],
    };
    if !words.iter().any(|word| word == "serve") {
        words.push("serve".into());
    }
    Ok(words)
}

fn beside_us() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("leaseway");
    beside.is_file().then_some(beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_say_serve_and_more_by_itself() {
        assert_eq!(server_words(Some("nice 'my server'")).unwrap(), ["nice", "my server", "serve"]);
        assert_eq!(server_words(Some("lw serve --threads 1")).unwrap(), ["lw", "serve", "--threads", "1"]);
        assert_eq!(server_words(None).unwrap().last().unwrap(), "serve");
        for wrong in ["", "lw 'serve"] {
            assert!(server_words(Some(wrong)).is_err(), "{wrong:?} was accepted");
        }
    }

    #[tokio::test]
    async fn each_peer_reaches_the_others_over_links_of_its_own_and_itself_directly() {
        let ports: Vec<_> = (0..3).map(|peer| Ports::find(peer).unwrap()).collect();
        let links = links(&ports, &Handle::current()).unwrap();
        let flags: Vec<_> = (0..3).map(|peer| peer_flags(peer, &ports[peer], &links[peer])).collect();
        let mut addresses = Vec::new();
        for (number, flags) in flags.iter().enumerate() {
            assert_eq!((flags[0].as_str(), flags[2].as_str()), ("--peers", "--peer-listen"));
            let peers: Vec<_> = flags[1].split(',').map(|peer| peer.split_once('=').unwrap()).collect();
            assert!(peers.iter().map(|(name, _)| *name).eq(["a", "b", "c"]), "{flags:?}");
            assert_eq!(peers[number].1, ports[number].peer.to_string());
            assert_eq!(flags[3], ports[number].peer.to_string());
            addresses.extend(peers.into_iter().map(|(_, address)| address.to_owned()));
        }
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), 9, "a link for each direction of each pair");
    }
}
