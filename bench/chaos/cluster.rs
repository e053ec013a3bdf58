//! The processes of a run and the links between them: starts, stops and reaches them. It does not decide on faults.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use leaseway_client::Transport;
use leaseway_process::{Signal, link::Link, ports};
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::{
    chaos::{
        args::{ChaosArgs, FIRST_CAPACITY, PeerTiming},
        layout::NodeLayout,
        schedule::is_over_tls,
    },
    common::{
        error::Error,
        output::note,
        server::{Server, said_by, server_words},
        tls::{self, Certificates},
    },
};

const CONFIGURATION: &str = "leaseway.yaml";

/// All nodes. Peers are numbered across nodes.
pub(crate) struct Cluster {
    pub(crate) peers: Vec<PeerProcess>,
    /// The numbers of the peers of each node.
    pub(crate) nodes: Vec<std::ops::Range<usize>>,
    /// `links[i][j]` is the link over which peer `i` reaches peer `j` of its node.
    pub(crate) links: Vec<Vec<Link>>,
    server: Vec<String>,
    pub(crate) timing: PeerTiming,
    /// `None` without TLS.
    pub(crate) certificates: Option<Certificates>,
    /// Whether disks can be degraded, which needs a C compiler.
    pub(crate) has_bad_disks: bool,
    /// The errors of peers that exited unexpectedly and were restarted since.
    ended: Vec<String>,
    directory: TempDir,
}

pub(crate) struct PeerProcess {
    pub(crate) node: usize,
    pub(crate) name: String,
    /// The address for clients, and the link over which they reach it.
    pub(crate) grpc: SocketAddr,
    pub(crate) front: Link,
    pub(crate) admin: SocketAddr,
    words: Vec<String>,
    directory: PathBuf,
    pub(crate) server: Option<Server>,
    /// The length of its log file when it was last started.
    logged: usize,
}

impl Cluster {
    /// Prepares directories, certificates and links, but starts no process. Links run on `runtime`.
    pub(crate) fn prepare(args: &ChaosArgs, seed: u64, runtime: &Handle) -> Result<Cluster, Error> {
        let mut directory = tempfile::tempdir().map_err(Error::io("create a directory for the peers"))?;
        if args.keep {
            directory.disable_cleanup(true);
            note(&format!("logs and data of the peers are in {}", directory.path().display()));
        }
        let mut server = server_words(args.server.as_deref())?;
        if let Some(rule) = &args.plant {
            server.splice(..0, ["env".to_owned(), format!("PLANTED_FAULT={rule}")]);
        }
        let bad_disk = bad_disks(directory.path());
        let peers = args.shape.nodes().iter().map(|layout| layout.peers).sum();
        let mut addresses = (0..peers).map(addresses).collect::<Result<Vec<_>, _>>()?;
        let certificates = is_over_tls(seed).then(|| Certificates::make(&server, directory.path(), &hosts(&addresses)));
        let certificates = certificates.transpose()?;
        let mut cluster = Cluster {
            peers: Vec::new(),
            nodes: Vec::new(),
            links: Vec::new(),
            server,
            timing: args.timing(seed),
            certificates,
            has_bad_disks: bad_disk.is_some(),
            ended: Vec::new(),
            directory,
        };
        let configuration = cluster.write_file(&args.configuration(FIRST_CAPACITY), CONFIGURATION)?;
        for (node, layout) in args.shape.nodes().iter().enumerate() {
            let addresses: Vec<_> = addresses.drain(..layout.peers).collect();
            cluster.add_node((node, layout), &addresses, &configuration, bad_disk.as_deref(), runtime)?;
        }
        Ok(cluster)
    }

    fn add_node(
        &mut self,
        (node, layout): (usize, &NodeLayout),
        addresses: &[[SocketAddr; 3]],
        configuration: &Path,
        bad_disk: Option<&Path>,
        runtime: &Handle,
    ) -> Result<(), Error> {
        let first = self.peers.len();
        let link = |to: SocketAddr| Link::to(to, runtime).map_err(Error::io("listen for peers"));
        for _ in 0..layout.peers {
            self.links.push(addresses.iter().map(|to| link(to[1])).collect::<Result<_, _>>()?);
        }
        let parents = self.nodes.first().map(|root| self.endpoints(root.clone()).join(","));
        for (number, [grpc, peer, admin]) in addresses.iter().copied().enumerate() {
            let id = name(number);
            let directory = self.directory.path().join(format!("{}-{id}", layout.name));
            fs::create_dir(&directory).map_err(Error::io("create a directory for a peer"))?;
            let front = link(grpc)?;
            let text = |path: &Path| path.to_string_lossy().into_owned();
            let mut flags = vec![
                ("--listen", grpc.to_string()),
                ("--advertise", front.address()),
                ("--http", "127.0.0.1:0".into()),
                ("--admin", admin.to_string()),
                ("--id", id.clone()),
                ("--data", text(&directory.join("data"))),
                ("--timing", self.timing.flag.clone()),
                ("--threads", "2".into()),
            ];
            match &parents {
                Some(parents) => flags.extend([("--parent", parents.clone()), ("--node", layout.name.into())]),
                None => flags.push(("--config", text(configuration))),
            }
            if layout.peers > 1 {
                let named = self.links[first + number].iter().enumerate();
                let named = named.map(|(to, link)| format!("{}={}", name(to), link.address()));
                flags.extend([("--peers", named.collect::<Vec<_>>().join(",")), ("--peer-listen", peer.to_string())]);
            }
            if let Some(certificates) = &self.certificates {
                flags.extend(certificates.flags());
                // The gateway has no certificate.
                flags.push(("--tls-client-auth", "optional".into()));
            }
            let mut words = vec!["env".to_owned()];
            words.extend(bad_disk.map(|library| format!("LD_PRELOAD={}", library.display())));
            words.push(format!("BAD_DISK={}", directory.join("disk").display()));
            words.extend(self.server.iter().cloned());
            words.extend(flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
            self.peers.push(PeerProcess {
                node,
                name: id,
                grpc,
                front,
                admin,
                words,
                directory,
                server: None,
                logged: 0,
            });
        }
        self.nodes.push(first..first + layout.peers);
        Ok(())
    }

    /// The command that starts peers and gateways.
    pub(crate) fn program(&self) -> &[String] {
        &self.server
    }

    /// The link over which one peer reaches another of its node.
    pub(crate) fn link(&self, from: usize, to: usize) -> &Link {
        &self.links[from][to - self.nodes[self.peers[from].node].start]
    }

    /// The addresses at which clients and child nodes of a node reach its peers.
    pub(crate) fn endpoints(&self, peers: std::ops::Range<usize>) -> Vec<String> {
        self.peers[peers].iter().map(|peer| peer.front.address()).collect()
    }

    /// Starts a peer. `flags` are added to its usual flags.
    pub(crate) fn start(&mut self, number: usize, flags: &[String]) -> Result<(), Error> {
        let peer = &mut self.peers[number];
        let log = OpenOptions::new().create(true).append(true).read(true).open(peer.directory.join("log"));
        let log = log.map_err(Error::io("open the log of a peer"))?;
        let words: Vec<_> = peer.words.iter().chain(flags).cloned().collect();
        peer.logged = peer.log().len();
        peer.server = Some(Server::start(&words, &log)?);
        Ok(())
    }

    /// From now on the peer may exit. If it has exited before, that is still reported.
    pub(crate) fn expect_end(&mut self, number: usize) {
        let peer = &mut self.peers[number];
        self.ended.extend(peer.end());
        peer.server.iter_mut().for_each(Server::expect_end);
    }

    /// Sends SIGKILL and waits until the process has exited.
    pub(crate) fn kill(&mut self, number: usize) {
        self.expect_end(number);
        self.signal(number, Signal::KILL);
        self.peers[number].server = None;
    }

    pub(crate) fn signal(&self, number: usize, signal: Signal) {
        self.peers[number].server.iter().for_each(|server| server.signal(signal));
    }

    /// A command of an operator for the peers of a node.
    pub(crate) fn operator(&self, node: usize, words: &[&str]) -> Operator {
        let admins: Vec<_> = self.peers[self.nodes[node].clone()].iter().map(|peer| peer.admin.to_string()).collect();
        let words = words.iter().map(|&word| word.to_owned());
        let tls = self.client_flags().flat_map(|(flag, value)| [flag.to_owned(), value]);
        let words = words.chain(["--admin".into(), admins.join(","), "--timeout".into(), "5".into()]).chain(tls);
        Operator { server: self.server.clone(), words: words.collect() }
    }

    /// TLS flags of commands and clients.
    pub(crate) fn client_flags(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.certificates.iter().flat_map(Certificates::client_flags)
    }

    /// The CA of the peers' certificates.
    pub(crate) fn ca(&self) -> Option<String> {
        self.client_flags().find(|(flag, _)| *flag == "--tls-ca").map(|(_, file)| file)
    }

    pub(crate) fn transport(&self) -> Result<Transport, Error> {
        Ok(tls::transport(self.certificates.as_ref().map(Certificates::client).transpose()?))
    }

    /// Whether all peers of the node take part and are up to date, according to its master. Other peers may list a peer
    /// that has lost its data under its old identity.
    pub(crate) fn is_whole(&self, node: usize) -> bool {
        let size = self.nodes[node].len();
        if size == 1 {
            return true;
        }
        let Ok(said) = self.operator(node, &["peers", "list", "--json"]).run() else { return false };
        let Ok(list) = serde_json::from_str::<serde_json::Value>(&said) else { return false };
        let peers = list["peers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let count = |role: &str| peers.iter().filter(|peer| peer["role"] == role && peer["lag"].is_u64()).count();
        peers.len() == size && list["name"] == list["master"] && count("master") == 1 && count("follower") == size - 1
    }

    /// Writes a file into the directory of the run.
    pub(crate) fn write_file(&self, text: &str, name: &str) -> Result<PathBuf, Error> {
        let path = self.directory.path().join(name);
        fs::write(&path, text).map_err(Error::io("write a file"))?;
        Ok(path)
    }

    /// Descriptions of peers that exited unexpectedly or panicked.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let ended = self.ended.iter().cloned().chain(self.peers.iter().filter_map(PeerProcess::end));
        let panicked = self.peers.iter().filter_map(|peer| {
            let log = peer.log();
            let line = log.lines().find(|line| line.contains("panicked at"))?;
            Some(format!("{} panicked: {line}", peer.label()))
        });
        ended.chain(panicked).collect()
    }
}

impl PeerProcess {
    pub(crate) fn label(&self) -> String {
        format!("{} of node {}", self.name, self.node)
    }

    pub(crate) fn runs(&self) -> bool {
        self.server.as_ref().is_some_and(|server| !server.has_ended())
    }

    /// The error if the peer has exited unexpectedly.
    fn end(&self) -> Option<String> {
        let error = self.server.as_ref()?.check().err()?;
        Some(format!("{}: {error}", self.label()))
    }

    /// The error message with which the peer exited. `Err` has its output if it logged no error or panicked.
    pub(crate) fn refusal(&self) -> Result<String, String> {
        let log = self.log();
        let said = log.get(self.logged..).unwrap_or_default();
        let why = said.lines().find(|line| line.starts_with("leaseway: "));
        why.filter(|_| !said.contains("panicked at")).map(str::to_owned).ok_or_else(|| said.to_owned())
    }

    /// Its log, across restarts.
    pub(crate) fn log(&self) -> String {
        fs::read(self.directory.join("log"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Degrades the disk: delays each flush by `slow`, or makes the disk full if `slow` is `None`.
    pub(crate) fn spoil_disk(&self, slow: Option<Duration>) -> Result<(), Error> {
        let text = slow.map_or_else(String::new, |slow| slow.as_millis().to_string());
        // Replace the file atomically, because an empty file means a full disk.
        let new = self.directory.join("disk.new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(new, self.directory.join("disk")));
        written.map_err(Error::io("spoil the disk of a peer"))
    }

    pub(crate) fn mend_disk(&self) {
        let _ = fs::remove_file(self.directory.join("disk"));
    }

    pub(crate) fn delete_data(&self) -> Result<(), Error> {
        match fs::remove_dir_all(self.directory.join("data")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("delete the data of a peer")(error))
            }
            _ => Ok(()),
        }
    }

    /// The newest segment of its Raft log.
    pub(crate) fn log_file(&self) -> Option<PathBuf> {
        let files = fs::read_dir(self.directory.join("data").join("log")).ok()?;
        files.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "log")).max()
    }
}

/// A command that can be run on another thread.
pub(crate) struct Operator {
    server: Vec<String>,
    words: Vec<String>,
}

impl Operator {
    pub(crate) fn run(&self) -> Result<String, Error> {
        said_by(&self.server, &self.words.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

/// Compiles the library that degrades disks. `None` without a C compiler.
fn bad_disks(directory: &Path) -> Option<PathBuf> {
    let (source, library) = (directory.join("disk.c"), directory.join("disk.so"));
    fs::write(&source, include_str!("disk.c")).ok()?;
    let made = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).args([&library, &source]).output();
    made.is_ok_and(|made| made.status.success() && File::open(&library).is_ok()).then_some(library)
}

/// A loopback address for each peer, so that no outgoing connection takes its port while it is down. Platforms with a
/// single loopback address use that one.
fn host(peer: usize) -> Ipv4Addr {
    let [high, low] = [std::process::id() >> 8, std::process::id()].map(|part| (part & 0xff) as u8);
    Ipv4Addr::new(127, 100 + high % 100, low, 1 + u8::try_from(peer).unwrap_or(u8::MAX - 1))
}

/// The addresses for clients, for peers and for operators. They survive restarts.
pub(crate) fn addresses(peer: usize) -> Result<[SocketAddr; 3], Error> {
    let found = ports::free(host(peer), 3).or_else(|_| ports::free(Ipv4Addr::LOCALHOST, 3));
    found.map(|found| [found[0], found[1], found[2]]).map_err(Error::io("find free ports"))
}

/// Every address that peers and clients connect to.
pub(crate) fn hosts(addresses: &[[SocketAddr; 3]]) -> Vec<String> {
    let own = addresses.iter().flatten().map(|address| address.ip().to_string());
    own.chain(["127.0.0.1".to_owned()]).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Peers are called a, b, c …
fn name(peer: usize) -> String {
    char::from(b'a' + u8::try_from(peer).unwrap_or(u8::MAX - b'a')).to_string()
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Runtime;

    use super::*;

    /// A cluster whose peers run this command instead of a server. Returns once the first peer has exited.
    fn cluster(server: &str, runtime: &Runtime) -> Cluster {
        let args = ChaosArgs { server: Some(server.to_owned()), ..ChaosArgs::of("") };
        let mut cluster = Cluster::prepare(&args, 1, runtime.handle()).unwrap();
        cluster.start(0, &[]).unwrap();
        assert!(cluster.peers[0].server.as_ref().unwrap().ends_within(Duration::from_secs(60)));
        cluster
    }

    #[test]
    fn a_peer_that_ended_by_itself_is_reported_even_if_a_fault_has_restarted_it() {
        let runtime = Runtime::new().unwrap();
        let mut cluster = cluster("sh -c 'exit 3'", &runtime);
        let told = cluster.complaints();
        assert!(told.len() == 1 && told[0].contains("a of node 0: ") && told[0].contains("exit status: 3"), "{told:?}");
        cluster.kill(0);
        assert_eq!(cluster.complaints(), told);
        cluster.start(0, &[]).unwrap();
        cluster.kill(0);
        assert_eq!(cluster.complaints()[..1], told);
    }

    #[test]
    fn a_peer_that_may_end_has_to_log_why_since_its_last_start() {
        let runtime = Runtime::new().unwrap();
        let once = "sh -c 'echo leaseway: no room; mkdir \"$(dirname $BAD_DISK)/data\" || echo panicked at'";
        let mut cluster = cluster(once, &runtime);
        assert_eq!(cluster.peers[0].refusal(), Ok("leaseway: no room".to_owned()));
        cluster.start(0, &[]).unwrap();
        assert!(cluster.peers[0].server.as_ref().unwrap().ends_within(Duration::from_secs(60)));
        assert!(cluster.peers[0].refusal().unwrap_err().contains("panicked at"));
    }
}
