//! Debt, refunds and reservations: only a rate has them.

use std::time::Duration;

use crate::limiter::{Bucket, DebtExceeded, Meter, Promise, Standing, TryError};

use super::Semaphore;

impl Semaphore<Bucket> {
    pub(crate) fn standing(&self) -> Standing {
        let now = self.now();
        self.lock().meter.standing(now)
    }

    /// Total time in which the bucket was not full.
    pub(crate) fn recharging(&self) -> Duration {
        let now = self.now();
        Duration::from_nanos(self.lock().meter.recharging(now))
    }

    /// Whole permits available to a new caller.
    pub(crate) fn available(&self) -> u64 {
        let now = self.now();
        let mut state = self.lock();
        if state.queue.front().is_some() { 0 } else { state.meter.available(now) }
    }

    /// Permits owed, rounded up.
    pub(crate) fn owed(&self) -> u64 {
        let now = self.now();
        self.lock().meter.owed(now)
    }

    /// Permits returned unused so far.
    pub(crate) fn refunded(&self) -> u64 {
        self.lock().refunded
    }

    /// Permits requested so far that were neither granted nor are still waited for.
    pub(crate) fn refused(&self) -> u64 {
        let state = self.lock();
        state.arrived.saturating_sub(state.meter.taken() + state.refunded + state.waiting)
    }

    /// Charges `n` permits that were used already. They count as demand, like a request.
    pub(crate) fn charge(&self, n: u64) -> Result<(), DebtExceeded> {
        let (charged, max_debt) = self.with(|state, now, deferred| {
            // First come, first served: waiters that are due already do not pay for this.
            state.admit(now, deferred);
            let before = state.pending(now);
            let charged = state.meter.charge(now, n);
            state.arrive(now, charged, deferred);
            // The head of the queue has to wait longer now.
            state.admit_and_wake(now, deferred);
            if state.pending(now) > before {
                state.raise_pressure(now, before, deferred);
            }
            (charged, state.meter.max_debt())
        });
        match n - charged {
            0 => Ok(()),
            uncharged => Err(DebtExceeded { uncharged, max_debt }),
        }
    }

    /// Returns `n` unused permits, which reduces demand as well.
    pub(crate) fn refund(&self, n: u64) {
        self.with(|state, now, deferred| {
            let refunded = state.meter.refund(now, n);
            state.refunded = state.refunded.saturating_add(refunded);
            state.admit_and_wake(now, deferred);
        });
    }

    /// Turns permits that were just taken into a [`Promise`] that can be settled.
    pub(crate) fn promise(&self, n: u32) -> Promise {
        self.with(|state, _, _| state.meter.promise(n))
    }

    /// As [`try_acquire`](Semaphore::try_acquire), for permits that will be settled.
    pub(crate) fn try_reserve(&self, n: u32) -> Result<Promise, TryError> {
        self.with(|state, now, deferred| state.try_acquire(now, n, deferred).map(|()| state.meter.promise(n)))
    }

    /// Settles a promise: returns what was not used, and charges what was used beyond it.
    pub(crate) fn settle(&self, promise: Promise, used: u64) -> Result<(), DebtExceeded> {
        let kept = u32::try_from(used).unwrap_or(u32::MAX).min(promise.n);
        self.with(|state, now, deferred| {
            state.meter.use_part(now, promise, kept);
            if kept < promise.n {
                state.refunded = state.refunded.saturating_add(u64::from(promise.n - kept));
                state.admit_and_wake(now, deferred);
            }
        });
        match used - u64::from(kept) {
            0 => Ok(()),
            beyond => self.charge(beyond),
        }
    }
}
