//! How much unused capacity of a rate may be saved up.

use std::time::Duration;

use leaseway_session::Capacity;

/// How late a waiter may be woken without any capacity being lost. tokio's timer wakes one to two milliseconds late,
/// and a busy machine later still. Measured on two cores, which the load of a million per
/// second alone can fill: with 5 ms a run at 20,000/s lost a thirteenth and one at a million a sixth; with 10 ms the
/// worst lost a twentieth of a million; with 20 ms 20,000/s lost a thousandth, and the worst run a twenty-fifth of a
/// million.
const SMOOTH_SECONDS: f64 = 0.020;

/// How much of a rate's unused capacity may be used later, all at once.
///
/// In a pool (PRIORITY_POOL) the server says how much: `burst_seconds` of the capacity. While the lease of a pool is in
/// force that takes the place of [`Burst::Smooth`]; any other choice counts only where it is less.
///
/// In any span of T seconds a limiter admits at most capacity · T + burst. The burst is at least one permit, and at
/// least the largest number that a caller waits for at once: one that waits for more than the burst is admitted when it
/// has been paid for in full.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Burst {
    /// One permit and what 20 ms bring: as even as timers allow without losing any capacity to them.
    #[default]
    Smooth,
    /// What the capacity brings in so long a time: for budgets of so much per second, per minute, per day. When the
    /// capacity is cut, what is saved is cut to what the new one brings. So limiters that share a capacity never have
    /// more saved, together, than it brings in that time.
    Window(Duration),
    /// So many permits. With fewer than what comes in while a timer is late (about 2 ms) the full capacity is not
    /// reached.
    Permits(f64),
}

impl Burst {
    /// The permits that may be saved up at this capacity: at least one, and without limit if the capacity is.
    pub fn permits(self, capacity: Capacity) -> f64 {
        let permits = match self {
            Burst::Smooth => 1.0 + capacity.get() * SMOOTH_SECONDS,
            // Unlimited for no time at all is no number, and one permit.
            Burst::Window(window) => capacity.get() * window.as_secs_f64(),
            Burst::Permits(_) if capacity.is_unlimited() => f64::INFINITY,
            Burst::Permits(permits) => permits,
        };
        // `max` also turns NaN into one.
        permits.max(1.0)
    }

    /// The same where a server lets so much time of the capacity be saved up: that, but for a caller that has chosen to
    /// save up less; and never less than timers need.
    pub(crate) fn within(self, capacity: Capacity, buffer: Option<Duration>) -> f64 {
        let Some(buffer) = buffer else { return self.permits(capacity) };
        let buffer = (capacity.get() * buffer.as_secs_f64()).max(Burst::Smooth.permits(capacity));
        // Without limit nothing has to be saved up.
        if self == Burst::Smooth || capacity.is_unlimited() { buffer } else { buffer.min(self.permits(capacity)) }
    }
}
