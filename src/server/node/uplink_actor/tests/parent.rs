//! A scripted parent.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex},
};

use futures_util::{Stream, stream};
use leaseway_core::policy::settings::AlgorithmKind;
use leaseway_proto::{
    doorman::{
        self as wire, DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse,
        GetServerCapacityRequest, GetServerCapacityResponse, Mastership, ReleaseCapacityRequest,
        ReleaseCapacityResponse, capacity_server,
    },
    push::{Hint, WatchRequest, push_server},
};
use tokio::{net::TcpListener, sync::mpsc};
use tonic::{
    Response, Status,
    transport::server::{Server, TcpIncoming},
};

use super::eventually;
use crate::runtime::clock::Clock;

/// The answers of the parent.
#[derive(Clone)]
pub(super) struct Says {
    pub(super) capacity: f64,
    /// The refresh interval, in seconds.
    pub(super) refresh: i64,
    pub(super) algorithm: wire::Algorithm,
    pub(super) terms: Vec<wire::Terms>,
    /// The master to redirect to, if this is not the master. Empty if the master is unknown.
    pub(super) redirect: Option<String>,
    pub(super) silent: bool,
}

impl Says {
    pub(super) fn sharing(capacity: f64) -> Says {
        let algorithm = wire::Algorithm {
            kind: Some(AlgorithmKind::FairShare as i32),
            lease_length: Some(600),
            refresh_interval: Some(300),
            parameters: vec![wire::NamedParameter {
                name: Some("min_request_interval".into()),
                value: Some("0".into()),
            }],
            learning_mode_duration: Some(0),
        };
        let (refresh, terms, redirect) = (300, Vec::new(), None);
        Says { capacity, refresh, algorithm, terms, redirect, silent: false }
    }
}

#[derive(Clone)]
pub(super) struct Fake(pub(super) Arc<FakeState>);

pub(super) struct FakeState {
    pub(super) address: String,
    pub(super) says: Mutex<Says>,
    pub(super) asked: Mutex<Vec<GetServerCapacityRequest>>,
    pub(super) released: Mutex<Vec<ReleaseCapacityRequest>>,
    pub(super) watching: Mutex<HashMap<String, mpsc::UnboundedSender<Hint>>>,
}

impl Fake {
    pub(super) async fn start(says: Says) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let fake = Fake(Arc::new(FakeState {
            address: listener.local_addr().expect("bound").to_string(),
            says: Mutex::new(says),
            asked: Mutex::default(),
            released: Mutex::default(),
            watching: Mutex::default(),
        }));
        let capacity = capacity_server::CapacityServer::new(fake.clone());
        let push = push_server::PushServer::new(fake.clone());
        let server = Server::builder().add_service(capacity).add_service(push);
        actix_rt::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        fake
    }

    pub(super) fn now_says(&self, change: impl FnOnce(&mut Says)) {
        change(&mut self.0.says.lock().expect("no panic"));
    }

    pub(super) fn asked(&self) -> Vec<GetServerCapacityRequest> {
        self.0.asked.lock().expect("no panic").clone()
    }

    /// All requests for `resource`, in order.
    pub(super) fn asked_for(&self, resource: &str) -> Vec<wire::ServerCapacityResourceRequest> {
        let entries = self.asked().into_iter().flat_map(|request| request.resource);
        entries.filter(|entry| entry.resource_id.as_deref() == Some(resource)).collect()
    }

    /// Waits until the node listens, then hints.
    pub(super) async fn hint(&self, resource: &str) {
        let listener =
            eventually("the node listens", || self.0.watching.lock().expect("no panic").get("leaf").cloned());
        let hint = Hint { resource_id: vec![resource.to_owned()], everything: false };
        listener.await.send(hint).expect("it still listens");
    }
}

#[tonic::async_trait]
impl capacity_server::Capacity for Fake {
    async fn discovery(&self, _: tonic::Request<DiscoveryRequest>) -> Result<Response<DiscoveryResponse>, Status> {
        Err(Status::unimplemented("not called by nodes"))
    }

    async fn get_capacity(
        &self,
        _: tonic::Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        Err(Status::unimplemented("called by nodes only"))
    }

    async fn get_server_capacity(
        &self,
        request: tonic::Request<GetServerCapacityRequest>,
    ) -> Result<Response<GetServerCapacityResponse>, Status> {
        let request = request.into_inner();
        let number = {
            let mut asked = self.0.asked.lock().expect("no panic");
            asked.push(request.clone());
            asked.len() as u64
        };
        let says = self.0.says.lock().expect("no panic").clone();
        if says.silent {
            std::future::pending::<()>().await;
        }
        let mastership = says.redirect.clone().map(|master| Mastership { master_address: Some(master) });
        let expiry_time = Clock::start().now().unix + 600;
        let answer = |entry: wire::ServerCapacityResourceRequest| wire::ServerCapacityResourceResponse {
            budget: None,
            resource_id: entry.resource_id,
            gets: Some(wire::Lease {
                expiry_time: Some(expiry_time),
                refresh_interval: Some(says.refresh),
                capacity: Some(says.capacity),
                token: Some(number),
                remaining_ms: Some(600_000),
            }),
            algorithm: Some(says.algorithm.clone()),
            safe_capacity: Some(-1.0),
            terms: says.terms.clone(),
            group: Vec::new(),
        };
        let response = request.resource.into_iter().filter(|_| mastership.is_none()).map(answer).collect();
        Ok(Response::new(GetServerCapacityResponse { response, mastership, ..Default::default() }))
    }

    async fn release_capacity(
        &self,
        request: tonic::Request<ReleaseCapacityRequest>,
    ) -> Result<Response<ReleaseCapacityResponse>, Status> {
        self.0.released.lock().expect("no panic").push(request.into_inner());
        Ok(Response::new(ReleaseCapacityResponse::default()))
    }
}

#[tonic::async_trait]
impl push_server::Push for Fake {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Hint, Status>> + Send>>;

    async fn watch(&self, request: tonic::Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (hints, to_send) = mpsc::unbounded_channel();
        let node = request.into_inner().server_id.ok_or_else(|| Status::invalid_argument("nodes only"))?;
        let _ = hints.send(Hint::default());
        self.0.watching.lock().expect("no panic").insert(node, hints);
        let messages = stream::unfold(to_send, async |mut to_send| Some((Ok(to_send.recv().await?), to_send)));
        Ok(Response::new(Box::pin(messages)))
    }
}
