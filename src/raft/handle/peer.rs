//! A running peer: the thread of consensus, and its tasks.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use futures_util::TryStreamExt as _;
use openraft::{Config, SnapshotPolicy};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
};

use crate::{
    election::{
        PeerContext,
        master_lease::{LeaseRenewal, Mastership},
        timer::ElectionTimer,
    },
    handle::{
        maintenance,
        open::{self, Opened, StartError},
        proposals::{self, Proposals, WeakProposals},
        service::PeersService,
    },
    log::{
        Member, PeerId, Raft,
        disk_thread::{FailureLatch, FlushTimes},
    },
    membership::{
        bootstrap::{self, Bootstrap, BootstrapOutcome},
        discovery::Discovery,
        ineligible::Eligibility,
        members::Members,
        transfer,
    },
    settings::Settings,
    state::machine::SharedState,
    transport::{
        authenticator::Authenticator, client::PeerClient, connection::ChallengedConnection, handshake::Handshake,
        liveness::Liveness, network::PeerNetwork, proof::Prover,
    },
};

/// The maximum number of queued requests to join. Beyond it they are dropped, and repeated by the joining peers.
const MAX_PENDING_JOINS: usize = 8;

/// Where a peer's state comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateOrigin {
    /// A new cluster: nothing was ever promised.
    Bootstrapped,
    /// Its own data directory, and later entries of the other peers.
    Resumed,
    /// An empty data directory without `--bootstrap`: the state may have been lost. Unless the peer is a lone one, it
    /// waits until the others admit it.
    Empty,
    /// The other peers, which have admitted it with an empty data directory.
    Joined,
}

/// The state that a handle shares with the thread of its peer.
pub(crate) struct Running {
    pub(crate) context: Arc<PeerContext>,
    pub(crate) state: SharedState,
    pub(crate) eligibility: Arc<Eligibility>,
    pub(crate) proposals: Proposals,
    /// Set once consensus has started.
    pub(crate) members: Arc<OnceLock<Arc<Members>>>,
    pub(crate) runtime: tokio::runtime::Handle,
    /// Requests to shut down. Each carries a sender that is dropped once the peer has left.
    pub(crate) leave: mpsc::UnboundedSender<oneshot::Sender<()>>,
    pub(crate) origin: watch::Receiver<StateOrigin>,
    pub(crate) flushes: FlushTimes,
    /// The bound address of the peer listener, with the real port.
    pub(crate) local_addr: Option<SocketAddr>,
}

/// Runs a peer until it has left, or until the last handle is dropped: then it stops as if killed.
pub(crate) async fn run(settings: Arc<Settings>, started: oneshot::Sender<Result<Running, StartError>>) {
    let (leave, leaves) = mpsc::unbounded_channel();
    match Peer::start(settings, leave).await {
        Ok((peer, running)) => {
            let members = Arc::clone(&running.members);
            if started.send(Ok(running)).is_ok() {
                peer.run(members, leaves).await;
            }
        }
        Err(error) => drop(started.send(Err(error))),
    }
}

/// A peer that listens, but has not started consensus.
struct Peer {
    context: Arc<PeerContext>,
    client: Arc<PeerClient>,
    eligibility: Arc<Eligibility>,
    opened: Opened,
    origin: watch::Sender<StateOrigin>,
    mastership: watch::Sender<Mastership>,
    queue: mpsc::UnboundedReceiver<proposals::Proposal>,
    own_proposals: WeakProposals,
    joins: mpsc::Receiver<(PeerId, Member)>,
}

impl Peer {
    async fn start(
        settings: Arc<Settings>,
        leave: mpsc::UnboundedSender<oneshot::Sender<()>>,
    ) -> Result<(Peer, Running), StartError> {
        // Nothing else runs on this thread yet, so it may block.
        let opened = open::open(&settings)?;
        let (mastership, watched) = watch::channel(Mastership::Unknown);
        let context = Arc::new(peer_context(&settings, &opened, watched));
        let prover = Arc::new(Prover::new(settings.secret.as_ref()));
        let client = Arc::new(PeerClient {
            settings: Arc::clone(&settings),
            prover: Arc::clone(&prover),
            handshake: Arc::clone(&context.handshake),
            liveness: Arc::clone(&context.liveness),
            acknowledged: context.acknowledged.clone(),
            connections: Mutex::default(),
        });
        if !opened.used && settings.bootstrap && !settings.names_no_other_peer() {
            // Before it listens, or other peers would believe that it was started without --bootstrap.
            context.handshake.announce_bootstrap(settings.peers.iter().map(|(name, _)| name.clone()).collect());
        }
        let (asks, joins) = mpsc::channel(MAX_PENDING_JOINS);
        let local_addr = match settings.listen {
            Some(address) => Some(listen(address, Arc::clone(&context), prover, asks).await?),
            None => None,
        };
        let (proposals, queue) = proposals::queue();
        let own_proposals = proposals.downgrade();
        let origin = watch::Sender::new(match (opened.used, settings.bootstrap) {
            (true, _) => StateOrigin::Resumed,
            (false, true) => StateOrigin::Bootstrapped,
            (false, false) => StateOrigin::Empty,
        });
        let eligibility = Arc::<Eligibility>::default();
        let running = Running {
            context: Arc::clone(&context),
            state: opened.machine.state(),
            eligibility: Arc::clone(&eligibility),
            proposals,
            members: Arc::default(),
            runtime: tokio::runtime::Handle::current(),
            leave,
            origin: origin.subscribe(),
            flushes: opened.flushes.clone(),
            local_addr,
        };
        Ok((Peer { context, client, eligibility, opened, origin, mastership, queue, own_proposals, joins }, running))
    }

    async fn run(self, members: Arc<OnceLock<Arc<Members>>>, mut leaves: mpsc::UnboundedReceiver<oneshot::Sender<()>>) {
        let (leaving, left) = watch::channel(false);
        tokio::spawn(self.start_consensus(Arc::clone(&members), left));
        let Some(_done) = leaves.recv().await else { return };
        leaving.send_replace(true);
        if let Some(members) = members.get() {
            transfer::leave(members).await;
        }
    }

    /// Starts consensus and the tasks that depend on it.
    async fn start_consensus(self, members: Arc<OnceLock<Arc<Members>>>, left: watch::Receiver<bool>) {
        let Peer { context, client, eligibility, opened, origin, mastership, queue, own_proposals, joins } = self;
        let Opened { used, members: known, log, mark, machine, failing, .. } = opened;
        let (settings, state) = (Arc::clone(&context.settings), machine.state());
        if !settings.is_lone() {
            let (context, client, mastership) = (Arc::clone(&context), Arc::clone(&client), mastership.clone());
            let discovery = Discovery { context, client, mastership, eligibility, members: known };
            until_left(left.clone(), discovery.run());
            if used {
                // An earlier process may have leased this peer's vote, and vote leases are not stored.
                tokio::time::sleep(settings.timing.certainly_over()).await;
            }
        }
        let network = PeerNetwork { client: Arc::clone(&client), log: log.clone() };
        let raft = match Raft::new(context.id(), Arc::new(config(&settings)), network, log.clone(), machine).await {
            Ok(raft) => raft,
            Err(error) => return failing.fail(&error),
        };
        let _ = context.raft.set(raft.clone());
        let (step_down, step_downs) = mpsc::channel(1);
        let changes = Arc::new(Members {
            raft: raft.clone(),
            context: Arc::clone(&context),
            client: Arc::clone(&client),
            state: state.clone(),
            step_down,
            changing: tokio::sync::Mutex::default(),
        });
        let _ = members.set(Arc::clone(&changes));
        tokio::spawn(changes.run(joins));
        let clock = Arc::clone(&settings.clock);
        tokio::spawn(proposals::run(raft.clone(), queue, Arc::clone(&clock)));
        tokio::spawn(maintenance::advance_clock(state.clone(), mastership.subscribe(), own_proposals, clock));
        tokio::spawn(maintenance::compact_log(raft.clone(), log));
        tokio::spawn(maintenance::flush_high_water_mark(mark, failing.clone()));
        if !settings.is_lone() {
            tokio::spawn(maintenance::resolve_doubts(Arc::clone(&context), Arc::clone(&client)));
        }
        if settings.restored.is_some() {
            tokio::spawn(maintenance::remove_backup(Arc::clone(&settings), state.clone()));
        }
        let renewal = LeaseRenewal {
            raft: raft.clone(),
            context: Arc::clone(&context),
            state,
            mastership,
            lease: None,
            step_downs,
        };
        let timer = ElectionTimer { raft: raft.clone(), context: Arc::clone(&context), client: Arc::clone(&client) };
        until_left(left, async {
            let ((), ()) = tokio::join!(renewal.run(), timer.run());
        });
        match used {
            true => (Bootstrap { raft, context, client }).resume().await,
            false => begin_or_join(raft, context, client, &origin).await,
        }
    }
}

/// Spawns a task that is dropped when the peer leaves.
fn until_left(mut left: watch::Receiver<bool>, task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move {
        tokio::select! {
            biased;
            _ = left.wait_for(|leaving| *leaving) => {}
            () = task => {}
        }
    });
}

fn peer_context(settings: &Arc<Settings>, opened: &Opened, mastership: watch::Receiver<Mastership>) -> PeerContext {
    let handshake =
        Handshake::new(Arc::clone(settings), Arc::clone(&opened.directory), &opened.identity, opened.incarnation);
    PeerContext {
        settings: Arc::clone(settings),
        raft: Arc::default(),
        handshake: Arc::new(handshake),
        liveness: Arc::new(Liveness::new((settings.clock)())),
        acknowledged: opened.acknowledged.clone(),
        log: opened.log.clone(),
        ballot: Default::default(),
        failing: opened.failing.clone(),
        mastership,
        discovered: Default::default(),
        history: Default::default(),
    }
}

/// Begins or joins a cluster, for a peer whose data directory was empty.
async fn begin_or_join(
    raft: Raft,
    context: Arc<PeerContext>,
    client: Arc<PeerClient>,
    origin: &watch::Sender<StateOrigin>,
) {
    let (settings, failing): (_, FailureLatch) = (Arc::clone(&context.settings), context.failing.clone());
    if settings.names_no_other_peer() {
        let members = BTreeMap::from([(context.id(), settings.own_member())]);
        if let Err(error) = bootstrap::begin(&context, &raft, members).await {
            failing.fail(&error);
        }
        return;
    }
    match (Bootstrap { raft, context, client }).run().await {
        Ok(BootstrapOutcome::Began) => {}
        Ok(BootstrapOutcome::Joined) => drop(origin.send_replace(StateOrigin::Joined)),
        Err(error) => failing.fail(&error),
    }
}

/// Serves the peer protocol. Returns the bound address.
async fn listen(
    address: SocketAddr,
    context: Arc<PeerContext>,
    prover: Arc<Prover>,
    joins: mpsc::Sender<(PeerId, Member)>,
) -> Result<SocketAddr, StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local_addr = listener.local_addr().map_err(failed)?;
    let connections = (context.settings.accept)(listener).map_ok(ChallengedConnection::from);
    let authenticator = Authenticator {
        settings: Arc::clone(&context.settings),
        handshake: Arc::clone(&context.handshake),
        prover,
        liveness: Arc::clone(&context.liveness),
        acknowledged: context.acknowledged.clone(),
        raft: Arc::clone(&context.raft),
    };
    let server = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .add_service(PeersService::serve(context, authenticator, joins))
        .serve_with_incoming(connections);
    tokio::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "the listener for peers has ended: other peers cannot reach this one; restart it");
        }
    });
    Ok(local_addr)
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
        // `ElectionTimer` starts elections.
        enable_elect: false,
        // `compact_log` takes snapshots and purges the log, by bytes as well as entries.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        ..Config::default()
    }
}
