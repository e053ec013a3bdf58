//! What one resource has been given.

use leaseway_core::Millis;

use crate::session::capacity::Capacity;

/// A lease at its holder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lease {
    /// How much may be used.
    pub capacity: Capacity,
    /// Until when: counted from when the request was sent, so never later than the server believes.
    pub end: Millis,
    /// Ask again after so long.
    pub refresh: Millis,
    /// Its name; servers that speak only the original protocol give none.
    pub token: Option<u64>,
    /// As the server wrote it: what `has` echoes.
    pub wire: Wire,
}

impl Lease {
    /// Whether it still counts.
    pub fn is_live(&self, now: Millis) -> bool {
        now < self.end
    }
}

/// The fields of a lease that are echoed exactly as they came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wire {
    /// Seconds since the epoch.
    pub expiry_time: i64,
    /// Seconds.
    pub refresh_interval: i64,
    pub capacity: f64,
}

/// What to use when a lease has ended unrenewed, or none could be had. All of this is outside what the server promises:
/// it counts ended leases as free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The safe capacity that was last received (−1: no limit); nothing if none ever was.
    #[default]
    Safe,
    /// Nothing. For work that can wait.
    Pessimistic,
    /// What was wanted. For work that people wait for, on a resource that protects itself.
    Optimistic,
}
