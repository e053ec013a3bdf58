//! An xDS control plane that sends rules to gateways, as go-control-plane does: a response for each new version, unless
//! the subscriber has it.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
};

use leaseway_proto::envoy::{
    discovery::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_server::{AggregatedDiscoveryService, AggregatedDiscoveryServiceServer},
    },
    ratelimit_discovery::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, TYPE_URL,
        rate_limit_config_discovery_service_server::{
            RateLimitConfigDiscoveryService, RateLimitConfigDiscoveryServiceServer,
        },
    },
};
use prost::Message as _;
use prost_types::Any;
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    sync::{mpsc, watch},
};
use tokio_stream::{
    Stream,
    wrappers::{ReceiverStream, TcpListenerStream},
};
use tonic::{Request, Response, Status, Streaming, transport::Server};

use super::wait::eventually;

/// The service that a control plane has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Aggregated,
    Dedicated,
}

/// It stops when it is dropped, without closing its streams.
pub(crate) struct ControlPlane {
    pub(crate) address: SocketAddr,
    subscriptions: Subscriptions,
    runtime: Option<Runtime>,
}

#[derive(Clone)]
struct Subscriptions {
    snapshot: Arc<watch::Sender<Snapshot>>,
    received: Arc<Mutex<Vec<Sent>>>,
}

#[derive(Clone, Default)]
struct Snapshot {
    version: String,
    configs: Vec<RateLimitConfig>,
}

/// A request, and the bearer token of its stream.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) request: DiscoveryRequest,
    pub(crate) token: Option<String>,
}

impl ControlPlane {
    pub(crate) fn start(service: Service) -> ControlPlane {
        ControlPlane::on("127.0.0.1:0".parse().unwrap(), service)
    }

    pub(crate) fn on(address: SocketAddr, service: Service) -> ControlPlane {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // A port of a control plane that has just stopped is still in use for a moment.
        let listener =
            eventually("the port is free", || runtime.block_on(async { TcpListener::bind(address).await.ok() }));
        let address = listener.local_addr().unwrap();
        let (snapshot, _) = watch::channel(Snapshot::default());
        let subscriptions = Subscriptions { snapshot: Arc::new(snapshot), received: Arc::default() };
        let (aggregated, dedicated) = (subscriptions.clone(), subscriptions.clone());
        let serve = Server::builder()
            .add_optional_service(
                (service == Service::Aggregated).then(|| AggregatedDiscoveryServiceServer::new(aggregated)),
            )
            .add_optional_service(
                (service == Service::Dedicated).then(|| RateLimitConfigDiscoveryServiceServer::new(dedicated)),
            );
        runtime.spawn(serve.serve_with_incoming(TcpListenerStream::new(listener)));
        ControlPlane { address, subscriptions, runtime: Some(runtime) }
    }

    /// Sends these rules to all subscribers.
    pub(crate) fn set(&self, version: &str, configs: &[RateLimitConfig]) {
        self.subscriptions.snapshot.send_replace(Snapshot { version: version.to_owned(), configs: configs.to_vec() });
    }

    pub(crate) fn received(&self) -> Vec<Sent> {
        self.subscriptions.received.lock().unwrap().clone()
    }

    /// Waits for the answer to a version.
    pub(crate) fn answer(&self, version: &str) -> DiscoveryRequest {
        eventually("the gateway answers", || {
            self.received()
                .into_iter()
                .map(|sent| sent.request)
                .find(|request| request.response_nonce == nonce(version))
        })
    }

    /// Waits until the gateway accepts a version.
    pub(crate) fn accepted(&self, version: &str) {
        let answer = self.answer(version);
        assert_eq!((&*answer.version_info, &answer.error_detail), (version, &None), "{answer:?}");
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

fn nonce(version: &str) -> String {
    format!("nonce of {version}")
}

impl Subscriptions {
    fn follow(&self, requests: Request<Streaming<DiscoveryRequest>>) -> Response<Responses> {
        let token = requests.metadata().get("authorization").map(|token| token.to_str().unwrap().to_owned());
        let (sender, responses) = mpsc::channel(16);
        tokio::spawn(self.clone().answer(requests.into_inner(), token, sender));
        Response::new(Box::pin(ReceiverStream::new(responses)))
    }

    async fn answer(
        self,
        mut requests: Streaming<DiscoveryRequest>,
        token: Option<String>,
        responses: mpsc::Sender<Result<DiscoveryResponse, Status>>,
    ) {
        let mut snapshot = self.snapshot.subscribe();
        let mut sent = None;
        loop {
            tokio::select! {
                request = requests.message() => {
                    let Ok(Some(request)) = request else { return };
                    sent = sent.or(Some(request.version_info.clone()));
                    self.received.lock().unwrap().push(Sent { request, token: token.clone() });
                }
                changed = snapshot.changed() => changed.unwrap(),
            }
            let Snapshot { version, configs } = snapshot.borrow_and_update().clone();
            if sent.as_ref().is_some_and(|sent| *sent != version) {
                let pack = |config: &RateLimitConfig| Any { type_url: TYPE_URL.into(), value: config.encode_to_vec() };
                let response = DiscoveryResponse {
                    nonce: nonce(&version),
                    type_url: TYPE_URL.into(),
                    resources: configs.iter().map(pack).collect(),
                    version_info: version.clone(),
                };
                sent = Some(version);
                if responses.send(Ok(response)).await.is_err() {
                    return;
                }
            }
        }
    }
}

type Responses<R = DiscoveryResponse> = Pin<Box<dyn Stream<Item = Result<R, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Subscriptions {
    type StreamAggregatedResourcesStream = Responses;

    async fn stream_aggregated_resources(
        &self,
        requests: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Responses>, Status> {
        Ok(self.follow(requests))
    }

    type DeltaAggregatedResourcesStream = Responses<DeltaDiscoveryResponse>;

    /// The control plane of `tests/go` has it.
    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("state of the world only"))
    }
}

#[tonic::async_trait]
impl RateLimitConfigDiscoveryService for Subscriptions {
    type StreamRlsConfigsStream = Responses;

    async fn stream_rls_configs(
        &self,
        requests: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Responses>, Status> {
        Ok(self.follow(requests))
    }
}

/// The rules of a domain, as a resource of the same name: keys and their limits.
pub(crate) fn config(domain: &str, limits: &[(&str, RateLimitPolicy)]) -> RateLimitConfig {
    let descriptor = |(key, policy): &(&str, RateLimitPolicy)| RateLimitDescriptor {
        key: (*key).to_owned(),
        rate_limit: Some(policy.clone()),
        ..RateLimitDescriptor::default()
    };
    let descriptors = limits.iter().map(descriptor).collect();
    RateLimitConfig { name: domain.to_owned(), domain: domain.to_owned(), descriptors }
}
