//! What only a rate has: permits used before they were there, and permits that were not used after all.

use std::time::Duration;

use crate::limiter::{Bucket, DebtExceeded, Meter, Promise, Standing, TryError};

use super::Gate;

impl Gate<Bucket> {
    pub(crate) fn standing(&self) -> Standing {
        let now = self.now();
        self.lock().meter.standing(now)
    }

    /// For how long credit was less than it may be, ever.
    pub(crate) fn recharging(&self) -> Duration {
        let now = self.now();
        Duration::from_nanos(self.lock().meter.recharging(now))
    }

    /// Whole permits that a caller that comes now could have.
    pub(crate) fn available(&self) -> u64 {
        let now = self.now();
        let mut line = self.lock();
        if line.queue.front().is_some() { 0 } else { line.meter.available(now) }
    }

    /// What is owed, in permits begun.
    pub(crate) fn owed(&self) -> u64 {
        let now = self.now();
        self.lock().meter.owed(now)
    }

    /// Permits that came back unused, ever.
    pub(crate) fn refunded(&self) -> u64 {
        self.lock().refunded
    }

    /// Permits that were asked for, not let through, and do not wait any more, ever.
    pub(crate) fn refused(&self) -> u64 {
        let line = self.lock();
        line.arrived.saturating_sub(line.meter.taken() + line.refunded + line.waiting)
    }

    /// `n` permits have been used. They are demand as if a caller had asked for them.
    pub(crate) fn charge(&self, n: u64) -> Result<(), DebtExceeded> {
        let (charged, max_debt) = self.with(|line, now, after| {
            // First come, first served: those whose turn it is already do not pay for this.
            line.admit(now, after);
            let before = line.pending(now);
            let charged = line.meter.charge(now, n);
            line.arrive(now, charged, after);
            // The head of the line has to wait for longer now.
            line.move_up(now, after);
            if line.pending(now) > before {
                line.press(now, before, after);
            }
            (charged, line.meter.max_debt())
        });
        match n - charged {
            0 => Ok(()),
            uncharged => Err(DebtExceeded { uncharged, max_debt }),
        }
    }

    /// `n` permits were not used after all: so much less is demand.
    pub(crate) fn refund(&self, n: u64) {
        self.with(|line, now, after| {
            let refunded = line.meter.refund(now, n);
            line.refunded = line.refunded.saturating_add(refunded);
            line.move_up(now, after);
        });
    }

    /// What the caller has just taken can be settled: see [`Promise`].
    pub(crate) fn promise(&self, n: u32) -> Promise {
        self.with(|line, _, _| line.meter.promise(n))
    }

    /// As [`try_acquire`](Gate::try_acquire), for what can be settled.
    pub(crate) fn try_reserve(&self, n: u32) -> Result<Promise, TryError> {
        self.with(|line, now, after| line.try_acquire(now, n, after).map(|()| line.meter.promise(n)))
    }

    /// Of a promise, or beyond it, so much was used.
    pub(crate) fn settle(&self, promise: Promise, used: u64) -> Result<(), DebtExceeded> {
        let kept = u32::try_from(used).unwrap_or(u32::MAX).min(promise.n);
        self.with(|line, now, after| {
            line.meter.use_part(now, promise, kept);
            if kept < promise.n {
                line.refunded = line.refunded.saturating_add(u64::from(promise.n - kept));
                line.move_up(now, after);
            }
        });
        match used - u64::from(kept) {
            0 => Ok(()),
            beyond => self.charge(beyond),
        }
    }
}
