//! Where a rate stands, for callers that are told.

use std::time::Duration;

use crate::session::Capacity;

/// What could be had at a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// Permits that are there now, also if others wait for them. Infinite without a limit; below zero
    /// so much is owed.
    pub available: f64,
    /// The most that there can be at once.
    pub burst: f64,
    /// Permits per second.
    pub capacity: Capacity,
}

impl Standing {
    /// How long until there is as much as there can be, if nothing is taken; nothing if that never comes.
    pub fn full_in(&self) -> Option<Duration> {
        let missing = (self.burst - self.available).max(0.0);
        match self.capacity.get() {
            _ if missing == 0.0 || self.available.is_infinite() => Some(Duration::ZERO),
            rate => Duration::try_from_secs_f64(missing / rate).ok(),
        }
    }
}
