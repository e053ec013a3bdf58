//! The service that Envoys call, and which of them there are.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leaseway_client::{BuildError, Client, Mode};
use leaseway_core::escaped;
use leaseway_envoy::{Envoy, Settings};
use leaseway_proto::envoy::quota::{
    RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    rate_limit_quota_service_server::{RateLimitQuotaService, RateLimitQuotaServiceServer},
};
use leaseway_server::GrpcGuest;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, metadata::MetadataMap, service::Routes};

use super::{
    attendant::{Attendant, Command, STOPS, Sink, Stream},
    leases::{ClientLeases, Clock},
    report,
};
use crate::{
    bridge::{Bridge, BridgeOptions, Owners},
    metrics,
};

/// Where an Envoy says what it is called.
pub const NAME: &str = "leaseway-client";

/// How long giving back may take when the door stops.
const FAREWELL: Duration = Duration::from_secs(2);

/// So many reports of an Envoy wait for its task.
const COMMANDS: usize = 4;

/// Names and domains are no longer.
const MOST_NAME_BYTES: usize = 128;

/// What a door for RLQS is to do.
#[derive(Debug, Clone)]
pub struct RlqsOptions {
    /// Where Envoys report.
    pub listen: SocketAddr,
    /// How each Envoy is attended.
    pub envoy: Settings,
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
    bridge: BridgeOptions,
    /// What the door is called: its Envoys are called `NAME@ID`.
    id: String,
    clock: Clock,
    owners: Arc<Owners>,
    stop: watch::Sender<bool>,
    present: Mutex<Present>,
    /// What streams without a name are called: never as one of a former life of this door.
    anonymous: String,
}

/// The Envoys of now, by name.
#[derive(Debug, Default)]
struct Present {
    envoys: HashMap<Arc<str>, Attended>,
    streams: u64,
}

/// An Envoy that has a task.
#[derive(Debug)]
struct Attended {
    commands: mpsc::Sender<Command>,
    client: Client,
}

impl RlqsService {
    /// Of the same cluster as the bridge, and under the bridge's bounds.
    pub fn new(options: RlqsOptions, bridge: &Bridge) -> RlqsService {
        let (id, bridge) = (bridge.client().id().to_owned(), bridge.options().clone());
        let owners = Arc::new(Owners::new(bridge.most_resources, bridge.share));
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        RlqsService(Arc::new(Registry {
            clock: Clock::start(),
            owners,
            stop: watch::Sender::new(false),
            present: Mutex::default(),
            anonymous: format!("stream-{began:x}"),
            options,
            bridge,
            id,
        }))
    }

    /// To be attended.
    pub fn routes(&self) -> Routes {
        Routes::new(RateLimitQuotaServiceServer::new(self.clone()))
    }

    /// Ends all streams, and gives back what was leased when no Envoy believes in it any more. That takes as long as an
    /// assignment; what is not given back then ends by itself.
    pub async fn drain(&self) {
        let registry = &self.0;
        registry.stop.send_replace(true);
        let deadline = Instant::now() + Duration::from_millis(registry.options.envoy.longest_belief().0) + FAREWELL;
        while !registry.present().envoys.is_empty() && Instant::now() < deadline {
            sleep(Duration::from_millis(20)).await;
        }
        let left: Vec<Client> = registry.present().envoys.drain().map(|(_, attended)| attended.client).collect();
        left.iter().for_each(Client::abandon);
        if !left.is_empty() {
            tracing::warn!(
                envoys = left.len(),
                "stopping although Envoys may go by what they were told: it is not given back, and ends by itself"
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
        let guest = GrpcGuest::of(request.extensions())?;
        let name = name(request.metadata())?;
        if *self.0.stop.borrow() {
            return Err(Status::unavailable(STOPS));
        }
        let (sink, told) = mpsc::channel(1);
        tokio::spawn(Reader::new(Arc::clone(&self.0), guest, name, sink).read(request.into_inner()));
        Ok(Response::new(ReceiverStream::new(told)))
    }
}

/// What an Envoy calls itself, if it says so.
fn name(metadata: &MetadataMap) -> Result<Option<Arc<str>>, Status> {
    let Some(name) = metadata.get(NAME) else { return Ok(None) };
    let name = name.to_str().ok().filter(|name| !name.is_empty() && name.len() <= MOST_NAME_BYTES);
    let bad = || Status::invalid_argument(format!("{NAME} is a name of 1 to {MOST_NAME_BYTES} printable characters"));
    name.map(Arc::from).map(Some).ok_or_else(bad)
}

/// What reads a stream.
struct Reader {
    registry: Arc<Registry>,
    guest: GrpcGuest,
    name: Arc<str>,
    domain: Option<Arc<str>>,
    stream: Stream,
}

impl Reader {
    fn new(registry: Arc<Registry>, guest: GrpcGuest, name: Option<Arc<str>>, sink: Sink) -> Reader {
        let mut present = registry.present();
        present.streams += 1;
        let number = present.streams;
        drop(present);
        let name = name.unwrap_or_else(|| format!("{}-{number}", registry.anonymous).into());
        metrics::stream_opened();
        Reader { registry, guest, name, domain: None, stream: Stream { number, sink } }
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
        let commands = self.registry.present().envoys.get(&self.name).map(|attended| attended.commands.clone());
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
            match self.guest.may_ask_as(&bucket.resource, &self.name) {
                Ok(()) => usages.push((bucket, usage)),
                // Its other buckets are none the worse for it.
                Err(_) => metrics::bucket_refused(),
            }
        }
        let owner = self.guest.principal();
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
            None if said.is_empty() || said.len() > MOST_NAME_BYTES => Err(Status::invalid_argument(format!(
                "the first report of a stream names its domain, in 1 to {MOST_NAME_BYTES} bytes"
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
        if let Some(attended) = present.envoys.get(name) {
            return Ok(attended.commands.clone());
        }
        if *registry.stop.borrow() {
            return Err(Status::unavailable(STOPS));
        }
        let most = registry.options.most_envoys;
        if present.envoys.len() >= most {
            return Err(Status::resource_exhausted(format!("this door serves as many Envoys as it may: {most}")));
        }
        let client = registry.client(name).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let (commands, listens) = mpsc::channel(COMMANDS);
        present.envoys.insert(Arc::clone(name), Attended { commands: commands.clone(), client: client.clone() });
        metrics::envoys(present.envoys.len());
        drop(present);
        tokio::spawn(Registry::serve(Arc::clone(registry), Arc::clone(name), client, listens));
        Ok(commands)
    }

    /// A client of the cluster, for one Envoy.
    fn client(&self, name: &str) -> Result<Client, BuildError> {
        let BridgeOptions { servers, transport, .. } = &self.bridge;
        let builder = Client::builder().endpoints(servers.iter().cloned()).transport(transport);
        builder.id(format!("{name}@{}", self.id)).mode(Mode::Pessimistic).door().build()
    }

    async fn serve(registry: Arc<Registry>, name: Arc<str>, mut client: Client, mut commands: mpsc::Receiver<Command>) {
        // It has begun for a command that is on its way.
        let mut next = commands.recv().await;
        while let Some(command) = next {
            registry.attendant(&client).attend(command, &mut commands).await;
            // Two clients of one id must not be there at the same time: the next Envoy of this name waits.
            client.close().await;
            let mut present = registry.present();
            next = commands.try_recv().ok();
            if next.is_none() {
                present.envoys.remove(&name);
            } else if let (Ok(another), Some(attended)) = (registry.client(&name), present.envoys.get_mut(&name)) {
                (client, attended.client) = (another.clone(), another);
            }
            metrics::envoys(present.envoys.len());
        }
    }

    fn attendant(&self, client: &Client) -> Attendant {
        let settings = &self.options.envoy;
        Attendant {
            envoy: Envoy::new(settings.clone(), self.clock.now()),
            leases: ClientLeases::new(client.clone(), self.clock, settings.longest_belief()),
            clock: self.clock,
            owners: Arc::clone(&self.owners),
            first_wants: settings.first_wants,
            stream: None,
            stop: self.stop.subscribe(),
            has_refused: false,
        }
    }
}
