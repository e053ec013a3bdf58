//! A server that answers by a script, and records the requests.

mod streams;

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use leaseway_proto::{
    doorman::{
        BudgetLease, DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse,
        GetServerCapacityRequest, GetServerCapacityResponse, Lease, Mastership, ReleaseCapacityRequest,
        ReleaseCapacityResponse, ResourceRequest, ResourceResponse,
        capacity_server::{Capacity, CapacityServer},
    },
    push::{
        Hint, WatchRequest,
        push_server::{Push, PushServer},
    },
    session::session_server::SessionServer,
};
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle, time::Duration};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Code, Request, Response, Status, transport::server::TcpIncoming};

use self::streams::Streams;
pub(super) use self::streams::{Message, Renewal};

/// A lease to answer with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) capacity: f64,
    pub(super) length: Duration,
    /// Seconds.
    pub(super) refresh: i64,
    pub(super) safe: Option<f64>,
    /// Added to the expiry on the wire, as by a wrong wall clock. Seconds.
    pub(super) expiry_error: i64,
    /// Without it the length of the lease follows from the expiry alone, as at a Doorman server.
    pub(super) has_remaining: bool,
    /// The period, if the resource is a budget.
    pub(super) budget: Option<BudgetLease>,
}

impl Grant {
    /// A lease of a minute, to be refreshed every second.
    pub(super) fn of(capacity: f64) -> Grant {
        Grant {
            capacity,
            length: Duration::from_secs(60),
            refresh: 1,
            safe: None,
            expiry_error: 0,
            has_remaining: true,
            budget: None,
        }
    }

    /// An allowance in an hour that begins at `start`, in Unix seconds.
    pub(super) fn allowance(capacity: f64, start: i64) -> Grant {
        let period = BudgetLease { period_start: Some(start), period_end: Some(start + 3600), starts_over: None };
        Grant { budget: Some(period), ..Grant::of(capacity) }
    }

    /// An empty lease that tells the client of a budget to start over.
    pub(super) fn starts_over(start: i64) -> Grant {
        let grant = Grant::allowance(0.0, start);
        Grant { budget: grant.budget.map(|budget| BudgetLease { starts_over: Some(true), ..budget }), ..grant }
    }

    pub(super) fn length(self, seconds: u64) -> Grant {
        Grant { length: Duration::from_secs(seconds), ..self }
    }

    pub(super) fn refresh(self, seconds: i64) -> Grant {
        Grant { refresh: seconds, ..self }
    }

    pub(super) fn safe(self, capacity: f64) -> Grant {
        Grant { safe: Some(capacity), ..self }
    }

    fn lease(&self, token: u64) -> Lease {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let expiry = (now + self.length).as_secs() as i64;
        Lease {
            expiry_time: Some(expiry + self.expiry_error),
            refresh_interval: Some(self.refresh),
            capacity: Some(self.capacity),
            token: self.has_remaining.then_some(token),
            remaining_ms: self.has_remaining.then_some(self.length.as_millis() as i64),
        }
    }

    pub(super) fn response(&self, resource: &str, token: u64) -> ResourceResponse {
        ResourceResponse {
            resource_id: Some(resource.to_owned()),
            gets: Some(self.lease(token)),
            safe_capacity: self.safe,
            budget: self.budget,
            ..ResourceResponse::default()
        }
    }
}

/// Makes an answer from the request and a new token.
type Respond = dyn Fn(&GetCapacityRequest, u64) -> GetCapacityResponse + Send + Sync;

#[derive(Clone)]
pub(super) enum Script {
    Grant(Grant),
    /// Never answers.
    Silent,
    /// Answers after a pause.
    Late(Duration, Grant),
    Fail(Code),
    /// Names another master, or none.
    Redirect(Option<String>),
    Respond(Arc<Respond>),
}

/// A GetCapacity, and when it arrived.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) at: Instant,
    pub(super) request: GetCapacityRequest,
}

impl Received {
    /// The entry of a resource.
    pub(super) fn entry(&self, resource: &str) -> Option<&ResourceRequest> {
        self.request.resource.iter().find(|entry| entry.resource_id() == resource)
    }
}

struct State {
    script: Mutex<Script>,
    endpoints: Mutex<Vec<String>>,
    received: Mutex<Vec<Received>>,
    released: Mutex<Vec<ReleaseCapacityRequest>>,
    watchers: Mutex<Vec<mpsc::Sender<Result<Hint, Status>>>>,
    streams: Streams,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
    /// The last token.
    token: AtomicU64,
}

pub(super) struct ScriptedServer {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ScriptedServer {
    pub(super) async fn start(script: Script) -> Result<ScriptedServer, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let state = Arc::new(State {
            script: Mutex::new(script),
            endpoints: Mutex::default(),
            received: Mutex::default(),
            released: Mutex::default(),
            watchers: Mutex::default(),
            streams: Streams::default(),
            in_flight: AtomicUsize::new(0),
            max_in_flight: AtomicUsize::new(0),
            token: AtomicU64::new(0),
        });
        let service = Service(Arc::clone(&state));
        let server = tonic::transport::Server::builder()
            .add_service(CapacityServer::new(service.clone()))
            .add_service(PushServer::new(service.clone()))
            .add_service(SessionServer::new(service));
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let task = tokio::spawn(async move {
            let _ = server.serve_with_incoming(incoming).await;
        });
        Ok(ScriptedServer { address, state, task })
    }

    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Changes the script.
    pub(super) fn play(&self, script: Script) {
        *lock(&self.state.script) = script;
    }

    pub(super) fn grant(&self, grant: Grant) {
        self.play(Script::Grant(grant));
    }

    /// The peers that it names in its Discovery.
    pub(super) fn name_endpoints(&self, endpoints: Vec<String>) {
        *lock(&self.state.endpoints) = endpoints;
    }

    pub(super) fn received(&self) -> Vec<Received> {
        lock(&self.state.received).clone()
    }

    /// The requests from `since` on.
    pub(super) fn received_since(&self, since: Instant) -> Vec<Received> {
        self.received().into_iter().filter(|received| received.at >= since).collect()
    }

    pub(super) fn released(&self) -> Vec<ReleaseCapacityRequest> {
        lock(&self.state.released).clone()
    }

    pub(super) fn last_token(&self) -> u64 {
        self.state.token.load(Ordering::SeqCst)
    }

    /// The maximum number of GetCapacity requests that were unanswered at the same time.
    pub(super) fn max_in_flight(&self) -> usize {
        self.state.max_in_flight.load(Ordering::SeqCst)
    }

    /// Sends a hint to all watchers. Returns their number.
    pub(super) fn hint(&self, resource: &str) -> usize {
        let hint = Hint { resource_id: vec![resource.to_owned()], everything: false };
        let mut watchers = lock(&self.state.watchers);
        watchers.retain(|watcher| watcher.try_send(Ok(hint.clone())).is_ok());
        watchers.len()
    }

    pub(super) fn watchers(&self) -> usize {
        lock(&self.state.watchers).len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
struct Service(Arc<State>);

/// Counts a request until it is answered or cancelled.
struct InFlight(Arc<State>);

impl InFlight {
    fn of(state: &Arc<State>) -> InFlight {
        let count = state.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        state.max_in_flight.fetch_max(count, Ordering::SeqCst);
        InFlight(Arc::clone(state))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Service {
    fn granted(&self, request: &GetCapacityRequest, grant: &Grant) -> GetCapacityResponse {
        let token = self.0.token.fetch_add(1, Ordering::SeqCst) + 1;
        let response = request.resource.iter().map(|entry| grant.response(entry.resource_id(), token)).collect();
        GetCapacityResponse { response, ..GetCapacityResponse::default() }
    }
}

#[tonic::async_trait]
impl Capacity for Service {
    async fn discovery(&self, _: Request<DiscoveryRequest>) -> Result<Response<DiscoveryResponse>, Status> {
        Ok(Response::new(DiscoveryResponse {
            mastership: Some(Mastership::default()),
            is_master: Some(true),
            endpoint: lock(&self.0.endpoints).clone(),
            term: Some(1),
            renews_by_stream: self.0.streams.are_offered().then_some(true),
        }))
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let _in_flight = InFlight::of(&self.0);
        let request = request.into_inner();
        lock(&self.0.received).push(Received { at: Instant::now(), request: request.clone() });
        let script = lock(&self.0.script).clone();
        Ok(Response::new(match script {
            Script::Grant(grant) => self.granted(&request, &grant),
            Script::Silent => std::future::pending().await,
            Script::Late(pause, grant) => {
                tokio::time::sleep(pause).await;
                self.granted(&request, &grant)
            }
            Script::Fail(code) => return Err(Status::new(code, "a scripted failure")),
            Script::Redirect(master_address) => {
                GetCapacityResponse { mastership: Some(Mastership { master_address }), ..Default::default() }
            }
            Script::Respond(respond) => respond(&request, self.0.token.fetch_add(1, Ordering::SeqCst) + 1),
        }))
    }

    async fn get_server_capacity(
        &self,
        _: Request<GetServerCapacityRequest>,
    ) -> Result<Response<GetServerCapacityResponse>, Status> {
        Err(Status::unimplemented("clients ask for themselves"))
    }

    async fn release_capacity(
        &self,
        request: Request<ReleaseCapacityRequest>,
    ) -> Result<Response<ReleaseCapacityResponse>, Status> {
        lock(&self.0.released).push(request.into_inner());
        let mastership = match &*lock(&self.0.script) {
            Script::Redirect(master_address) => Some(Mastership { master_address: master_address.clone() }),
            _ => None,
        };
        Ok(Response::new(ReleaseCapacityResponse { mastership, ..ReleaseCapacityResponse::default() }))
    }
}

#[tonic::async_trait]
impl Push for Service {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Hint, Status>> + Send>>;

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (hints, watcher) = mpsc::channel(16);
        // The first hint says that others will follow.
        let _ = hints.try_send(Ok(Hint::default()));
        lock(&self.0.watchers).push(hints);
        Ok(Response::new(Box::pin(ReceiverStream::new(watcher))))
    }
}
