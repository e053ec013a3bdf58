//! The limiter of a rate.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Notify, task::coop::consume_budget};

use crate::{
    limiter::{Bucket, Burst, Closed, DebtExceeded, Meter, Promise, Standing, TryError, waiting::semaphore::Semaphore},
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
    semaphore: Arc<Semaphore<Bucket>>,
}

impl RateLimiter {
    /// A limiter that admits no caller before the first [`set_capacity`](RateLimiter::set_capacity).
    pub fn new(burst: Burst) -> RateLimiter {
        RateLimiter { semaphore: Arc::new(Semaphore::new(Bucket::new(burst), None)) }
    }

    /// As `new`. `on_pressure` is notified (with `notify_one`) when a caller has to queue or debt arises, and each time
    /// the number of pending permits has doubled since.
    pub fn with_pressure(burst: Burst, on_pressure: Arc<Notify>) -> RateLimiter {
        RateLimiter { semaphore: Arc::new(Semaphore::new(Bucket::new(burst), Some(on_pressure))) }
    }

    /// As `with_pressure`, with the burst available as soon as there is capacity.
    pub(crate) fn full(burst: Burst, on_pressure: Arc<Notify>) -> RateLimiter {
        RateLimiter { semaphore: Arc::new(Semaphore::new(Bucket::full(burst), Some(on_pressure))) }
    }

    /// The current state.
    pub fn standing(&self) -> Standing {
        self.semaphore.standing()
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

    /// Changes the burst.
    pub(crate) fn set_burst(&self, burst: Burst) {
        self.semaphore.change(|bucket, now| bucket.set_burst(now, burst));
    }

    /// The current capacity.
    pub fn capacity(&self) -> Capacity {
        self.semaphore.meter(Meter::capacity)
    }

    /// Waits for one permit. See [`wait_many`](RateLimiter::wait_many).
    pub async fn wait(&self) -> Result<(), Closed> {
        self.wait_many(1).await
    }

    /// Waits for `n` permits at once. Callers behind this one get none meanwhile, so a large request is not starved by
    /// small ones. Participates in tokio's cooperative scheduling even if it does not have to wait.
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

    /// Charges `n` permits that were used already. They are taken from the available credit, including credit saved for
    /// a waiting caller; the rest becomes debt. No caller is admitted before the debt is paid.
    ///
    /// # Errors
    ///
    /// The part beyond the [maximum debt](RateLimiter::set_max_debt) is dropped; the error says how much.
    pub fn charge(&self, n: u64) -> Result<(), DebtExceeded> {
        self.semaphore.charge(n)
    }

    /// Returns `n` permits that were taken and not used. The limiter assumes that they are those taken last, and
    /// returns at most as many as were taken. They pay debt first.
    ///
    /// It returns as many permits as would be available now had they never been taken. This may be less than `n`, and
    /// is 0 once the burst has filled up again, because then it would have filled up without them, too. So refunds
    /// never let more through than capacity and burst allow. To return permits that were taken at a certain time,
    /// [reserve](RateLimiter::reserve) them.
    pub fn refund(&self, n: u64) {
        self.semaphore.refund(n);
    }

    /// Waits for `n` permits as [`wait_many`](RateLimiter::wait_many) does, for work whose cost is known only at its
    /// end.
    ///
    /// Unused permits are returned as far as the burst has had room for them since, so the burst should be at least as
    /// large as a reservation.
    pub async fn reserve(&self, n: u32) -> Result<RateReservation, Closed> {
        self.wait_many(n).await?;
        Ok(RateReservation::new(Arc::clone(&self.semaphore), self.semaphore.promise(n)))
    }

    /// Reserves `n` permits if they are available and no caller waits.
    pub fn try_reserve(&self, n: u32) -> Result<RateReservation, TryError> {
        self.semaphore.try_reserve(n).map(|promise| RateReservation::new(Arc::clone(&self.semaphore), promise))
    }

    /// Sets the maximum debt (default 1,000,000). Existing debt stays.
    pub fn set_max_debt(&self, permits: u64) {
        self.semaphore.change(|bucket, _| bucket.set_max_debt(permits));
    }

    /// The current debt in permits, rounded up.
    pub fn debt(&self) -> u64 {
        self.semaphore.owed()
    }

    /// Whole permits available without waiting; 0 while a caller waits.
    pub fn available(&self) -> u64 {
        self.semaphore.available()
    }

    /// Closes the limiter: waiting and new callers get [`Closed`].
    pub fn close(&self) {
        self.semaphore.close();
    }

    /// Permits requested so far: granted, waited for, cancelled, refused, or charged.
    pub fn arrived(&self) -> u64 {
        self.semaphore.arrived()
    }

    /// Permits requested so far while no caller waited.
    pub fn arrived_freely(&self) -> u64 {
        self.semaphore.arrived_freely()
    }

    /// Permits returned unused so far, including those that could be made available again in part only.
    pub fn refunded(&self) -> u64 {
        self.semaphore.refunded()
    }

    /// Permits requested so far that were neither granted nor are still waited for.
    pub(crate) fn refused(&self) -> u64 {
        self.semaphore.refused()
    }

    /// Permits taken and not refunded so far.
    pub fn taken(&self) -> u64 {
        self.semaphore.taken()
    }

    /// Total time in which the burst was not full: the time in which the capacity was in use.
    pub fn recharging(&self) -> Duration {
        self.semaphore.recharging()
    }

    /// Total time in which callers were waiting.
    pub fn queued(&self) -> Duration {
        self.semaphore.queued()
    }

    /// Permits that are waited for now.
    pub fn waiting(&self) -> u64 {
        self.semaphore.waiting()
    }
}

/// Permits of a rate taken in advance, of which unused ones can be returned. If it is dropped without being settled,
/// all of them count as used.
#[derive(Debug)]
#[must_use = "a reservation that is dropped counts as used in full: settle it"]
pub struct RateReservation {
    semaphore: Arc<Semaphore<Bucket>>,
    promise: Promise,
    settled: bool,
}

impl RateReservation {
    pub(super) fn new(semaphore: Arc<Semaphore<Bucket>>, promise: Promise) -> RateReservation {
        RateReservation { semaphore, promise, settled: false }
    }

    /// The number of permits taken.
    pub fn reserved(&self) -> u32 {
        self.promise.n
    }

    /// Settles for `used` permits. The rest is returned: as much of it as would be available now had it never been
    /// taken. Usage beyond the reservation is [charged](crate::limiter::RateLimiter::charge).
    pub fn settle(mut self, used: u64) -> Result<(), DebtExceeded> {
        self.settled = true;
        self.semaphore.settle(self.promise, used)
    }
}

impl Drop for RateReservation {
    fn drop(&mut self) {
        if !self.settled {
            // Settling for the promised number charges nothing, so this cannot fail.
            let _ = self.semaphore.settle(self.promise, u64::from(self.promise.n));
        }
    }
}

#[cfg(test)]
mod tests;
