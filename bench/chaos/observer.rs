//! Asks all peers all the time, on a thread of its own, so that busy clients delay no measurement: which is master
//! (Discovery), and whether one grants (one known client's lease, refreshed at every peer).

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leaseway_client::{LeaseChange, Transport};
use leaseway_proto::doorman::Lease;
use tokio::runtime::{self, Runtime};

use super::raw_client::{CapacityRequest, Grant, NamedMaster, RawClient};
use crate::error::Error;

/// How often each peer is asked while something is measured, and while nothing is.
const FAST: Duration = Duration::from_millis(5);
const SLOW: Duration = Duration::from_millis(25);

/// A peer that says nothing for so long is not known to be master any more.
const STALE: Duration = Duration::from_millis(500);

/// How often each peer was started.
#[derive(Clone)]
pub(super) struct Incarnations(Arc<Vec<AtomicU64>>);

impl Incarnations {
    pub(super) fn of(peers: usize) -> Incarnations {
        Incarnations(Arc::new((0..peers).map(|_| AtomicU64::new(0)).collect()))
    }

    pub(super) fn begin(&self, peer: usize) {
        self.0[peer].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn now(&self, peer: usize) -> u64 {
        self.0[peer].load(Ordering::Relaxed)
    }
}

/// An answer that says "I am the master", or could only come from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Observation {
    pub(super) peer: usize,
    pub(super) incarnation: u64,
    /// When the question was sent.
    pub(super) asked: Instant,
    /// When the answer was there.
    pub(super) at: Instant,
}

/// Which answers count after a fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaited {
    /// Asked no sooner.
    pub(super) since: Instant,
    /// Not from this incarnation of this peer: from the master that was hit.
    pub(super) not: Option<(usize, u64)>,
}

impl Awaited {
    fn is(&self, seen: &Observation) -> bool {
        seen.asked >= self.since && self.not != Some((seen.peer, seen.incarnation))
    }
}

pub(super) struct Observer {
    seen: Arc<Seen>,
    /// With a thread of its own.
    runtime: Runtime,
}

struct Seen {
    incarnations: Incarnations,
    fast: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The newest answer of each peer.
    discovered: Vec<Option<(NamedMaster, Observation)>>,
    claims: Vec<Observation>,
    grants: Vec<Observation>,
    probe: Probe,
}

#[derive(Default)]
struct Probe {
    newest: Option<Grant>,
    book: Vec<LeaseChange>,
    /// Longest time without a grant.
    gap: Duration,
}

impl Observer {
    pub(super) fn start(
        transport: &Transport,
        peers: &[SocketAddr],
        incarnations: &Incarnations,
        request: &CapacityRequest,
        length: Duration,
    ) -> Result<Observer, Error> {
        let state = State { discovered: vec![None; peers.len()], ..State::default() };
        let seen = Arc::new(Seen {
            incarnations: incarnations.clone(),
            fast: AtomicBool::new(true),
            state: Mutex::new(state),
        });
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(Error::io("start a runtime"))?;
        for (peer, &address) in peers.iter().enumerate() {
            let _inside = runtime.enter();
            let client = || RawClient::to(transport, address);
            runtime.spawn(watch(Arc::clone(&seen), peer, client()));
            runtime.spawn(probe(Arc::clone(&seen), peer, client(), request.clone(), length));
        }
        Ok(Observer { seen, runtime })
    }

    /// Whether to look closely.
    pub(super) fn look_closely(&self, closely: bool) {
        self.seen.fast.store(closely, Ordering::Relaxed);
    }

    /// Forgets what it has seen, but not which peer said last that it is master.
    pub(super) fn forget(&self) {
        let mut state = self.seen.lock();
        state.claims.clear();
        state.grants.clear();
        state.probe.gap = Duration::ZERO;
    }

    /// The peer that says that it is master.
    pub(super) fn master(&self) -> Option<usize> {
        let now = Instant::now();
        let state = self.seen.lock();
        let claims = state.discovered.iter().flatten().filter(|(master, seen)| {
            matches!(master, NamedMaster::Itself { .. })
                && seen.incarnation == self.seen.incarnations.now(seen.peer)
                && now - seen.at < STALE
        });
        claims.max_by_key(|(_, seen)| seen.asked).map(|(_, seen)| seen.peer)
    }

    /// Whether a peer knows since then which is master.
    pub(super) fn knows_master(&self, peer: usize, since: Instant) -> bool {
        let state = self.seen.lock();
        state.discovered[peer].is_some_and(|(master, seen)| master != NamedMaster::Unknown && seen.asked >= since)
    }

    /// The first that said it is master.
    pub(super) fn claim(&self, awaited: &Awaited) -> Option<Observation> {
        first(&self.seen.lock().claims, awaited)
    }

    /// The first that granted anything.
    pub(super) fn grant(&self, awaited: &Awaited) -> Option<Observation> {
        first(&self.seen.lock().grants, awaited)
    }

    /// The peer that the known client's newest lease is from.
    pub(super) fn granting(&self) -> Option<usize> {
        self.seen.lock().grants.iter().max_by_key(|grant| grant.asked).map(|grant| grant.peer)
    }

    /// The longest time without a grant since it was told to forget.
    pub(super) fn gap(&self) -> Duration {
        let state = self.seen.lock();
        let running = state.probe.newest.as_ref().map_or(Duration::ZERO, |grant| grant.at.elapsed());
        state.probe.gap.max(running)
    }

    /// The known client's own book, when all is over.
    pub(super) fn finish(self) -> Vec<LeaseChange> {
        drop(self.runtime);
        std::mem::take(&mut self.seen.lock().probe.book)
    }
}

fn first(seen: &[Observation], awaited: &Awaited) -> Option<Observation> {
    seen.iter().filter(|seen| awaited.is(seen)).min_by_key(|seen| seen.at).copied()
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pause(&self, since: Instant) {
        let interval = if self.fast.load(Ordering::Relaxed) { FAST } else { SLOW };
        tokio::time::sleep_until((since + interval).into()).await;
    }
}

async fn watch(seen: Arc<Seen>, peer: usize, mut client: RawClient) {
    loop {
        let (asked, incarnation) = (Instant::now(), seen.incarnations.now(peer));
        if let Some(master) = client.discover().await {
            let observation = Observation { peer, incarnation, asked, at: Instant::now() };
            let mut state = seen.lock();
            state.discovered[peer] = Some((master, observation));
            if matches!(master, NamedMaster::Itself { .. }) {
                state.claims.push(observation);
            }
        }
        seen.pause(asked).await;
    }
}

async fn probe(seen: Arc<Seen>, peer: usize, mut client: RawClient, request: CapacityRequest, length: Duration) {
    loop {
        let (asked, incarnation, has) = (Instant::now(), seen.incarnations.now(peer), seen.lock().probe.has());
        if let Some(grant) = client.ask(&request, has, length).await {
            let mut state = seen.lock();
            state.grants.push(Observation { peer, incarnation, asked, at: grant.at });
            state.probe.take(&request, grant);
        }
        seen.pause(asked).await;
    }
}

impl Probe {
    fn has(&self) -> Option<Lease> {
        self.newest.as_ref().filter(|grant| grant.ends > Instant::now()).map(|grant| grant.lease)
    }

    /// Peers are asked side by side: an answer to an older question than the newest that was answered is as good as
    /// lost.
    fn take(&mut self, request: &CapacityRequest, grant: Grant) {
        if let Some(before) = &self.newest {
            if grant.asked < before.asked {
                return;
            }
            self.gap = self.gap.max(grant.at.saturating_duration_since(before.at));
            if before.ends < grant.at {
                self.book.push(request.entry(before.ends, 0.0));
            }
        }
        let capacity = grant.lease.capacity.unwrap_or(0.0);
        if self.book.last().is_none_or(|entry| entry.capacity != capacity) {
            self.book.push(request.entry(grant.at, capacity));
        }
        self.newest = Some(grant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_clients_book_ends_leases_when_they_end_and_ignores_answers_that_come_too_late() {
        let request = CapacityRequest { client: "probe".into(), resource: "r".into(), wants: 1.0, drops_late: false };
        let start = Instant::now();
        let ms = Duration::from_millis;
        let grant = |asked: u64, at: u64, capacity: f64| Grant {
            lease: Lease { capacity: Some(capacity), ..Lease::default() },
            asked: start + ms(asked),
            at: start + ms(at),
            ends: start + ms(asked + 100),
        };
        let mut probe = Probe::default();
        for grant in [grant(0, 5, 7.0), grant(20, 25, 6.0), grant(10, 30, 9.0), grant(300, 310, 5.0)] {
            probe.take(&request, grant);
        }
        let book: Vec<_> =
            probe.book.iter().map(|entry| ((entry.at.into_std() - start).as_millis(), entry.capacity)).collect();
        assert_eq!(book, [(5, 7.0), (25, 6.0), (120, 0.0), (310, 5.0)]);
        assert_eq!(probe.gap, ms(285));
    }

    #[test]
    fn the_first_that_counts_is_found_in_any_order() {
        let since = Instant::now();
        let seen = |peer, incarnation, ms| {
            let at = since + Duration::from_millis(ms) - Duration::from_millis(100);
            Observation { peer, incarnation, asked: at, at }
        };
        let awaited = Awaited { since, not: Some((0, 1)) };
        let (early, former, restarted, other) = (seen(1, 1, 99), seen(0, 1, 101), seen(0, 2, 109), seen(1, 1, 104));
        assert_eq!(first(&[early, former, restarted, other], &awaited), Some(other));
        assert_eq!(first(&[former, restarted], &awaited), Some(restarted), "the former master counts once restarted");
        assert_eq!(first(&[early, former], &awaited), None);
        assert_eq!(first(&[former], &Awaited { since, not: None }), Some(former));
    }
}
