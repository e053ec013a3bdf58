//! Why a limiter refuses a caller.

use std::time::Duration;

/// The limiter was closed; nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the limiter was closed")]
pub struct Closed;

/// Why a permit is not available now. Nothing was taken, and the caller was not queued.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum TryError {
    /// Other callers are waiting, or the capacity does not allow it yet.
    #[error("no permit is free now")]
    NotNow {
        /// When the permits would be available if nothing changes. `None` if that is unknown: there is no capacity, or
        /// it depends on when others return their permits.
        retry_after: Option<Duration>,
    },
    /// More permits than can ever be available at once at the current capacity. A caller that waits at a rate can get
    /// them nevertheless.
    #[error("more than the {burst} that can be available at once")]
    TooMany {
        /// The maximum: the burst of a rate, or the capacity of a gauge.
        burst: f64,
    },
    /// The limiter was closed.
    #[error("the limiter was closed")]
    Closed,
}

/// A charge exceeded the maximum debt. The part up to the maximum was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("maximum debt of {max_debt} exceeded: {uncharged} permits were not charged")]
pub struct DebtExceeded {
    /// Permits that were not charged.
    pub uncharged: u64,
    /// The maximum debt.
    pub max_debt: u64,
}

impl From<Closed> for TryError {
    fn from(_: Closed) -> TryError {
        TryError::Closed
    }
}
