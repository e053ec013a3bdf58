//! Pairs of clients that show what servers have forgotten, for a resource that no server has heard of.
//!
//! The first is given all of it, and believes in its lease to the end, as its [`Manner`] is. The second asks all peers
//! of a node, often another one, for the same all that time. Both go past the links that clients' troubles are made
//! with.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use leaseway_client::{Entry, Transport};
use tokio::{runtime::Handle, task::JoinHandle, time::sleep};

use crate::chaos::clients::raw::{CapacityRequest, Grant, RawClient};

/// How often a pair comes, and how often its clients ask.
const COMES: Duration = Duration::from_millis(200);
const ASKS: Duration = Duration::from_millis(150);

/// What the first of a pair does with its lease.
#[derive(Clone, Copy)]
enum Manner {
    /// It says nothing more.
    Silent,
    /// It goes on asking the peer that gave it, and no other, for [`STAYS_FOR`] leases.
    Staying,
    /// As it, but only when [`RARELY`] of its lease is over: what it was given last counts for long.
    Rare,
    /// It goes on asking all peers and names its lease, but no answer reaches it.
    Deaf,
}

const MANNERS: [Manner; 4] = [Manner::Silent, Manner::Staying, Manner::Rare, Manner::Deaf];
const RARELY: f64 = 0.8;

const STAYS_FOR: u32 = 3;

/// How long the first asks before it gives up.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Pairs {
    coming: JoinHandle<()>,
    book: Arc<Mutex<Vec<Entry>>>,
}

/// What all pairs share.
#[derive(Clone)]
struct Place {
    peers: Arc<Vec<Vec<SocketAddr>>>,
    transport: Transport,
    lease: Duration,
    wants: f64,
    book: Arc<Mutex<Vec<Entry>>>,
}

impl Pairs {
    /// They come in turns to each node, and want more than there is.
    pub(crate) fn gather(
        peers: Vec<Vec<SocketAddr>>,
        transport: Transport,
        lease: Duration,
        wants: f64,
        runtime: &Handle,
    ) -> Pairs {
        let _inside = runtime.enter();
        let book = Arc::<Mutex<Vec<Entry>>>::default();
        let place = Place { peers: Arc::new(peers), transport, lease, wants, book: Arc::clone(&book) };
        let coming = async move {
            for number in 0.. {
                tokio::spawn(place.clone().pair(number));
                sleep(COMES).await;
            }
        };
        Pairs { coming: runtime.spawn(coming), book }
    }

    /// No more come. Those that are there go on to the end of a lease.
    pub(crate) fn end(&self) {
        self.coming.abort();
    }

    pub(crate) fn book(self) -> Vec<Entry> {
        std::mem::take(&mut *self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Place {
    async fn pair(self, number: usize) {
        let nodes = self.peers.len();
        let clients = |node: usize| self.peers[node].iter().map(|peer| RawClient::to(&self.transport, *peer)).collect();
        let (manner, others) = (MANNERS[number % MANNERS.len()], number / MANNERS.len());
        let (mut near, mut far): (Vec<_>, Vec<_>) = (clients(others % nodes), clients(others / nodes % nodes));
        let request = |which: &str| CapacityRequest {
            client: format!("{which}:{number}").into(),
            resource: format!("pair-{number}").into(),
            wants: self.wants,
            drops_late: matches!(manner, Manner::Deaf),
        };
        let (first, second) = (request("first"), request("second"));
        let Some((place, grant)) = self.first(&first, &mut near).await else { return };
        match manner {
            Manner::Silent => self.second(&second, &mut far, grant.ends).await,
            Manner::Staying | Manner::Rare => {
                let pause = if matches!(manner, Manner::Rare) { self.lease.mul_f64(RARELY) } else { ASKS };
                let until = grant.ends + self.lease * STAYS_FOR;
                let staying = self.stay(&first, &mut near[place], grant, until - self.lease, pause);
                tokio::join!(staying, self.second(&second, &mut far, until));
            }
            Manner::Deaf => {
                let until = grant.ends;
                tokio::join!(self.hear_nothing(&first, &mut near, &grant), self.second(&second, &mut far, until));
            }
        }
    }

    /// The peer that gave it something, and what; none: it was given nothing.
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

    /// Goes on asking one peer, until then or until what it has ends.
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

    /// Asks all peers until its lease ends, and takes no answer.
    async fn hear_nothing(&self, request: &CapacityRequest, peers: &mut [RawClient], has: &Grant) {
        for turn in 0.. {
            if Instant::now() >= has.ends {
                return;
            }
            let place = turn % peers.len();
            peers[place].ask(request, Some(has.lease), self.lease).await;
            sleep(ASKS).await;
        }
    }

    /// Names what it has each time; an answer that was not waited for any more is lost.
    async fn second(&self, request: &CapacityRequest, peers: &mut [RawClient], until: Instant) {
        let mut has = None;
        for turn in 0.. {
            if Instant::now() > until {
                return;
            }
            let place = turn % peers.len();
            if let Some(grant) = peers[place].ask(request, has, self.lease).await {
                // What it has beyond the first one's lease says nothing.
                self.note(request, grant.at, grant.ends.min(until), grant.lease.capacity.unwrap_or(0.0));
                has = Some(grant.lease);
            }
            sleep(ASKS).await;
        }
    }

    fn note(&self, request: &CapacityRequest, at: Instant, until: Instant, capacity: f64) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        // The lease that it replaces ends here, also if that one said later.
        let older = book.iter().rposition(|entry| entry.client == request.client && entry.at.into_std() > at);
        older.map(|older| book.remove(older));
        book.push(request.entry(at, capacity));
        book.push(request.entry(until.max(at), 0.0));
    }
}
