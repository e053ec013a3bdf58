//! A client without the library: it sends one request to one peer.

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
use tokio::time::timeout;
use tonic::transport::Endpoint;

/// How long an answer may take. A stopped peer never answers.
const DEADLINE: Duration = Duration::from_millis(500);

/// A connection to one peer, made when it is first used, and again after it is lost.
#[derive(Clone)]
pub(crate) struct RawClient(CapacityClient<Channel>);

/// Which peer is master, according to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedMaster {
    /// A server without peers has no term.
    Itself {
        term: Option<u64>,
    },
    Other,
    Unknown,
}

#[derive(Clone)]
pub(crate) struct CapacityRequest {
    pub(crate) client: Arc<str>,
    pub(crate) resource: Arc<str>,
    pub(crate) wants: f64,
    /// Whether the client ignores answers to all but its latest request, and asks one peer after the other.
    pub(crate) drops_late: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) lease: Lease,
    pub(crate) at: Instant,
    pub(crate) ends: Instant,
}

impl RawClient {
    pub(crate) fn to(transport: &Transport, address: SocketAddr) -> RawClient {
        let tune = |endpoint: Endpoint| endpoint.connect_timeout(DEADLINE).tcp_nodelay(true);
        let channel = transport.connect_lazy(&address.to_string(), tune);
        RawClient(CapacityClient::new(channel.expect("a socket address makes a URI, and there is no token")))
    }

    /// None: no answer.
    pub(crate) async fn discover(&mut self) -> Option<NamedMaster> {
        let answer = timeout(DEADLINE, self.0.discovery(DiscoveryRequest {})).await.ok()?.ok()?.into_inner();
        let address = answer.mastership.and_then(|mastership| mastership.master_address).unwrap_or_default();
        Some(match (answer.is_master, address.is_empty()) {
            (Some(true), _) => NamedMaster::Itself { term: answer.reign },
            (_, false) => NamedMaster::Other,
            (_, true) => NamedMaster::Unknown,
        })
    }

    /// None: no answer, or not by a master. `length` is for leases that do not say how long they last.
    pub(crate) async fn ask(
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
        Some(Grant { lease, at, ends: asked + length })
    }

    /// Releases the lease. If the request is lost, the lease expires.
    pub(crate) async fn release(&mut self, request: &CapacityRequest, grant: &Grant) {
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
    /// From `at` on the client may use this capacity.
    pub(crate) fn entry(&self, at: Instant, capacity: f64) -> LeaseChange {
        LeaseChange { at: at.into(), client: Arc::clone(&self.client), resource: Arc::clone(&self.resource), capacity }
    }
}
