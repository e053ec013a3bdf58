//! What the two kinds of limiter differ in: when a permit may be had.

use crate::session::Capacity;

/// Nanoseconds since the limiter was made. An hour has 3.6e12 of them; the counter lasts for centuries.
pub type Nanos = u64;

/// There is not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// How long until there is, if nothing changes; `None`: it does not come with time.
    pub ready_in: Option<Nanos>,
}

/// A promise of so many permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    pub n: u32,
    /// What the meter needs to know of when it was made.
    pub era: u64,
}

/// Decides whether permits may be had. It knows nothing of waiters; the line before it does.
///
/// A waiter gets its permits before it knows: they are *promised* until its future has been polled, and come back
/// if it is dropped before. So are those of a reservation until it is settled.
pub trait Meter {
    /// Whether permits come with time. If not, no clock is read and no timer set.
    const TIMED: bool;

    /// The capacity last set.
    fn capacity(&self) -> Capacity;

    /// Permits that are out and will come back. Those of a rate do not.
    fn in_use(&self) -> u64;

    /// From now on this capacity.
    fn set_capacity(&mut self, now: Nanos, capacity: Capacity);

    /// Takes `n` permits, or none.
    fn take(&mut self, now: Nanos, n: u32) -> Result<(), Shortage>;

    /// How long until `permits` could be had, if nothing else is taken.
    fn ready_in(&mut self, now: Nanos, permits: u64) -> Option<Nanos>;

    /// The most that can be had without waiting, or `None` while nothing can be had at all.
    fn max_at_once(&self) -> Option<f64>;

    /// The head of the line needs `n` and could not have them.
    fn save_for(&mut self, now: Nanos, n: u32);

    /// The head of the line has gone away.
    fn stop_saving(&mut self, now: Nanos);

    /// What was just taken is for a waiter that does not know it yet.
    fn promise(&mut self, n: u32) -> Promise;

    fn claim(&mut self, promise: Promise);

    /// Permits taken and not handed back, ever.
    fn taken(&self) -> u64;

    /// It has gone away instead.
    fn hand_back(&mut self, now: Nanos, promise: Promise);

    /// Permits that were used and not paid for yet. Nothing is let through before they are.
    fn owed(&mut self, now: Nanos) -> u64;
}
