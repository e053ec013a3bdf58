//! A parent that behaves as the Go Doorman: it sums the bands of a child, divides by PROPORTIONAL_SHARE or STATIC as
//! Doorman does, and ignores tokens, terms, slices and outstanding capacity. Its leases end at whole seconds.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use leaseway_proto::doorman::{
    Algorithm, DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse, GetServerCapacityRequest,
    GetServerCapacityResponse, Lease, Mastership, ReleaseCapacityRequest, ReleaseCapacityResponse,
    ServerCapacityResourceRequest, ServerCapacityResourceResponse,
    algorithm::Kind,
    capacity_server::{Capacity, CapacityServer},
};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use super::{
    legacy_client::strict,
    wait::{block_on, runtime},
};

/// How the parent answers, for every resource.
#[derive(Debug, Clone)]
pub(crate) struct ParentState {
    pub(crate) kind: Kind,
    pub(crate) capacity: f64,
    pub(crate) lease: i64,
    pub(crate) refresh: i64,
    pub(crate) safe_capacity: f64,
    /// Learning mode: confirms the leases that callers report, and grants nothing else.
    pub(crate) learning: bool,
    /// Address of the master, if that is another server.
    pub(crate) master: Option<String>,
}

impl ParentState {
    pub(crate) fn sharing(capacity: f64) -> ParentState {
        let kind = Kind::ProportionalShare;
        ParentState { kind, capacity, lease: 20, refresh: 1, safe_capacity: 0.0, learning: false, master: None }
    }
}

pub(crate) struct GoParent {
    address: SocketAddr,
    service: GoParentService,
}

#[derive(Clone)]
struct GoParentService(Arc<Mutex<State>>);

struct State {
    standing: ParentState,
    /// The holders of each resource.
    store: HashMap<String, HashMap<String, Held>>,
    asked: Vec<GetServerCapacityRequest>,
}

#[derive(Clone, Copy, Default)]
struct Held {
    has: f64,
    wants: f64,
    subclients: f64,
    expiry: i64,
}

impl GoParent {
    pub(crate) fn start(standing: ParentState) -> GoParent {
        let state = State { standing, store: HashMap::new(), asked: Vec::new() };
        let service = GoParentService(Arc::new(Mutex::new(state)));
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let serve = Server::builder().add_service(CapacityServer::new(service.clone()));
        runtime().spawn(serve.serve_with_incoming(TcpListenerStream::new(listener)));
        GoParent { address, service }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Changes its state.
    pub(crate) fn now(&self, change: impl FnOnce(&mut ParentState)) {
        change(&mut self.service.0.lock().unwrap().standing);
    }

    /// Restarts without memory.
    pub(crate) fn forget(&self) {
        self.service.0.lock().unwrap().store.clear();
    }

    /// All requests, in order.
    pub(crate) fn asked(&self) -> Vec<GetServerCapacityRequest> {
        self.service.0.lock().unwrap().asked.clone()
    }
}

impl State {
    fn decide(&mut self, child: &str, request: &ServerCapacityResourceRequest) -> ServerCapacityResourceResponse {
        let (standing, now) = (self.standing.clone(), now());
        let resource = request.resource_id.clone().unwrap_or_default();
        let store = self.store.entry(resource.clone()).or_default();
        store.retain(|_, held| now <= held.expiry);
        let bands = &request.wants;
        let asks = Held {
            wants: bands.iter().map(|band| band.wants.unwrap_or_default()).sum(),
            subclients: bands.iter().map(|band| band.num_clients.unwrap_or_default() as f64).sum(),
            expiry: now + standing.lease,
            has: 0.0,
        };
        let has = match standing.learning {
            true => request.has.and_then(|lease| lease.capacity).unwrap_or_default(),
            // Per caller, regardless of the number of clients of a child.
            false if standing.kind == Kind::Static => standing.capacity.min(asks.wants),
            false => proportional_share(standing.capacity, store, child, asks),
        };
        store.insert(child.to_owned(), Held { has, ..asks });
        let gets = Lease {
            expiry_time: Some(asks.expiry),
            refresh_interval: Some(standing.refresh),
            capacity: Some(has),
            ..Lease::default()
        };
        ServerCapacityResourceResponse {
            resource_id: Some(resource),
            gets: Some(gets),
            algorithm: Some(Algorithm {
                kind: Some(standing.kind.into()),
                lease_length: Some(standing.lease),
                refresh_interval: Some(standing.refresh),
                ..Algorithm::default()
            }),
            safe_capacity: Some(standing.safe_capacity),
            ..ServerCapacityResourceResponse::default()
        }
    }
}

/// Doorman's PROPORTIONAL_SHARE. Like Doorman, it checks for overload with the wants of earlier requests.
fn proportional_share(capacity: f64, store: &HashMap<String, Held>, child: &str, asks: Held) -> f64 {
    let old = store.get(child).copied();
    let sum = |of: fn(&Held) -> f64| store.values().map(of).sum::<f64>();
    let unused = capacity - sum(|held| held.has) + old.map_or(0.0, |old| old.has);
    let clients = sum(|held| held.subclients) + if old.is_some() { 0.0 } else { asks.subclients };
    let share = capacity / clients;
    let mine = share * asks.subclients;
    if sum(|held| held.wants) <= capacity || asks.wants <= mine {
        return asks.wants.min(unused);
    }
    let (mut extra, mut need) = (0.0, 0.0);
    for (id, held) in store {
        let held = if id == child { &asks } else { held };
        let equal = share * held.subclients;
        if held.wants < equal { extra += equal - held.wants } else { need += held.wants - equal }
    }
    (mine + (asks.wants - mine) * extra / need).min(unused)
}

/// Unix time in whole seconds, as Doorman uses it.
pub(crate) fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

#[tonic::async_trait]
impl Capacity for GoParentService {
    async fn discovery(&self, _: Request<DiscoveryRequest>) -> Result<Response<DiscoveryResponse>, Status> {
        let master = self.0.lock().unwrap().standing.master.clone();
        let is_master = Some(master.is_none());
        let mastership = Some(Mastership { master_address: master });
        Ok(Response::new(DiscoveryResponse { mastership, is_master, ..DiscoveryResponse::default() }))
    }

    async fn get_capacity(&self, _: Request<GetCapacityRequest>) -> Result<Response<GetCapacityResponse>, Status> {
        Err(Status::unimplemented("only child nodes are served"))
    }

    async fn get_server_capacity(
        &self,
        request: Request<GetServerCapacityRequest>,
    ) -> Result<Response<GetServerCapacityResponse>, Status> {
        let request = request.into_inner();
        // Go rejects a message that it cannot decode.
        strict("GetServerCapacityRequest", &request.encode_to_vec());
        let mut state = self.0.lock().unwrap();
        state.asked.push(request.clone());
        let mut answer = GetServerCapacityResponse::default();
        if let Some(master) = state.standing.master.clone() {
            answer.mastership = Some(Mastership { master_address: Some(master) });
            return Ok(Response::new(answer));
        }
        let bands = || request.resource.iter().flat_map(|resource| &resource.wants);
        if bands().any(|band| band.num_clients.unwrap_or_default() < 1) {
            return Err(Status::invalid_argument("subclients should be > 0"));
        }
        let child = request.server_id.unwrap_or_default();
        answer.response = request.resource.iter().map(|resource| state.decide(&child, resource)).collect();
        Ok(Response::new(answer))
    }

    async fn release_capacity(
        &self,
        request: Request<ReleaseCapacityRequest>,
    ) -> Result<Response<ReleaseCapacityResponse>, Status> {
        let (request, mut state) = (request.into_inner(), self.0.lock().unwrap());
        let child = request.client_id.unwrap_or_default();
        for resource in &request.resource_id {
            state.store.entry(resource.clone()).or_default().remove(&child);
        }
        Ok(Response::new(ReleaseCapacityResponse::default()))
    }
}
