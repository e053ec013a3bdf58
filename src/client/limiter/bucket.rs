//! A token bucket that does not drift. Credit grows with time up to the burst, and is spent by callers. Time is an
//! argument.
//!
//! **Exact arithmetic.** A permit is 2⁴⁰ · 10⁹ units of credit, so at c permits per second a nanosecond brings
//! floor(c · 2⁴⁰) whole units. Time is an integer of nanoseconds. Credit is therefore never rounded, and it makes no
//! difference how often the bucket is settled. The capacity is rounded down once, when it is set, by less than 2⁻⁴⁰
//! permits per second: one permit in thirty thousand years.
//!
//! **Returned permits** restore the credit that there would be if they had never been taken, and no more: see
//! [`returns`].
//!
//! **Debt** is negative credit, stored separately because credit is unsigned. While there is debt there is no credit.

use std::time::Duration;

use crate::{
    limiter::meter::{Meter, Nanos, Promise, Shortage},
    session::Capacity,
};

use self::returns::Returns;

mod returns;

/// Units per nanosecond at one permit per second.
const UNITS_PER_RATE: f64 = (1u64 << 40) as f64;

/// Units per permit.
const UNITS_PER_PERMIT: u128 = (1 << 40) * 1_000_000_000;

/// Maximum number of permits, and of permits per second.
const MAX_PERMITS: f64 = 1e15;

/// The default maximum debt, in permits.
const MAX_DEBT: u64 = 1_000_000;

/// The default burst, in seconds of capacity: a waiter that is woken this late loses no capacity. tokio's timer is one
/// to two milliseconds late, and more on a busy machine. A limiter at 20,000/s lost 8 % of its capacity with 5 ms, and
/// 0.1 % with 20 ms.
const SMOOTH_SECONDS: f64 = 0.020;

/// How much unused capacity a rate may save up and use at once.
///
/// In any period of T seconds a limiter admits at most capacity · T + burst. The burst is at least one permit. A caller
/// that waits for more permits than the burst is admitted once all of them are saved up.
///
/// In a pool (PRIORITY_POOL) the server sets the burst, with `burst_seconds`. While the lease of a pool is in force,
/// that replaces [`Burst::Smooth`], and bounds the other choices.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Burst {
    /// One permit plus 20 ms of capacity: as smooth as timers allow without losing capacity.
    #[default]
    Smooth,
    /// The capacity of this duration, for budgets per second, per minute or per day. When the capacity is cut, saved
    /// permits are cut in proportion, so limiters that share a capacity never save up more than it provides in total.
    Window(Duration),
    /// A fixed number of permits. With less than about 2 ms of capacity, late timers keep a limiter below its capacity.
    Permits(f64),
}

impl Burst {
    /// The number of permits that may be saved up at this capacity: at least one, unlimited if the capacity is.
    pub fn permits(self, capacity: Capacity) -> f64 {
        let permits = match self {
            Burst::Smooth => 1.0 + capacity.get() * SMOOTH_SECONDS,
            // An unlimited capacity with a window of zero is NaN.
            Burst::Window(window) => whole_if_close(capacity.get() * window.as_secs_f64()),
            Burst::Permits(_) if capacity.is_unlimited() => f64::INFINITY,
            Burst::Permits(permits) => permits,
        };
        // `max` also turns NaN into one.
        permits.max(1.0)
    }

    /// As [`permits`](Self::permits), if the server sets the burst to `buffer`. A smaller choice of the owner is
    /// respected, down to the minimum that timers need.
    fn within(self, capacity: Capacity, buffer: Option<Duration>) -> f64 {
        let Some(buffer) = buffer else { return self.permits(capacity) };
        let buffer = (capacity.get() * buffer.as_secs_f64()).max(Burst::Smooth.permits(capacity));
        // An unlimited capacity needs no savings.
        if self == Burst::Smooth || capacity.is_unlimited() { buffer } else { buffer.min(self.permits(capacity)) }
    }
}

/// The nearest whole number, if the difference is due to rounding: a limit of 4 in 2,592,000 seconds is
/// 1.54…e-6 per second, and that times 2,592,000 is 3.9999999999999996.
fn whole_if_close(permits: f64) -> f64 {
    const ROUNDING: f64 = 4.0 * f64::EPSILON;
    let whole = permits.round();
    if (permits - whole).abs() <= whole * ROUNDING { whole } else { permits }
}

/// The state of a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// Permits available now, even if others wait for them. Infinite if unlimited, negative if there is debt.
    pub available: f64,
    /// The maximum that can be saved up.
    pub burst: f64,
    /// Permits per second.
    pub capacity: Capacity,
    /// The time until more permits are available, if none are taken; zero if none can be added. `None` if that does not
    /// depend on time.
    pub next_in: Option<Duration>,
}

impl Standing {
    /// The time until the burst is full if nothing is taken; `None` if it never will be.
    pub fn full_in(&self) -> Option<Duration> {
        let missing = (self.burst - self.available).max(0.0);
        match self.capacity.get() {
            _ if missing == 0.0 || self.available.is_infinite() => Some(Duration::ZERO),
            rate => Duration::try_from_secs_f64(missing / rate).ok(),
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct Bucket {
    burst: Burst,
    /// The burst set by the server, if any.
    buffer: Option<Duration>,
    capacity: Capacity,
    /// Units per nanosecond.
    rate: u128,
    /// Maximum credit in units, unless a waiter saves up for more.
    depth: u128,
    credit: u128,
    /// Debt in units.
    debt: u128,
    max_debt: u128,
    /// Price of the head of the queue in units. Credit may grow up to it.
    saving: u128,
    /// Fill the bucket when it gets capacity for the first time.
    begins_full: bool,
    returns: Returns,
    /// The time up to which credit has been computed.
    settled: Nanos,
    taken: u64,
    /// Total time in which the bucket was not full.
    recharging: Nanos,
}

impl Bucket {
    /// An empty bucket without capacity.
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

    /// A bucket that is filled as soon as it has capacity.
    pub fn full(burst: Burst) -> Bucket {
        Bucket { begins_full: true, ..Bucket::new(burst) }
    }

    /// The current state.
    pub fn standing(&mut self, now: Nanos) -> Standing {
        self.settle(now);
        let (capacity, burst) = (self.capacity, self.permits());
        let available = match () {
            () if capacity.is_unlimited() => f64::INFINITY,
            () if self.debt > 0 => -(self.debt as f64 / UNITS_PER_PERMIT as f64),
            () if self.rate == 0 => 0.0,
            () => self.credit as f64 / UNITS_PER_PERMIT as f64,
        };
        let mut standing = Standing { available, burst, capacity, next_in: None };
        let full_in = standing.full_in();
        let next = if self.debt > 0 { 1 } else { whole(self.credit) + 1 };
        let next_in = self.ready_in(now, next).map(Duration::from_nanos);
        standing.next_in = [full_in, next_in].into_iter().flatten().min();
        standing
    }

    /// Total time in which the bucket was not full. At a constant capacity this is the busy time, independent of the
    /// burst, because every permit takes the same time to recharge.
    pub fn recharging(&mut self, now: Nanos) -> Nanos {
        self.settle(now);
        self.recharging
    }

    /// Sets the capacity, and the burst if the server sets it.
    pub fn set(&mut self, now: Nanos, capacity: Capacity, buffer: Option<Duration>) {
        self.settle(now);
        self.buffer = buffer;
        self.set_capacity(now, capacity);
    }

    /// Changes the burst. Credit beyond it is dropped.
    pub fn set_burst(&mut self, now: Nanos, burst: Burst) {
        self.settle(now);
        self.burst = burst;
        self.set_capacity(now, self.capacity);
    }

    /// Sets the maximum debt. Existing debt stays.
    pub fn set_max_debt(&mut self, permits: u64) {
        self.max_debt = units(permits.min(MAX_PERMITS as u64));
    }

    /// The maximum debt in permits.
    pub fn max_debt(&self) -> u64 {
        whole(self.max_debt)
    }

    /// Whole permits available now.
    pub fn available(&mut self, now: Nanos) -> u64 {
        self.settle(now);
        match () {
            () if self.capacity.is_unlimited() => u64::MAX,
            () if self.rate == 0 => 0,
            () => whole(self.credit),
        }
    }

    /// Charges `n` permits that were already used: first from the credit, then as debt. Returns the number of charged
    /// permits, which is less than `n` only if the maximum debt is reached.
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
            self.drop_overflow();
        }
        self.taken = self.taken.saturating_add(charged);
        charged
    }

    /// Returns `n` of the permits taken last. The result is at most the number that were taken.
    pub fn refund(&mut self, now: Nanos, n: u64) -> u64 {
        self.settle(now);
        let refunded = n.min(self.taken);
        self.taken -= refunded;
        let back = self.returns.refund(units(refunded));
        self.add_credit(back);
        refunded
    }

    /// Ends a promise of which `used` permits were used.
    pub fn use_part(&mut self, now: Nanos, promise: Promise, used: u32) {
        let used = used.min(promise.n);
        self.hand_back(now, Promise { n: promise.n - used, era: promise.era });
        self.claim(Promise { n: used, era: promise.era });
    }

    /// Permits that may be saved up.
    fn permits(&self) -> f64 {
        self.burst.within(self.capacity, self.buffer)
    }

    /// The time until the bucket is full, at most `passed` nanoseconds.
    fn recharges_for(&self, passed: Nanos) -> Nanos {
        match self.room() {
            0 => 0,
            _ if self.rate == 0 => passed,
            missing => u64::try_from(missing / self.rate).map_or(passed, |needed| needed.min(passed)),
        }
    }

    /// Refills the bucket up to `now`. Time never runs backwards.
    fn settle(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.settled);
        self.settled += passed;
        self.recharging += self.recharges_for(passed);
        self.add_credit(self.rate.saturating_mul(u128::from(passed)));
        self.drop_overflow();
    }

    /// Adds credit, after paying debt.
    fn add_credit(&mut self, units: u128) {
        let paid = units.min(self.debt);
        self.debt -= paid;
        self.credit = self.credit.saturating_add(units - paid);
    }

    /// Drops credit above the ceiling.
    fn drop_overflow(&mut self) {
        self.credit = self.credit.min(self.ceiling());
        self.returns.cut(self.room());
    }

    /// The maximum credit now.
    fn ceiling(&self) -> u128 {
        self.depth.max(self.saving)
    }

    /// The distance of credit from its maximum.
    fn room(&self) -> u128 {
        self.ceiling().saturating_sub(self.credit) + self.debt
    }
}

impl Meter for Bucket {
    const TIMED: bool = true;

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Time up to now counts at the old rate. Credit beyond the new burst is dropped, except for what the head of the
    /// queue is saving up.
    fn set_capacity(&mut self, now: Nanos, capacity: Capacity) {
        self.settle(now);
        self.capacity = capacity;
        self.rate = match capacity.is_unlimited() {
            true => u128::MAX,
            // Multiplying by a power of two is exact; the conversion truncates.
            false => (capacity.get().min(MAX_PERMITS) * UNITS_PER_RATE) as u128,
        };
        self.depth = depth(self.permits());
        if self.rate > 0 && std::mem::take(&mut self.begins_full) {
            self.add_credit(self.depth);
        }
        if capacity.is_unlimited() {
            self.debt = 0;
        }
        self.drop_overflow();
    }

    fn check(&mut self, now: Nanos, reserved: u64, n: u64) -> Result<(), Shortage> {
        self.settle(now);
        let price = units(reserved.saturating_add(n));
        if self.capacity.is_unlimited() || (self.rate > 0 && self.credit >= price) {
            return Ok(());
        }
        // Credit beyond the ceiling is dropped, so the reserved permits have to be taken first.
        let is_reachable = reserved == 0 || price <= self.ceiling();
        let ready_in = if is_reachable { self.ready_in(now, reserved.saturating_add(n)) } else { None };
        Err(Shortage { ready_in })
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
                self.drop_overflow();
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
        self.drop_overflow();
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
        self.add_credit(back);
    }

    fn owed(&mut self, now: Nanos) -> u64 {
        self.settle(now);
        whole(self.debt.saturating_add(UNITS_PER_PERMIT - 1))
    }
}

fn depth(permits: f64) -> u128 {
    // The same power of two as for rates, so it is as exact.
    (permits.min(MAX_PERMITS) * UNITS_PER_RATE) as u128 * (UNITS_PER_PERMIT >> 40)
}

fn units(permits: u64) -> u128 {
    UNITS_PER_PERMIT.saturating_mul(u128::from(permits))
}

/// Whole permits in `units`.
fn whole(units: u128) -> u64 {
    u64::try_from(units / UNITS_PER_PERMIT).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
