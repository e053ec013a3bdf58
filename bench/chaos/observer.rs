//! Asks all peers all the time, from a thread of its own, so that a busy fleet delays no measurement: who is master
//! (Discovery), and whether somebody grants (one known client's lease, refreshed by hand at every peer).

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use leaseway_client::Entry;
use leaseway_proto::doorman::Lease;
use tokio::{runtime, sync::oneshot};

use super::{
    hand::{Given, Hand, Master, Wish},
    sight::{Lives, Sighting, Wanted},
};
use crate::error::Error;

/// How often each peer is asked while something is measured, and while nothing is.
const FAST: Duration = Duration::from_millis(5);
const SLOW: Duration = Duration::from_millis(25);

/// Who says nothing for so long is not known to be master any more.
const STALE: Duration = Duration::from_millis(500);

pub(super) struct Observer {
    seen: Arc<Seen>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Seen {
    lives: Lives,
    fast: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The newest answer of each peer.
    discovered: Vec<Option<(Master, Sighting)>>,
    claims: Vec<Sighting>,
    grants: Vec<Sighting>,
    probe: Probe,
}

/// The known client.
#[derive(Default)]
struct Probe {
    newest: Option<Given>,
    book: Vec<Entry>,
    /// Longest time without a grant.
    gap: Duration,
}

impl Observer {
    pub(super) fn start(peers: &[SocketAddr], lives: &Lives, wish: &Wish, length: Duration) -> Result<Observer, Error> {
        let state = State { discovered: vec![None; peers.len()], ..State::default() };
        let seen = Arc::new(Seen { lives: lives.clone(), fast: AtomicBool::new(true), state: Mutex::new(state) });
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(Error::io("start a runtime"))?;
        let (stop, stopped) = oneshot::channel();
        let (peers, wish, for_thread) = (peers.to_vec(), wish.clone(), Arc::clone(&seen));
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                for (peer, address) in peers.into_iter().enumerate() {
                    tokio::spawn(watch(Arc::clone(&for_thread), peer, address));
                    tokio::spawn(probe(Arc::clone(&for_thread), peer, address, wish.clone(), length));
                }
                // An error says the same: the observer is gone.
                let _ = stopped.await;
            });
        });
        Ok(Observer { seen, stop: Some(stop), thread: Some(thread) })
    }

    /// Whether to look closely.
    pub(super) fn look_closely(&self, closely: bool) {
        self.seen.fast.store(closely, Ordering::Relaxed);
    }

    /// Forgets what it has seen, but not who said last that it is master.
    pub(super) fn forget(&self) {
        let mut state = self.seen.lock();
        state.claims.clear();
        state.grants.clear();
        state.probe.gap = Duration::ZERO;
    }

    /// Who says that it is master.
    pub(super) fn master(&self) -> Option<usize> {
        let now = Instant::now();
        let state = self.seen.lock();
        let claims = state.discovered.iter().flatten().filter(|(master, seen)| {
            *master == Master::Itself && seen.life == self.seen.lives.life(seen.peer) && now - seen.at < STALE
        });
        claims.max_by_key(|(_, seen)| seen.asked).map(|(_, seen)| seen.peer)
    }

    /// Whether a peer knows since then who is master.
    pub(super) fn knows_master(&self, peer: usize, since: Instant) -> bool {
        let state = self.seen.lock();
        state.discovered[peer].is_some_and(|(master, seen)| master != Master::Unknown && seen.asked >= since)
    }

    /// The first that said it is master.
    pub(super) fn claim(&self, wanted: &Wanted) -> Option<Sighting> {
        first(&self.seen.lock().claims, wanted)
    }

    /// The first that granted anything.
    pub(super) fn grant(&self, wanted: &Wanted) -> Option<Sighting> {
        first(&self.seen.lock().grants, wanted)
    }

    /// Whom the known client's newest lease is from.
    pub(super) fn granting(&self) -> Option<usize> {
        self.seen.lock().grants.iter().max_by_key(|grant| grant.asked).map(|grant| grant.peer)
    }

    /// The longest time without a grant since it was told to forget.
    pub(super) fn gap(&self) -> Duration {
        let state = self.seen.lock();
        let running = state.probe.newest.as_ref().map_or(Duration::ZERO, |given| given.at.elapsed());
        state.probe.gap.max(running)
    }

    /// The known client's own book, when all is over.
    pub(super) fn finish(mut self) -> Vec<Entry> {
        self.stop();
        std::mem::take(&mut self.seen.lock().probe.book)
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Had it panicked, there would be no measurement, and that is reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn first(seen: &[Sighting], wanted: &Wanted) -> Option<Sighting> {
    seen.iter().filter(|seen| wanted.is(seen)).min_by_key(|seen| seen.at).copied()
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

async fn watch(seen: Arc<Seen>, peer: usize, address: SocketAddr) {
    let mut hand = Hand::to(address);
    loop {
        let (asked, life) = (Instant::now(), seen.lives.life(peer));
        if let Some(master) = hand.discover().await {
            let sighting = Sighting { peer, life, asked, at: Instant::now() };
            let mut state = seen.lock();
            state.discovered[peer] = Some((master, sighting));
            if master == Master::Itself {
                state.claims.push(sighting);
            }
        }
        seen.pause(asked).await;
    }
}

async fn probe(seen: Arc<Seen>, peer: usize, address: SocketAddr, wish: Wish, length: Duration) {
    let mut hand = Hand::to(address);
    loop {
        let (asked, life, has) = (Instant::now(), seen.lives.life(peer), seen.lock().probe.has());
        if let Some(given) = hand.ask(&wish, has, length).await {
            let mut state = seen.lock();
            state.grants.push(Sighting { peer, life, asked, at: given.at });
            state.probe.take(&wish, given);
        }
        seen.pause(asked).await;
    }
}

impl Probe {
    fn has(&self) -> Option<Lease> {
        self.newest.as_ref().filter(|given| given.ends > Instant::now()).map(|given| given.lease)
    }

    /// Peers are asked side by side: an answer to an older question than the newest that was answered is as good as
    /// lost.
    fn take(&mut self, wish: &Wish, given: Given) {
        if let Some(before) = &self.newest {
            if given.asked < before.asked {
                return;
            }
            self.gap = self.gap.max(given.at.saturating_duration_since(before.at));
            if before.ends < given.at {
                self.book.push(wish.entry(before.ends, 0.0));
            }
        }
        let capacity = given.lease.capacity.unwrap_or(0.0);
        if self.book.last().is_none_or(|entry| entry.capacity != capacity) {
            self.book.push(wish.entry(given.at, capacity));
        }
        self.newest = Some(given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_clients_book_ends_leases_when_they_end_and_ignores_answers_that_come_too_late() {
        let wish = Wish { client: "probe".into(), resource: "r".into(), wants: 1.0 };
        let start = Instant::now();
        let ms = Duration::from_millis;
        let given = |asked: u64, at: u64, capacity: f64| Given {
            lease: Lease { capacity: Some(capacity), ..Lease::default() },
            asked: start + ms(asked),
            at: start + ms(at),
            ends: start + ms(asked + 100),
        };
        let mut probe = Probe::default();
        for given in [given(0, 5, 7.0), given(20, 25, 6.0), given(10, 30, 9.0), given(300, 310, 5.0)] {
            probe.take(&wish, given);
        }
        let book: Vec<_> =
            probe.book.iter().map(|entry| ((entry.at.into_std() - start).as_millis(), entry.capacity)).collect();
        assert_eq!(book, [(5, 7.0), (25, 6.0), (120, 0.0), (310, 5.0)]);
        assert_eq!(probe.gap, ms(285));
    }

    #[test]
    fn the_first_that_counts_is_found_whatever_the_order() {
        let start = Instant::now();
        let seen = |peer, ms| {
            let at = start + Duration::from_millis(ms);
            Sighting { peer, life: 1, asked: at, at }
        };
        let wanted = Wanted { since: start, not: Some((0, 1)) };
        let found = first(&[seen(0, 1), seen(2, 9), seen(1, 4)], &wanted);
        assert_eq!(found, Some(seen(1, 4)));
        assert_eq!(first(&[seen(0, 1)], &wanted), None);
    }
}
