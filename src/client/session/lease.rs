//! Leases and capacities.

use leaseway_core::{resource::BudgetLease, types::Millis};

/// An amount that may be used: finite and not negative, or unlimited. Never NaN.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Capacity(f64);

impl Capacity {
    /// Nothing may be used.
    pub const NONE: Capacity = Capacity(0.0);
    /// There is no limit.
    pub const UNLIMITED: Capacity = Capacity(f64::INFINITY);

    /// A finite capacity. Negative numbers and NaN count as 0: a bad number must never open a limiter.
    pub fn of(amount: f64) -> Capacity {
        // `max` also turns NaN into zero.
        Capacity(amount.max(0.0))
    }

    /// A safe capacity as sent by a server, where a negative number means unlimited.
    pub fn safe(amount: f64) -> Capacity {
        if amount < 0.0 { Capacity::UNLIMITED } else { Capacity::of(amount) }
    }

    /// The number; infinite if unlimited.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Whether there is no limit.
    pub fn is_unlimited(self) -> bool {
        self.0.is_infinite()
    }
}

/// A lease as its holder knows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lease {
    /// The amount that may be used.
    pub capacity: Capacity,
    /// The expiry, counted from when the request was sent: never later than the server believes.
    pub end: Millis,
    /// The refresh interval.
    pub refresh: Millis,
    /// The name of the lease; absent from servers that speak only the original protocol.
    pub token: Option<u64>,
    /// The fields that `has` echoes.
    pub wire: Wire,
    /// Budgets: the period. The capacity is what may be spent in it, in all.
    pub budget: Option<BudgetLease>,
}

impl Lease {
    /// Whether the lease has not expired at `now`.
    pub fn is_live(&self, now: Millis) -> bool {
        now < self.end
    }
}

/// The fields of a lease that are echoed exactly as they were received.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wire {
    /// Seconds since the epoch.
    pub expiry_time: i64,
    /// Seconds.
    pub refresh_interval: i64,
    /// The capacity.
    pub capacity: f64,
}

/// What to use when a lease expires unrenewed, or none could be obtained. The server does not guarantee this capacity,
/// because it counts expired leases as free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The safe capacity that was last received (−1: unlimited); nothing if none was received.
    #[default]
    Safe,
    /// Nothing. For work that can be postponed.
    Pessimistic,
    /// All of the wants. For interactive work on a resource that protects itself.
    Optimistic,
}
