//! Picks among several backends of one resource, so that each gets its share of the operations.
//!
//! The share of a backend is a configured weight or the capacity of its lease. Which is next says the
//! [schedule](Schedule); what is added here is when a backend takes part, and a lock.
//!
//! Deliberately absent: waiting, and limiters. A pick says which backend an operation goes to; keeping to that
//! backend's lease is the work of its limiter, and what to do if there is none to pick is the caller's choice.

mod members;
mod schedule;
#[cfg(test)]
mod tests;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use self::members::Members;
pub use self::schedule::{Factor, Member, Schedule};
use crate::session::Capacity;

/// So long a backend that failed is left out, unless [`Balancer::with_retry`] says otherwise. As in httpd.
pub const RETRY: Duration = Duration::from_secs(60);

/// Picks among backends by request counting.
///
/// A backend takes part while it has a share, is not paused, and is not in back-off after a failure. One that does not
/// take part accrues nothing, and continues where it was when it is back.
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
/// Backends are known by their place in the configuration, which also decides between those that are equally urgent.
/// The methods that take such an index panic if there is no such backend. One lock is held for as long as a pick takes.
#[derive(Debug)]
pub struct Balancer<B> {
    backends: Box<[B]>,
    members: Mutex<Members>,
    retry: Duration,
}

impl<B> Balancer<B> {
    /// Backends with weights from configuration, in the order of the configuration. One with weight 0 is never picked.
    ///
    /// # Panics
    ///
    /// If there are more than [`Schedule::MAX_MEMBERS`].
    pub fn weighted(backends: impl IntoIterator<Item = (B, u32)>) -> Balancer<B> {
        let (backends, weights): (Vec<B>, Vec<u32>) = backends.into_iter().unzip();
        let members = Members::new(weights.into_iter().map(Factor::from));
        Balancer { backends: backends.into(), members: Mutex::new(members), retry: RETRY }
    }

    /// Backends that have their weights from leases, in the order of the configuration. None is picked before
    /// [`set_capacity`](Self::set_capacity) says what its lease is.
    ///
    /// # Panics
    ///
    /// If there are more than [`Schedule::MAX_MEMBERS`].
    pub fn leased(backends: impl IntoIterator<Item = B>) -> Balancer<B> {
        Balancer::weighted(backends.into_iter().map(|backend| (backend, 0)))
    }

    /// Leaves backends that failed out for so long.
    pub fn with_retry(self, retry: Duration) -> Balancer<B> {
        Balancer { retry, ..self }
    }

    /// The backend that is next. `None` if none takes part now.
    pub fn pick(&self) -> Option<Pick<'_, B>> {
        let index = self.current().pick()?;
        Some(Pick { balancer: self, index })
    }

    /// The backend that is next among those that can be used now, as those with a permit left at their limiter.
    ///
    /// Only the one that is next gets asked about; if it cannot be used it is as if it did not take part in this pick,
    /// and the next is asked. So this costs as much as `pick` while there is room everywhere, and each refusal about
    /// two picks more. Where many of very many refuse for long, [`pause`](Self::pause) them until they can be used: the
    /// most urgent of them are asked again at each pick.
    ///
    /// The lock is held meanwhile: `usable` has to be quick and must not call the balancer.
    pub fn pick_where(&self, mut usable: impl FnMut(&B) -> bool) -> Option<Pick<'_, B>> {
        let index = self.current().pick_where(|index| usable(&self.backends[index]))?;
        Some(Pick { balancer: self, index })
    }

    /// This backend, for a session that sticks to it: it pays as if it had been its turn, and the others catch up
    /// afterwards. `None` if it does not take part now; then none pays, and `pick` finds another.
    pub fn pick_sticky(&self, index: usize) -> Option<Pick<'_, B>> {
        let index = self.current().pick_sticky(index)?;
        Some(Pick { balancer: self, index })
    }

    /// What a backend's lease allows from now on; [`Capacity::NONE`] when the lease has ended.
    ///
    /// Shares are milli-units of capacity, rounded down; a backend with less than one does not take part. Capacities
    /// beyond [`Factor::MAX`] milli-units, about 1.4e11 units, count as that, and so does no limit: several backends
    /// without limit share equally, and beside them those with a limit are picked next to never.
    ///
    /// What backends are owed is kept in picks, not in units, so that none waits for long after leases have become
    /// much smaller: see [`Schedule::rescale`]. This takes time in proportion to the number of backends.
    pub fn set_capacity(&self, index: usize, capacity: Capacity) {
        self.members().lease(index, milli_units(capacity));
    }

    /// Changes a weight of the configuration. The schedule begins anew, as a configuration that was just read.
    pub fn set_weight(&self, index: usize, weight: u32) {
        self.members().configure(index, Factor::from(weight));
    }

    /// Leaves a backend out until [`resume`](Self::resume), at any share: to drain it, or because it cannot be
    /// used.
    pub fn pause(&self, index: usize) {
        self.members().pause(index, true);
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&self, index: usize) {
        self.members().pause(index, false);
    }

    /// Leaves a backend out for a while, because an operation on it failed at this time. Failures while it is left out
    /// do not make it longer.
    pub fn failed(&self, index: usize, now: Instant) {
        self.members().failed(index, now, self.retry);
    }

    /// When the first of those that failed is tried again: until when to wait if there is none to pick.
    pub fn next_retry(&self) -> Option<Instant> {
        self.current().next_retry()
    }

    /// Whether a backend takes part now.
    pub fn is_enabled(&self, index: usize) -> bool {
        self.current().is_enabled(index)
    }

    /// All backends, in the order of the configuration.
    pub fn backends(&self) -> &[B] {
        &self.backends
    }

    /// Backends take part again when their back-off is over. The clock is read only if there are any in back-off.
    fn current(&self) -> MutexGuard<'_, Members> {
        let mut members = self.members();
        if members.next_retry().is_some() {
            members.retry(Instant::now());
        }
        members
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        // Foreign code runs under the lock only in `pick_where`, and a pick that panics leaves everything as it was.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The backend that an operation goes to.
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

    /// Its place in the configuration; what a session needs to stick to it.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The operation failed because of the backend: see [`Balancer::failed`].
    pub fn failed(&self) {
        self.balancer.failed(self.index, Instant::now());
    }
}

fn milli_units(capacity: Capacity) -> Factor {
    // From floating point to integer rounds down here, and infinity becomes the largest integer.
    Factor::of((capacity.get() * 1000.0) as u64)
}
