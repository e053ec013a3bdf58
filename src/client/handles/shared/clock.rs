//! The clock of leases.

use crate::transport::SuspendedTime;
use leaseway_core::Millis;
use tokio::time::{Duration, Instant};

/// Milliseconds since the client was created, including the time during which the machine was suspended.
pub(super) struct Clock {
    origin: Instant,
    suspended: SuspendedTime,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock { origin: Instant::now(), suspended: SuspendedTime::start() }
    }

    /// Rounded down, so a lease starts no later than its request was sent.
    pub(super) fn now(&self) -> Millis {
        let elapsed = self.origin.elapsed() + self.suspended.total();
        Millis(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn instant(&self, at: Millis) -> Instant {
        // Bounded, because an instant cannot represent every number.
        self.origin + Duration::from_millis(at.0.min(FAR_MS)).saturating_sub(self.suspended.total())
    }
}

const FAR_MS: u64 = 100 * 365 * 86_400 * 1000;
