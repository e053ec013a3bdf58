//! Bursts: how much unused capacity a rate may save up.

use std::time::Duration;

use crate::session::Capacity;

/// How late a waiter may be woken without losing capacity. tokio's timer is one to two milliseconds late, and later
/// still on a busy machine. With 5 ms a limiter at 20,000/s was measured to lose 8 % of its capacity, with 20 ms 0.1 %.
const SMOOTH_SECONDS: f64 = 0.020;

/// How much unused capacity a rate may save up and use at once.
///
/// In any period of T seconds a limiter admits at most capacity · T + burst. The burst is at least one permit. A caller
/// that waits for more permits than the burst is admitted once all of them are saved up.
///
/// In a pool (PRIORITY_POOL) the server sets the burst, with `burst_seconds`. While the lease of a pool is in force,
/// that replaces [`Burst::Smooth`], and bounds the other choices.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Burst {
    /// One permit plus 20 ms of capacity: as smooth as timers allow without losing capacity.
    #[default]
    Smooth,
    /// The capacity of this duration, for budgets per second, per minute or per day. When the capacity is cut, saved
    /// permits are cut in proportion, so limiters that share a capacity never save up more than it provides in total.
    Window(Duration),
    /// A fixed number of permits. With less than about 2 ms of capacity, late timers keep a limiter below its capacity.
    Permits(f64),
}

impl Burst {
    /// The number of permits that may be saved up at this capacity: at least one, unlimited if the capacity is.
    pub fn permits(self, capacity: Capacity) -> f64 {
        let permits = match self {
            Burst::Smooth => 1.0 + capacity.get() * SMOOTH_SECONDS,
            // An unlimited capacity with a window of zero is NaN.
            Burst::Window(window) => capacity.get() * window.as_secs_f64(),
            Burst::Permits(_) if capacity.is_unlimited() => f64::INFINITY,
            Burst::Permits(permits) => permits,
        };
        // `max` also turns NaN into one.
        permits.max(1.0)
    }

    /// As [`permits`](Self::permits), if the server sets the burst to `buffer`: a smaller choice of the owner counts,
    /// but never less than timers need.
    pub(crate) fn within(self, capacity: Capacity, buffer: Option<Duration>) -> f64 {
        let Some(buffer) = buffer else { return self.permits(capacity) };
        let buffer = (capacity.get() * buffer.as_secs_f64()).max(Burst::Smooth.permits(capacity));
        // An unlimited capacity needs no savings.
        if self == Burst::Smooth || capacity.is_unlimited() { buffer } else { buffer.min(self.permits(capacity)) }
    }
}
