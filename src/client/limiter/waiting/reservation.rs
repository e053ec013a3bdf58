//! Permits taken for something of which only its end will show what it takes.

use std::sync::Arc;

use crate::limiter::{Bucket, DebtExceeded, Promise, waiting::semaphore::Semaphore};

/// Permits of a rate that are taken, and of which those that are not used can come back. Dropped without being settled
/// it keeps what it took.
#[derive(Debug)]
#[must_use = "what was reserved is to be settled; dropped, all of it counts as used"]
pub struct RateReservation {
    semaphore: Arc<Semaphore<Bucket>>,
    promise: Promise,
    settled: bool,
}

impl RateReservation {
    pub(super) fn new(semaphore: Arc<Semaphore<Bucket>>, promise: Promise) -> RateReservation {
        RateReservation { semaphore, promise, settled: false }
    }

    /// How much was taken.
    pub fn reserved(&self) -> u32 {
        self.promise.n
    }

    /// So much was used. The rest comes back: as much of it as there would be now if it had never been taken. More than
    /// was reserved is [charged](crate::limiter::RateLimiter::charge).
    pub fn settle(mut self, used: u64) -> Result<(), DebtExceeded> {
        self.settled = true;
        self.semaphore.settle(self.promise, used)
    }
}

impl Drop for RateReservation {
    fn drop(&mut self) {
        if !self.settled {
            // As much as was promised: nothing is charged besides.
            let _ = self.semaphore.settle(self.promise, u64::from(self.promise.n));
        }
    }
}
