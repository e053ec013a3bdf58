//! Pairs of clients that reveal what servers have forgotten, each for a resource of its own.
//!
//! The first client is given the whole resource, and believes in its lease until it ends. What it does meanwhile is its
//! [`HolderMode`]. The second client asks all peers of a node, often another one, for the same resource all that time. Both
//! bypass the degraded links.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use leaseway_client::{LeaseChange, Transport};
use tokio::{runtime::Handle, task::JoinHandle, time::sleep};

use crate::chaos::clients::raw::{CapacityRequest, Grant, RawClient};

/// How often a pair starts, and how often its clients ask.
const COMES: Duration = Duration::from_millis(200);
const ASKS: Duration = Duration::from_millis(150);

/// How the first client ends.
#[derive(Clone, Copy)]
enum HolderMode {
    /// It sends nothing more.
    Silent,
    /// It keeps asking the peer that gave it the lease, for [`STAYS_FOR`] leases.
    Staying,
    /// Like `Staying`, but it asks only after [`RARELY`] of its lease, so that its last lease counts for long.
    Rare,
    /// It keeps asking all peers and names its lease, but ignores all answers.
    Deaf,
}

const MODES: [HolderMode; 4] = [HolderMode::Silent, HolderMode::Staying, HolderMode::Rare, HolderMode::Deaf];
const RARELY: f64 = 0.8;

const STAYS_FOR: u32 = 3;

/// How long the first client asks before it gives up.
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
    /// The pairs ask each node in turn, and want more than the capacity.
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

    /// Starts no more pairs. Those that run go on to the end of a lease.
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

    /// Asks until it is given something. Returns the place of the peer, and the lease.
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

    /// Keeps asking one peer, until `until` or until its lease ends.
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

    /// Asks all peers until its lease ends, and ignores the answers.
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

    /// Names its lease each time. A request that times out is lost.
    async fn second(&self, request: &CapacityRequest, peers: &mut [RawClient], until: Instant) {
        let mut has = None;
        for turn in 0.. {
            if Instant::now() > until {
                return;
            }
            let place = turn % peers.len();
            if let Some(grant) = peers[place].ask(request, has, self.lease).await {
                // Beyond the lease of the first client, what the second holds shows nothing.
                self.note(request, grant.at, grant.ends.min(until), grant.lease.capacity.unwrap_or(0.0));
                has = Some(grant.lease);
            }
            sleep(ASKS).await;
        }
    }

    fn note(&self, request: &CapacityRequest, at: Instant, until: Instant, capacity: f64) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        // A new lease ends the one before, even if that one would have lasted longer.
        let older = records.iter().rposition(|entry| entry.client == request.client && entry.at.into_std() > at);
        older.map(|older| records.remove(older));
        records.push(request.entry(at, capacity));
        records.push(request.entry(until.max(at), 0.0));
    }
}
