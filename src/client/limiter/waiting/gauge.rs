//! The limiter of a gauge.

use std::sync::Arc;

use tokio::{sync::Notify, task::coop::consume_budget};

use crate::{
    limiter::{Closed, Meter, Nanos, Promise, Shortage, TryError, waiting::semaphore::Semaphore},
    session::Capacity,
};

/// Admits callers while fewer permits are in use than the capacity, rounded down.
///
/// After a cut no caller is admitted until enough permits were returned. Clones share the limiter.
#[derive(Debug, Clone)]
pub struct GaugeLimiter {
    pub(super) semaphore: Arc<Semaphore<PermitCount>>,
}

/// Permits in use. Dropping the value returns them.
#[derive(Debug)]
#[must_use = "a permit that is dropped is returned"]
pub struct GaugePermit {
    semaphore: Arc<Semaphore<PermitCount>>,
    n: u32,
}

impl GaugeLimiter {
    /// A limiter that admits no caller before the first [`set_capacity`](GaugeLimiter::set_capacity).
    pub fn new() -> GaugeLimiter {
        GaugeLimiter { semaphore: Arc::new(Semaphore::new(PermitCount::new(), None)) }
    }

    /// As `new`. `on_pressure` is notified (with `notify_one`) when a caller has to queue, and each time the queue has
    /// doubled since.
    pub fn with_pressure(on_pressure: Arc<Notify>) -> GaugeLimiter {
        GaugeLimiter { semaphore: Arc::new(Semaphore::new(PermitCount::new(), Some(on_pressure))) }
    }

    /// Sets the number of permits that may be in use.
    pub fn set_capacity(&self, capacity: Capacity) {
        self.semaphore.set_capacity(capacity);
    }

    /// The current capacity.
    pub fn capacity(&self) -> Capacity {
        self.semaphore.meter(Meter::capacity)
    }

    /// Waits for one permit. See [`acquire_many`](GaugeLimiter::acquire_many).
    pub async fn acquire(&self) -> Result<GaugePermit, Closed> {
        self.acquire_many(1).await
    }

    /// Waits for `n` permits and takes them together. Meanwhile no caller behind this one is admitted, even if the
    /// capacity has to grow first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; no permit is lost.
    pub async fn acquire_many(&self, n: u32) -> Result<GaugePermit, Closed> {
        consume_budget().await;
        self.semaphore.acquire(n).await?;
        Ok(self.permit(n))
    }

    /// Takes `n` permits if they are available and no caller waits.
    pub fn try_acquire(&self, n: u32) -> Result<GaugePermit, TryError> {
        self.semaphore.try_acquire(n)?;
        Ok(self.permit(n))
    }

    /// The `n` permits that were just taken.
    pub(super) fn permit(&self, n: u32) -> GaugePermit {
        GaugePermit { semaphore: self.semaphore.clone(), n }
    }

    /// Closes the limiter: waiting and new callers get [`Closed`]. Permits in use stay valid.
    pub fn close(&self) {
        self.semaphore.close();
    }

    /// Permits in use now.
    pub fn in_use(&self) -> u64 {
        self.semaphore.meter(Meter::in_use)
    }

    /// Permits that callers wait for now.
    pub fn waiting(&self) -> u64 {
        self.semaphore.waiting()
    }

    /// The peak since the last call of the sum of permits in use, waited for and refused. Unlike
    /// [`in_use`](GaugeLimiter::in_use) it includes permits that were taken and returned between two calls. It resets
    /// the peak, so it should have one caller.
    pub fn take_peak(&self) -> u64 {
        self.semaphore.take_peak()
    }

    /// Permits requested so far: granted, waited for, cancelled, or refused.
    pub fn arrived(&self) -> u64 {
        self.semaphore.arrived()
    }

    /// Permits taken so far.
    pub fn taken(&self) -> u64 {
        self.semaphore.taken()
    }

    /// The amount to report to the server: all permits in use if they exceed the capacity, as after a cut, else 0.
    /// The server counts the larger of this and the lease as held.
    pub fn outstanding(&self) -> u64 {
        self.semaphore.meter(|count| if count.in_use() as f64 > count.capacity().get() { count.in_use() } else { 0 })
    }
}

impl Default for GaugeLimiter {
    fn default() -> GaugeLimiter {
        GaugeLimiter::new()
    }
}

impl Drop for GaugePermit {
    fn drop(&mut self) {
        self.semaphore.change(|count, _| count.give_back(self.n));
    }
}

/// Counts permits in use, promised ones included.
#[derive(Debug)]
pub(super) struct PermitCount {
    capacity: Capacity,
    in_use: u64,
    taken: u64,
}

impl PermitCount {
    /// A count without capacity.
    fn new() -> PermitCount {
        PermitCount { capacity: Capacity::NONE, in_use: 0, taken: 0 }
    }

    /// Returns permits.
    fn give_back(&mut self, n: u32) {
        debug_assert!(self.in_use >= u64::from(n), "permits are returned once");
        self.in_use = self.in_use.saturating_sub(u64::from(n));
    }

    /// The capacity in whole permits: 2.9 allows two.
    fn whole(&self) -> u64 {
        // The conversion truncates, and infinity becomes the largest integer.
        self.capacity.get() as u64
    }
}

impl Meter for PermitCount {
    const TIMED: bool = false;

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn in_use(&self) -> u64 {
        self.in_use
    }

    fn set_capacity(&mut self, _: Nanos, capacity: Capacity) {
        self.capacity = capacity;
    }

    fn check(&mut self, _: Nanos, reserved: u64, n: u64) -> Result<(), Shortage> {
        match self.in_use.saturating_add(reserved).saturating_add(n) > self.whole() {
            true => Err(Shortage { ready_in: None }),
            false => Ok(()),
        }
    }

    fn take(&mut self, _: Nanos, n: u32) -> Result<(), Shortage> {
        let in_use = self.in_use.saturating_add(u64::from(n));
        if in_use > self.whole() {
            return Err(Shortage { ready_in: None });
        }
        self.in_use = in_use;
        self.taken += u64::from(n);
        Ok(())
    }

    fn max_at_once(&self) -> Option<f64> {
        (self.whole() > 0).then(|| self.capacity.get().floor())
    }

    fn promise(&mut self, n: u32) -> Promise {
        Promise { n, era: 0 }
    }

    fn taken(&self) -> u64 {
        self.taken
    }

    fn hand_back(&mut self, _: Nanos, promise: Promise) {
        self.taken = self.taken.saturating_sub(u64::from(promise.n));
        self.give_back(promise.n);
    }
}

#[cfg(test)]
mod tests;
