//! Limiters: they let callers through as fast as a capacity allows, or as many at a time.
//!
//! They know neither leases nor networks. Their owner calls `set_capacity`; until then no caller is let
//! through. [`RateLimiter`] is for capacities per second, [`GaugeLimiter`] for things in use at the same time.
//!
//! Both keep one line: first come, first served. No caller overtakes one that waits, not even with `try_acquire`, and
//! one that asks for much cannot be starved by many that ask for little. To stop waiting, drop the future: no permit is
//! lost.
//!
//! There is no task and no thread behind a limiter: the future at the head of the line keeps the time for all. So a
//! future that waits has to be polled or dropped. One that is kept and not polled holds up those behind it, until the
//! next caller comes and sees that it is late.
//!
//! What something costs may be known only afterwards. So a rate can be [charged](RateLimiter::charge) for what was used
//! already, and owes what is not there: that is paid back before it lets any caller through, those that wait included.
//! And what was not needed can be given back, best with a [reservation](RateReservation).
//!
//! Waiting for a rate needs a tokio runtime with its timer on; a free permit needs none.

use std::time::Duration;

mod count;
mod gate;
mod gauge;
mod pressure;
mod queue;
mod rate;
mod reservation;
#[cfg(test)]
mod tests;

pub use leaseway_limiter::{Burst, Standing};

pub use gauge::{GaugeLimiter, GaugePermit};
pub use rate::RateLimiter;
pub use reservation::RateReservation;

/// The limiter was closed; nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the limiter was closed")]
pub struct Closed;

/// Why there is no permit at once. Nothing was taken, and the caller does not stand in line.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum TryError {
    /// Others come first, or the capacity does not allow it yet.
    #[error("no permit is free now")]
    NotNow {
        /// When it would be the caller's turn if nothing changes and none gives up; `None` if that cannot be known:
        /// there is no capacity, or it depends on when others return what they have.
        retry_after: Option<Duration>,
    },
    /// So many are never there at once while the capacity is what it is. Those that wait for a rate can have them all
    /// the same.
    #[error("more than the {burst} that can be had at once")]
    TooMany {
        /// The most that can be: the burst of a rate, the whole permits of a gauge.
        burst: f64,
    },
    /// The limiter was closed.
    #[error("the limiter was closed")]
    Closed,
}

/// More was charged than may be owed. As much as may be was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no more than {max_debt} may be owed: {uncharged} of what was used count for nothing")]
pub struct DebtExceeded {
    /// Permits that were used and are not paid for.
    pub uncharged: u64,
    /// What may be owed.
    pub max_debt: u64,
}

impl From<Closed> for TryError {
    fn from(_: Closed) -> TryError {
        TryError::Closed
    }
}
