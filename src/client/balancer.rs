//! Balances load across several backends, in proportion to weights or leases.
//!
//! The [schedule](Schedule) decides which backend is next. [`Balancer`] adds a lock, and enables the backends that have a
//! share and are neither paused nor in back-off.
//!
//! A balancer does not wait and has no limiters. It picks the backend of an operation; the limiter of that backend
//! enforces its lease, and the caller decides what to do if no backend is enabled.

mod schedule;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, futures::Notified},
    time::Instant,
};

pub use self::schedule::{Factor, Member, Schedule};
use crate::session::Capacity;

/// The default back-off of failed backends, as in httpd. See [`Balancer::with_retry`].
pub const RETRY: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct State {
    schedule: Schedule,
    backends: Vec<BackendState>,
    /// The ends of all back-offs.
    retries: BinaryHeap<Reverse<(Instant, usize)>>,
}

#[derive(Debug)]
struct BackendState {
    member: Member,
    paused: bool,
    failed: bool,
}

impl State {
    /// Ends back-offs that are over.
    fn retry(&mut self, now: Instant) {
        while let Some(Reverse((_, index))) = self.retries.peek().filter(|retry| retry.0.0 <= now).copied() {
            self.retries.pop();
            self.backends[index].failed = false;
            self.settle(index);
        }
    }

    /// Enables a backend if it has a share and is neither paused nor in back-off.
    fn settle(&mut self, index: usize) {
        let BackendState { member, paused, failed } = self.backends[index];
        let has_share = self.schedule.factor(member).is_some_and(|factor| factor > Factor::ZERO);
        if has_share && !paused && !failed {
            self.schedule.enable(member);
        } else {
            self.schedule.disable(member);
        }
    }
}

/// Picks backends by request counting.
///
/// A backend is enabled while it has a share, is not paused, and is not in back-off after a failure. A disabled backend
/// accrues nothing, and continues where it was when it is enabled again.
///
/// ```
/// use leaseway_client::{Capacity, balancer::Balancer};
///
/// let balancer = Balancer::leased(["a", "b"]);
/// assert!(balancer.pick().is_none());
///
/// balancer.set_capacity(0, Capacity::of(7.0));
/// balancer.set_capacity(1, Capacity::of(3.0));
/// let picks: String = (0..10).filter_map(|_| balancer.pick()).map(|pick| *pick.backend()).collect();
/// assert_eq!(picks, "abaaabaaba");
///
/// if let Some(pick) = balancer.pick() {
///     // ... the operation fails
///     pick.failed();
/// }
/// assert_eq!(balancer.pick().map(|pick| *pick.backend()), Some("b"));
/// ```
///
/// Backends are identified by their index, whose order also breaks ties. Methods panic if the index is out of range. A
/// pick holds one lock.
#[derive(Debug)]
pub struct Balancer<B> {
    backends: Box<[B]>,
    state: Mutex<State>,
    retry: Duration,
    /// Notified after each change of a share or of a pause.
    changed: Notify,
}

impl<B> Balancer<B> {
    /// Creates a balancer with fixed weights. A backend with weight 0 is never picked.
    ///
    /// # Panics
    ///
    /// Panics if there are more than [`Schedule::MAX_MEMBERS`].
    pub fn weighted(backends: impl IntoIterator<Item = (B, u32)>) -> Balancer<B> {
        let (backends, weights): (Vec<B>, Vec<u32>) = backends.into_iter().unzip();
        let mut state = State { schedule: Schedule::new(), backends: Vec::new(), retries: BinaryHeap::new() };
        for (index, weight) in weights.into_iter().enumerate() {
            let member = state.schedule.add(Factor::from(weight));
            state.backends.push(BackendState { member, paused: false, failed: false });
            state.settle(index);
        }
        Balancer { backends: backends.into(), state: Mutex::new(state), retry: RETRY, changed: Notify::new() }
    }

    /// Creates a balancer with weights from leases. A backend is not picked before
    /// [`set_capacity`](Self::set_capacity) sets its lease.
    ///
    /// # Panics
    ///
    /// Panics if there are more than [`Schedule::MAX_MEMBERS`].
    pub fn leased(backends: impl IntoIterator<Item = B>) -> Balancer<B> {
        Balancer::weighted(backends.into_iter().map(|backend| (backend, 0)))
    }

    /// Sets the back-off of failed backends.
    pub fn with_retry(self, retry: Duration) -> Balancer<B> {
        Balancer { retry, ..self }
    }

    /// Picks the next backend. `None` if no backend is enabled.
    pub fn pick(&self) -> Option<Pick<'_, B>> {
        let index = self.current().schedule.pick()?.index();
        Some(Pick { balancer: self, index })
    }

    /// Picks the next backend among those that are `usable` now, such as those with a permit left at their limiter.
    ///
    /// Calls `usable` for the next backend only. If that is not usable it counts as disabled for this pick, and the one
    /// after it is tried. So this costs as much as `pick` if the first backend is usable, and about two picks more per
    /// rejected backend. [`Pause`](Self::pause) backends that stay unusable, because each pick tries them again.
    ///
    /// The lock is held meanwhile: `usable` has to be fast and must not call the balancer.
    pub fn pick_where(&self, mut usable: impl FnMut(&B) -> bool) -> Option<Pick<'_, B>> {
        let index = self.current().schedule.pick_where(|member| usable(&self.backends[member.index()]))?.index();
        Some(Pick { balancer: self, index })
    }

    /// The index of the backend that [`pick_where`](Self::pick_where) would pick. Charges nothing.
    ///
    /// Use it for slow conditions: call `peek_where`, evaluate without the lock, then call `pick_where` for that backend.
    /// Takes time linear in the number of backends.
    pub fn peek_where(&self, mut usable: impl FnMut(&B) -> bool) -> Option<usize> {
        let mut state = self.current();
        Some(state.schedule.peek_where(|member| usable(&self.backends[member.index()]))?.index())
    }

    /// Picks a certain backend, for sticky sessions. The backend is charged as if it were next, and the others catch up
    /// afterwards. `None`, without any charge, if it is not enabled.
    pub fn pick_sticky(&self, index: usize) -> Option<Pick<'_, B>> {
        let mut state = self.current();
        let member = state.backends[index].member;
        state.schedule.force(member).then_some(Pick { balancer: self, index })
    }

    /// Sets the capacity of a backend's lease; [`Capacity::NONE`] when the lease has expired.
    ///
    /// Shares are milli-units of capacity, rounded down; a backend with less than one is disabled. Capacities beyond
    /// [`Factor::MAX`] milli-units, about 1.4e11 units, count as that, and so do unlimited ones: unlimited backends
    /// share equally, and others beside them are hardly ever picked.
    ///
    /// Statuses are rescaled, so that no backend starves after leases have become much smaller: see
    /// [`Schedule::rescale`]. Takes time linear in the number of backends.
    pub fn set_capacity(&self, index: usize, capacity: Capacity) {
        self.change(index, |schedule, backend| schedule.rescale(backend.member, milli_units(capacity)));
    }

    /// Changes a configured weight. The schedule starts anew.
    pub fn set_weight(&self, index: usize, weight: u32) {
        self.change(index, |schedule, backend| {
            schedule.set_factor(backend.member, Factor::from(weight));
            schedule.reset();
        });
    }

    /// Disables a backend until [`resume`](Self::resume), to drain it, or because it cannot be used.
    pub fn pause(&self, index: usize) {
        self.change(index, |_, backend| backend.paused = true);
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&self, index: usize) {
        self.change(index, |_, backend| backend.paused = false);
    }

    /// Disables a backend for the back-off, because an operation on it failed at `now`. Further failures during the
    /// back-off do not prolong it.
    pub fn failed(&self, index: usize, now: Instant) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.backends[index].failed, true) {
            state.settle(index);
            // A time that overflows never comes.
            state.retries.extend(now.checked_add(self.retry).map(|at| Reverse((at, index))));
        }
    }

    /// When the next back-off ends: how long to wait if no backend is enabled.
    pub fn next_retry(&self) -> Option<Instant> {
        self.current().retries.peek().map(|Reverse((at, _))| *at)
    }

    /// Whether a backend is enabled.
    pub fn is_enabled(&self, index: usize) -> bool {
        let state = self.current();
        state.schedule.is_enabled(state.backends[index].member)
    }

    /// All backends by index.
    pub fn backends(&self) -> &[B] {
        &self.backends
    }

    /// Ends back-offs that are over. Reads the clock only if there are any.
    fn current(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if !state.retries.is_empty() {
            state.retry(Instant::now());
        }
        state
    }

    /// Changes a backend, and enables or disables it accordingly.
    fn change(&self, index: usize, change: impl FnOnce(&mut Schedule, &mut BackendState)) {
        let mut state = self.lock();
        let State { schedule, backends, .. } = &mut *state;
        change(schedule, &mut backends[index]);
        state.settle(index);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends after the next change of a share or of a pause.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Foreign code runs under the lock in `pick_where` only, and a pick that panics changes nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The backend of an operation.
#[derive(Debug)]
#[must_use = "the backend has been charged for this pick"]
pub struct Pick<'a, B> {
    balancer: &'a Balancer<B>,
    index: usize,
}

impl<'a, B> Pick<'a, B> {
    /// The backend.
    pub fn backend(&self) -> &'a B {
        &self.balancer.backends[self.index]
    }

    /// Its index, for [`Balancer::pick_sticky`].
    pub fn index(&self) -> usize {
        self.index
    }

    /// Reports that the operation failed because of the backend: see [`Balancer::failed`].
    pub fn failed(&self) {
        self.balancer.failed(self.index, Instant::now());
    }
}

fn milli_units(capacity: Capacity) -> Factor {
    // The conversion rounds down, and infinity becomes the largest integer.
    Factor::of((capacity.get() * 1000.0) as u64)
}
