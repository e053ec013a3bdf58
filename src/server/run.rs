//! From options to a running server, and back.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::sync::{Semaphore, watch};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    access::{CredentialFiles, Gate, JwtOptions},
    accounts::Accounts,
    actors::{NodeHandle, NodeStart, Threads, block_on, spawn},
    audit::{Audit, AuditTarget},
    budget::Budget,
    clock::{Clock, Skew},
    error::ServeError,
    exposure::Exposure,
    grpc::{
        self, CapacityService, GrpcServices, PushService, StatusService,
        admin::{self, AdminOptions, AdminPort, AdminService},
        pools::PoolService,
    },
    guests::{Guests, Host},
    health::HealthSources,
    history::History,
    http::{self, HostNames, LivePages, Looks, Pages},
    initial_config::InitialConfiguration,
    limits::Limits,
    listen::{Addresses, Listener, ListenerSettings, Openings, arbiter_queue, bind, distribute, local},
    metrics,
    open_connections::{ConnectionLimits, OpenConnections, look_after},
    parent::ParentOptions,
    peers::{self, PeerOptions, Peering},
    reload::Reload,
    server_info::ServerInfo,
    service::Service,
    signals::StopSignals,
    supervisor,
    survey::Surveyor,
    tls::{self, Tls, TlsOptions},
};

/// How often resources look for leases that have ended, besides when they are asked.
const TICK: Duration = Duration::from_secs(1);
/// How often histograms are folded, so that they do not grow without scrapes.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);
/// How long requests under way may take when the server stops.
const DRAIN: Duration = Duration::from_secs(5);
/// Connections of all listeners that have said too little for a first request.
const MOST_OPENING: usize = 1024;
/// The names that health checkers may ask for: the server as a whole, or its main service.
const HEALTH: [&str; 2] = ["", "doorman.Capacity"];

#[derive(Debug, Clone)]
pub struct Options {
    /// Where gRPC is served.
    pub listen: SocketAddr,
    /// Where HTTP is served.
    pub http: SocketAddr,
    /// The configuration file; none: the development default.
    pub config: Option<PathBuf>,
    /// What the server calls itself; none: its address.
    pub id: Option<String>,
    /// Where clients reach it, as `host:port`; none: where it listens.
    pub advertise: Option<String>,
    /// Threads that serve requests; none: one for each core.
    pub threads: Option<usize>,
    /// Bounds on what requests can make grow.
    pub limits: Limits,
    /// The data directory and the peers; none: the server is alone and keeps nothing over restarts.
    pub peers: Option<PeerOptions>,
    /// Where operators are served; none: nowhere.
    pub admin: Option<AdminOptions>,
    /// Where the capacity comes from; none: the configuration says how much there is.
    pub parent: Option<ParentOptions>,
    /// Who may do what, and how callers prove who they are.
    pub access: AccessOptions,
    /// Certificates; without any, all is in the clear.
    pub tls: TlsOptions,
    /// A deliberate error of the clock.
    pub skew: Skew,
}

/// How callers prove who they are, and what becomes of it. Who may do what is in the configuration.
#[derive(Debug, Clone, Default)]
pub struct AccessOptions {
    /// The file of tokens.
    pub tokens: Option<PathBuf>,
    /// The file of keys for JWTs, with what is expected of them.
    pub jwt: Option<JwtOptions>,
    /// Where it is written down who changed what.
    pub audit: Option<AuditTarget>,
    /// Others may reach this server although there is no TLS, or no policy.
    pub insecure: bool,
    /// Names under which its HTTP port without TLS is reached, besides its address.
    pub http_names: Vec<String>,
}

/// Serves until SIGTERM or SIGINT. `ready` is called once connections are accepted.
pub fn run(options: Options, guests: Option<Guests>, ready: impl FnOnce(Addresses)) -> Result<(), ServeError> {
    block_on(serve(options, guests, ready))
}

async fn serve(options: Options, guests: Option<Guests>, ready: impl FnOnce(Addresses)) -> Result<(), ServeError> {
    // Before the file is read, so that no change and no signal is missed.
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
    let mut stop_signals = StopSignals::new().map_err(ServeError::Signals)?;
    let hangup = tls::hangup().map_err(ServeError::Signals)?;
    let tls = options.tls.load(options.parent.is_some())?.map(Arc::new);
    let has_tls = tls.as_ref().is_some_and(|tls| tls.is_of_listeners());
    let accounts = Arc::<Accounts>::default();
    let gate = {
        let mut listeners = vec![("--listen", options.listen), ("--http", options.http)];
        // Without a token and without a policy the listener refuses by itself.
        let admin = options.admin.as_ref().filter(|admin| admin.token_file.is_some() || first.loaded.access.is_some());
        listeners.extend(admin.map(|admin| ("--admin", admin.listen)));
        listeners.extend(guests.as_ref().map(|guests| (guests.flag, guests.listen)));
        // What the peers keep is known once this one has joined them; until then nothing is allowed.
        let is_kept = options.peers.as_ref().is_some_and(|peers| !peers.bootstrap && peers.take_over.is_none());
        let has_policy = first.loaded.access.is_some() || is_kept;
        gate(&listeners, has_policy, has_tls, &options.access, &files, &accounts)?
    };
    let limits = Arc::new(options.limits);
    let budget = Arc::new(limits.budget());
    let listeners = ListenerSet::new(tls.as_deref(), &limits, &accounts, &budget)?;
    let to_look_after = listeners.open();
    let to_be_ended = to_look_after.clone();
    spawn(look_after(to_look_after, Arc::clone(&accounts)));
    let listener = bind(options.listen, "--listen").await?;
    let http_listener = bind(options.http, "--http").await?;
    let mut addresses = Addresses {
        grpc: local(&listener, options.listen),
        http: local(&http_listener, options.http),
        peers: None,
        admin: None,
        guests: None,
    };
    let clock = Clock::skewed(options.skew);
    let mut info = ServerInfo::new(options.id.clone(), options.advertise, addresses.grpc, addresses.http);
    let has_peers = options.peers.as_ref().is_some_and(|peers| !peers.peers.is_empty());
    let parent = match &options.parent {
        Some(parent) => Some(parent.check(&info, addresses.grpc, has_peers, tls.as_deref())?),
        None => None,
    };
    let admin = match &options.admin {
        Some(admin) => {
            let has_policy = first.loaded.access.is_some();
            Some(AdminPort::open(admin, &mut info, &mut addresses, has_policy).await?)
        }
        None => None,
    };
    let joined = match &options.peers {
        Some(peers) => {
            let peering = Peering { listener: listeners.peers, tls: tls.as_deref() };
            let names = (options.id.as_deref(), &info);
            Some(peers::join(peers, names, peering, &mut addresses, clock, Arc::clone(&first)).await?)
        }
        None => None,
    };
    #[cfg(feature = "otlp")]
    let traces = crate::traces::Traces::start(&info.id)?;
    let prometheus = metrics::install().map_err(|error| ServeError::Metrics(error.to_string()))?;

    let threads = Threads::start(thread_count(options.threads));
    let (failed, mut node_failed) = watch::channel(false);
    let node = NodeHandle::start(
        NodeStart {
            repository: first.loaded.repository.clone(),
            access: first.loaded.access.clone(),
            source: first.source.clone(),
            gate: Arc::clone(&gate),
            limits: Arc::clone(&limits),
            clock,
            arbiters: threads.handles(),
            seed: seed(),
            membership: joined.as_ref().map(|joined| joined.membership.clone()),
            parent,
            accounts,
        },
        // Without receivers the server is stopping anyway.
        move || {
            let _ = failed.send(true);
        },
    );
    let (stop, stopped) = watch::channel(false);
    let health = HealthReporter::new();
    serves(&health, true).await;
    let stored = joined.as_ref().map(|joined| (joined.membership.quorum.clone(), Arc::new(joined.data.clone())));
    let open = listeners.clients.open.clone();
    let health_sources = HealthSources { connections: open.clone(), budget, stored, tls: tls.clone() };
    let services = GrpcServices {
        capacity: CapacityService::new(
            node.clone(),
            info.clone(),
            joined.as_ref().map(|joined| joined.membership.quorum.clone()),
        ),
        status: StatusService::new(node.clone(), info.clone(), health_sources.clone()),
        push: PushService::new(node.clone(), stopped.clone()),
        health: health.clone(),
    };
    let mut queues = Vec::new();
    threads.on_each(|| {
        let (queue, connections) = arbiter_queue();
        queues.push(queue);
        grpc::serve(services.clone(), Arc::clone(&gate), Arc::clone(&limits), connections, stopped.clone())
    });
    let for_guests = listeners.clients.clone();
    let listener = Listener::new(listener, listeners.clients);
    let distributor = spawn(distribute(listener, queues));
    let history = Arc::new(History::new(limits.history_resources));
    let surveyor = Arc::new(Surveyor::new(&limits));
    let pages = Pages {
        node: node.clone(),
        info: info.clone(),
        prometheus: prometheus.clone(),
        health: health_sources,
        scrapes: Arc::new(Semaphore::new(1)),
        metrics_resources: limits.metrics_resources,
        history: Arc::clone(&history),
        surveyor: Arc::clone(&surveyor),
        live: Arc::new(LivePages::new(limits.live_pages, stopped.clone())),
        looks: Looks::default(),
    };
    spawn(history.keep(node.clone(), surveyor));
    let http_listener = Listener::new(http_listener, listeners.pages);
    let patience = Duration::from_secs(limits.request_secs);
    let serving = http::Serving {
        pages: http::router(pages),
        gate: Arc::clone(&gate),
        body_bytes: http::PASTED_BYTES,
        names: (!has_tls).then(|| HostNames::new(&options.access.http_names, Some(&info.advertise))),
    };
    spawn(http::serve(http_listener, serving, patience, stopped.clone()));
    spawn(tick(node.clone()));
    let watched = spawn(watch_absence(node.clone(), health.clone()));
    spawn(upkeep(prometheus));
    spawn(reload.on_change(node.clone(), files, joined.is_some()));
    if let Some(tls) = tls {
        spawn(tls::reload(tls, hangup));
    }
    let quorum = joined.map(|joined| joined.membership.quorum);
    if let Some(admin) = admin {
        let service = quorum.clone().map(|quorum| AdminService::new(node.clone(), quorum, info.clone()));
        let pools = PoolService::new(node.clone(), stopped.clone());
        spawn(admin::serve(admin, Arc::clone(&gate), listeners.operators, pools, service, stopped.clone()));
    }
    let mut farewell = None;
    if let Some(Guests { flag, listen, start }) = guests {
        let tcp = bind(listen, flag).await?;
        addresses.guests = Some(local(&tcp, listen));
        let services = start(Host { id: &info.id, address: &info.advertise }).map_err(ServeError::Guests)?;
        farewell = Some(services.farewell);
        let (listener, gate) = (Listener::new(tcp, for_guests), Arc::clone(&gate));
        let (limits, stopped) = (Arc::clone(&limits), stopped.clone());
        spawn(async move { grpc::serve_guarded(listener, services.routes, Vec::new(), gate, &limits, stopped).await });
    }
    tracing::info!(grpc = %addresses.grpc, http = %addresses.http, "ready");
    ready(addresses);
    supervisor::ready();

    let failed = tokio::select! {
        () = stop_signals.received() => false,
        changed = node_failed.wait_for(|failed| *failed) => changed.is_ok(),
    };
    tracing::info!("stopping");
    supervisor::stopping();
    watched.abort();
    serves(&health, false).await;
    // First, so that a request that comes from here on is sent to the next master.
    match quorum {
        Some(quorum) if failed => quorum.shutdown().await,
        _ => node.hand_over().await,
    }
    if let Some(farewell) = farewell.filter(|_| !failed) {
        farewell.await;
    }
    distributor.abort();
    stop.send_replace(true);
    to_be_ended.iter().for_each(OpenConnections::end_all);
    drain(&open).await;
    threads.stop();
    gate.audit().close();
    #[cfg(feature = "otlp")]
    if let Some(traces) = traces {
        traces.stop().await;
    }
    if failed { Err(ServeError::NodeFailed) } else { Ok(()) }
}

/// What decides whether calls are allowed; a server that would stand open does not start.
pub(crate) fn gate(
    listeners: &[(&'static str, SocketAddr)],
    has_policy: bool,
    has_tls: bool,
    access: &AccessOptions,
    files: &CredentialFiles,
    accounts: &Arc<Accounts>,
) -> Result<Arc<Gate>, ServeError> {
    let exposure = Exposure { listeners, has_tls, has_policy, insecure: access.insecure };
    exposure.check()?;
    if let Some((flag, address)) = exposure.exposed() {
        tracing::warn!(
            "--insecure: {flag} {address} can be reached from other machines, which can read and change what passes, \
             and do what no policy forbids"
        );
    }
    let credentials = files.read().map_err(|error| ServeError::Credentials(error.to_string()))?;
    let audit = match &access.audit {
        None => Audit::none(),
        Some(target) => Audit::open(target).map_err(|error| {
            let path = if let AuditTarget::File(path) = target { path.clone() } else { "standard output".into() };
            ServeError::Audit { path, error }
        })?,
    };
    let (opens, is_exposed) = (exposure.opens_without_policy(), exposure.exposed().is_some());
    Ok(Arc::new(Gate::new(credentials, opens, is_exposed, audit, Arc::clone(accounts))))
}

/// How each listener accepts.
pub(crate) struct ListenerSet {
    pub(crate) clients: ListenerSettings,
    pub(crate) pages: ListenerSettings,
    operators: ListenerSettings,
    peers: ListenerSettings,
}

impl ListenerSet {
    pub(crate) fn new(
        tls: Option<&Tls>,
        limits: &Limits,
        accounts: &Arc<Accounts>,
        budget: &Arc<Budget>,
    ) -> Result<ListenerSet, ServeError> {
        let openings = Openings::new(MOST_OPENING, limits.share());
        let settings = |service: Service| {
            let limits = connection_limits(limits, service);
            Ok::<_, ServeError>(ListenerSettings {
                service,
                tls: tls.map(|tls| tls.listener(service)).transpose()?.flatten(),
                open: OpenConnections::new(limits, Arc::clone(accounts), Arc::clone(budget)),
                openings: openings.clone(),
            })
        };
        Ok(ListenerSet {
            clients: settings(Service::Clients)?,
            pages: settings(Service::Pages)?,
            operators: settings(Service::Operators)?,
            peers: settings(Service::Peers)?,
        })
    }

    /// The open connections of each.
    pub(crate) fn open(&self) -> Vec<OpenConnections> {
        [&self.clients, &self.pages, &self.operators, &self.peers].map(|listener| listener.open.clone()).into()
    }
}

fn connection_limits(limits: &Limits, service: Service) -> ConnectionLimits {
    ConnectionLimits {
        most: if service == Service::Clients { limits.connections } else { limits.page_connections },
        share: limits.share(),
        // What peers ask each other is not counted.
        idle: (service != Service::Peers).then(|| Duration::from_secs(limits.idle_connection_secs)),
        stalled: Duration::from_secs(limits.answer_secs),
    }
}

fn thread_count(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// Unpredictable for clients that try to cause hash collisions.
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
        supervisor::alive();
    }
}

async fn serves(health: &HealthReporter, serves: bool) {
    let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in HEALTH {
        health.set_service_status(service, status).await;
    }
}

/// A peer that takes no part in its node has nothing to serve.
async fn watch_absence(node: NodeHandle, health: HealthReporter) {
    let (mut interval, mut takes_part) = (tokio::time::interval(TICK), true);
    loop {
        interval.tick().await;
        if std::mem::replace(&mut takes_part, node.absence().is_none()) != takes_part {
            serves(&health, takes_part).await;
        }
    }
}

async fn upkeep(prometheus: metrics_exporter_prometheus::PrometheusHandle) {
    loop {
        tokio::time::sleep(METRICS_UPKEEP).await;
        prometheus.run_upkeep();
    }
}

/// Waits for connections to finish what they are doing, but not for ever.
async fn drain(open: &OpenConnections) {
    let deadline = tokio::time::Instant::now() + DRAIN;
    while open.count() > 0 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
