//! The clock that leases live by. (Elsewhere time is only measured: how long a request took, how long to wait.)

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leaseway_core::{Millis, Now};

/// Monotonic time since the process started, and wall-clock seconds for the wire.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Starts at zero.
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// The moment, on both clocks.
    pub fn now(&self) -> Now {
        Now { at: self.at(), unix: since_epoch().as_secs() as i64 }
    }

    /// Monotonic only.
    pub fn at(&self) -> Millis {
        Millis(self.origin.elapsed().as_millis() as u64)
    }

    /// Milliseconds since the epoch.
    pub fn unix_ms(&self) -> u64 {
        since_epoch().as_millis() as u64
    }
}

/// A clock set before 1970 reads as 1970.
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
