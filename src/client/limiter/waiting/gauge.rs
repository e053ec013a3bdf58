//! So many at the same time.

use std::sync::Arc;

use tokio::{sync::Notify, task::coop::consume_budget};

use crate::{
    limiter::{
        Closed, Meter, TryError,
        waiting::{count::Count, semaphore::Semaphore},
    },
    session::Capacity,
};

/// Lets callers through as long as no more permits are in use than the capacity, rounded down.
///
/// After a cut no caller is let through until enough have been returned. Clones are the same limiter.
#[derive(Debug, Clone)]
pub struct GaugeLimiter {
    semaphore: Arc<Semaphore<Count>>,
}

/// Permits in use. Dropping it returns them.
#[derive(Debug)]
#[must_use = "a permit that is dropped is returned"]
pub struct GaugePermit {
    semaphore: Arc<Semaphore<Count>>,
    n: u32,
}

impl GaugeLimiter {
    /// Blocked until the first [`set_capacity`](GaugeLimiter::set_capacity).
    pub fn new() -> GaugeLimiter {
        GaugeLimiter { semaphore: Arc::new(Semaphore::new(Count::new(), None)) }
    }

    /// As `new`; `on_pressure` is notified (one waiter, or the next to come) when a caller has to queue and none did,
    /// and each time the queue has doubled since.
    pub fn with_pressure(on_pressure: Arc<Notify>) -> GaugeLimiter {
        GaugeLimiter { semaphore: Arc::new(Semaphore::new(Count::new(), Some(on_pressure))) }
    }

    /// How many may be in use from now on.
    pub fn set_capacity(&self, capacity: Capacity) {
        self.semaphore.set_capacity(capacity);
    }

    /// The capacity last set.
    pub fn capacity(&self) -> Capacity {
        self.semaphore.meter(Meter::capacity)
    }

    /// Waits for one permit. See [`acquire_many`](GaugeLimiter::acquire_many).
    pub async fn acquire(&self) -> Result<GaugePermit, Closed> {
        self.acquire_many(1).await
    }

    /// Waits for `n` permits, all at once. No caller behind gets any meanwhile, also if the capacity is not large
    /// enough for `n` and has to grow first.
    ///
    /// To give up, drop the future; then nothing is in use.
    pub async fn acquire_many(&self, n: u32) -> Result<GaugePermit, Closed> {
        consume_budget().await;
        self.semaphore.acquire(n).await?;
        Ok(self.permit(n))
    }

    /// Takes `n` permits if they are there and no caller waits.
    pub fn try_acquire(&self, n: u32) -> Result<GaugePermit, TryError> {
        self.semaphore.try_acquire(n)?;
        Ok(self.permit(n))
    }

    fn permit(&self, n: u32) -> GaugePermit {
        GaugePermit { semaphore: self.semaphore.clone(), n }
    }

    /// Callers that wait, and those that come, are told [`Closed`]. Permits stay good, and are returned as ever.
    /// Closing again changes nothing.
    pub fn close(&self) {
        self.semaphore.close();
    }

    /// Permits in use now.
    pub fn in_use(&self) -> u64 {
        self.semaphore.meter(Meter::in_use)
    }

    /// Permits waited for now.
    pub fn waiting(&self) -> u64 {
        self.semaphore.waiting()
    }

    /// The most permits that were in use, waited for and just tried for, together, since the last call of this. It does
    /// not miss what came and went between two looks at [`in_use`](GaugeLimiter::in_use); there should be one caller.
    pub fn take_peak(&self) -> u64 {
        self.semaphore.take_peak()
    }

    /// Permits asked for, ever: by those that were let through, that wait, that gave up and that only tried.
    pub fn arrived(&self) -> u64 {
        self.semaphore.arrived()
    }

    /// Permits taken, ever.
    pub fn taken(&self) -> u64 {
        self.semaphore.taken()
    }

    /// What the server has to be told: all permits in use if they are more than the capacity, which happens after a
    /// cut; otherwise none. The server counts the larger of this and the lease as held.
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

#[cfg(test)]
mod tests;
