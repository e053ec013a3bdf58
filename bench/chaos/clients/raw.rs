//! Clients without the library. A [`RawClient`] sends single requests to one peer. A [`Holder`] asks one peer after
//! another, and records the capacity that it believes it may use. Both bypass the degraded links.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use leaseway_client::{Channel, LeaseChange, Transport};
use leaseway_proto::doorman::{
    DiscoveryRequest, GetCapacityRequest, Lease, ReleaseCapacityRequest, ResourceRequest,
    capacity_client::CapacityClient,
};
use tokio::{
    sync::watch,
    time::{timeout, timeout_at},
};
use tonic::transport::Endpoint;

use crate::chaos::clients::draw;

/// The timeout of a request. A stopped peer never answers.
const DEADLINE: Duration = Duration::from_millis(500);

/// A connection to one peer. It is opened on first use, and again after it was lost.
#[derive(Clone)]
pub(crate) struct RawClient(CapacityClient<Channel>);

/// The master, according to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedMaster {
    /// The peer itself. A server without peers has no term.
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
    /// Whether the client drops late answers: it ignores answers to all but its latest request.
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

    /// Asks the peer for the master. `None` without an answer.
    pub(crate) async fn discover(&mut self) -> Option<NamedMaster> {
        let answer = timeout(DEADLINE, self.0.discovery(DiscoveryRequest {})).await.ok()?.ok()?.into_inner();
        let address = answer.mastership.and_then(|mastership| mastership.master_address).unwrap_or_default();
        Some(match (answer.is_master, address.is_empty()) {
            (Some(true), _) => NamedMaster::Itself { term: answer.term },
            (_, false) => NamedMaster::Other,
            (_, true) => NamedMaster::Unknown,
        })
    }

    /// Asks for capacity. `None` without an answer, or if the peer is not the master. `length` is the length of leases
    /// that lack one.
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
    /// The record of a change: the client may use `capacity` from `at` on.
    pub(crate) fn entry(&self, at: Instant, capacity: f64) -> LeaseChange {
        LeaseChange { at: at.into(), client: Arc::clone(&self.client), resource: Arc::clone(&self.resource), capacity }
    }
}

/// The pause after a request without an answer.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Holder {
    peers: Vec<RawClient>,
    /// The index of the peer to ask. It changes after each request without an answer.
    turn: usize,
    request: CapacityRequest,
    refresh: Duration,
    /// The length of leases that lack one.
    length: Duration,
    /// Set for a client of the 2016 protocol, which wants a random amount each time. It uses no tokens, believes in a
    /// lease until its expiry time by the wall clock, and releases its last lease.
    legacy: Option<fastrand::Rng>,
    /// The lease, and the time at which it ends.
    has: Option<(Grant, Instant)>,
    records: Vec<LeaseChange>,
}

impl Holder {
    pub(crate) fn new(
        peers: Vec<RawClient>,
        request: CapacityRequest,
        refresh: Duration,
        length: Duration,
        legacy: Option<fastrand::Rng>,
    ) -> Holder {
        Holder { peers, turn: 0, request, refresh, length, legacy, has: None, records: Vec::new() }
    }

    /// Asks again and again until `left` is true. Returns the records.
    pub(crate) async fn live(mut self, mut left: watch::Receiver<bool>) -> Vec<LeaseChange> {
        while !*left.borrow() {
            let pause = if self.ask().await { self.refresh } else { PAUSE };
            let _ = timeout_at((Instant::now() + pause).into(), left.wait_for(|left| *left)).await;
            self.expire(Instant::now());
        }
        if let Some((grant, ends)) = self.has.take() {
            if self.legacy.is_none() {
                self.note(ends, 0.0);
            } else {
                self.note(Instant::now(), 0.0);
                let peer = self.turn % self.peers.len();
                self.peers[peer].release(&self.request, &grant).await;
            }
        }
        self.records
    }

    /// Asks one peer. Returns whether it granted a lease.
    async fn ask(&mut self) -> bool {
        if let Some(random) = &mut self.legacy {
            self.request.wants = draw(random);
        }
        let named = self.has.as_ref().map(|(grant, _)| grant.lease);
        let peer = self.turn % self.peers.len();
        let Some(mut grant) = self.peers[peer].ask(&self.request, named, self.length).await else {
            self.turn += 1;
            return false;
        };
        self.expire(grant.at);
        let mut ends = grant.ends;
        if self.legacy.is_some() {
            let Lease { expiry_time, refresh_interval, capacity, .. } = grant.lease;
            grant.lease = Lease { expiry_time, refresh_interval, capacity, ..Lease::default() };
            ends = grant.at + until(expiry_time.unwrap_or(0));
        } else if named.is_some() && self.has.is_none() {
            // The lease that the request named ended before the answer arrived.
            return false;
        }
        self.note(grant.at, grant.lease.capacity.unwrap_or(0.0));
        self.has = Some((grant, ends));
        true
    }

    fn expire(&mut self, now: Instant) {
        if let Some((_, ends)) = self.has.take_if(|(_, ends)| *ends <= now) {
            self.note(ends, 0.0);
        }
    }

    fn note(&mut self, at: Instant, capacity: f64) {
        self.records.push(self.request.entry(at, capacity));
    }
}

/// The time from now until a wall-clock time in Unix seconds.
fn until(expiry_unix: i64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(expiry_unix.unsigned_abs()).saturating_sub(now)
}
