//! The limiter of a rate.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Notify, task::coop::consume_budget};

use crate::{
    limiter::{
        Bucket, Burst, Closed, DebtExceeded, Meter, Nanos, Promise, SlidingWindow, Standing, TryError,
        demand::Sample,
        rate_meter::RateMeter,
        waiting::semaphore::{Semaphore, SemaphoreState},
    },
    session::Capacity,
};

/// Admits callers at a rate.
///
/// - Exact: in any period of T seconds at most capacity · T + [burst](Burst) permits are taken, plus the debt at its
///   end if callers are [charged](RateLimiter::charge).
/// - Work-conserving: while a caller waits no capacity is lost, unless timers and tasks are later than the burst allows
///   for.
/// - It starts without capacity and without credit, so restarting a process gains nothing.
///
/// Clones share the limiter.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    pub(super) semaphore: Arc<Semaphore<RateMeter>>,
}

impl RateLimiter {
    /// A limiter that admits no caller before the first [`set_capacity`](RateLimiter::set_capacity).
    pub fn new(burst: Burst) -> RateLimiter {
        RateLimiter::metered(RateMeter::Bucket(Box::new(Bucket::new(burst))), None)
    }

    /// As `new`. `on_pressure` is notified (with `notify_one`) when a caller has to queue or debt arises, and each time
    /// the number of pending permits has doubled since.
    pub fn with_pressure(burst: Burst, on_pressure: Arc<Notify>) -> RateLimiter {
        RateLimiter::metered(RateMeter::Bucket(Box::new(Bucket::new(burst))), Some(on_pressure))
    }

    /// As `with_pressure`, with the burst available as soon as there is capacity.
    pub(crate) fn full(burst: Burst, on_pressure: Arc<Notify>) -> RateLimiter {
        RateLimiter::metered(RateMeter::Bucket(Box::new(Bucket::full(burst))), Some(on_pressure))
    }

    /// As `with_pressure`, for a window that slides.
    pub(crate) fn sliding(length: Duration, on_pressure: Arc<Notify>) -> RateLimiter {
        RateLimiter::metered(RateMeter::Sliding(Box::new(SlidingWindow::new(length))), Some(on_pressure))
    }

    fn metered(meter: RateMeter, on_pressure: Option<Arc<Notify>>) -> RateLimiter {
        RateLimiter { semaphore: Arc::new(Semaphore::new(meter, on_pressure)) }
    }

    /// The current state.
    pub fn standing(&self) -> Standing {
        self.read(|state, now| state.meter.standing(now))
    }

    /// Sets the permits per second, for waiting callers as well. Credit up to now is computed with the old capacity,
    /// and credit beyond the new burst is dropped. Without capacity no caller is admitted, even if there is credit; an
    /// unlimited capacity admits all callers at once. Less than 1e-12 per second counts as none.
    pub fn set_capacity(&self, capacity: Capacity) {
        self.semaphore.set_capacity(capacity);
    }

    /// As [`set_capacity`](RateLimiter::set_capacity), with the burst set by the server.
    pub(crate) fn set(&self, capacity: Capacity, buffer: Option<Duration>) {
        self.semaphore.change(|bucket, now| bucket.set(now, capacity, buffer));
    }

    /// Changes the length of the window.
    pub(crate) fn set_window(&self, length: Duration) {
        self.semaphore.change(|meter, now| meter.set_window(now, length));
    }

    /// The permits in use, per second of the window that slides; else 0.
    pub(crate) fn used(&self) -> f64 {
        self.read(|state, now| state.meter.used(now))
    }

    /// The capacity in use beyond the lease, if a window slides; else 0.
    pub(crate) fn outstanding(&self) -> f64 {
        self.read(|state, now| state.meter.outstanding(now))
    }

    /// The time until `n` permits are available, if nobody else takes any. `None` if that does not depend on time.
    pub fn ready_in(&self, n: u32) -> Option<Duration> {
        self.read(|state, now| state.meter.ready_in(now, n.into())).map(Duration::from_nanos)
    }

    /// The current capacity.
    pub fn capacity(&self) -> Capacity {
        self.semaphore.meter(Meter::capacity)
    }

    /// Waits for one permit. See [`wait_many`](RateLimiter::wait_many).
    pub async fn wait(&self) -> Result<(), Closed> {
        self.wait_many(1).await
    }

    /// Waits for `n` permits and takes them together. Meanwhile no caller behind this one is admitted, so small
    /// requests do not starve a large one. Participates in tokio's cooperative scheduling even if it does not have to
    /// wait.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue and takes nothing.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait outside of a tokio runtime with its timer enabled.
    pub async fn wait_many(&self, n: u32) -> Result<(), Closed> {
        consume_budget().await;
        self.semaphore.acquire(n).await
    }

    /// Takes `n` permits if they are available and no caller waits. Refused permits count as
    /// [`arrived`](RateLimiter::arrived), too, because they are demand.
    pub fn try_acquire(&self, n: u32) -> Result<(), TryError> {
        self.semaphore.try_acquire(n)
    }

    /// Charges `n` permits that were already used. They are taken from the available credit, including credit saved for
    /// a waiting caller; the rest becomes debt. No caller is admitted before the debt is paid.
    ///
    /// # Errors
    ///
    /// The part beyond the [maximum debt](RateLimiter::set_max_debt) is dropped; the error says how much.
    pub fn charge(&self, n: u64) -> Result<(), DebtExceeded> {
        let (charged, max_debt) = self.semaphore.with(|state, now, deferred| {
            // First come, first served: the charge does not delay waiters that are already due.
            state.admit(now, deferred);
            let before = state.pending(now);
            let charged = state.meter.charge(now, n);
            // A charge is demand, like a request.
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

    /// Returns `n` permits that were taken and not used. The limiter assumes that they are those taken last, and
    /// returns at most as many as were taken. They pay debt first.
    ///
    /// Credit becomes what it would be without the taking. After the burst has refilled, a refund changes nothing, so
    /// refunds never let more through than capacity and burst allow. To return permits that were taken at a certain time,
    /// [reserve](RateLimiter::reserve) them.
    pub fn refund(&self, n: u64) {
        self.semaphore.with(|state, now, deferred| {
            let refunded = state.meter.refund(now, n);
            state.refunded = state.refunded.saturating_add(refunded);
            state.admit_and_wake(now, deferred);
        });
    }

    /// Waits for `n` permits as [`wait_many`](RateLimiter::wait_many) does, for work whose cost is known only at its
    /// end.
    ///
    /// Unused permits are returned only if the burst has had room for them ever since. So the burst should be at least
    /// as large as a reservation.
    pub async fn reserve(&self, n: u32) -> Result<RateReservation, Closed> {
        self.wait_many(n).await?;
        Ok(self.reserve_taken(n))
    }

    /// Turns the `n` permits that were just taken into a reservation.
    pub(super) fn reserve_taken(&self, n: u32) -> RateReservation {
        self.reservation(self.semaphore.with(|state, _, _| state.meter.promise(n)))
    }

    /// Reserves `n` permits if they are available and no caller waits.
    pub fn try_reserve(&self, n: u32) -> Result<RateReservation, TryError> {
        let reserved = self.semaphore.with(|state, now, deferred| {
            state.try_acquire(now, n, deferred)?;
            Ok(state.meter.promise(n))
        });
        reserved.map(|promise| self.reservation(promise))
    }

    fn reservation(&self, promise: Promise) -> RateReservation {
        RateReservation { limiter: self.clone(), promise, settled: false }
    }

    /// Ends a promise: returns unused permits, and charges usage beyond it.
    fn settle(&self, promise: Promise, used: u64) -> Result<(), DebtExceeded> {
        let kept = u32::try_from(used).unwrap_or(u32::MAX).min(promise.n);
        self.semaphore.with(|state, now, deferred| {
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

    /// Sets the maximum debt (default 1,000,000). Existing debt stays.
    pub fn set_max_debt(&self, permits: u64) {
        self.semaphore.change(|bucket, _| bucket.set_max_debt(permits));
    }

    /// The current debt in permits, rounded up.
    pub fn debt(&self) -> u64 {
        self.read(|state, now| state.meter.owed(now))
    }

    /// Whole permits available without waiting; 0 while a caller waits.
    pub fn available(&self) -> u64 {
        self.read(|state, now| match state.has_waiters() {
            true => 0,
            false => state.meter.available(now).saturating_sub(state.reserved),
        })
    }

    /// Closes the limiter: waiting and new callers get [`Closed`].
    pub fn close(&self) {
        self.semaphore.close();
    }

    /// Permits requested so far: granted, waited for, cancelled, refused, or charged.
    pub fn arrived(&self) -> u64 {
        self.semaphore.arrived()
    }

    /// A reading for an estimate of demand.
    pub fn sample(&self) -> Sample {
        self.read(|state, now| Sample {
            count: state.arrived,
            freely: state.arrived_freely,
            refunded: state.refunded,
            waiting: state.pending(now),
            queued: state.queued(now),
            capacity: state.meter.capacity().get(),
        })
    }

    /// Permits that were refused so far: neither granted nor still waited for.
    pub(crate) fn refused(&self) -> u64 {
        self.read(|state, _| {
            let queued = state.waiting + state.reserved;
            state.arrived.saturating_sub(state.meter.taken() + state.refunded + queued)
        })
    }

    /// Permits taken and not refunded so far.
    pub fn taken(&self) -> u64 {
        self.semaphore.taken()
    }

    /// Total time in which the burst was not full, that is, in which the capacity was in use.
    pub fn recharging(&self) -> Duration {
        Duration::from_nanos(self.read(|state, now| state.meter.recharging(now)))
    }

    /// Permits that callers wait for now.
    pub fn waiting(&self) -> u64 {
        self.semaphore.waiting()
    }

    fn read<R>(&self, read: impl FnOnce(&mut SemaphoreState<RateMeter>, Nanos) -> R) -> R {
        let now = self.semaphore.now();
        read(&mut self.semaphore.lock(), now)
    }
}

/// Permits of a rate taken in advance, of which unused ones can be returned. If it is dropped without being settled,
/// all of them count as used.
#[derive(Debug)]
#[must_use = "a reservation that is dropped counts as used in full: settle it"]
pub struct RateReservation {
    limiter: RateLimiter,
    promise: Promise,
    settled: bool,
}

impl RateReservation {
    /// The number of permits taken.
    pub fn reserved(&self) -> u32 {
        self.promise.n
    }

    /// Ends the reservation: `used` permits were used. Returns the unused ones, up to the credit that the limiter would
    /// have if they had never been taken. [Charges](RateLimiter::charge) usage beyond the reservation.
    pub fn settle(mut self, used: u64) -> Result<(), DebtExceeded> {
        self.settled = true;
        self.limiter.settle(self.promise, used)
    }
}

impl Drop for RateReservation {
    fn drop(&mut self) {
        if !self.settled {
            // Settling for the promised number charges nothing, so this cannot fail.
            let _ = self.limiter.settle(self.promise, u64::from(self.promise.n));
        }
    }
}

#[cfg(test)]
mod tests;
