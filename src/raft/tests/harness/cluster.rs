//! Several peers in one process, on links that can be cut.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use leaseway_core::{
    lease::promises::Changes,
    policy::period::Span,
    pool::Assigned,
    resource::budget::usage::{UsageRow, UsageUpdate},
    types::{Amount, ClusterTime, Epoch, HolderKind, Millis},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    election::master_lease::{MasterLease, Mastership},
    handle::{RaftHandle, open::StartError, start},
    log::{
        Membership, StoreError,
        command::{Command, Configuration},
    },
    settings::{Secret, Settings, timing::Timing},
    state::{StoredState, machine::Clock},
    tests::harness::{
        faults::{self, DiskState, HeldMessage},
        requests::identity,
    },
    transport::Method,
};

/// The secret that all peers share.
pub(crate) const SECRET: &str = "the shared secret";

/// Timeouts long enough for a loaded machine.
pub(crate) fn timing() -> Timing {
    Timing::new(50, 200, 400).expect("a good timing")
}

/// A link from one peer to another. While it is cut, bytes wait; they arrive when it is restored.
#[derive(Default)]
pub(crate) struct Link {
    cut: AtomicBool,
}

pub(crate) struct Cluster {
    pub(crate) directory: TempDir,
    pub(crate) names: Vec<String>,
    pub(crate) timing: Timing,
    origin: Instant,
    peers: BTreeMap<String, RaftHandle>,
    /// The address of each peer's listener.
    real: Arc<Mutex<BTreeMap<String, SocketAddr>>>,
    /// By sender and receiver.
    links: BTreeMap<(String, String), (Arc<Link>, SocketAddr)>,
}

impl Cluster {
    /// Starts no peer.
    pub(crate) async fn new(names: &[&str]) -> Cluster {
        Cluster::with(names, timing()).await
    }

    pub(crate) async fn with(names: &[&str], timing: Timing) -> Cluster {
        let mut cluster = Cluster {
            directory: tempfile::tempdir().expect("a temporary directory"),
            names: Vec::new(),
            timing,
            origin: Instant::now(),
            peers: BTreeMap::new(),
            real: Arc::default(),
            links: BTreeMap::new(),
        };
        for name in names {
            cluster.add_name(name).await;
        }
        cluster
    }

    /// Three peers `a`, `b` and `c` that bootstrap a cluster.
    pub(crate) async fn three() -> Cluster {
        let mut cluster = Cluster::new(&["a", "b", "c"]).await;
        cluster.bootstrap().await;
        cluster
    }

    /// Adds links for a peer, which can then be started.
    pub(crate) async fn add_name(&mut self, name: &str) {
        for other in self.names.clone() {
            self.link(name, &other).await;
            self.link(&other, name).await;
        }
        self.link(name, name).await;
        self.names.push(name.to_owned());
    }

    async fn link(&mut self, from: &str, to: &str) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let link = Arc::new(Link::default());
        tokio::spawn(carry(listener, Arc::clone(&link), Arc::clone(&self.real), to.to_owned()));
        self.links.insert((from.to_owned(), to.to_owned()), (link, address));
    }

    pub(crate) fn clock(&self) -> Clock {
        let origin = self.origin;
        Arc::new(move || Millis(1_000 + origin.elapsed().as_millis() as u64))
    }

    pub(crate) fn now(&self) -> Millis {
        (self.clock())()
    }

    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn address(&self, from: &str, to: &str) -> String {
        self.links[&(from.to_owned(), to.to_owned())].1.to_string()
    }

    pub(crate) fn settings(&self, name: &str) -> Settings {
        let peers = self.names.iter().map(|other| (other.clone(), self.address(name, other))).collect();
        Settings {
            listen: Some("127.0.0.1:0".parse().expect("an address")),
            advertise: format!("{name}.example:80"),
            peers,
            timing: self.timing,
            secret: Some(Secret::new(SECRET)),
            ..Settings::new(name, self.data(name), self.clock())
        }
    }

    pub(crate) async fn start_with(&mut self, settings: Settings) -> Result<RaftHandle, StartError> {
        let name = settings.name.clone();
        let peer = start(settings).await?;
        let address = peer.local_addr().expect("it listens");
        self.real.lock().unwrap().insert(name.clone(), address);
        self.peers.insert(name, peer.clone());
        Ok(peer)
    }

    pub(crate) async fn start(&mut self, name: &str) -> RaftHandle {
        let began = Instant::now();
        loop {
            match self.start_with(self.settings(name)).await {
                Ok(peer) => return peer,
                // A peer that was killed may still be stopping.
                Err(StartError::Store(StoreError::InUse { .. })) if began.elapsed() < Duration::from_secs(60) => {}
                Err(error) => panic!("{name} does not start: {error}"),
            }
        }
    }

    /// Starts all peers for the first time.
    pub(crate) async fn bootstrap(&mut self) {
        for name in self.names.clone() {
            let settings = Settings { bootstrap: true, ..self.settings(&name) };
            self.start_with(settings).await.expect("it starts");
        }
    }

    /// Kills all peers, and then starts them.
    pub(crate) async fn restart(&mut self) {
        for name in self.names.clone() {
            self.kill(&name);
        }
        for name in self.names.clone() {
            self.start(&name).await;
        }
    }

    /// The peers other than `name`.
    pub(crate) fn others(&self, name: &str) -> Vec<String> {
        self.names.iter().filter(|other| *other != name).cloned().collect()
    }

    /// Kills a peer. Its address becomes unreachable even while the peer is still stopping.
    pub(crate) fn kill(&mut self, name: &str) {
        self.real.lock().unwrap().remove(name);
        self.peers.remove(name).expect("it was running");
    }

    pub(crate) fn wipe(&self, name: &str) {
        let data = self.data(name);
        // A peer that was killed may still be stopping, and would write into the directory of the next.
        let is_free = || std::fs::File::open(data.join("lock")).is_ok_and(|lock| lock.try_lock().is_ok());
        until_blocking(|| !data.exists() || is_free() && std::fs::remove_dir_all(&data).is_ok());
    }

    pub(crate) fn peer(&self, name: &str) -> &RaftHandle {
        &self.peers[name]
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = (&String, &RaftHandle)> {
        self.peers.iter()
    }

    /// Cuts or restores both directions.
    pub(crate) fn cut(&self, one: &str, other: &str, cut: bool) {
        self.cut_off(one, other, cut);
        self.cut_off(other, one, cut);
    }

    /// Cuts or restores the requests of one peer to the other, and their answers.
    pub(crate) fn cut_off(&self, from: &str, to: &str, cut: bool) {
        self.links[&(from.to_owned(), to.to_owned())].0.cut.store(cut, Ordering::SeqCst);
    }

    pub(crate) fn isolate(&self, name: &str, cut: bool) {
        for other in &self.names {
            if other != name {
                self.cut(name, other, cut);
            }
        }
    }

    /// Isolates and restores a peer several times.
    pub(crate) async fn flap(&self, name: &str) {
        for round in 0..8 {
            self.isolate(name, round % 2 == 0);
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }

    pub(crate) fn restore_links(&self) {
        self.links.values().for_each(|(link, _)| link.cut.store(false, Ordering::SeqCst));
    }

    /// Sets the disk of a peer for the log and the vote.
    pub(crate) fn set_log_disk(&self, name: &str, state: DiskState) {
        faults::set_log_disk(&self.data(name), state);
    }

    pub(crate) fn set_snapshot_disk(&self, name: &str, state: DiskState) {
        faults::set_snapshot_disk(&self.data(name), state);
    }

    /// Holds the next message from one peer to the other, see [`faults::hold_next`].
    pub(crate) fn hold_next(&self, from: &str, to: &str, method: Option<Method>) -> HeldMessage {
        faults::hold_next(&self.address(from, to), method)
    }

    /// The peers whose master lease holds now.
    pub(crate) fn masters(&self) -> Vec<(String, MasterLease)> {
        let now = self.now();
        let lease = |peer: &RaftHandle| match &*peer.mastership().borrow() {
            Mastership::Master(lease) if lease.holds(now) => Some(lease.clone()),
            _ => None,
        };
        self.peers.iter().filter_map(|(name, peer)| Some((name.clone(), lease(peer)?))).collect()
    }

    pub(crate) async fn master(&self) -> (String, MasterLease) {
        let began = Instant::now();
        loop {
            if let Some(master) = self.masters().pop() {
                return master;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "there is no master: {}", self.metrics());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// openraft's metrics of each peer, for error messages.
    fn metrics(&self) -> String {
        let begun = |peer: &&RaftHandle| !peer.peers().is_empty();
        let of = |peer: &RaftHandle| format!("{} {:?}", *peer.raft().metrics().borrow(), peer.ineligible());
        let metrics = self.running().map(|(name, peer)| match Some(peer).filter(begun) {
            Some(peer) => format!("\n{name}: {}", of(peer)),
            None => format!("\n{name}: not begun, {:?}", peer.ineligible()),
        });
        metrics.collect()
    }

    /// Proposes to the master until one accepts.
    pub(crate) async fn propose(&self, command: Command) {
        for _ in 0..100 {
            let (name, lease) = self.master().await;
            if self.peers[&name].propose(&lease, vec![command.clone()]).await.is_ok() {
                return;
            }
        }
        panic!("no peer accepts it");
    }
}

/// The configurations of a peer, oldest first.
pub(crate) fn texts(peer: &RaftHandle) -> Vec<String> {
    peer.read(|state| state.configurations().map(|configuration| configuration.text.to_string()).collect())
}

pub(crate) fn configuration(text: impl Into<Arc<str>>) -> Configuration {
    Configuration { version: 0, text: text.into(), source: "a test".into(), at_unix: 0, by: "a".into() }
}

pub(crate) fn set_text(text: impl Into<Arc<str>>) -> Command {
    Command::Configuration(configuration(text))
}

pub(crate) fn stored_state(peer: &RaftHandle) -> StoredState {
    peer.read(|state| state.record(Millis(0)))
}

/// Waits until these peers have the same state.
pub(crate) async fn until_equal(cluster: &Cluster, names: impl IntoIterator<Item = &String> + Clone, done: &str) {
    let began = Instant::now();
    loop {
        let mut of_all: Vec<_> = names.clone().into_iter().map(|name| stored_state(cluster.peer(name))).collect();
        of_all.dedup();
        if of_all.len() == 1 {
            return;
        }
        if began.elapsed() > Duration::from_secs(60) {
            for name in names {
                eprintln!("{name}: {:?}", stored_state(cluster.peer(name)));
            }
            panic!("{done}: the states differ: {}", cluster.metrics());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The lease of a lone peer.
pub(crate) async fn lone_master(peer: &RaftHandle) -> MasterLease {
    let mut mastership = peer.mastership();
    let mastership = mastership.wait_for(|mastership| matches!(mastership, Mastership::Master(_))).await;
    let Mastership::Master(lease) = mastership.expect("the peer runs").clone() else { unreachable!() };
    lease
}

/// Promises a total until the horizon.
pub(crate) fn promised(resource: &str, epoch: u64, number: u64, total: f64, horizon: ClusterTime) -> Command {
    let changes = Changes {
        epoch: Epoch(epoch),
        number,
        total: Amount::clamped(total),
        horizon: Some(horizon),
        lease: Some(Millis(60_000)),
        high_water_mark: None,
        wants: None,
        parts: Vec::new(),
        period: None,
    };
    Command::Promises { resource: resource.into(), changes }
}

/// What a holder of a budget has spent.
pub(crate) fn used(resource: &str, record: &str, spent: f64) -> Command {
    let row = UsageRow {
        period: Span { start: 1_700_000_000, end: 1_700_003_600 },
        kind: HolderKind::Client,
        record: record.into(),
        group: Some("search".into()),
        spent: Amount::clamped(spent),
        lost: Amount::ZERO,
        update: UsageUpdate::Replace,
    };
    Command::Usage { resource: resource.into(), rows: vec![row] }
}

/// Assigns a part of `r` to a client; zero removes the assignment.
pub(crate) fn assigned(client: &str, amount: f64) -> Command {
    let assigned = (amount > 0.0).then(|| Assigned::Capacity(Amount::clamped(amount)));
    Command::Assignment { resource: "r".into(), kind: HolderKind::Client, holder: client.into(), assigned }
}

/// Waits for up to a minute.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "timeout: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn until_blocking(mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "timeout");
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn carry(listener: TcpListener, link: Arc<Link>, real: Arc<Mutex<BTreeMap<String, SocketAddr>>>, to: String) {
    while let Ok((from, _)) = listener.accept().await {
        let (link, address) = (Arc::clone(&link), real.lock().unwrap().get(&to).copied());
        tokio::spawn(async move {
            link.restored().await;
            let Some(address) = address else { return };
            let Ok(there) = TcpStream::connect(address).await else { return };
            let _ = (from.set_nodelay(true), there.set_nodelay(true));
            let ((mut from_in, mut from_out), (mut to_in, mut to_out)) = (from.into_split(), there.into_split());
            tokio::select! {
                () = pump(&mut from_in, &mut to_out, &link) => {}
                () = pump(&mut to_in, &mut from_out, &link) => {}
            }
        });
    }
}

async fn pump(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    link: &Link,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
        link.restored().await;
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

impl Link {
    async fn restored(&self) {
        while self.cut.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The membership as a peer knows it; empty before consensus has begun there.
pub(crate) fn membership(cluster: &Cluster, name: &str) -> Membership {
    if cluster.peer(name).peers().is_empty() {
        return Membership::default();
    }
    cluster.peer(name).raft().metrics().borrow().membership_config.membership().clone()
}

/// Whether a peer knows no unfinished change, and every voter runs under the identity that has the vote.
pub(crate) fn is_settled(cluster: &Cluster, name: &str) -> bool {
    let membership = membership(cluster, name);
    let voters: BTreeSet<_> = membership.voter_ids().collect();
    let there = |(peer, name): (u64, &str)| {
        cluster.running().any(|(running, _)| running == name) && identity(cluster, name).peer == peer
    };
    membership.get_joint_config().len() == 1
        && membership.nodes().all(|(peer, member)| voters.contains(peer) && there((*peer, &member.name)))
}
