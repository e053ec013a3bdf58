//! A limit per window that slides: in any window at most the permits of the lease are in use. Time is an argument.
//!
//! A permit is in use for the length of the window after it was taken, like a permit of a gauge. So a lease of c per
//! second admits at most c · W in any window of W seconds, and all of them at once if none are in use. If the lease is
//! cut below what is in use, nothing passes until enough permits come back; the owner reports the permits in use to the
//! server, which gives them to nobody else meanwhile.
//!
//! **Slots.** Permits are logged by slots of a hundredth of the window, and come back when their slot has passed by a
//! whole window: never too early, and at most a hundredth of the window late.
//!
//! **Small leases.** If a window brings less than one permit, one permit is in use for as long as the lease needs to
//! bring it.

use std::{collections::VecDeque, time::Duration};

use crate::{
    limiter::{
        bucket::{Burst, Standing},
        meter::{Meter, Nanos, Promise, Shortage},
    },
    session::Capacity,
};

/// The number of slots of a window.
const SLOTS: Nanos = 100;

/// The default maximum debt, in permits.
const MAX_DEBT: u64 = 1_000_000;

/// Permits taken in one slot.
#[derive(Debug, Clone, Copy)]
struct Slot {
    end: Nanos,
    taken: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub struct SlidingWindow {
    length: Nanos,
    capacity: Capacity,
    /// Permits that may be in use.
    permits: u64,
    /// How long a permit is in use.
    span: Nanos,
    /// Oldest first. Empty slots are left out.
    log: VecDeque<Slot>,
    in_use: u64,
    /// Charged permits in use beyond the lease.
    debt: u64,
    max_debt: u64,
    now: Nanos,
    taken: u64,
    /// Total time with permits in use.
    busy: Nanos,
}

impl SlidingWindow {
    /// A window without capacity.
    pub fn new(length: Duration) -> SlidingWindow {
        let mut window = SlidingWindow {
            length: nanos(length),
            capacity: Capacity::NONE,
            permits: 0,
            span: 0,
            log: VecDeque::new(),
            in_use: 0,
            debt: 0,
            max_debt: MAX_DEBT,
            now: 0,
            taken: 0,
            busy: 0,
        };
        window.size();
        window
    }

    /// Changes the length of the window. Permits in use stay in use for the new length.
    pub fn set_length(&mut self, now: Nanos, length: Duration) {
        self.settle(now);
        self.length = nanos(length);
        self.size();
        self.settle(now);
    }

    /// The capacity that must not be given to anybody else: what is in use, if that is more than the lease brings, else
    /// 0.
    pub fn outstanding(&mut self, now: Nanos) -> f64 {
        self.settle(now);
        if self.in_use <= self.permits { 0.0 } else { self.used(now) }
    }

    /// The permits in use, per second of the window.
    pub fn used(&mut self, now: Nanos) -> f64 {
        self.settle(now);
        self.in_use as f64 / (self.length as f64 / 1e9)
    }

    /// The current state.
    pub fn standing(&mut self, now: Nanos) -> Standing {
        self.settle(now);
        let available = match self.capacity.is_unlimited() {
            true => f64::INFINITY,
            false => self.permits as f64 - self.in_use as f64,
        };
        let next_in = if self.in_use == 0 { Some(0) } else { self.next_in() };
        Standing {
            available,
            burst: if self.capacity.is_unlimited() { f64::INFINITY } else { self.permits as f64 },
            capacity: self.capacity,
            next_in: next_in.map(Duration::from_nanos),
        }
    }

    /// The time until there are more permits than now.
    fn next_in(&mut self) -> Option<Nanos> {
        self.ready_in(self.now, self.permits.saturating_sub(self.in_use) + 1)
    }

    /// Whole permits available now.
    pub fn available(&mut self, now: Nanos) -> u64 {
        self.settle(now);
        self.permits.saturating_sub(self.in_use)
    }

    /// Sets the maximum debt. Existing debt stays.
    pub fn set_max_debt(&mut self, permits: u64) {
        self.max_debt = permits;
    }

    /// The maximum debt in permits.
    pub fn max_debt(&self) -> u64 {
        self.max_debt
    }

    /// Charges `n` permits that were already used. Those beyond the lease are debt, which is paid as permits come back.
    /// Returns the number of charged permits, which is less than `n` only if the maximum debt is reached.
    pub fn charge(&mut self, now: Nanos, n: u64) -> u64 {
        let available = self.available(now);
        let charged = match self.capacity.is_unlimited() {
            true => n,
            false => n.min(available.saturating_add(self.max_debt.saturating_sub(self.debt))),
        };
        self.debt += charged.saturating_sub(available);
        self.log(charged);
        charged
    }

    /// Returns `n` of the permits taken last. The result is at most the number that were taken.
    pub fn refund(&mut self, now: Nanos, n: u64) -> u64 {
        self.settle(now);
        let refunded = n.min(self.taken);
        self.taken -= refunded;
        let mut left = refunded;
        while let Some(last) = self.log.back_mut().filter(|_| left > 0) {
            let back = left.min(last.taken);
            last.taken -= back;
            self.in_use -= back;
            left -= back;
            if last.taken == 0 {
                self.log.pop_back();
            }
        }
        self.pay();
        refunded
    }

    /// Ends a promise of which `used` permits were used.
    pub fn use_part(&mut self, now: Nanos, promise: Promise, used: u32) {
        let unused = promise.n - used.min(promise.n);
        self.hand_back(now, Promise { n: unused, era: promise.era });
    }

    /// Total time with permits in use.
    pub fn busy(&mut self, now: Nanos) -> Nanos {
        self.settle(now);
        self.busy
    }

    /// The permits that the capacity allows.
    fn size(&mut self) {
        let burst = Burst::Window(Duration::from_nanos(self.length)).permits(self.capacity);
        // The conversion truncates, and infinity becomes the largest integer.
        self.permits = if self.capacity.get() < MIN_RATE { 0 } else { burst as u64 };
        let per_permit = if self.capacity.get() < MIN_RATE { 0.0 } else { 1e9 / self.capacity.get() };
        self.span = if self.permits == 1 { self.length.max(per_permit as Nanos) } else { self.length };
    }

    /// Drops the permits that are no longer in use. Time never runs backwards.
    fn settle(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.now);
        self.now += passed;
        if self.in_use > 0 {
            self.busy += passed;
        }
        while let Some(first) = self.log.front().filter(|first| first.end.saturating_add(self.span) <= self.now) {
            self.in_use -= first.taken;
            self.log.pop_front();
        }
        self.pay();
    }

    fn pay(&mut self) {
        self.debt = self.debt.min(self.in_use.saturating_sub(self.permits));
    }

    /// Records permits that were taken now.
    fn log(&mut self, n: u64) {
        self.taken = self.taken.saturating_add(n);
        self.in_use = self.in_use.saturating_add(n);
        let width = (self.length / SLOTS).max(1);
        let end = (self.now / width + 1) * width;
        match self.log.back_mut().filter(|last| last.end >= end) {
            Some(last) => last.taken = last.taken.saturating_add(n),
            None if n > 0 => self.log.push_back(Slot { end, taken: n }),
            None => {}
        }
    }

    fn fits(&self, n: u64) -> bool {
        self.capacity.is_unlimited() || self.in_use.saturating_add(n) <= self.permits
    }
}

/// A smaller rate counts as none.
const MIN_RATE: f64 = 1e-12;

fn nanos(length: Duration) -> Nanos {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl Meter for SlidingWindow {
    const TIMED: bool = true;

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn set_capacity(&mut self, now: Nanos, capacity: Capacity) {
        self.settle(now);
        self.capacity = capacity;
        self.size();
        self.settle(now);
    }

    fn check(&mut self, now: Nanos, reserved: u64, n: u64) -> Result<(), Shortage> {
        self.settle(now);
        match self.fits(reserved.saturating_add(n)) {
            true => Ok(()),
            false => Err(Shortage { ready_in: self.ready_in(now, reserved.saturating_add(n)) }),
        }
    }

    fn take(&mut self, now: Nanos, n: u32) -> Result<(), Shortage> {
        self.check(now, 0, n.into())?;
        self.log(n.into());
        Ok(())
    }

    fn ready_in(&mut self, now: Nanos, permits: u64) -> Option<Nanos> {
        self.settle(now);
        if self.capacity.is_unlimited() {
            return Some(0);
        }
        let mut missing = self.in_use.saturating_add(permits).saturating_sub(self.permits);
        if permits > self.permits {
            // Only a larger lease helps.
            return None;
        }
        let mut at = self.now;
        for slot in &self.log {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(slot.taken);
            at = slot.end.saturating_add(self.span);
        }
        Some(at.saturating_sub(self.now))
    }

    /// A lease may grow at any time, so that no request is refused for good.
    fn max_at_once(&self) -> Option<f64> {
        None
    }

    fn promise(&mut self, n: u32) -> Promise {
        // The permits were taken just now.
        Promise { n, era: self.log.back().map_or(0, |slot| slot.end) }
    }

    fn taken(&self) -> u64 {
        self.taken
    }

    fn hand_back(&mut self, now: Nanos, promise: Promise) {
        self.settle(now);
        self.taken = self.taken.saturating_sub(promise.n.into());
        if let Ok(at) = self.log.binary_search_by_key(&promise.era, |slot| slot.end) {
            let back = self.log[at].taken.min(promise.n.into());
            self.log[at].taken -= back;
            self.in_use -= back;
            if self.log[at].taken == 0 {
                self.log.remove(at);
            }
        }
        self.pay();
    }

    fn owed(&mut self, now: Nanos) -> u64 {
        self.settle(now);
        self.debt
    }
}

#[cfg(test)]
mod tests;
