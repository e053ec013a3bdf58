//! Servers that misbehave as told: on a real socket, with the original protocol, and with hints if they are told to
//! have some.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use leaseway_proto::{
    doorman::{
        DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse, GetServerCapacityRequest,
        GetServerCapacityResponse, Lease, Mastership, ReleaseCapacityRequest, ReleaseCapacityResponse,
        ResourceResponse,
        capacity_server::{Capacity, CapacityServer},
    },
    push::{
        Hint, WatchRequest,
        push_server::{Push, PushServer},
    },
};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::{
    StreamExt as _,
    wrappers::{ReceiverStream, TcpListenerStream},
};
use tonic::{Request, Response, Status, transport::Server};

use super::wait::{block_on, runtime};

/// What a server does with requests.
#[derive(Debug, Clone)]
pub(crate) enum Manner {
    /// Gives every client so much, for so many seconds; without tokens, as Doorman's servers do.
    Gives { capacity: f64, seconds: i64 },
    /// Takes them and never answers.
    Hangs,
    /// Redirects to another server.
    Names(String),
}

/// A server that does nothing but what it is told.
pub(crate) struct Fake {
    address: SocketAddr,
    service: FakeService,
    connected: Arc<AtomicUsize>,
}

type Listener = mpsc::Sender<Result<Hint, Status>>;

#[derive(Clone)]
struct FakeService {
    manner: Arc<Mutex<Manner>>,
    asked: Arc<Mutex<Vec<GetCapacityRequest>>>,
    released: Arc<Mutex<Vec<ReleaseCapacityRequest>>>,
    listeners: Arc<Mutex<Vec<Listener>>>,
}

impl Fake {
    pub(crate) fn new(manner: Manner) -> Fake {
        Fake::start(manner, false)
    }

    /// One that has hints.
    pub(crate) fn with_hints(manner: Manner) -> Fake {
        Fake::start(manner, true)
    }

    fn start(manner: Manner, hints: bool) -> Fake {
        let service = FakeService {
            manner: Arc::new(Mutex::new(manner)),
            asked: Arc::default(),
            released: Arc::default(),
            listeners: Arc::default(),
        };
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let connected = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connected);
        let incoming = TcpListenerStream::new(listener).map(move |connection| {
            counted.fetch_add(1, Ordering::Relaxed);
            connection
        });
        let serve = Server::builder()
            .add_service(CapacityServer::new(service.clone()))
            .add_optional_service(hints.then(|| PushServer::new(service.clone())))
            .serve_with_incoming(incoming);
        runtime().spawn(serve);
        Fake { address, service, connected }
    }

    /// How many connections it has ever had.
    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    /// How many listen for its hints now.
    pub(crate) fn listeners(&self) -> usize {
        let mut listeners = self.service.listeners.lock().unwrap();
        listeners.retain(|listener| !listener.is_closed());
        listeners.len()
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn now(&self, manner: Manner) {
        *self.service.manner.lock().unwrap() = manner;
    }

    /// All that it was asked, in order.
    pub(crate) fn asked(&self) -> Vec<GetCapacityRequest> {
        self.service.asked.lock().unwrap().clone()
    }

    pub(crate) fn released(&self) -> Vec<ReleaseCapacityRequest> {
        self.service.released.lock().unwrap().clone()
    }
}

impl FakeService {
    async fn respond<T>(
        &self,
        give: impl FnOnce(f64, i64) -> T,
        not_master: impl FnOnce(Mastership) -> T,
    ) -> Result<Response<T>, Status> {
        let manner = self.manner.lock().unwrap().clone();
        match manner {
            Manner::Gives { capacity, seconds } => Ok(Response::new(give(capacity, seconds))),
            Manner::Hangs => std::future::pending().await,
            Manner::Names(master) => Ok(Response::new(not_master(Mastership { master_address: Some(master) }))),
        }
    }
}

#[tonic::async_trait]
impl Capacity for FakeService {
    async fn discovery(&self, _: Request<DiscoveryRequest>) -> Result<Response<DiscoveryResponse>, Status> {
        let mastership = Some(Mastership { master_address: None });
        Ok(Response::new(DiscoveryResponse { mastership, is_master: Some(true), ..DiscoveryResponse::default() }))
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let request = request.into_inner();
        self.asked.lock().unwrap().push(request.clone());
        let give = |capacity, seconds| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
            let lease = Lease {
                expiry_time: Some(now + seconds),
                refresh_interval: Some(1),
                capacity: Some(capacity),
                token: None,
                remaining_ms: None,
            };
            let response = request.resource.into_iter().map(|resource| ResourceResponse {
                resource_id: resource.resource_id,
                gets: Some(lease),
                safe_capacity: Some(3.5),
                pool: None,
                priority: None,
            });
            GetCapacityResponse { response: response.collect(), ..Default::default() }
        };
        let not_master = |mastership| GetCapacityResponse { mastership: Some(mastership), ..Default::default() };
        self.respond(give, not_master).await
    }

    async fn get_server_capacity(
        &self,
        _: Request<GetServerCapacityRequest>,
    ) -> Result<Response<GetServerCapacityResponse>, Status> {
        Err(Status::unimplemented("not used by these tests"))
    }

    async fn release_capacity(
        &self,
        request: Request<ReleaseCapacityRequest>,
    ) -> Result<Response<ReleaseCapacityResponse>, Status> {
        self.released.lock().unwrap().push(request.into_inner());
        let give = |_, _| ReleaseCapacityResponse::default();
        self.respond(give, |mastership| ReleaseCapacityResponse { mastership: Some(mastership), ..Default::default() })
            .await
    }
}

#[tonic::async_trait]
impl Push for FakeService {
    type WatchStream = ReceiverStream<Result<Hint, Status>>;

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (hints, listener) = mpsc::channel(16);
        hints.try_send(Ok(Hint::default())).unwrap();
        self.listeners.lock().unwrap().push(hints);
        Ok(Response::new(ReceiverStream::new(listener)))
    }
}
