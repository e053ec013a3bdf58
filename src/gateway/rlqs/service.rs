//! The service that Envoys call, and the registry of Envoys.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leaseway_client::{BuildError, Client, Mode};
use leaseway_core::types::escaped;
use leaseway_proto::envoy::quota::{
    RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    rate_limit_quota_service_server::{RateLimitQuotaService, RateLimitQuotaServiceServer},
};
use leaseway_server::{GrpcCaller, ListenOption};
use metrics::{counter, gauge};
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
    rlqs::quotas::{EnvoyQuotas, QuotaSettings},
};

/// The metadata key for the name of an Envoy.
const NAME: &str = "leaseway-client";

/// The client id of a named Envoy is `NAME@envoy` at all gateways.
const HOLDER: &str = "envoy";

/// How long releasing leases may take when the gateway stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of reports that wait for the task of an Envoy.
const COMMANDS: usize = 4;

/// The maximum length of names and domains.
const MAX_NAME_BYTES: usize = 128;

#[derive(Debug, Clone)]
pub struct RlqsOptions {
    pub listen: ListenOption,
    pub envoy: QuotaSettings,
    /// The maximum number of Envoys, including disconnected ones whose assignments have not expired.
    pub most_envoys: usize,
}

/// Clones share their state.
#[derive(Debug, Clone)]
pub struct RlqsService(Arc<Registry>);

#[derive(Debug)]
struct Registry {
    options: RlqsOptions,
    lease_table: LeaseTableOptions,
    /// The client id of the gateway. Envoys without a name have the id `STREAM@ID`.
    id: String,
    clock: Clock,
    caller_shares: Arc<CallerShares>,
    stop: watch::Sender<bool>,
    present: Mutex<Present>,
    /// The prefix of names of streams without a name. It differs after a restart.
    anonymous: String,
}

/// The current Envoys.
#[derive(Debug, Default)]
struct Present {
    /// The queues of their tasks, by name.
    envoys: HashMap<Arc<str>, mpsc::Sender<Command>>,
    streams: u64,
}

impl RlqsService {
    /// Uses the cluster and the limits of `lease_table`.
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

    /// Ends all streams. Leases of named Envoys are kept for another gateway, or for this one after a restart. Leases
    /// of unnamed Envoys are released when their assignments have expired.
    pub async fn drain(&self) {
        let registry = &self.0;
        registry.stop.send_replace(true);
        let deadline =
            Instant::now() + Duration::from_millis(registry.options.envoy.max_assignment_span().0) + CLOSE_TIMEOUT;
        while !registry.present().envoys.is_empty() && Instant::now() < deadline {
            sleep(Duration::from_millis(20)).await;
        }
        let left = registry.present().envoys.len();
        if left > 0 {
            tracing::warn!(
                envoys = left,
                "stopping while unnamed Envoys may still apply their assignments; their leases are not released and will \
                 expire"
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

/// The name of an Envoy, if it has one.
fn name(metadata: &MetadataMap) -> Result<Option<Arc<str>>, Status> {
    let Some(name) = metadata.get(NAME) else { return Ok(None) };
    let name = name.to_str().ok().filter(|name| !name.is_empty() && name.len() <= MAX_NAME_BYTES);
    let bad =
        || Status::invalid_argument(format!("{NAME} must be a name of 1 to {MAX_NAME_BYTES} printable characters"));
    name.map(Arc::from).map(Some).ok_or_else(bad)
}

/// Reads a stream.
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
        gauge!("leaseway_rlqs_streams").increment(1.0);
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
                tracing::warn!(envoy = %self.name, "stream refused: {}", escaped(status.message()));
                let _ = sink.send(Err(status)).await;
                break;
            }
        }
        let commands = self.registry.present().envoys.get(&self.name).cloned();
        if let Some(commands) = commands {
            // Fails if the task has ended.
            let _ = commands.send(Command::Left(self.stream.number)).await;
        }
        gauge!("leaseway_rlqs_streams").decrement(1.0);
    }

    async fn reported(&mut self, reports: RateLimitQuotaUsageReports) -> Result<(), Status> {
        counter!("leaseway_rlqs_reports_total").increment(1);
        let domain = self.domain(reports.domain)?;
        let mut usages = Vec::with_capacity(reports.bucket_quota_usages.len());
        for (at, usage) in reports.bucket_quota_usages.into_iter().enumerate() {
            let read = report::read(&domain, at, &usage);
            let (bucket, usage) = read.map_err(|error| Status::invalid_argument(error.to_string()))?;
            match self.caller.may_ask_as(&bucket.resource, &self.name) {
                Ok(()) => usages.push((bucket, usage)),
                // The other buckets are served.
                Err(_) => counter!("leaseway_rlqs_buckets_refused_total").increment(1),
            }
        }
        let owner = self.caller.principal();
        let mut command = Command::Reported { stream: self.stream.clone(), usages, owner };
        loop {
            let commands = Registry::commands(&self.registry, &self.name)?;
            match commands.send(command).await {
                Ok(()) => return Ok(()),
                // The task has just ended. Start another.
                Err(unsent) => command = unsent.0,
            }
        }
    }

    fn domain(&mut self, said: String) -> Result<Arc<str>, Status> {
        match &self.domain {
            Some(domain) if said.is_empty() || said == **domain => Ok(Arc::clone(domain)),
            Some(domain) => Err(Status::invalid_argument(format!(
                "all reports of a stream must have the same `domain`: the first has `{}`, a later one `{}`",
                escaped(domain),
                escaped(&said)
            ))),
            None if said.is_empty() || said.len() > MAX_NAME_BYTES => Err(Status::invalid_argument(format!(
                "the first report of a stream must have a `domain` of 1 to {MAX_NAME_BYTES} bytes"
            ))),
            None => Ok(Arc::clone(self.domain.insert(said.into()))),
        }
    }
}

impl Registry {
    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue of the task of this Envoy, which is started if there is none.
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
            return Err(Status::resource_exhausted(format!(
                "too many Envoys at this gateway (limit {most}): raise --max-envoys"
            )));
        }
        let session = Registry::session(registry, name);
        let session = session.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let (commands, listens) = mpsc::channel(COMMANDS);
        present.envoys.insert(Arc::clone(name), commands.clone());
        gauge!("leaseway_rlqs_envoys").set(present.envoys.len() as f64);
        drop(present);
        tokio::spawn(Registry::serve(Arc::clone(registry), Arc::clone(name), session, listens));
        Ok(commands)
    }

    /// Whether the Envoy has chosen its name. Each stream without a name counts as an Envoy of its own.
    fn is_named(&self, name: &str) -> bool {
        !name.starts_with(&self.anonymous)
    }

    /// The client for one Envoy. A named Envoy is the same holder at all gateways.
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
        // The command for which the task was started.
        let mut next = commands.recv().await;
        while let Some(command) = next {
            // Two clients with one id must not exist at the same time, so the next Envoy with this name waits.
            session.serve(command, &mut commands).await.close().await;
            let mut present = registry.present();
            next = commands.try_recv().ok();
            let another = next.as_ref().and_then(|_| Registry::session(&registry, &name).ok());
            let Some(another) = another else {
                present.envoys.remove(&name);
                gauge!("leaseway_rlqs_envoys").set(present.envoys.len() as f64);
                return;
            };
            session = another;
        }
    }

    fn session(registry: &Arc<Registry>, name: &Arc<str>) -> Result<EnvoySession, BuildError> {
        let settings = &registry.options.envoy;
        let (clients, called) = (Arc::clone(registry), Arc::clone(name));
        Ok(EnvoySession {
            quotas: EnvoyQuotas::new(settings.clone(), registry.clock.now()),
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
