//! The service that Envoys call, and which of them there are.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leaseway_client::{BuildError, Client, Mode};
use leaseway_core::escaped;
use leaseway_envoy::{Envoy, EnvoySettings};
use leaseway_proto::envoy::quota::{
    RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    rate_limit_quota_service_server::{RateLimitQuotaService, RateLimitQuotaServiceServer},
};
use leaseway_server::{GrpcCaller, ListenOption};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, metadata::MetadataMap, service::Routes};

use super::{
    envoy_session::{Command, EnvoySession, STOPS, Sink, Stream},
    leases::{ClientLeases, Clock},
    report,
};
use crate::{
    lease_table::{CallerShares, LeaseTable, LeaseTableOptions},
    metrics,
};

/// Where an Envoy says what it is called.
pub const NAME: &str = "leaseway-client";

/// The cluster knows an Envoy of a name as `NAME@envoy`, whichever gateway it reports to.
const HOLDER: &str = "envoy";

/// How long giving back may take when the gateway stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// So many reports of an Envoy wait for its task.
const COMMANDS: usize = 4;

/// Names and domains are no longer.
const MAX_NAME_BYTES: usize = 128;

/// What a gateway for RLQS is to do.
#[derive(Debug, Clone)]
pub struct RlqsOptions {
    /// Where Envoys report.
    pub listen: ListenOption,
    /// How each Envoy is attended.
    pub envoy: EnvoySettings,
    /// No more Envoys, those included that have gone and may go by what they were told.
    pub most_envoys: usize,
}

/// The service. Clones are the same.
#[derive(Debug, Clone)]
pub struct RlqsService(Arc<Registry>);

#[derive(Debug)]
struct Registry {
    options: RlqsOptions,
    /// The cluster, and what may be open.
    lease_table: LeaseTableOptions,
    /// What the gateway is called: its Envoys without a name are called `NUMBER@ID`.
    id: String,
    clock: Clock,
    caller_shares: Arc<CallerShares>,
    stop: watch::Sender<bool>,
    present: Mutex<Present>,
    /// What streams without a name are called: never as one of a former life of this gateway.
    anonymous: String,
}

/// The Envoys of now, by name.
#[derive(Debug, Default)]
struct Present {
    /// What their tasks listen to.
    envoys: HashMap<Arc<str>, mpsc::Sender<Command>>,
    streams: u64,
}

impl RlqsService {
    /// Of the same cluster as the bridge, and under the bridge's bounds.
    pub fn new(options: RlqsOptions, lease_table: &LeaseTable) -> RlqsService {
        let (id, lease_table) = (lease_table.client().id().to_owned(), lease_table.options().clone());
        let caller_shares = Arc::new(CallerShares::new(lease_table.most_resources, lease_table.share));
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        RlqsService(Arc::new(Registry {
            clock: Clock::start(),
            caller_shares,
            stop: watch::Sender::new(false),
            present: Mutex::default(),
            anonymous: format!("stream-{began:x}"),
            options,
            lease_table,
            id,
        }))
    }

    pub fn routes(&self) -> Routes {
        Routes::new(RateLimitQuotaServiceServer::new(self.clone()))
    }

    /// Ends all streams. What an Envoy with a name was leased stays its own: another gateway goes on with it, or this
    /// one when it runs again. What one without a name was leased is given back when it believes in it no longer, which
    /// takes as long as an assignment.
    pub async fn drain(&self) {
        let registry = &self.0;
        registry.stop.send_replace(true);
        let deadline =
            Instant::now() + Duration::from_millis(registry.options.envoy.longest_belief().0) + CLOSE_TIMEOUT;
        while !registry.present().envoys.is_empty() && Instant::now() < deadline {
            sleep(Duration::from_millis(20)).await;
        }
        let left = registry.present().envoys.len();
        if left > 0 {
            tracing::warn!(
                envoys = left,
                "stopping although Envoys without a name may go by what they were told: it is not given back, and ends \
                 by itself"
            );
        }
    }
}

#[tonic::async_trait]
impl RateLimitQuotaService for RlqsService {
    type StreamRateLimitQuotasStream = ReceiverStream<Result<RateLimitQuotaResponse, Status>>;

    async fn stream_rate_limit_quotas(
        &self,
        request: Request<Streaming<RateLimitQuotaUsageReports>>,
    ) -> Result<Response<Self::StreamRateLimitQuotasStream>, Status> {
        let caller = GrpcCaller::of(request.extensions())?;
        let name = name(request.metadata())?;
        if *self.0.stop.borrow() {
            return Err(Status::unavailable(STOPS));
        }
        let (sink, told) = mpsc::channel(1);
        tokio::spawn(Reader::new(Arc::clone(&self.0), caller, name, sink).read(request.into_inner()));
        Ok(Response::new(ReceiverStream::new(told)))
    }
}

/// What an Envoy calls itself, if it says so.
fn name(metadata: &MetadataMap) -> Result<Option<Arc<str>>, Status> {
    let Some(name) = metadata.get(NAME) else { return Ok(None) };
    let name = name.to_str().ok().filter(|name| !name.is_empty() && name.len() <= MAX_NAME_BYTES);
    let bad = || Status::invalid_argument(format!("{NAME} is a name of 1 to {MAX_NAME_BYTES} printable characters"));
    name.map(Arc::from).map(Some).ok_or_else(bad)
}

/// What reads a stream.
struct Reader {
    registry: Arc<Registry>,
    caller: GrpcCaller,
    name: Arc<str>,
    domain: Option<Arc<str>>,
    stream: Stream,
}

impl Reader {
    fn new(registry: Arc<Registry>, caller: GrpcCaller, name: Option<Arc<str>>, sink: Sink) -> Reader {
        let mut present = registry.present();
        present.streams += 1;
        let number = present.streams;
        drop(present);
        let name = name.unwrap_or_else(|| format!("{}-{number}", registry.anonymous).into());
        metrics::stream_opened();
        Reader { registry, caller, name, domain: None, stream: Stream { number, sink } }
    }

    async fn read(mut self, mut incoming: Streaming<RateLimitQuotaUsageReports>) {
        let sink = self.stream.sink.clone();
        loop {
            let reports = tokio::select! {
                reports = incoming.message() => reports,
                () = sink.closed() => break,
            };
            let Ok(Some(reports)) = reports else { break };
            if let Err(status) = self.reported(reports).await {
                tracing::warn!(envoy = %self.name, "a stream is refused: {}", escaped(status.message()));
                let _ = sink.send(Err(status)).await;
                break;
            }
        }
        let commands = self.registry.present().envoys.get(&self.name).cloned();
        if let Some(commands) = commands {
            // A task that has ended knows of no stream.
            let _ = commands.send(Command::Left(self.stream.number)).await;
        }
        metrics::stream_closed();
    }

    async fn reported(&mut self, reports: RateLimitQuotaUsageReports) -> Result<(), Status> {
        metrics::reported();
        let domain = self.domain(reports.domain)?;
        let mut usages = Vec::with_capacity(reports.bucket_quota_usages.len());
        for (at, usage) in reports.bucket_quota_usages.into_iter().enumerate() {
            let read = report::read(&domain, at, &usage);
            let (bucket, usage) = read.map_err(|error| Status::invalid_argument(error.to_string()))?;
            match self.caller.may_ask_as(&bucket.resource, &self.name) {
                Ok(()) => usages.push((bucket, usage)),
                // Its other buckets are none the worse for it.
                Err(_) => metrics::bucket_refused(),
            }
        }
        let owner = self.caller.principal();
        let mut command = Command::Reported { stream: self.stream.clone(), usages, owner };
        loop {
            let commands = Registry::commands(&self.registry, &self.name)?;
            match commands.send(command).await {
                Ok(()) => return Ok(()),
                // Its task has ended just now: another begins.
                Err(unsent) => command = unsent.0,
            }
        }
    }

    fn domain(&mut self, said: String) -> Result<Arc<str>, Status> {
        match &self.domain {
            Some(domain) if said.is_empty() || said == **domain => Ok(Arc::clone(domain)),
            Some(domain) => Err(Status::invalid_argument(format!(
                "a stream has one domain: the first report said {}, another {}",
                escaped(domain),
                escaped(&said)
            ))),
            None if said.is_empty() || said.len() > MAX_NAME_BYTES => Err(Status::invalid_argument(format!(
                "the first report of a stream names its domain, in 1 to {MAX_NAME_BYTES} bytes"
            ))),
            None => Ok(Arc::clone(self.domain.insert(said.into()))),
        }
    }
}

impl Registry {
    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the task of this Envoy listens to; it begins if there is none.
    fn commands(registry: &Arc<Registry>, name: &Arc<str>) -> Result<mpsc::Sender<Command>, Status> {
        let mut present = registry.present();
        if let Some(commands) = present.envoys.get(name) {
            return Ok(commands.clone());
        }
        if *registry.stop.borrow() {
            return Err(Status::unavailable(STOPS));
        }
        let most = registry.options.most_envoys;
        if present.envoys.len() >= most {
            return Err(Status::resource_exhausted(format!("this gateway serves as many Envoys as it may: {most}")));
        }
        let session = Registry::session(registry, name);
        let session = session.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let (commands, listens) = mpsc::channel(COMMANDS);
        present.envoys.insert(Arc::clone(name), commands.clone());
        metrics::envoys(present.envoys.len());
        drop(present);
        tokio::spawn(Registry::serve(Arc::clone(registry), Arc::clone(name), session, listens));
        Ok(commands)
    }

    /// An Envoy without a name of its own is another with each stream.
    fn is_named(&self, name: &str) -> bool {
        !name.starts_with(&self.anonymous)
    }

    /// A client of the cluster, for one Envoy. One that has a name is the same holder at every gateway.
    fn client(&self, name: &str) -> Result<Client, BuildError> {
        let LeaseTableOptions { servers, transport, .. } = &self.lease_table;
        let builder = Client::builder().endpoints(servers.iter().cloned()).transport(transport);
        let id = if self.is_named(name) { format!("{name}@{HOLDER}") } else { format!("{name}@{}", self.id) };
        builder.id(id).mode(Mode::Pessimistic).gateway().build()
    }

    async fn serve(
        registry: Arc<Registry>,
        name: Arc<str>,
        mut session: EnvoySession,
        mut commands: mpsc::Receiver<Command>,
    ) {
        // It has begun for a command that is on its way.
        let mut next = commands.recv().await;
        while let Some(command) = next {
            // Two clients of one id must not be there at the same time: the next Envoy of this name waits.
            session.serve(command, &mut commands).await.close().await;
            let mut present = registry.present();
            next = commands.try_recv().ok();
            let another = next.as_ref().and_then(|_| Registry::session(&registry, &name).ok());
            let Some(another) = another else {
                present.envoys.remove(&name);
                metrics::envoys(present.envoys.len());
                return;
            };
            session = another;
        }
    }

    fn session(registry: &Arc<Registry>, name: &Arc<str>) -> Result<EnvoySession, BuildError> {
        let settings = &registry.options.envoy;
        let (clients, called) = (Arc::clone(registry), Arc::clone(name));
        Ok(EnvoySession {
            envoy: Envoy::new(settings.clone(), registry.clock.now()),
            leases: ClientLeases::new(Box::new(move || clients.client(&called)), registry.clock)?,
            clock: registry.clock,
            caller_shares: Arc::clone(&registry.caller_shares),
            first_wants: settings.first_wants,
            stream: None,
            has_begun: false,
            here_until: registry.clock.now(),
            is_named: registry.is_named(name),
            stop: registry.stop.subscribe(),
            has_refused: false,
        })
    }
}
