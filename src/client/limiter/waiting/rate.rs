//! So many per second.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Notify, task::coop::consume_budget};

use crate::{
    limiter::{
        Bucket, Burst, Closed, DebtExceeded, Meter, RateReservation, Standing, TryError, waiting::semaphore::Semaphore,
    },
    session::Capacity,
};

/// Lets callers through at a rate.
///
/// Exact: in any span of T seconds at most capacity · T + [burst](Burst) permits are taken, and at most what is owed at
/// its end besides, where callers are [charged](RateLimiter::charge) for what they have used. Work-conserving: as long
/// as a caller waits, no capacity is lost, unless timers and tasks are later than the burst allows for. It starts
/// without capacity and without credit, so that a process that is started again and again gains nothing by it.
///
/// Clones are the same limiter.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    semaphore: Arc<Semaphore<Bucket>>,
}

impl RateLimiter {
    /// Blocked until the first [`set_capacity`](RateLimiter::set_capacity).
    pub fn new(burst: Burst) -> RateLimiter {
        RateLimiter { semaphore: Arc::new(Semaphore::new(Bucket::new(burst), None)) }
    }

    /// As `new`; `on_pressure` is notified (one waiter, or the next to come) when a caller has to queue and none did,
    /// and each time the queue has doubled since.
    pub fn with_pressure(burst: Burst, on_pressure: Arc<Notify>) -> RateLimiter {
        RateLimiter { semaphore: Arc::new(Semaphore::new(Bucket::new(burst), Some(on_pressure))) }
    }

    /// As `with_pressure`; once there is capacity, all that may be saved up is there.
    pub(crate) fn full(burst: Burst, on_pressure: Arc<Notify>) -> RateLimiter {
        RateLimiter { semaphore: Arc::new(Semaphore::new(Bucket::full(burst), Some(on_pressure))) }
    }

    /// What could be had now.
    pub fn standing(&self) -> Standing {
        self.semaphore.standing()
    }

    /// Permits per second from now on, also for those that wait already. Up to now the old capacity counts. What was
    /// saved beyond the new burst is lost. Without capacity none is let through, even if some was saved; unlimited lets
    /// all through at once. Less than 1e-12 per second is none.
    pub fn set_capacity(&self, capacity: Capacity) {
        self.semaphore.set_capacity(capacity);
    }

    /// As [`set_capacity`](RateLimiter::set_capacity), where a server lets so much time of it be saved up.
    pub(crate) fn set(&self, capacity: Capacity, buffer: Option<Duration>) {
        self.semaphore.change(|bucket, now| bucket.set(now, capacity, buffer));
    }

    /// Saves up so much from now on.
    pub(crate) fn set_burst(&self, burst: Burst) {
        self.semaphore.change(|bucket, now| bucket.set_burst(now, burst));
    }

    /// The capacity last set.
    pub fn capacity(&self) -> Capacity {
        self.semaphore.meter(Meter::capacity)
    }

    /// Waits for one permit. See [`wait_many`](RateLimiter::wait_many).
    pub async fn wait(&self) -> Result<(), Closed> {
        self.wait_many(1).await
    }

    /// Waits for `n` permits, all at once. No caller behind gets any meanwhile, so that many permits are not starved by
    /// few.
    ///
    /// To give up, drop the future; then nothing was taken. A task that never has to wait still lets others run now and
    /// then.
    ///
    /// # Panics
    ///
    /// If it has to wait, and not in a tokio runtime whose timer is on.
    pub async fn wait_many(&self, n: u32) -> Result<(), Closed> {
        consume_budget().await;
        self.semaphore.acquire(n).await
    }

    /// Takes `n` permits if they are there and no caller waits. A refusal also counts as
    /// [`arrived`](RateLimiter::arrived): it was asked for and would have been used.
    pub fn try_acquire(&self, n: u32) -> Result<(), TryError> {
        self.semaphore.try_acquire(n)
    }

    /// `n` permits have been used already. They are taken now: of what is there, also if it is being saved for a caller
    /// that waits, and for the rest the limiter goes into debt. It lets none through before that is paid back.
    ///
    /// Of what goes beyond the [bound](RateLimiter::set_max_debt) nothing is remembered; the error says how much.
    pub fn charge(&self, n: u64) -> Result<(), DebtExceeded> {
        self.semaphore.charge(n)
    }

    /// `n` permits were taken and not used; the limiter takes that to be those that were taken last, and no more than
    /// were taken at all. Debt is paid with them first.
    ///
    /// What comes back is what there would be now if they had not been taken, which may be less than `n`: nothing, once
    /// the burst has filled up again, for without them it would have filled up as well. So what is let through, less
    /// what was refunded of what was taken last, is never more than capacity and burst allow. To give back what was
    /// taken at a certain time, [reserve](RateLimiter::reserve) it.
    pub fn refund(&self, n: u64) {
        self.semaphore.refund(n);
    }

    /// Waits for `n` permits as [`wait_many`](RateLimiter::wait_many) does, for something of which only its end will
    /// show what it takes.
    ///
    /// What is settled with less comes back as far as the burst has had room for it since: it should be at least as
    /// large as what is reserved at once.
    pub async fn reserve(&self, n: u32) -> Result<RateReservation, Closed> {
        self.wait_many(n).await?;
        Ok(RateReservation::new(Arc::clone(&self.semaphore), self.semaphore.promise(n)))
    }

    /// Reserves `n` permits if they are there and no caller waits.
    pub fn try_reserve(&self, n: u32) -> Result<RateReservation, TryError> {
        self.semaphore.try_reserve(n).map(|promise| RateReservation::new(Arc::clone(&self.semaphore), promise))
    }

    /// So much may be owed at most (1,000,000). What is owed already stays.
    pub fn set_max_debt(&self, permits: u64) {
        self.semaphore.change(|bucket, _| bucket.set_max_debt(permits));
    }

    /// Permits owed now, a fraction of one as a whole one.
    pub fn debt(&self) -> u64 {
        self.semaphore.owed()
    }

    /// Whole permits that could be had now without waiting; none while a caller waits.
    pub fn available(&self) -> u64 {
        self.semaphore.available()
    }

    /// Callers that wait, and those that come, are told [`Closed`]. Closing again changes nothing.
    pub fn close(&self) {
        self.semaphore.close();
    }

    /// Permits asked for, ever: by those that were let through, that wait, that gave up and that only tried; and those
    /// that were charged.
    pub fn arrived(&self) -> u64 {
        self.semaphore.arrived()
    }

    /// Permits asked for while no caller waited, ever.
    pub fn arrived_freely(&self) -> u64 {
        self.semaphore.arrived_freely()
    }

    /// Permits that were taken and came back unused, ever; also those of which only a part could be had again.
    pub fn refunded(&self) -> u64 {
        self.semaphore.refunded()
    }

    /// Permits asked for that were not let through and do not wait any more, ever.
    pub(crate) fn refused(&self) -> u64 {
        self.semaphore.refused()
    }

    /// Permits taken and not refunded, ever.
    pub fn taken(&self) -> u64 {
        self.semaphore.taken()
    }

    /// For how long some of the burst was missing, ever: the part of the time in which the capacity was in use.
    pub fn recharging(&self) -> Duration {
        self.semaphore.recharging()
    }

    /// For how long there have been callers waiting, ever: how much of the time the capacity is what holds callers up.
    pub fn queued(&self) -> Duration {
        self.semaphore.queued()
    }

    /// Permits waited for now.
    pub fn waiting(&self) -> u64 {
        self.semaphore.waiting()
    }
}

#[cfg(test)]
mod tests;
