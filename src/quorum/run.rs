//! The thread that consensus lives on, and what runs there.

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
use tokio_stream::wrappers::TcpListenerStream;

use crate::{
    candidacy::Candidacy,
    error::{ChangeError, StartError},
    formation::{self, Formation, Formed},
    inquiry::Inquiry,
    keeper::Keeper,
    leave,
    machine::SharedFacts,
    members::Members,
    metrics,
    open::{self, Opened},
    peers::{Calls, Contacts, Core, Introducer, Network, PeersService},
    proposals::{self, Proposals},
    raft::{Member, Raft},
    reign::Mastership,
    settings::Settings,
    store::{LogStore, disk::Failing},
};

/// Those who ask to be taken in beyond so many ask again.
const JOINS: usize = 8;
/// The log is cut off by a snapshot when it has so many entries …
const ENTRIES: u64 = 20_000;
/// … or so many bytes.
const BYTES: u64 = 8 << 20;
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// What a [`Quorum`](crate::Quorum) asks its thread for.
pub(crate) enum Order {
    Add { name: String, address: String, done: oneshot::Sender<Result<(), ChangeError>> },
    Remove { name: String, done: oneshot::Sender<Result<(), ChangeError>> },
    Leave { done: oneshot::Sender<()> },
}

/// Where a peer's facts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// The first start of all: nothing was ever promised.
    Bootstrapped,
    /// Its own directory, and what the others say beyond that.
    Resumed,
    /// An empty directory, and nobody said that this is the first start: facts may have been lost. With peers it
    /// waits to be taken in.
    Empty,
    /// It had an empty directory, and the other peers gave it everything.
    Joined,
}

/// The origin may still turn out to be another one.
#[derive(Debug)]
pub(crate) struct OriginCell(AtomicU8);

const ORIGINS: [Origin; 4] = [Origin::Bootstrapped, Origin::Resumed, Origin::Empty, Origin::Joined];

impl OriginCell {
    pub(crate) fn get(&self) -> Origin {
        ORIGINS[usize::from(self.0.load(Ordering::Acquire))]
    }

    fn set(&self, origin: Origin) {
        self.0.store(origin as u8, Ordering::Release);
    }
}

/// What is shared between a [`Quorum`](crate::Quorum) and its thread.
pub(crate) struct Running {
    pub(crate) core: Arc<Core>,
    pub(crate) facts: SharedFacts,
    pub(crate) mastership: watch::Receiver<Mastership>,
    pub(crate) proposals: Proposals,
    pub(crate) orders: mpsc::UnboundedSender<Order>,
    pub(crate) origin: Arc<OriginCell>,
    pub(crate) failing: Failing,
    /// Where the listener really is: a port of zero is any.
    pub(crate) listening: Option<SocketAddr>,
}

/// The whole life of a peer. Ends when it has left, or when nobody holds the other end of `orders` any more: then at
/// once, as if killed.
pub(crate) async fn run(settings: Arc<Settings>, started: oneshot::Sender<Result<Running, StartError>>) {
    let (orders, inbox) = mpsc::unbounded_channel();
    match Peer::start(settings, orders).await {
        Ok((peer, running)) => {
            if started.send(Ok(running)).is_ok() {
                peer.live(inbox).await;
            }
        }
        Err(error) => drop(started.send(Err(error))),
    }
}

/// Everything on the thread.
struct Peer {
    settings: Arc<Settings>,
    core: Arc<Core>,
    calls: Arc<Calls>,
    opened: Opened,
    origin: Arc<OriginCell>,
    mastership: watch::Sender<Mastership>,
    queue: mpsc::Receiver<proposals::Proposal>,
    joins: mpsc::Receiver<(u64, Member)>,
}

impl Peer {
    async fn start(
        settings: Arc<Settings>,
        orders: mpsc::UnboundedSender<Order>,
    ) -> Result<(Peer, Running), StartError> {
        // Nothing else lives on this thread yet: it may block.
        let opened = open::open(&settings)?;
        let introducer = Introducer::new(Arc::clone(&settings), Arc::clone(&opened.directory), &opened.identity);
        let introducer = Arc::new(introducer);
        let contacts = Arc::new(Contacts::default());
        let (joins, asked) = mpsc::channel(JOINS);
        let (mastership, watched) = watch::channel(Mastership::Unknown);
        let core = Arc::new(Core {
            raft: OnceLock::new(),
            introducer: Arc::clone(&introducer),
            contacts: Arc::clone(&contacts),
            ballot: Default::default(),
            clock: Arc::clone(&settings.clock),
            timing: settings.timing,
            failing: opened.failing.clone(),
            mastership: watched.clone(),
            hearsay: Default::default(),
            joins,
        });
        let patience = settings.timing.certainly_over();
        let calls = Arc::new(Calls::new(introducer, contacts, Arc::clone(&settings.clock), patience));
        let mut listening = None;
        if let Some(address) = settings.listen {
            let failed = |source| StartError::Listen { address, source };
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            listening = Some(listener.local_addr().map_err(failed)?);
            serve(listener, Arc::clone(&core));
        }
        let origin = match (opened.used, settings.bootstrap) {
            (true, _) => Origin::Resumed,
            (false, true) => Origin::Bootstrapped,
            (false, false) => Origin::Empty,
        };
        let (proposals, queue) = proposals::queue();
        let origin = Arc::new(OriginCell(AtomicU8::new(origin as u8)));
        let running = Running {
            core: Arc::clone(&core),
            facts: opened.machine.facts(),
            mastership: watched,
            proposals,
            orders,
            origin: Arc::clone(&origin),
            failing: opened.failing.clone(),
            listening,
        };
        Ok((Peer { settings, core, calls, opened, origin, mastership, queue, joins: asked }, running))
    }

    async fn live(self, mut inbox: mpsc::UnboundedReceiver<Order>) {
        let settings = Arc::clone(&self.settings);
        let members = Arc::new(OnceLock::new());
        let (leaving, left) = watch::channel(false);
        tokio::spawn(self.take_part(Arc::clone(&members), left));
        while let Some(order) = inbox.recv().await {
            let members: Option<Arc<Members>> = members.get().cloned();
            match (order, members) {
                (Order::Leave { done }, members) => {
                    leaving.send_replace(true);
                    if let Some(members) = members {
                        leave::leave(&members).await;
                    }
                    drop(done);
                    return;
                }
                (Order::Add { done, .. } | Order::Remove { done, .. }, _) if settings.is_lone() => {
                    let _ = done.send(Err(ChangeError::Lone { name: settings.name.clone() }));
                }
                (Order::Add { done, .. } | Order::Remove { done, .. }, None) => {
                    let _ = done.send(Err(ChangeError::NotMaster { master: None }));
                }
                (Order::Add { name, address, done }, Some(members)) => {
                    tokio::spawn(async move { done.send(members.add(&name, &address).await) });
                }
                (Order::Remove { name, done }, Some(members)) => {
                    tokio::spawn(async move { done.send(members.remove(&name).await) });
                }
            }
        }
    }

    /// Begins consensus, and everything that lives from it.
    async fn take_part(self, members: Arc<OnceLock<Arc<Members>>>, mut left: watch::Receiver<bool>) {
        let Peer { settings, core, calls, opened, origin, mastership, queue, joins } = self;
        let Opened { used, members: known, log, machine, failing, .. } = opened;
        let facts = machine.facts();
        if !settings.is_lone() {
            let (core, calls, settings) = (Arc::clone(&core), Arc::clone(&calls), Arc::clone(&settings));
            let inquiry = Inquiry { core, calls, settings, mastership: mastership.clone(), members: known };
            let mut left = left.clone();
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    _ = left.wait_for(|leaving| *leaving) => {}
                    () = inquiry.run() => {}
                }
            });
        }
        if used && !settings.is_lone() {
            // In its former life it may have promised to stand by somebody, and does not know any more. A lone peer
            // has nobody to promise anything to, and the lock of its directory says that it has no other life.
            tokio::time::sleep(settings.timing.certainly_over()).await;
        }
        let network = Network { calls: Arc::clone(&calls), settings: Arc::clone(&settings) };
        let config = Arc::new(config(&settings));
        let raft = match Raft::new(core.introducer.peer(), config, network, log.clone(), machine).await {
            Ok(raft) => raft,
            Err(error) => return failing.fail(&error),
        };
        let _ = core.raft.set(raft.clone());
        let changes = Arc::new(Members {
            raft: raft.clone(),
            core: Arc::clone(&core),
            calls: Arc::clone(&calls),
            settings: Arc::clone(&settings),
            mastership: mastership.subscribe(),
            changing: Mutex::default(),
        });
        let _ = members.set(Arc::clone(&changes));
        tokio::spawn(changes.look_after(joins));
        tokio::spawn(proposals::run(raft.clone(), queue));
        tokio::spawn(cut(raft.clone(), log));
        let keeper = Keeper {
            raft: raft.clone(),
            core: Arc::clone(&core),
            facts,
            settings: Arc::clone(&settings),
            mastership,
            reign: None,
        };
        let candidacy = Candidacy {
            raft: raft.clone(),
            core: Arc::clone(&core),
            calls: Arc::clone(&calls),
            settings: Arc::clone(&settings),
        };
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = left.wait_for(|leaving| *leaving) => {}
                ((), ()) = async { tokio::join!(keeper.run(), candidacy.run()) } => {}
            }
        });
        if !used {
            form(raft, core, calls, settings, &origin, &failing).await;
        }
    }
}

/// The place of a peer whose directory was empty.
async fn form(
    raft: Raft,
    core: Arc<Core>,
    calls: Arc<Calls>,
    settings: Arc<Settings>,
    origin: &OriginCell,
    failing: &Failing,
) {
    if settings.is_alone() {
        let address = settings.address_of(&settings.name).unwrap_or_default().to_owned();
        let me = Member { name: settings.name.clone(), address, advertise: settings.advertise.clone() };
        let members = BTreeMap::from([(core.introducer.peer(), me)]);
        if let Err(error) = formation::begin(&core, &raft, members).await {
            failing.fail(&error);
        }
        return;
    }
    if settings.bootstrap {
        core.introducer.bootstrap(settings.peers.iter().map(|(name, _)| name.clone()).collect());
    }
    match (Formation { raft, core, calls, settings }).run().await {
        Ok(Formed::Begun) => {}
        Ok(Formed::Joined) => origin.set(Origin::Joined),
        Err(error) => failing.fail(&error),
    }
}

fn serve(listener: TcpListener, core: Arc<Core>) {
    let server = tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .add_service(PeersService::serve(core))
        .serve_with_incoming(TcpListenerStream::new(listener));
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
        // `candidacy.rs` says when.
        enable_elect: false,
        // Both are decided by bytes, too: see `cut`.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        ..Config::default()
    }
}

/// Keeps the log short: a snapshot when it has become long, and away with what a snapshot has.
async fn cut(raft: Raft, log: LogStore) {
    let mut asked = None;
    loop {
        tokio::time::sleep(LOOK).await;
        let (applied, snapshot) = {
            let metrics = raft.data_metrics();
            let metrics = metrics.borrow();
            (metrics.last_applied.map(|id| id.index), metrics.snapshot.map(|id| id.index))
        };
        let (entries, bytes, spare) = {
            let log = log.log();
            (log.len(), log.bytes(), snapshot.and_then(|snapshot| log.spare(snapshot)))
        };
        metrics::log(entries, bytes);
        if let Some(spare) = spare
            && raft.trigger().purge_log(spare).await.is_err()
        {
            return;
        }
        let since = applied.unwrap_or(0).saturating_sub(snapshot.unwrap_or(0));
        // One at a time: openraft would begin another.
        if asked.is_none_or(|asked| snapshot >= asked) && (since >= ENTRIES || (bytes >= BYTES && applied > snapshot)) {
            asked = Some(applied);
            if raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
    }
}
