//! What a rate limiter meters: a bucket, or a window that slides.

use std::time::Duration;

use crate::{
    limiter::{
        bucket::{Bucket, Burst, Standing},
        meter::{Meter, Nanos, Promise, Shortage},
        sliding::SlidingWindow,
    },
    session::Capacity,
};

/// See the module documentation.
#[derive(Debug)]
pub(super) enum RateMeter {
    Bucket(Box<Bucket>),
    Sliding(Box<SlidingWindow>),
}

/// Calls a method that both kinds have.
macro_rules! both {
    ($meter:expr, $method:ident($($argument:expr),*)) => {
        match $meter {
            RateMeter::Bucket(bucket) => bucket.$method($($argument),*),
            RateMeter::Sliding(window) => window.$method($($argument),*),
        }
    };
}

impl RateMeter {
    pub(super) fn standing(&mut self, now: Nanos) -> Standing {
        both!(self, standing(now))
    }

    /// Total time in which the capacity was in use.
    pub(super) fn recharging(&mut self, now: Nanos) -> Nanos {
        match self {
            RateMeter::Bucket(bucket) => bucket.recharging(now),
            RateMeter::Sliding(window) => window.busy(now),
        }
    }

    /// Sets the capacity, and the burst if the server sets it. A window that slides has no burst.
    pub(super) fn set(&mut self, now: Nanos, capacity: Capacity, buffer: Option<Duration>) {
        match self {
            RateMeter::Bucket(bucket) => bucket.set(now, capacity, buffer),
            RateMeter::Sliding(window) => window.set_capacity(now, capacity),
        }
    }

    /// Changes the length of the window.
    pub(super) fn set_window(&mut self, now: Nanos, length: Duration) {
        match self {
            RateMeter::Bucket(bucket) => bucket.set_burst(now, Burst::Window(length)),
            RateMeter::Sliding(window) => window.set_length(now, length),
        }
    }

    pub(super) fn set_max_debt(&mut self, permits: u64) {
        both!(self, set_max_debt(permits));
    }

    pub(super) fn max_debt(&self) -> u64 {
        both!(self, max_debt())
    }

    pub(super) fn available(&mut self, now: Nanos) -> u64 {
        both!(self, available(now))
    }

    pub(super) fn charge(&mut self, now: Nanos, n: u64) -> u64 {
        both!(self, charge(now, n))
    }

    pub(super) fn refund(&mut self, now: Nanos, n: u64) -> u64 {
        both!(self, refund(now, n))
    }

    pub(super) fn use_part(&mut self, now: Nanos, promise: Promise, used: u32) {
        both!(self, use_part(now, promise, used));
    }

    /// The permits in use, per second of the window; 0 for a bucket, whose permits cannot be in use beyond the lease.
    pub(super) fn used(&mut self, now: Nanos) -> f64 {
        match self {
            RateMeter::Bucket(_) => 0.0,
            RateMeter::Sliding(window) => window.used(now),
        }
    }

    /// See [`SlidingWindow::outstanding`].
    pub(super) fn outstanding(&mut self, now: Nanos) -> f64 {
        match self {
            RateMeter::Bucket(_) => 0.0,
            RateMeter::Sliding(window) => window.outstanding(now),
        }
    }
}

impl Meter for RateMeter {
    const TIMED: bool = true;

    fn capacity(&self) -> Capacity {
        both!(self, capacity())
    }

    fn set_capacity(&mut self, now: Nanos, capacity: Capacity) {
        both!(self, set_capacity(now, capacity));
    }

    fn check(&mut self, now: Nanos, reserved: u64, n: u64) -> Result<(), Shortage> {
        both!(self, check(now, reserved, n))
    }

    fn take(&mut self, now: Nanos, n: u32) -> Result<(), Shortage> {
        both!(self, take(now, n))
    }

    fn ready_in(&mut self, now: Nanos, permits: u64) -> Option<Nanos> {
        both!(self, ready_in(now, permits))
    }

    fn max_at_once(&self) -> Option<f64> {
        both!(self, max_at_once())
    }

    fn save_for(&mut self, now: Nanos, n: u32) {
        both!(self, save_for(now, n));
    }

    fn stop_saving(&mut self, now: Nanos) {
        both!(self, stop_saving(now));
    }

    fn promise(&mut self, n: u32) -> Promise {
        both!(self, promise(n))
    }

    fn claim(&mut self, promise: Promise) {
        both!(self, claim(promise));
    }

    fn taken(&self) -> u64 {
        both!(self, taken())
    }

    fn hand_back(&mut self, now: Nanos, promise: Promise) {
        both!(self, hand_back(now, promise));
    }

    fn owed(&mut self, now: Nanos) -> u64 {
        both!(self, owed(now))
    }
}
