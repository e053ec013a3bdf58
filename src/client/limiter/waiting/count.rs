//! The arithmetic of a gauge: permits in use, of at most so many.

use crate::{
    limiter::{Meter, Nanos, Promise, Shortage},
    session::Capacity,
};

/// Permits in use. Those that are promised count as in use.
#[derive(Debug)]
pub(super) struct Count {
    capacity: Capacity,
    in_use: u64,
    taken: u64,
}

impl Count {
    /// Without capacity.
    pub(super) fn new() -> Count {
        Count { capacity: Capacity::NONE, in_use: 0, taken: 0 }
    }

    /// What was in use is not any more.
    pub(super) fn give_back(&mut self, n: u32) {
        debug_assert!(self.in_use >= u64::from(n), "permits are returned once");
        self.in_use = self.in_use.saturating_sub(u64::from(n));
    }

    /// Whole permits only: of a capacity of 2.9 two can be in use.
    fn whole(&self) -> u64 {
        // The conversion cuts, and infinity becomes the largest number.
        self.capacity.get() as u64
    }
}

impl Meter for Count {
    const TIMED: bool = false;

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn in_use(&self) -> u64 {
        self.in_use
    }

    fn set_capacity(&mut self, _: Nanos, capacity: Capacity) {
        self.capacity = capacity;
    }

    fn take(&mut self, _: Nanos, n: u32) -> Result<(), Shortage> {
        let in_use = self.in_use.saturating_add(u64::from(n));
        if in_use > self.whole() {
            return Err(Shortage { ready_in: None });
        }
        self.in_use = in_use;
        self.taken += u64::from(n);
        Ok(())
    }

    fn ready_in(&mut self, _: Nanos, _: u64) -> Option<Nanos> {
        None
    }

    fn max_at_once(&self) -> Option<f64> {
        (self.whole() > 0).then(|| self.capacity.get().floor())
    }

    fn save_for(&mut self, _: Nanos, _: u32) {}

    fn stop_saving(&mut self, _: Nanos) {}

    fn promise(&mut self, n: u32) -> Promise {
        Promise { n, era: 0 }
    }

    fn claim(&mut self, _: Promise) {}

    fn taken(&self) -> u64 {
        self.taken
    }

    fn hand_back(&mut self, _: Nanos, promise: Promise) {
        self.taken = self.taken.saturating_sub(u64::from(promise.n));
        self.give_back(promise.n);
    }

    fn owed(&mut self, _: Nanos) -> u64 {
        0
    }
}
