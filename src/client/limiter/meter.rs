//! The interface between a semaphore and the capacity that it meters out.

use crate::session::Capacity;

/// Nanoseconds since the limiter was created.
pub type Nanos = u64;

/// Not enough permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Time until there are enough, if nothing changes; `None` if that does not depend on time.
    pub ready_in: Option<Nanos>,
}

/// Permits that were taken for a waiter or a reservation, and may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// The number of permits.
    pub n: u32,
    /// The meter's era in which the promise was made.
    pub era: u64,
}

/// Decides when permits are available. The two kinds of limiter differ in their meter; the queue of waiters is the
/// semaphore's.
///
/// Permits are reserved for a waiter before its future is polled, and returned if the future is dropped first. Until
/// then they are a [`Promise`], as are those of a reservation until it is settled.
pub trait Meter {
    /// Whether permits become available with time. If not, no clock is read and no timer set.
    const TIMED: bool;

    /// The current capacity.
    fn capacity(&self) -> Capacity;

    /// Permits in use that will be returned; 0 for a rate.
    fn in_use(&self) -> u64 {
        0
    }

    /// Changes the capacity.
    fn set_capacity(&mut self, now: Nanos, capacity: Capacity);

    /// Whether `n` permits are available beyond `reserved` ones. Takes nothing.
    fn check(&mut self, now: Nanos, reserved: u64, n: u64) -> Result<(), Shortage>;

    /// Takes `n` permits, or none.
    fn take(&mut self, now: Nanos, n: u32) -> Result<(), Shortage>;

    /// Time until `permits` are available, if nothing else is taken.
    fn ready_in(&mut self, _now: Nanos, _permits: u64) -> Option<Nanos> {
        None
    }

    /// The maximum number of permits that can be available at once; `None` without capacity.
    fn max_at_once(&self) -> Option<f64>;

    /// The head of the queue needs `n` permits: save up for it.
    fn save_for(&mut self, _now: Nanos, _n: u32) {}

    /// The head of the queue has left.
    fn stop_saving(&mut self, _now: Nanos) {}

    /// Turns the `n` permits that were just taken into a promise.
    fn promise(&mut self, n: u32) -> Promise;

    /// Ends a promise whose permits are used.
    fn claim(&mut self, _promise: Promise) {}

    /// Permits taken and not returned so far.
    fn taken(&self) -> u64;

    /// Ends a promise whose permits are not used.
    fn hand_back(&mut self, now: Nanos, promise: Promise);

    /// Debt in permits. No caller is admitted before it is paid.
    fn owed(&mut self, _now: Nanos) -> u64 {
        0
    }
}
