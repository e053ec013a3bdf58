//! The thread that consensus runs on, and its tasks.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use openraft::{Config, SnapshotPolicy};
use tokio::{
    net::TcpListener,
    sync::{Mutex, mpsc, oneshot, watch},
};

use crate::{
    advance,
    backup::Backup,
    bootstrap::{self, Bootstrap, BootstrapOutcome},
    discovery::Discovery,
    election_timer::ElectionTimer,
    error::{ChangeError, StartError},
    incoming::Incoming,
    lease_renewal::LeaseRenewal,
    leave,
    machine::SharedState,
    master_lease::Mastership,
    members::Members,
    metrics,
    open::{self, Opened},
    peers::{Handshake, Liveness, LocalPeer, Method, PeerClient, PeerNetwork, PeersService, Prover},
    proposals::{self, Proposals, WeakProposals},
    raft::{Member, PeerId, Raft},
    settings::Settings,
    store::{LogStore, disk::Failing, floor::Flusher, flush_times::FlushTimes},
    transfer::{self, Transferred},
};

/// Requests to join beyond so many are dropped; peers repeat them.
const MAX_PENDING_JOINS: usize = 8;
/// The log is cut off by a snapshot when it has so many entries …
const SNAPSHOT_AFTER_ENTRIES: u64 = 20_000;
/// … or so many bytes.
const SNAPSHOT_AFTER_BYTES: u64 = 8 << 20;
/// How often its length is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How much of what the floor says a loss of power may take back.
const FLOOR_FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// How often peers are asked which incarnation runs, where that is in doubt; also the time limit of an answer.
const DOUBT_INTERVAL: Duration = Duration::from_secs(1);

/// A command from a [`RaftHandle`](crate::RaftHandle) handle to its thread.
pub(crate) enum Request {
    Add { name: String, address: String, done: oneshot::Sender<Result<(), ChangeError>> },
    Remove { name: String, done: oneshot::Sender<Result<(), ChangeError>> },
    Transfer { to: Option<String>, done: oneshot::Sender<Result<Transferred, ChangeError>> },
    Leave { done: oneshot::Sender<()> },
}

/// Where a peer's state come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StateOrigin {
    /// The first start of all: nothing was ever promised.
    Bootstrapped,
    /// Its own directory, and what the other peers have beyond that.
    Resumed,
    /// An empty directory, and no word that this is the first start: state may have been lost. With peers it waits
    /// until they let it in.
    Empty,
    /// It had an empty directory, and the other peers gave it everything.
    Joined,
}

/// The origin, which changes when a peer joins.
#[derive(Debug)]
pub(crate) struct StateOriginCell(AtomicU8);

const STATE_ORIGINS: [StateOrigin; 4] =
    [StateOrigin::Bootstrapped, StateOrigin::Resumed, StateOrigin::Empty, StateOrigin::Joined];

impl StateOriginCell {
    pub(crate) fn get(&self) -> StateOrigin {
        STATE_ORIGINS[usize::from(self.0.load(Ordering::Acquire))]
    }

    fn set(&self, origin: StateOrigin) {
        self.0.store(origin as u8, Ordering::Release);
    }
}

/// What is shared between a [`RaftHandle`](crate::RaftHandle) and its thread.
pub(crate) struct Running {
    pub(crate) local: Arc<LocalPeer>,
    pub(crate) state: SharedState,
    pub(crate) mastership: watch::Receiver<Mastership>,
    pub(crate) proposals: Proposals,
    pub(crate) requests: mpsc::UnboundedSender<Request>,
    pub(crate) origin: Arc<StateOriginCell>,
    pub(crate) failing: Failing,
    pub(crate) flushes: FlushTimes,
    /// The bound address of the listener, with the real port.
    pub(crate) listening: Option<SocketAddr>,
}

/// Runs a peer. Ends when it has left, or when the last sender of `requests` is dropped: then at once, as if killed.
pub(crate) async fn run(settings: Arc<Settings>, started: oneshot::Sender<Result<Running, StartError>>) {
    let (requests, inbox) = mpsc::unbounded_channel();
    match Peer::start(settings, requests).await {
        Ok((peer, running)) => {
            if started.send(Ok(running)).is_ok() {
                peer.run(inbox).await;
            }
        }
        Err(error) => drop(started.send(Err(error))),
    }
}

/// A peer that was opened and listens, before consensus starts.
struct Peer {
    settings: Arc<Settings>,
    local: Arc<LocalPeer>,
    client: Arc<PeerClient>,
    opened: Opened,
    origin: Arc<StateOriginCell>,
    mastership: watch::Sender<Mastership>,
    queue: mpsc::UnboundedReceiver<proposals::Proposal>,
    own_proposals: WeakProposals,
    joins: mpsc::Receiver<(u64, Member)>,
}

impl Peer {
    async fn start(
        settings: Arc<Settings>,
        requests: mpsc::UnboundedSender<Request>,
    ) -> Result<(Peer, Running), StartError> {
        // Nothing else runs on this thread yet, so it may block.
        let opened = open::open(&settings)?;
        let handshake =
            Handshake::new(Arc::clone(&settings), Arc::clone(&opened.directory), &opened.identity, opened.incarnation);
        let handshake = Arc::new(handshake);
        let liveness = Arc::new(Liveness::default());
        let (joins, asked) = mpsc::channel(MAX_PENDING_JOINS);
        let (mastership, watched) = watch::channel(Mastership::Unknown);
        let prover = Arc::new(Prover::new(settings.secret.as_ref()));
        let local = Arc::new(LocalPeer {
            raft: OnceLock::new(),
            handshake: Arc::clone(&handshake),
            prover: Arc::clone(&prover),
            knows_peers_by_certificate: settings.tls.is_some(),
            named: settings.peers.clone(),
            liveness: Arc::clone(&liveness),
            acknowledged: opened.acknowledged.clone(),
            log: opened.log.clone(),
            ballot: Default::default(),
            received: Default::default(),
            clock: Arc::clone(&settings.clock),
            timing: settings.timing,
            failing: opened.failing.clone(),
            mastership: watched.clone(),
            discovered: Default::default(),
            joins,
        });
        let client = Arc::new(PeerClient::new(&settings, prover, handshake, liveness, opened.acknowledged.clone()));
        let mut listening = None;
        if let Some(address) = settings.listen {
            let failed = |source| StartError::Listen { address, source };
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            listening = Some(listener.local_addr().map_err(failed)?);
            serve((settings.accept)(listener), Arc::clone(&local));
        }
        let origin = match (opened.used, settings.bootstrap) {
            (true, _) => StateOrigin::Resumed,
            (false, true) => StateOrigin::Bootstrapped,
            (false, false) => StateOrigin::Empty,
        };
        let (proposals, queue) = proposals::queue();
        let own_proposals = proposals.downgrade();
        let origin = Arc::new(StateOriginCell(AtomicU8::new(origin as u8)));
        let running = Running {
            local: Arc::clone(&local),
            state: opened.machine.state(),
            mastership: watched,
            proposals,
            requests,
            origin: Arc::clone(&origin),
            failing: opened.failing.clone(),
            flushes: opened.flushes.clone(),
            listening,
        };
        Ok((Peer { settings, local, client, opened, origin, mastership, queue, own_proposals, joins: asked }, running))
    }

    async fn run(self, mut inbox: mpsc::UnboundedReceiver<Request>) {
        let settings = Arc::clone(&self.settings);
        let members = Arc::new(OnceLock::new());
        let (leaving, left) = watch::channel(false);
        tokio::spawn(self.start_consensus(Arc::clone(&members), left));
        while let Some(request) = inbox.recv().await {
            let members: Option<Arc<Members>> = members.get().cloned();
            match (request, members) {
                (Request::Leave { done }, members) => {
                    leaving.send_replace(true);
                    if let Some(members) = members {
                        leave::leave(&members).await;
                    }
                    drop(done);
                    return;
                }
                (Request::Add { done, .. } | Request::Remove { done, .. }, _) if settings.is_lone() => {
                    let _ = done.send(Err(ChangeError::Lone { name: settings.name.clone() }));
                }
                (Request::Add { done, .. } | Request::Remove { done, .. }, None) => {
                    let _ = done.send(Err(ChangeError::NotMaster { master: None }));
                }
                (Request::Transfer { done, .. }, _) if settings.is_lone() => drop(done.send(Err(ChangeError::Alone))),
                (Request::Transfer { done, .. }, None) => {
                    let _ = done.send(Err(ChangeError::NotMaster { master: None }));
                }
                (Request::Transfer { to, done }, Some(members)) => {
                    tokio::spawn(async move { done.send(transfer::transfer(&members, to.as_deref()).await) });
                }
                (Request::Add { name, address, done }, Some(members)) => {
                    tokio::spawn(async move { done.send(members.add(&name, &address).await) });
                }
                (Request::Remove { name, done }, Some(members)) => {
                    tokio::spawn(async move { done.send(members.remove(&name).await) });
                }
            }
        }
    }

    /// Starts consensus and all tasks that depend on it.
    async fn start_consensus(self, members: Arc<OnceLock<Arc<Members>>>, mut left: watch::Receiver<bool>) {
        let Peer { settings, local, client, opened, origin, mastership, queue, own_proposals, joins } = self;
        let Opened { used, members: known, log, floor, machine, failing, .. } = opened;
        let state = machine.state();
        if !settings.is_lone() {
            let (local, client, settings) = (Arc::clone(&local), Arc::clone(&client), Arc::clone(&settings));
            let discovery = Discovery { local, client, settings, mastership: mastership.clone(), members: known };
            let mut left = left.clone();
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    _ = left.wait_for(|leaving| *leaving) => {}
                    () = discovery.run() => {}
                }
            });
        }
        if used && !settings.is_lone() {
            // An earlier process may have leased this peer's vote, and that is not stored. A lone peer has no other
            // peer to lease it to, and the lock of its directory excludes another process.
            tokio::time::sleep(settings.timing.certainly_over()).await;
        }
        let network = PeerNetwork { client: Arc::clone(&client), settings: Arc::clone(&settings), log: log.clone() };
        let config = Arc::new(config(&settings));
        let raft = match Raft::new(local.handshake.peer(), config, network, log.clone(), machine).await {
            Ok(raft) => raft,
            Err(error) => return failing.fail(&error),
        };
        let _ = local.raft.set(raft.clone());
        let (step_down, step_downs) = mpsc::channel(1);
        let changes = Arc::new(Members {
            raft: raft.clone(),
            local: Arc::clone(&local),
            client: Arc::clone(&client),
            settings: Arc::clone(&settings),
            mastership: mastership.subscribe(),
            state: state.clone(),
            step_down,
            changing: Mutex::default(),
        });
        let _ = members.set(Arc::clone(&changes));
        tokio::spawn(changes.run(joins));
        let clock = Arc::clone(&settings.clock);
        tokio::spawn(proposals::run(raft.clone(), queue, Arc::clone(&clock)));
        tokio::spawn(advance::run(state.clone(), mastership.subscribe(), own_proposals, clock));
        tokio::spawn(compact_log(raft.clone(), log));
        tokio::spawn(flush_floor(floor, failing.clone()));
        if !settings.is_lone() {
            let (local, client, settings) = (Arc::clone(&local), Arc::clone(&client), Arc::clone(&settings));
            tokio::spawn(resolve_doubts(raft.clone(), local, client, settings));
        }
        if settings.restored.is_some() {
            tokio::spawn(remove_backup(Arc::clone(&settings), state.clone()));
        }
        let renewal = LeaseRenewal {
            raft: raft.clone(),
            local: Arc::clone(&local),
            state,
            settings: Arc::clone(&settings),
            mastership,
            lease: None,
            step_downs,
        };
        let election_timer = ElectionTimer {
            raft: raft.clone(),
            local: Arc::clone(&local),
            client: Arc::clone(&client),
            settings: Arc::clone(&settings),
        };
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = left.wait_for(|leaving| *leaving) => {}
                ((), ()) = async { tokio::join!(renewal.run(), election_timer.run()) } => {}
            }
        });
        match used {
            true => (Bootstrap { raft, local, client, settings }).resume().await,
            false => begin_or_join(raft, local, client, settings, &origin, &failing).await,
        }
    }
}

/// Begins or joins a cluster, for a peer whose directory was empty.
async fn begin_or_join(
    raft: Raft,
    local: Arc<LocalPeer>,
    client: Arc<PeerClient>,
    settings: Arc<Settings>,
    origin: &StateOriginCell,
    failing: &Failing,
) {
    if settings.names_no_other_peer() {
        let address = settings.address_of(&settings.name).unwrap_or_default().to_owned();
        let me = Member { name: settings.name.clone(), address, advertise: settings.advertise.clone() };
        let members = BTreeMap::from([(local.handshake.peer(), me)]);
        if let Err(error) = bootstrap::begin(&local, &raft, members).await {
            failing.fail(&error);
        }
        return;
    }
    if settings.bootstrap {
        local.handshake.announce_bootstrap(settings.peers.iter().map(|(name, _)| name.clone()).collect());
    }
    match (Bootstrap { raft, local, client, settings }).run().await {
        Ok(BootstrapOutcome::Began) => {}
        Ok(BootstrapOutcome::Joined) => origin.set(StateOrigin::Joined),
        Err(error) => failing.fail(&error),
    }
}

fn serve(connections: Incoming, local: Arc<LocalPeer>) {
    let server = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .add_service(PeersService::serve(local))
        .serve_with_incoming(connections);
    tokio::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "the listener for peers has ended");
        }
    });
}

fn config(settings: &Settings) -> Config {
    let timing = settings.timing;
    Config {
        cluster_name: "leaseway".into(),
        heartbeat_interval: timing.heartbeat().as_millis() as u64,
        election_timeout_min: timing.election_min().as_millis() as u64,
        election_timeout_max: timing.lease().0,
        install_snapshot_timeout: 10_000,
        snapshot_max_chunk_size: 1 << 20,
        max_payload_entries: 512,
        // `election_timer.rs` starts elections.
        enable_elect: false,
        // Both depend on bytes, too: see `compact_log`.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        ..Config::default()
    }
}

/// Keeps the log short: takes a snapshot when it has become long, and purges what a snapshot covers.
async fn compact_log(raft: Raft, log: LogStore) {
    let mut asked = None;
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let (applied, snapshot) = {
            let metrics = raft.data_metrics();
            let metrics = metrics.borrow();
            (metrics.last_applied.map(|id| id.index), metrics.snapshot.map(|id| id.index))
        };
        let (entries, bytes, purgeable) = {
            let log = log.log();
            (log.len(), log.bytes(), snapshot.and_then(|snapshot| log.purgeable(snapshot)))
        };
        metrics::log(entries, bytes);
        if let Some(purgeable) = purgeable
            && raft.trigger().purge_log(purgeable).await.is_err()
        {
            return;
        }
        let since = applied.unwrap_or(0).saturating_sub(snapshot.unwrap_or(0));
        // One at a time: openraft would begin a second one.
        if asked.is_none_or(|asked| snapshot >= asked)
            && (since >= SNAPSHOT_AFTER_ENTRIES || (bytes >= SNAPSHOT_AFTER_BYTES && applied > snapshot))
        {
            asked = Some(applied);
            if raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
    }
}

/// Once what it says is in the log, so that a later start does not look at it.
async fn remove_backup(settings: Arc<Settings>, state: SharedState) {
    while state.read().is_blank() {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    let removed = tokio::task::spawn_blocking(move || Backup::remove_placed(&settings.data)).await;
    if let Ok(Err(error)) = removed {
        tracing::warn!(%error, "the backup that this peer began with is still in its directory");
    }
}

/// Asks peers of which another incarnation was heard: it shows whether they have lost entries. Forgets those that are
/// no longer members.
async fn resolve_doubts(raft: Raft, local: Arc<LocalPeer>, client: Arc<PeerClient>, settings: Arc<Settings>) {
    loop {
        tokio::time::sleep(DOUBT_INTERVAL).await;
        let membership = raft.metrics().borrow().membership_config.clone();
        let members: BTreeMap<PeerId, &Member> = membership.nodes().map(|(peer, member)| (*peer, member)).collect();
        if members.is_empty() {
            continue;
        }
        local.acknowledged.retain(|peer| members.contains_key(&peer));
        for (peer, Member { name, address, .. }) in members {
            if local.acknowledged.doubts().contains(&peer) {
                let address = settings.address_of(name).unwrap_or(address);
                // The answer is compared where it arrives. Without one it is asked again.
                let hello = client.call_within::<_, ()>(DOUBT_INTERVAL, (name, address), peer, Method::Hello, &());
                let _ = hello.await;
            }
        }
    }
}

/// Never on the thread that writes the log: commits wait for that one.
async fn flush_floor(floor: Flusher, failing: Failing) {
    loop {
        tokio::time::sleep(FLOOR_FLUSH_INTERVAL).await;
        if !floor.is_due() {
            continue;
        }
        let flusher = floor.clone();
        match tokio::task::spawn_blocking(move || flusher.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return failing.fail(&error),
            Err(_) => return,
        }
    }
}
