//! The arithmetic of a rate: credit that grows with time up to a burst, and is spent. No clock: `now` is an argument.
//!
//! **It does not drift.** Credit is an integer of units so small that a nanosecond brings a whole number of them: at c
//! permits per second, floor(c · 2⁴⁰) units, where a permit is 2⁴⁰ · 10⁹ units. Time is an integer of nanoseconds. So
//! credit grows and is spent without any rounding, and how often it is settled makes no difference. The capacity is
//! rounded once, when it is set, down by less than 2⁻⁴⁰ permits per second: one permit in thirty thousand years.
//!
//! **What comes back** unused leaves the credit that there would be without it, and no more: see [`returns`].
//!
//! **Debt** is credit below nothing, kept apart because credit is unsigned: while something is owed there is no credit.

use std::time::Duration;

use crate::session::Capacity;

use crate::limiter::{
    burst::Burst,
    meter::{Meter, Nanos, Promise, Shortage},
    standing::Standing,
};

use self::returns::Returns;

mod returns;

/// Units that one permit per second brings in a nanosecond.
const UNITS_PER_RATE: f64 = (1u64 << 40) as f64;

/// Units of a permit.
const UNITS_PER_PERMIT: u128 = (1 << 40) * 1_000_000_000;

/// More than this many permits, or permits per second, are not told apart.
const MAX_PERMITS: f64 = 1e15;

/// What may be owed where the owner of the limiter does not say.
const MAX_DEBT: u64 = 1_000_000;

/// See the module.
#[derive(Debug)]
pub struct Bucket {
    burst: Burst,
    /// What a server lets be saved up, if it says that.
    buffer: Option<Duration>,
    capacity: Capacity,
    /// Units per nanosecond.
    rate: u128,
    /// What credit may be, in units, when none saves.
    depth: u128,
    credit: u128,
    /// What was charged beyond the credit, in units. It is paid before there is credit again.
    debt: u128,
    max_debt: u128,
    /// What the head of the line has to pay, if it could not yet. Credit may grow up to it.
    saving: u128,
    /// It is filled when there is capacity for the first time.
    begins_full: bool,
    returns: Returns,
    /// Up to when credit has been counted.
    settled: Nanos,
    taken: u64,
    /// For how long credit was less than it may be, ever.
    recharging: Nanos,
}

impl Bucket {
    /// Empty, and without capacity.
    pub fn new(burst: Burst) -> Bucket {
        let capacity = Capacity::NONE;
        Bucket {
            burst,
            buffer: None,
            capacity,
            rate: 0,
            depth: depth(burst.permits(capacity)),
            credit: 0,
            debt: 0,
            max_debt: units(MAX_DEBT),
            saving: 0,
            begins_full: false,
            returns: Returns::default(),
            settled: 0,
            taken: 0,
            recharging: 0,
        }
    }

    /// All that may be saved up is there from the start.
    pub fn full(burst: Burst) -> Bucket {
        Bucket { begins_full: true, ..Bucket::new(burst) }
    }

    /// What could be had now.
    pub fn standing(&mut self, now: Nanos) -> Standing {
        self.settle(now);
        let (capacity, burst) = (self.capacity, self.permits());
        let available = match () {
            () if capacity.is_unlimited() => f64::INFINITY,
            () if self.debt > 0 => -(self.debt as f64 / UNITS_PER_PERMIT as f64),
            () if self.rate == 0 => 0.0,
            () => self.credit as f64 / UNITS_PER_PERMIT as f64,
        };
        Standing { available, burst, capacity }
    }

    /// For how long credit was less than it may be, ever. As long as a capacity is in force, that is the part of the
    /// time in which it was used, however large the burst: every permit takes as long to come back.
    pub fn recharging(&mut self, now: Nanos) -> Nanos {
        self.settle(now);
        self.recharging
    }

    /// From now on this capacity, of which a server lets so much time be saved up; absent: as much as the burst says.
    pub fn set(&mut self, now: Nanos, capacity: Capacity, buffer: Option<Duration>) {
        self.settle(now);
        self.buffer = buffer;
        self.set_capacity(now, capacity);
    }

    /// What is saved stays, as far as there is room for it.
    pub fn set_burst(&mut self, now: Nanos, burst: Burst) {
        self.settle(now);
        self.burst = burst;
        self.set_capacity(now, self.capacity);
    }

    /// From now on no more than this is owed because of a charge. What is owed already stays.
    pub fn set_max_debt(&mut self, permits: u64) {
        self.max_debt = units(permits.min(MAX_PERMITS as u64));
    }

    /// What may be owed because of a charge.
    pub fn max_debt(&self) -> u64 {
        whole(self.max_debt)
    }

    /// Whole permits that could be taken now.
    pub fn available(&mut self, now: Nanos) -> u64 {
        self.settle(now);
        match () {
            () if self.capacity.is_unlimited() => u64::MAX,
            () if self.rate == 0 => 0,
            () => whole(self.credit),
        }
    }

    /// Takes `n` permits that have been used already: what is there, then what is not. Returns how many were charged:
    /// fewer only if more would be owed than may be.
    pub fn charge(&mut self, now: Nanos, n: u64) -> u64 {
        self.settle(now);
        let mut charged = n;
        if !self.capacity.is_unlimited() {
            charged = n.min(whole(self.credit + self.max_debt.saturating_sub(self.debt)));
            let price = units(charged);
            let at_once = price.min(self.credit);
            self.credit -= at_once;
            self.debt += price - at_once;
            self.returns.take(price);
            self.spill();
        }
        self.taken = self.taken.saturating_add(charged);
        charged
    }

    /// `n` of the permits taken last were not used. Returns how many that can be: no more than were taken.
    pub fn refund(&mut self, now: Nanos, n: u64) -> u64 {
        self.settle(now);
        let refunded = n.min(self.taken);
        self.taken -= refunded;
        let back = self.returns.refund(units(refunded));
        self.earn(back);
        refunded
    }

    /// Of what was promised, only so much was used.
    pub fn use_part(&mut self, now: Nanos, promise: Promise, used: u32) {
        let used = used.min(promise.n);
        self.hand_back(now, Promise { n: promise.n - used, era: promise.era });
        self.claim(Promise { n: used, era: promise.era });
    }

    /// The permits that may be saved up.
    fn permits(&self) -> f64 {
        self.burst.within(self.capacity, self.buffer)
    }

    /// How much of the time ahead it takes until credit is all it may be.
    fn recharges_for(&self, passed: Nanos) -> Nanos {
        match self.room() {
            0 => 0,
            _ if self.rate == 0 => passed,
            missing => u64::try_from(missing / self.rate).map_or(passed, |needed| needed.min(passed)),
        }
    }

    /// Brings the credit up to date. A `now` from before the last one counts as that.
    fn settle(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.settled);
        self.settled += passed;
        self.recharging += self.recharges_for(passed);
        self.earn(self.rate.saturating_mul(u128::from(passed)));
        self.spill();
    }

    /// Debt is paid first.
    fn earn(&mut self, units: u128) {
        let paid = units.min(self.debt);
        self.debt -= paid;
        self.credit = self.credit.saturating_add(units - paid);
    }

    /// Cuts what is above the ceiling.
    fn spill(&mut self) {
        self.credit = self.credit.min(self.ceiling());
        self.returns.cut(self.room());
    }

    /// What credit may be now.
    fn ceiling(&self) -> u128 {
        self.depth.max(self.saving)
    }

    /// How much less than that it is.
    fn room(&self) -> u128 {
        self.ceiling().saturating_sub(self.credit) + self.debt
    }
}

impl Meter for Bucket {
    const TIMED: bool = true;

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn in_use(&self) -> u64 {
        0
    }

    /// Time up to now counts at the old rate. What has been saved beyond the new burst is cut, except what the head of
    /// the line is saving for itself.
    fn set_capacity(&mut self, now: Nanos, capacity: Capacity) {
        self.settle(now);
        self.capacity = capacity;
        self.rate = match capacity.is_unlimited() {
            true => u128::MAX,
            // Multiplying by a power of two is exact; the conversion cuts.
            false => (capacity.get().min(MAX_PERMITS) * UNITS_PER_RATE) as u128,
        };
        self.depth = depth(self.permits());
        if self.rate > 0 && std::mem::take(&mut self.begins_full) {
            self.earn(self.depth);
        }
        if capacity.is_unlimited() {
            self.debt = 0;
        }
        self.spill();
    }

    fn take(&mut self, now: Nanos, n: u32) -> Result<(), Shortage> {
        self.settle(now);
        let price = units(u64::from(n));
        if self.capacity.is_unlimited() {
            self.saving = 0;
        } else if self.rate > 0 && self.credit >= price {
            self.credit -= price;
            self.returns.take(price);
            if self.saving > 0 {
                self.saving = 0;
                self.spill();
            }
        } else {
            return Err(Shortage { ready_in: self.ready_in(now, u64::from(n)) });
        }
        self.taken += u64::from(n);
        Ok(())
    }

    fn ready_in(&mut self, now: Nanos, permits: u64) -> Option<Nanos> {
        self.settle(now);
        let missing = units(permits).saturating_add(self.debt).saturating_sub(self.credit);
        match self.rate {
            0 => None,
            rate => Some(u64::try_from(missing.div_ceil(rate)).unwrap_or(u64::MAX)),
        }
    }

    fn max_at_once(&self) -> Option<f64> {
        (self.rate > 0).then(|| self.permits())
    }

    fn save_for(&mut self, now: Nanos, n: u32) {
        self.settle(now);
        self.saving = units(u64::from(n));
    }

    fn stop_saving(&mut self, now: Nanos) {
        self.settle(now);
        self.saving = 0;
        self.spill();
    }

    fn promise(&mut self, n: u32) -> Promise {
        Promise { n, era: self.returns.promise(units(u64::from(n))) }
    }

    fn claim(&mut self, promise: Promise) {
        self.returns.claim(units(u64::from(promise.n)), promise.era);
    }

    fn taken(&self) -> u64 {
        self.taken
    }

    fn hand_back(&mut self, now: Nanos, promise: Promise) {
        self.settle(now);
        self.taken = self.taken.saturating_sub(u64::from(promise.n));
        let back = self.returns.end(units(u64::from(promise.n)), promise.era);
        self.earn(back);
    }

    fn owed(&mut self, now: Nanos) -> u64 {
        self.settle(now);
        whole(self.debt.saturating_add(UNITS_PER_PERMIT - 1))
    }
}

fn depth(permits: f64) -> u128 {
    // The same power of two as for rates, so that it is as exact.
    (permits.min(MAX_PERMITS) * UNITS_PER_RATE) as u128 * (UNITS_PER_PERMIT >> 40)
}

fn units(permits: u64) -> u128 {
    UNITS_PER_PERMIT.saturating_mul(u128::from(permits))
}

/// Whole permits in so many units.
fn whole(units: u128) -> u64 {
    u64::try_from(units / UNITS_PER_PERMIT).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
