//! The clock that leases are measured by.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leaseway_client::transport::BootInstant;
use leaseway_core::types::{Millis, Now};

/// Monotonic time since the process started, including time in suspension, and wall-clock seconds for the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: BootInstant,
    skew: Skew,
}

/// A deliberate clock error, for tests of its effects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Skew {
    /// Added to the wall clock, in milliseconds.
    pub offset_ms: i64,
    /// The rate of the clock: at 2.0 it runs twice as fast as real time.
    pub rate: f64,
}

impl Default for Skew {
    fn default() -> Skew {
        Skew { offset_ms: 0, rate: 1.0 }
    }
}

impl Clock {
    /// Starts at zero.
    #[cfg(test)]
    pub(crate) fn start() -> Clock {
        Clock::skewed(Skew::default())
    }

    /// Starts at zero, with an error.
    pub(crate) fn skewed(skew: Skew) -> Clock {
        Clock { origin: BootInstant::now(), skew }
    }

    /// The current time of both clocks.
    pub(crate) fn now(&self) -> Now {
        Now { at: self.at(), unix: (self.unix_ms() / 1000) as i64 }
    }

    pub(crate) fn at(&self) -> Millis {
        let elapsed = self.origin.elapsed();
        // Without a skew, no rounding by floating-point numbers.
        if self.skew.rate == 1.0 {
            Millis(elapsed.as_millis() as u64)
        } else {
            Millis((elapsed.as_secs_f64() * 1000.0 * self.skew.rate) as u64)
        }
    }

    /// Milliseconds since 1970.
    pub(crate) fn unix_ms(&self) -> u64 {
        (since_epoch().as_millis() as u64).saturating_add_signed(self.skew.offset_ms)
    }
}

/// The time since 1970 by the wall clock; zero if the clock is set before 1970.
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
