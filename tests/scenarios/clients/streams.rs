//! Renewal by a stream: over a change of master, and behind proxies that do not pass streams.

use std::{net::SocketAddr, pin::Pin, time::Duration};

use leaseway_client::{Basis, Client, Resource};
use leaseway_proto::{
    doorman::{
        DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse, GetServerCapacityRequest,
        GetServerCapacityResponse, ReleaseCapacityRequest, ReleaseCapacityResponse,
        capacity_client::CapacityClient,
        capacity_server::{Capacity, CapacityServer},
    },
    session::{
        RenewRequest, RenewResponse,
        session_server::{Session, SessionServer},
    },
};
use tokio_stream::{Stream, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, transport::Channel};

use crate::harness::{
    config::{ConfigFile, Template},
    http,
    peers::Peers,
    prometheus::Scrape,
    server::Server,
    wait::{block_on, eventually, runtime},
};

/// Enough resources for a stream.
const RESOURCES: usize = 150;

fn config() -> ConfigFile {
    ConfigFile::of(&[Template { lease: 10, refresh: 1, ..Template::fair("*", 100.0) }])
}

fn client(id: &str, endpoints: &[String]) -> Client {
    let _inside = runtime().enter();
    Client::builder().id(id).endpoints(endpoints).backoff_max(Duration::from_millis(300)).build().unwrap()
}

fn open(client: &Client) -> Vec<Resource> {
    (0..RESOURCES).map(|n| client.resource(format!("r{n}")).wants(1.0 + n as f64 / 2.0).open().unwrap()).collect()
}

#[track_caller]
fn have_their_wants(resources: &[Resource]) {
    eventually("each resource has its wants", || {
        let usable = resources.iter().map(Resource::usable).enumerate();
        let mut usable = usable.map(|(n, usable)| (usable.basis, usable.capacity.get(), 1.0 + n as f64 / 2.0));
        usable.all(|(basis, has, wants)| basis == Basis::Lease && has == wants).then_some(())
    });
}

fn counter(metrics: &SocketAddr, name: &str) -> f64 {
    Scrape::parse(&http::get(*metrics, "/metrics").body).only(name)
}

fn renewed_in_place(server: &SocketAddr) -> f64 {
    counter(server, "leaseway_leases_renewed_in_place_total")
}

/// Waits until every lease was renewed without a round, on average.
#[track_caller]
fn are_renewed_in_place(server: &SocketAddr) {
    let before = renewed_in_place(server);
    eventually("leases are renewed in place", || (renewed_in_place(server) >= before + RESOURCES as f64).then_some(()));
}

#[test]
fn leases_are_renewed_by_a_stream_before_and_after_the_master_dies() {
    let mut peers = Peers::start(3, config(), &[]);
    let client = client("streaming", &peers.endpoints());
    let resources = open(&client);
    have_their_wants(&resources);
    let master = peers.master();
    are_renewed_in_place(&peers.http(master));
    assert!(client.health().renews_by_stream);

    resources[7].set_wants(30.0).unwrap();
    eventually("a changed demand is stated", || (resources[7].usable().capacity.get() == 30.0).then_some(()));
    resources[7].set_wants(1.0 + 7.0 / 2.0).unwrap();
    peers.kill(master);
    let next = peers.master();
    are_renewed_in_place(&peers.http(next));
    have_their_wants(&resources);
    assert!(client.health().renews_by_stream);
}

/// Passes requests on to a server, and refuses streams in one of two ways.
#[derive(Clone)]
struct Proxy(CapacityClient<Channel>);

impl Proxy {
    fn to(server: SocketAddr) -> Proxy {
        let _inside = runtime().enter();
        let channel = Channel::from_shared(format!("http://{server}")).unwrap().connect_lazy();
        Proxy(CapacityClient::new(channel))
    }

    fn serve(self, is_silent: bool) -> SocketAddr {
        let listener = block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let silent = is_silent.then(|| SessionServer::new(Silent));
        let routes =
            tonic::transport::Server::builder().add_service(CapacityServer::new(self)).add_optional_service(silent);
        runtime().spawn(routes.serve_with_incoming(TcpListenerStream::new(listener)));
        address
    }
}

#[tonic::async_trait]
impl Capacity for Proxy {
    async fn discovery(&self, request: Request<DiscoveryRequest>) -> Result<Response<DiscoveryResponse>, Status> {
        self.0.clone().discovery(request.into_inner()).await
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        self.0.clone().get_capacity(request.into_inner()).await
    }

    async fn get_server_capacity(
        &self,
        request: Request<GetServerCapacityRequest>,
    ) -> Result<Response<GetServerCapacityResponse>, Status> {
        self.0.clone().get_server_capacity(request.into_inner()).await
    }

    async fn release_capacity(
        &self,
        request: Request<ReleaseCapacityRequest>,
    ) -> Result<Response<ReleaseCapacityResponse>, Status> {
        self.0.clone().release_capacity(request.into_inner()).await
    }
}

/// Accepts streams, and answers nothing.
struct Silent;

#[tonic::async_trait]
impl Session for Silent {
    type RenewStream = Pin<Box<dyn Stream<Item = Result<RenewResponse, Status>> + Send>>;

    async fn renew(&self, _: Request<Streaming<RenewRequest>>) -> Result<Response<Self::RenewStream>, Status> {
        Ok(Response::new(Box::pin(tokio_stream::pending())))
    }
}

#[test]
fn behind_a_proxy_that_passes_no_streams_leases_are_renewed_by_get_capacity() {
    let server = Server::with_config(&config());
    for is_silent in [false, true] {
        let proxy = Proxy::to(server.grpc()).serve(is_silent);
        let client = client(&format!("behind a proxy, {is_silent}"), &[proxy.to_string()]);
        let resources = open(&client);
        have_their_wants(&resources);
        let granted = || counter(&server.http(), "leaseway_leases_granted_total");
        let before = granted();
        eventually("leases are renewed", || (granted() >= before + 3.0 * RESOURCES as f64).then_some(()));
        have_their_wants(&resources);
        assert!(!client.health().renews_by_stream, "silent: {is_silent}");
    }
    assert_eq!(renewed_in_place(&server.http()), 0.0);
}
