//! Starts and stops a server.

pub(crate) mod extra_services;
pub(crate) mod guard;
pub(crate) mod parent_options;
pub(crate) mod peers;
mod reload;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leaseway_raft::RaftHandle;
use metrics_exporter_prometheus::PrometheusHandle;
use sd_notify::NotifyState;
use tokio::{
    net::TcpListener,
    signal::unix::Signal,
    sync::{Semaphore, watch},
    task::JoinHandle,
};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    api::{
        grpc::{
            self, CapacityService, GrpcServices, PushService, SessionService, StatusService,
            admin::{self, AdminOptions, AdminPort, AdminService},
            pools::PoolService,
        },
        http::{self, HostNames},
        pages::{PASTED_BYTES, Pages, Snapshots, live::LivePages},
        status::{HealthSources, ReadinessProbe, history::History, survey::Surveyor},
    },
    auth::CredentialFiles,
    config::{error::ServeError, initial_config::InitialConfiguration, limits::Limits},
    listen::{
        Addresses, ArbiterQueue, InProcess, ListenOption, Listener,
        accounts::Accounts,
        arbiter_queue, bind, distribute, local,
        open_connections::{OpenConnections, sweep},
        tls::{self, TlsOptions},
        waiting_bytes::WaitingBytes,
    },
    node::{NodeHandle, NodeStart, Parent, Threads, addresses::ServerInfo, spawn},
    observe::metrics,
    run::{
        extra_services::ExtraServices,
        guard::{AccessOptions, Guard, ListenerSet, authorizer},
        parent_options::ParentOptions,
        peers::{Joined, PeerOptions, Peering},
        reload::Reload,
    },
    runtime::{
        clock::{Clock, Skew},
        signals::StopSignals,
    },
};

/// How often resources expire leases without a request.
const TICK: Duration = Duration::from_secs(1);
/// How often histograms are drained, so that they do not grow without scrapes.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);
/// Maximum time for requests under way after the server was asked to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// Names of the gRPC health service: the server as a whole, and its main service.
const HEALTH: [&str; 2] = ["", "doorman.Capacity"];

#[derive(Debug, Clone)]
pub struct Options {
    /// The address for gRPC.
    pub listen: SocketAddr,
    /// The address for HTTP.
    pub http: SocketAddr,
    /// The configuration file. The default is the development configuration.
    pub config: Option<PathBuf>,
    /// The server's id. The default is its address.
    pub id: Option<String>,
    /// Where clients reach it, as `host:port`. The default is the address for gRPC.
    pub advertise: Option<String>,
    /// Number of threads that serve requests. The default is one per core.
    pub threads: Option<usize>,
    pub limits: Limits,
    /// The data directory and the peers. Without them nothing is stored.
    pub peers: Option<PeerOptions>,
    /// The port for operators.
    pub admin: Option<AdminOptions>,
    /// The parent. Without one the configuration sets the capacities.
    pub parent: Option<ParentOptions>,
    /// Authentication and authorization.
    pub access: AccessOptions,
    /// Certificates. Without them connections are in plain text.
    pub tls: TlsOptions,
    /// A deliberate clock error, for tests.
    pub skew: Skew,
    /// Listeners that [`Server::extra_services`] will open. The server refuses to start if they are exposed.
    pub extra_listeners: Vec<ListenOption>,
    /// Whether the services of these listeners are ready. The readiness probe asks it.
    pub extra_readiness: Option<ReadinessProbe>,
}

/// A running server.
pub struct Server {
    info: ServerInfo,
    addresses: Addresses,
    node: NodeHandle,
    raft: Option<RaftHandle>,
    guard: Guard,
    extra_listeners: ListenerSet,
    in_process: InProcess,
    health: HealthReporter,
    prometheus: PrometheusHandle,
    open: Vec<OpenConnections>,
    clients: OpenConnections,
    threads: Threads,
    accepting: JoinHandle<()>,
    eligibility_watch: JoinHandle<()>,
    stop: watch::Sender<bool>,
    stop_signals: StopSignals,
    node_failed: watch::Receiver<bool>,
    #[cfg(feature = "otlp")]
    traces: Option<crate::observe::traces::Traces>,
}

/// Configuration, credentials and bound listeners, prepared before the first actor starts, so that a server that fails
/// to start never answers a client.
struct Prepared {
    info: ServerInfo,
    addresses: Addresses,
    clock: Clock,
    grpc: TcpListener,
    http: TcpListener,
    admin: Option<AdminPort>,
    first: Arc<InitialConfiguration>,
    parent: Option<Parent>,
    joined: Option<Joined>,
    guard: Guard,
    listeners: ListenerSet,
    files: CredentialFiles,
    reload: Reload,
    hangup: Signal,
    stop_signals: StopSignals,
}

impl Prepared {
    async fn new(options: &Options) -> Result<Prepared, ServeError> {
        // File watches and signal handlers are set up first, so that no change and no signal is missed.
        let files = CredentialFiles {
            tokens: options.access.tokens.clone(),
            jwt: options.access.jwt.clone(),
            operator: options.admin.as_ref().and_then(|admin| admin.token_file.clone()),
        };
        let reload = Reload::prepare(options.config.clone(), &files).map_err(ServeError::Signals)?;
        let first = Arc::new(match &options.parent {
            None => InitialConfiguration::read(options.config.as_deref(), options.peers.is_some())?,
            Some(parent) => InitialConfiguration::of_parent(options.config.as_deref(), &parent.addresses)?,
        });
        let stop_signals = StopSignals::new().map_err(ServeError::Signals)?;
        let hangup = tls::hangup().map_err(ServeError::Signals)?;
        let mut guard = guard(options, &first, &files)?;
        let listeners = guard.listeners()?;
        let grpc = bind(options.listen, "--listen").await?;
        let http = bind(options.http, "--http").await?;
        let mut addresses = Addresses {
            grpc: local(&grpc, options.listen),
            http: local(&http, options.http),
            peers: None,
            admin: None,
        };
        let clock = Clock::skewed(options.skew);
        let (id, advertise) = (options.id.clone(), options.advertise.clone());
        let mut info = ServerInfo::new(id, advertise, addresses.grpc, addresses.http);
        guard.names = HostNames::new(&options.access.http_names, Some(&info.advertise));
        let tls = guard.tls.as_deref();
        let has_peers = options.peers.as_ref().is_some_and(|peers| !peers.peers.is_empty());
        let parent = options.parent.as_ref().map(|parent| parent.check(&info, addresses.grpc, has_peers, tls));
        let parent = parent.transpose()?;
        let admin = match &options.admin {
            Some(admin) => {
                let has_policy = first.loaded.access.is_some();
                Some(AdminPort::open(admin, &mut info, &mut addresses, has_policy).await?)
            }
            None => None,
        };
        let joined = match &options.peers {
            Some(peers) => {
                let peering = Peering { listener: listeners.peers.clone(), tls };
                let names = (options.id.as_deref(), &info);
                Some(peers::join(peers, names, peering, &mut addresses, clock, Arc::clone(&first)).await?)
            }
            None => None,
        };
        Ok(Prepared {
            info,
            addresses,
            clock,
            grpc,
            http,
            admin,
            first,
            parent,
            joined,
            guard,
            listeners,
            files,
            reload,
            hangup,
            stop_signals,
        })
    }

    /// Starts the node's actors.
    fn start_node(&mut self, threads: &Threads) -> (NodeHandle, watch::Receiver<bool>) {
        let (failed, node_failed) = watch::channel(false);
        let start = NodeStart {
            repository: self.first.loaded.repository.clone(),
            access: self.first.loaded.access.clone(),
            source: self.first.source.clone(),
            text: self.first.loaded.text.as_str().into(),
            authorizer: Arc::clone(&self.guard.authorizer),
            limits: Arc::clone(&self.guard.limits),
            clock: self.clock,
            arbiters: threads.handles(),
            seed: seed(),
            membership: self.joined.as_ref().map(|joined| joined.membership.clone()),
            parent: self.parent.take(),
            accounts: Arc::clone(&self.guard.accounts),
        };
        // Without receivers, the server is already stopping.
        let node = NodeHandle::start(start, move || {
            let _ = failed.send(true);
        });
        (node, node_failed)
    }

    fn raft(&self) -> Option<RaftHandle> {
        self.joined.as_ref().map(|joined| joined.membership.raft.clone())
    }

    fn health_sources(&self, extra: Option<ReadinessProbe>) -> HealthSources {
        let stored = self.joined.as_ref();
        HealthSources {
            connections: self.listeners.clients.open.clone(),
            waiting_bytes: Arc::clone(&self.guard.waiting_bytes),
            stored: stored.map(|joined| (joined.membership.raft.clone(), Arc::new(joined.data.clone()))),
            tls: self.guard.tls.clone(),
            extra,
        }
    }
}

impl Server {
    /// Starts a server that accepts connections. Must be called within [`block_on`](crate::block_on).
    pub async fn start(options: Options) -> Result<Server, ServeError> {
        let mut prepared = Prepared::new(&options).await?;
        #[cfg(feature = "otlp")]
        let traces = crate::observe::traces::Traces::start(&prepared.info.id)?;
        let prometheus = metrics::install().map_err(|error| ServeError::Metrics(error.to_string()))?;
        let threads = Threads::start(thread_count(options.threads));
        let (node, node_failed) = prepared.start_node(&threads);
        let (stop, stopped) = watch::channel(false);
        let health = HealthReporter::new();
        serves(&health, true).await;
        let (raft, health_sources) = (prepared.raft(), prepared.health_sources(options.extra_readiness));
        let Prepared { info, addresses, guard, listeners, .. } = prepared;
        let services = GrpcServices {
            capacity: CapacityService::new(node.clone(), info.clone(), raft.clone()),
            status: StatusService::new(node.clone(), info.clone(), health_sources.clone()),
            push: PushService::new(node.clone(), stopped.clone()),
            session: SessionService::new(node.clone(), stopped.clone()),
            health: health.clone(),
        };
        let extra_listeners = guard.listeners()?;
        let mut open = listeners.open();
        open.extend(extra_listeners.open());
        spawn(sweep(open.clone(), Arc::clone(&guard.accounts)));
        let queues = serve_grpc(&threads, &services, &guard, &stopped);
        let clients = listeners.clients.open.clone();
        let (in_process, local_connections) = InProcess::new(listeners.clients.clone());
        let listener = Listener::new(prepared.grpc, listeners.clients);
        let accepting = spawn(distribute(listener, local_connections, queues));
        let http = Listener::new(prepared.http, listeners.pages);
        serve_http(http, &node, &info, &guard, &prometheus, health_sources, &stopped);
        spawn(tick(node.clone()));
        let eligibility_watch = spawn(watch_eligibility(node.clone(), health.clone()));
        spawn(upkeep(prometheus.clone()));
        spawn(prepared.reload.on_change(node.clone(), prepared.files, raft.is_some()));
        if let Some(tls) = &guard.tls {
            spawn(tls::reload(Arc::clone(tls), prepared.hangup));
        }
        if let Some(admin) = prepared.admin {
            let service = raft.clone().map(|raft| AdminService::new(node.clone(), raft, info.clone()));
            let pools = PoolService::new(node.clone(), stopped.clone());
            spawn(admin::serve(admin, Arc::clone(&guard.authorizer), listeners.operators, pools, service, stopped));
        }
        Ok(Server {
            info,
            addresses,
            node,
            raft,
            guard,
            extra_listeners,
            in_process,
            health,
            prometheus,
            open,
            clients,
            threads,
            accepting,
            eligibility_watch,
            stop,
            stop_signals: prepared.stop_signals,
            node_failed,
            #[cfg(feature = "otlp")]
            traces,
        })
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The server's id.
    pub fn id(&self) -> &str {
        &self.info.id
    }

    /// Where clients reach it, as `host:port`.
    pub fn advertised(&self) -> &str {
        &self.info.advertise
    }

    /// Connects to this server without a port.
    pub fn in_process(&self) -> InProcess {
        self.in_process.clone()
    }

    /// The metrics recorder of the process.
    pub fn prometheus(&self) -> PrometheusHandle {
        self.prometheus.clone()
    }

    /// Listeners for services of another crate, with this server's policy, certificates and limits.
    pub fn extra_services(&self) -> ExtraServices {
        ExtraServices::within(self.guard.clone(), self.extra_listeners.clone())
    }

    /// Serves until SIGTERM or SIGINT, or until the node fails. Then transfers mastership to another peer; requests are
    /// redirected to it until [`stop`](Server::stop).
    pub async fn serve_until_stopped(&mut self) {
        tracing::info!(grpc = %self.addresses.grpc, http = %self.addresses.http, "ready");
        notify_supervisor(NotifyState::Ready);
        tokio::select! {
            () = self.stop_signals.received() => {}
            _ = self.node_failed.wait_for(|failed| *failed) => {}
        }
        tracing::info!("stopping");
        notify_supervisor(NotifyState::Stopping);
        self.eligibility_watch.abort();
        serves(&self.health, false).await;
        match &self.raft {
            Some(raft) if self.has_failed() => raft.shutdown().await,
            _ => self.node.hand_over().await,
        }
    }

    /// Whether the node actor has failed.
    pub fn has_failed(&self) -> bool {
        *self.node_failed.borrow()
    }

    /// Finishes requests under way and stops. Fails if the node has failed.
    pub async fn stop(self) -> Result<(), ServeError> {
        let failed = self.has_failed();
        self.accepting.abort();
        self.stop.send_replace(true);
        self.open.iter().for_each(OpenConnections::end_all);
        drain(&self.clients).await;
        self.threads.stop();
        self.guard.authorizer.audit().close();
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.traces {
            traces.stop().await;
        }
        if failed { Err(ServeError::NodeFailed) } else { Ok(()) }
    }
}

/// Reads the policy, credentials and certificates.
fn guard(options: &Options, first: &InitialConfiguration, files: &CredentialFiles) -> Result<Guard, ServeError> {
    let tls = options.tls.load(options.parent.is_some())?.map(Arc::new);
    let has_tls = tls.as_ref().is_some_and(|tls| tls.is_of_listeners());
    let mut listeners = vec![("--listen", options.listen), ("--http", options.http)];
    // Without a token or a policy the admin listener refuses to start, so it is not exposed.
    let admin = options.admin.as_ref().filter(|admin| admin.token_file.is_some() || first.loaded.access.is_some());
    listeners.extend(admin.map(|admin| ("--admin", admin.listen)));
    listeners.extend(options.extra_listeners.iter().map(|extra| (extra.flag, extra.address)));
    // The peers may have a stored policy, which is known after joining them. Until then nothing is allowed.
    let is_kept = options.peers.as_ref().is_some_and(|peers| !peers.bootstrap && peers.take_over.is_none());
    let has_policy = first.loaded.access.is_some() || is_kept;
    let accounts = Arc::<Accounts>::default();
    let authorizer = authorizer(&listeners, has_policy, has_tls, &options.access, files, &accounts)?;
    let limits = Arc::new(options.limits.clone());
    let waiting_bytes = Arc::new(WaitingBytes::within(&limits));
    Ok(Guard {
        authorizer,
        tls,
        limits,
        accounts,
        waiting_bytes,
        names: HostNames::new(&options.access.http_names, None),
    })
}

/// Serves gRPC on each thread. Returns the queues for its connections.
fn serve_grpc(
    threads: &Threads,
    services: &GrpcServices,
    guard: &Guard,
    stopped: &watch::Receiver<bool>,
) -> Vec<ArbiterQueue> {
    let mut queues = Vec::new();
    threads.on_each(|| {
        let (queue, connections) = arbiter_queue();
        queues.push(queue);
        let (authorizer, limits) = (Arc::clone(&guard.authorizer), Arc::clone(&guard.limits));
        grpc::serve(services.clone(), authorizer, limits, connections, stopped.clone())
    });
    queues
}

fn serve_http(
    listener: Listener,
    node: &NodeHandle,
    info: &ServerInfo,
    guard: &Guard,
    prometheus: &PrometheusHandle,
    health: HealthSources,
    stopped: &watch::Receiver<bool>,
) {
    let limits = &guard.limits;
    let history = Arc::new(History::new(limits.history_resources));
    let surveyor = Arc::new(Surveyor::new(limits));
    let raft = health.stored.as_ref().map(|(raft, _)| raft.clone());
    let pages = Pages {
        node: node.clone(),
        info: info.clone(),
        prometheus: prometheus.clone(),
        health,
        scrapes: Arc::new(Semaphore::new(1)),
        metrics_resources: limits.metrics_resources,
        history: Arc::clone(&history),
        surveyor: Arc::clone(&surveyor),
        live: Arc::new(LivePages::new(limits.live_pages, stopped.clone())),
        snapshots: Snapshots::default(),
    };
    spawn(history.keep(node.clone(), surveyor, raft));
    let patience = Duration::from_secs(limits.request_secs);
    let serving = http::Serving {
        pages: http::router(pages),
        authorizer: Arc::clone(&guard.authorizer),
        body_bytes: PASTED_BYTES,
        names: guard.names(),
    };
    spawn(http::serve(listener, serving, patience, stopped.clone()));
}

fn thread_count(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// A random seed, so that clients cannot cause hash collisions on purpose.
fn seed() -> u64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let address = std::ptr::from_ref(&nanos).addr() as u64;
    nanos.rotate_left(32) ^ address ^ u64::from(std::process::id())
}

async fn tick(node: NodeHandle) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if node.tick().await.is_err() {
            return;
        }
        // A watchdog (`WatchdogSec=`) restarts a server that stops reporting progress.
        notify_supervisor(NotifyState::Watchdog);
    }
}

/// Notifies systemd, or another supervisor that sets `NOTIFY_SOCKET`.
fn notify_supervisor(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "cannot notify the supervisor");
    }
}

async fn serves(health: &HealthReporter, serves: bool) {
    let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in HEALTH {
        health.set_service_status(service, status).await;
    }
}

/// Reports NOT_SERVING to the health service while this peer is ineligible.
async fn watch_eligibility(node: NodeHandle, health: HealthReporter) {
    let (mut interval, mut is_eligible) = (tokio::time::interval(TICK), true);
    loop {
        interval.tick().await;
        if std::mem::replace(&mut is_eligible, node.ineligible().is_none()) != is_eligible {
            serves(&health, is_eligible).await;
        }
    }
}

async fn upkeep(prometheus: metrics_exporter_prometheus::PrometheusHandle) {
    loop {
        tokio::time::sleep(METRICS_UPKEEP).await;
        prometheus.run_upkeep();
    }
}

/// Waits until connections have ended, or for [`DRAIN`].
async fn drain(open: &OpenConnections) {
    let deadline = tokio::time::Instant::now() + DRAIN;
    while open.count() > 0 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
