//! Requests by hand: one question to one peer, and what it says.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leaseway_client::Entry;
use leaseway_proto::doorman::{
    DiscoveryRequest, GetCapacityRequest, Lease, ReleaseCapacityRequest, ResourceRequest,
    capacity_client::CapacityClient,
};
use tonic::transport::{Channel, Endpoint};

/// How long an answer may take before it is asked for again. A peer that was stopped says nothing at all.
const DEADLINE: Duration = Duration::from_millis(500);

/// A connection to one peer, made when it is first needed and whenever it is lost.
#[derive(Clone)]
pub(super) struct Hand(CapacityClient<Channel>);

/// Who a peer says is master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Master {
    Itself,
    Other,
    Unknown,
}

/// A lease that was given by hand.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) lease: Lease,
    pub(super) asked: Instant,
    pub(super) at: Instant,
    pub(super) ends: Instant,
}

/// What is asked for.
#[derive(Clone)]
pub(super) struct Wish {
    pub(super) client: Arc<str>,
    pub(super) resource: Arc<str>,
    pub(super) wants: f64,
}

impl Hand {
    pub(super) fn to(address: std::net::SocketAddr) -> Hand {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a socket address makes a URI");
        Hand(CapacityClient::new(endpoint.connect_timeout(DEADLINE).tcp_nodelay(true).connect_lazy()))
    }

    /// `None`: no answer.
    pub(super) async fn discover(&mut self) -> Option<Master> {
        let answer = tokio::time::timeout(DEADLINE, self.0.discovery(DiscoveryRequest {})).await.ok()?.ok()?;
        let answer = answer.into_inner();
        let address = answer.mastership.and_then(|mastership| mastership.master_address).unwrap_or_default();
        Some(match (answer.is_master, address.is_empty()) {
            (Some(true), _) => Master::Itself,
            (_, false) => Master::Other,
            (_, true) => Master::Unknown,
        })
    }

    /// `None`: no answer, or not by a master. A lease without a length of its own is taken to last for `length`.
    pub(super) async fn ask(&mut self, wish: &Wish, has: Option<Lease>, length: Duration) -> Option<Given> {
        let resource = ResourceRequest {
            resource_id: Some(wish.resource.to_string()),
            priority: Some(0),
            has,
            wants: Some(wish.wants),
            usage: None,
            outstanding: None,
        };
        let request = GetCapacityRequest { client_id: Some(wish.client.to_string()), resource: vec![resource] };
        let asked = Instant::now();
        let answer = tokio::time::timeout(DEADLINE, self.0.get_capacity(request)).await.ok()?.ok()?.into_inner();
        let at = Instant::now();
        if answer.mastership.is_some() {
            return None;
        }
        let lease = answer.response.into_iter().next()?.gets?;
        let length = lease.remaining_ms.and_then(|ms| u64::try_from(ms).ok()).map_or(length, Duration::from_millis);
        Some(Given { lease, asked, at, ends: asked + length })
    }

    /// Whether it was given back.
    pub(super) async fn release(&mut self, wish: &Wish, given: &Given) -> bool {
        let request = ReleaseCapacityRequest {
            client_id: Some(wish.client.to_string()),
            resource_id: vec![wish.resource.to_string()],
            token: given.lease.token.into_iter().collect(),
            is_server: None,
        };
        let answer = tokio::time::timeout(DEADLINE, self.0.release_capacity(request)).await;
        answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.into_inner().mastership.is_none()))
    }
}

impl Wish {
    /// A line of its book.
    pub(super) fn entry(&self, at: Instant, capacity: f64) -> Entry {
        Entry { at: at.into(), client: Arc::clone(&self.client), resource: Arc::clone(&self.resource), capacity }
    }
}
