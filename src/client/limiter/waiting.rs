//! Limiters with a queue in front of them.

use std::time::Duration;

mod count;
mod gauge;
mod pressure;
mod queue;
mod rate;
mod reservation;
mod semaphore;
#[cfg(test)]
mod tests;

pub use self::{
    gauge::{GaugeLimiter, GaugePermit},
    rate::RateLimiter,
    reservation::RateReservation,
};

/// The limiter was closed; nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the limiter was closed")]
pub struct Closed;

/// Why there is no permit at once. Nothing was taken, and the caller does not stand in state.
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
