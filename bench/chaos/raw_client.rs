//! A client without a library: one question to one peer, and what it says.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use leaseway_client::{Channel, LeaseChange, Transport};
use leaseway_proto::doorman::{
    DiscoveryRequest, GetCapacityRequest, Lease, ReleaseCapacityRequest, ResourceRequest,
    capacity_client::CapacityClient,
};
use tokio::time::{sleep, timeout};
use tonic::transport::Endpoint;

/// How long an answer may take before it is asked for again. A peer that was stopped says nothing at all.
const DEADLINE: Duration = Duration::from_millis(500);

/// How long a newcomer waits before it asks the next peer.
const PAUSE: Duration = Duration::from_millis(5);

/// A connection to one peer, made when it is first needed and whenever it is lost.
#[derive(Clone)]
pub(super) struct RawClient(CapacityClient<Channel>);

/// Which peer is master, by the word of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedMaster {
    /// Its reign is not known of a server without peers.
    Itself {
        reign: Option<u64>,
    },
    Other,
    Unknown,
}

/// What is asked for.
#[derive(Clone)]
pub(super) struct CapacityRequest {
    pub(super) client: Arc<str>,
    pub(super) resource: Arc<str>,
    pub(super) wants: f64,
    /// Whether it takes only the answer to its latest request, and asks one peer after the other.
    pub(super) drops_late: bool,
}

/// The lease that was given.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) lease: Lease,
    pub(super) asked: Instant,
    pub(super) at: Instant,
    pub(super) ends: Instant,
}

impl RawClient {
    pub(super) fn to(transport: &Transport, address: SocketAddr) -> RawClient {
        let tune = |endpoint: Endpoint| endpoint.connect_timeout(DEADLINE).tcp_nodelay(true);
        let channel = transport.connect_lazy(&address.to_string(), tune);
        RawClient(CapacityClient::new(channel.expect("a socket address makes a URI, and there is no token")))
    }

    /// `None`: no answer.
    pub(super) async fn discover(&mut self) -> Option<NamedMaster> {
        let answer = timeout(DEADLINE, self.0.discovery(DiscoveryRequest {})).await.ok()?.ok()?.into_inner();
        let address = answer.mastership.and_then(|mastership| mastership.master_address).unwrap_or_default();
        Some(match (answer.is_master, address.is_empty()) {
            (Some(true), _) => NamedMaster::Itself { reign: answer.reign },
            (_, false) => NamedMaster::Other,
            (_, true) => NamedMaster::Unknown,
        })
    }

    /// `None`: no answer, or not by a master. A lease without a length of its own is taken to last for `length`.
    pub(super) async fn ask(
        &mut self,
        request: &CapacityRequest,
        has: Option<Lease>,
        length: Duration,
    ) -> Option<Grant> {
        let resource = ResourceRequest {
            resource_id: Some(request.resource.to_string()),
            priority: Some(0),
            has,
            wants: Some(request.wants),
            ..ResourceRequest::default()
        };
        let request = GetCapacityRequest {
            client_id: Some(request.client.to_string()),
            resource: vec![resource],
            drops_late: request.drops_late.then_some(true),
            is_gateway: None,
        };
        let asked = Instant::now();
        let answer = timeout(DEADLINE, self.0.get_capacity(request)).await.ok()?.ok()?.into_inner();
        let at = Instant::now();
        if answer.mastership.is_some() {
            return None;
        }
        let lease = answer.response.into_iter().next()?.gets?;
        let length = lease.remaining_ms.and_then(|ms| u64::try_from(ms).ok()).map_or(length, Duration::from_millis);
        Some(Grant { lease, asked, at, ends: asked + length })
    }

    /// Gives it back. If the answer is lost, the lease ends by itself.
    pub(super) async fn release(&mut self, request: &CapacityRequest, grant: &Grant) {
        let request = ReleaseCapacityRequest {
            client_id: Some(request.client.to_string()),
            resource_id: vec![request.resource.to_string()],
            token: grant.lease.token.into_iter().collect(),
            ..ReleaseCapacityRequest::default()
        };
        let _ = timeout(DEADLINE, self.0.release_capacity(request)).await;
    }
}

impl CapacityRequest {
    /// A line of the client's book.
    pub(super) fn entry(&self, at: Instant, capacity: f64) -> LeaseChange {
        LeaseChange { at: at.into(), client: Arc::clone(&self.client), resource: Arc::clone(&self.resource), capacity }
    }
}

/// A client that no peer has ever heard of, after a fault: how soon it is answered, and how much it gets.
#[derive(Default)]
pub(super) struct Newcomer {
    /// When its first answer came, and how much that gave it.
    pub(super) answered: Option<(Instant, f64)>,
    /// When it had something.
    pub(super) served: Option<Instant>,
    pub(super) book: Vec<LeaseChange>,
}

impl Newcomer {
    /// Asks one peer after the other until it gets something; then it gives that back.
    pub(super) async fn visit(
        transport: Transport,
        peers: Vec<SocketAddr>,
        first: usize,
        request: CapacityRequest,
        length: Duration,
        patience: Instant,
    ) -> Newcomer {
        let mut peers: Vec<_> = peers.into_iter().map(|peer| RawClient::to(&transport, peer)).collect();
        let mut newcomer = Newcomer::default();
        let (mut has, mut turn) = (None, first);
        while Instant::now() < patience {
            let number = turn % peers.len();
            let peer = &mut peers[number];
            match peer.ask(&request, has.take(), length).await {
                None => turn += 1,
                Some(grant) => {
                    let capacity = grant.lease.capacity.unwrap_or(0.0);
                    newcomer.answered.get_or_insert((grant.at, capacity));
                    if capacity > 0.0 {
                        newcomer.served = Some(grant.at);
                        newcomer.book = vec![request.entry(grant.at, capacity), request.entry(Instant::now(), 0.0)];
                        peer.release(&request, &grant).await;
                        break;
                    }
                    has = Some(grant.lease);
                }
            }
            sleep(PAUSE).await;
        }
        newcomer
    }
}
