//! Pairs of clients that reveal leases that servers have forgotten. Each pair has its own resource.
//!
//! The first client gets the whole resource, and believes in its lease until the lease ends. Its [`HolderMode`] is its
//! behaviour meanwhile. During that time the second client asks all peers of a node, often another node, for the same
//! resource. Both clients bypass the degraded links.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use leaseway_client::{LeaseChange, Transport};
use tokio::{runtime::Handle, task::JoinHandle, time::sleep};

use crate::chaos::clients::raw::{CapacityRequest, Grant, RawClient};

/// The interval at which pairs start, and the interval at which their clients ask.
const COMES: Duration = Duration::from_millis(200);
const ASKS: Duration = Duration::from_millis(150);

/// The behaviour of the first client once it has a lease.
#[derive(Clone, Copy)]
enum HolderMode {
    /// It sends nothing more.
    Silent,
    /// It keeps asking the peer that gave it the lease, for [`STAYS_FOR`] leases.
    Staying,
    /// Like `Staying`, but it waits for the fraction [`RARELY`] of a lease between requests, so that its last lease
    /// counts for a long time.
    Rare,
    /// It keeps asking all peers and names its lease, but ignores all answers.
    Deaf,
}

const MODES: [HolderMode; 4] = [HolderMode::Silent, HolderMode::Staying, HolderMode::Rare, HolderMode::Deaf];
const RARELY: f64 = 0.8;

const STAYS_FOR: u32 = 3;

/// The time after which the first client gives up if no peer grants capacity.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Pairs {
    coming: JoinHandle<()>,
    records: Arc<Mutex<Vec<LeaseChange>>>,
}

#[derive(Clone)]
struct Place {
    peers: Arc<Vec<Vec<SocketAddr>>>,
    transport: Transport,
    lease: Duration,
    wants: f64,
    records: Arc<Mutex<Vec<LeaseChange>>>,
}

impl Pairs {
    /// Starts pairs, at each node in turn. `wants` is more than the capacity.
    pub(crate) fn gather(
        peers: Vec<Vec<SocketAddr>>,
        transport: Transport,
        lease: Duration,
        wants: f64,
        runtime: &Handle,
    ) -> Pairs {
        let _inside = runtime.enter();
        let records = Arc::<Mutex<Vec<LeaseChange>>>::default();
        let place = Place { peers: Arc::new(peers), transport, lease, wants, records: Arc::clone(&records) };
        let coming = async move {
            for number in 0.. {
                tokio::spawn(place.clone().pair(number));
                sleep(COMES).await;
            }
        };
        Pairs { coming: runtime.spawn(coming), records }
    }

    /// Starts no further pairs. Running pairs continue until their leases end.
    pub(crate) fn end(&self) {
        self.coming.abort();
    }

    pub(crate) fn records(self) -> Vec<LeaseChange> {
        std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Place {
    async fn pair(self, number: usize) {
        let nodes = self.peers.len();
        let clients = |node: usize| self.peers[node].iter().map(|peer| RawClient::to(&self.transport, *peer)).collect();
        let (mode, others) = (MODES[number % MODES.len()], number / MODES.len());
        let (mut near, mut far): (Vec<_>, Vec<_>) = (clients(others % nodes), clients(others / nodes % nodes));
        let request = |which: &str| CapacityRequest {
            client: format!("{which}:{number}").into(),
            resource: format!("pair-{number}").into(),
            wants: self.wants,
            drops_late: matches!(mode, HolderMode::Deaf),
        };
        let (first, second) = (request("first"), request("second"));
        let Some((place, grant)) = self.first(&first, &mut near).await else { return };
        match mode {
            HolderMode::Silent => self.second(&second, &mut far, grant.ends).await,
            HolderMode::Staying | HolderMode::Rare => {
                let pause = if matches!(mode, HolderMode::Rare) { self.lease.mul_f64(RARELY) } else { ASKS };
                let until = grant.ends + self.lease * STAYS_FOR;
                let staying = self.stay(&first, &mut near[place], grant, until - self.lease, pause);
                tokio::join!(staying, self.second(&second, &mut far, until));
            }
            HolderMode::Deaf => {
                let until = grant.ends;
                tokio::join!(self.ignore_answers(&first, &mut near, &grant), self.second(&second, &mut far, until));
            }
        }
    }

    /// Asks the peers in turn until one grants capacity. Returns its index and the lease. `None` after [`PATIENCE`].
    async fn first(&self, request: &CapacityRequest, peers: &mut [RawClient]) -> Option<(usize, Grant)> {
        let patience = Instant::now() + PATIENCE;
        for turn in 0.. {
            let place = turn % peers.len();
            if let Some(grant) = peers[place].ask(request, None, self.lease).await
                && grant.lease.capacity.is_some_and(|capacity| capacity > 0.0)
            {
                self.note(request, grant.at, grant.ends, grant.lease.capacity.unwrap_or(0.0));
                return Some((place, grant));
            }
            if Instant::now() > patience {
                return None;
            }
            sleep(ASKS).await;
        }
        None
    }

    /// Renews the lease at one peer until `until`, or until the lease ends.
    async fn stay(
        &self,
        request: &CapacityRequest,
        peer: &mut RawClient,
        mut has: Grant,
        until: Instant,
        pause: Duration,
    ) {
        while Instant::now() < has.ends.min(until) {
            sleep(pause).await;
            if let Some(grant) = peer.ask(request, Some(has.lease), self.lease).await
                && grant.at < has.ends
            {
                self.note(request, grant.at, grant.ends, grant.lease.capacity.unwrap_or(0.0));
                has = grant;
            }
        }
    }

    /// Asks all peers in turn until the lease ends, and ignores the answers.
    async fn ignore_answers(&self, request: &CapacityRequest, peers: &mut [RawClient], has: &Grant) {
        for turn in 0.. {
            if Instant::now() >= has.ends {
                return;
            }
            let place = turn % peers.len();
            peers[place].ask(request, Some(has.lease), self.lease).await;
            sleep(ASKS).await;
        }
    }

    /// Asks all peers in turn until `until`. Each request names the client's last lease.
    async fn second(&self, request: &CapacityRequest, peers: &mut [RawClient], until: Instant) {
        let mut has = None;
        for turn in 0.. {
            if Instant::now() > until {
                return;
            }
            let place = turn % peers.len();
            if let Some(grant) = peers[place].ask(request, has, self.lease).await {
                // Once the lease of the first client has ended, the lease of the second one proves nothing.
                self.note(request, grant.at, grant.ends.min(until), grant.lease.capacity.unwrap_or(0.0));
                has = Some(grant.lease);
            }
            sleep(ASKS).await;
        }
    }

    fn note(&self, request: &CapacityRequest, at: Instant, until: Instant, capacity: f64) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        // A new lease replaces the previous one, even if that would have lasted longer.
        let older = records.iter().rposition(|entry| entry.client == request.client && entry.at.into_std() > at);
        older.map(|older| records.remove(older));
        records.push(request.entry(at, capacity));
        records.push(request.entry(until.max(at), 0.0));
    }
}
