//! Accounting of the capacity that all clients believe they may use: how much of the total capacity was used, whether
//! it was ever exceeded, and how soon the demand was met.
//!
//! It uses only the state of the clients and never asks a node. Sums are exact ([`Sum`]), so "more than the capacity"
//! is a comparison of integers, free of rounding.

pub(crate) mod budget;
pub mod figures;
pub mod linearizability;
pub mod oracle;
pub mod pool;

use leaseway_core::{
    resource::invariant::Violation,
    types::{Amount, Millis, Sum},
};
use serde::Serialize;

/// The sampling interval of Doorman's simulation.
const SAMPLE_INTERVAL: Millis = Millis(5_000);

pub(crate) struct Accounting {
    capacity: Amount,
    /// Upper bound of the capacity that all clients together may use. After the capacity is cut, the bound exceeds it
    /// until older leases have expired.
    most: Sum,
    /// Tolerance of the bound, see [`Plan::digits`](crate::scenario::plan::Plan).
    digits: Sum,
    bounded: bool,
    from: Millis,
    believed: Sum,
    wants: Sum,
    last: Millis,
    whole: Integrals,
    samples: Samples,
    first_95: Option<Millis>,
    first_99: Option<Millis>,
    digest: u64,
}

/// Integrals over time, in units of capacity · ms.
#[derive(Debug, Default)]
struct Integrals {
    had: f64,
    had_within: f64,
    wanted: f64,
    ms: u64,
    over: f64,
    over_ms: u64,
    peak: Sum,
}

#[derive(Debug, Default)]
struct Samples {
    had: f64,
    had_within: f64,
    wanted: f64,
    count: u64,
    over: u64,
    over_events: u64,
    over_sum: f64,
    over_most: f64,
    was_over: bool,
}

/// Usage in a run. Fractions and relative values are in percent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct UsageFigures {
    /// Usable capacity of all clients, relative to the capacity of the resource: mean of samples.
    pub of_capacity: f64,
    /// Usable capacity relative to the demand, each bounded by the capacity of the resource: mean of samples.
    pub of_wanted_sampled: f64,
    /// As `of_wanted_sampled`, but integrated over time.
    pub of_wanted: f64,
    /// Number of samples with usable capacity above that of the resource.
    pub over_samples: u64,
    /// Number of overuses: runs of consecutive samples above the capacity.
    pub over_events: u64,
    /// The largest sample above the capacity, in percent of the capacity: 110 is an overuse of 10 %. 0 without any.
    pub over_most_sampled: f64,
    /// The mean of the samples above the capacity, in percent of the capacity.
    pub over_mean_sampled: f64,
    /// Exact time in which clients could use more than the capacity.
    pub over_seconds: f64,
    /// Exact peak above the capacity, in percent of the capacity. 0 without any.
    pub over_most: f64,
    /// Exact mean over the time above the capacity, in percent of the capacity.
    pub over_mean: f64,
    /// The first second in which 95 % of the demand (bounded by the capacity) was met.
    pub first_95_s: Option<f64>,
    /// The first second in which 99 % was met.
    pub first_99_s: Option<f64>,
}

impl Accounting {
    pub(crate) fn new(capacity: Amount, digits: Amount, bounded: bool, from: Millis) -> Accounting {
        Accounting {
            capacity,
            most: capacity.into(),
            digits: digits.into(),
            bounded,
            from,
            believed: Sum::ZERO,
            wants: Sum::ZERO,
            last: Millis(0),
            whole: Integrals::default(),
            samples: Samples::default(),
            first_95: None,
            first_99: None,
            digest: 0,
        }
    }

    /// Changes the capacity. After a cut the old bound stays in force until [`held`](Self::held) lowers it.
    pub(crate) fn set_capacity(&mut self, now: Millis, capacity: Amount) {
        self.advance(now);
        self.capacity = capacity;
        self.most = self.most.max(capacity.into());
    }

    /// After a cut, lowers the bound to the amount that the root counts as held.
    pub(crate) fn held(&mut self, held: Sum) {
        // The dues are rounded one by one, so their sum may exceed the capacity a little, and clients keep their dues
        // after a cut.
        let close = Amount::clamped(self.capacity.get() * (1.0 + 1e-12));
        self.most = self.most.min(held).max(close.into());
    }

    pub(crate) fn allow(&mut self, most: Sum) {
        self.most = most;
    }

    /// Records that the wants of a client have changed.
    pub(crate) fn want(&mut self, now: Millis, before: Amount, after: Amount) {
        self.advance(now);
        self.wants -= before;
        self.wants += after;
    }

    /// Records that the usable capacity of a client has changed. Fails if the sum exceeds the bound.
    pub(crate) fn believe(
        &mut self,
        now: Millis,
        client: usize,
        before: Amount,
        after: Amount,
    ) -> Result<(), Violation> {
        self.advance(now);
        self.believed -= before;
        self.believed += after;
        for word in [now.0, client as u64, after.get().to_bits()] {
            self.digest = (self.digest.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        if self.bounded && after > before && self.believed - self.digits > self.most {
            let detail = format!("clients may use {:?} of {:?}", self.believed, self.most);
            return Err(Violation { invariant: "I2", detail });
        }
        Ok(())
    }

    /// Integrates over the time since the last change.
    pub(crate) fn advance(&mut self, now: Millis) {
        let ms = now.since(self.last.max(self.from)).0;
        self.last = now;
        if ms == 0 {
            return;
        }
        let (capacity, had, wants, whole) = (self.capacity.get(), self.believed.get(), self.wants, &mut self.whole);
        let span = ms as f64;
        whole.ms += ms;
        whole.had += had * span;
        whole.had_within += had.min(capacity) * span;
        whole.wanted += wants.get().min(capacity) * span;
        if self.believed > Sum::from(self.capacity) {
            whole.over += had * span;
            whole.over_ms += ms;
            whole.peak = whole.peak.max(self.believed);
        }
    }

    /// Called every second. Takes a sample every [`SAMPLE_INTERVAL`].
    pub(crate) fn sample(&mut self, now: Millis) {
        self.advance(now);
        let (had, wanted) = (self.believed.get(), self.wants.get().min(self.capacity.get()));
        for (part, first) in [(0.95, &mut self.first_95), (0.99, &mut self.first_99)] {
            if first.is_none() && had >= wanted * part {
                *first = Some(now);
            }
        }
        if now >= self.from && now.0.is_multiple_of(SAMPLE_INTERVAL.0) {
            self.samples.add(had, wanted, self.capacity, self.believed > Sum::from(self.capacity));
        }
    }

    /// The sums of wants and of usable capacity.
    pub(crate) fn sums(&self) -> (f64, f64) {
        (self.wants.get(), self.believed.get())
    }

    /// A hash of all changes of usable capacity and their times, to compare two runs.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn figures(&self) -> UsageFigures {
        let (whole, samples, capacity) = (&self.whole, &self.samples, self.capacity.get());
        let seconds = |first: Option<Millis>| first.map(|at| at.0 as f64 / 1000.0);
        UsageFigures {
            of_capacity: per_cent(samples.had, capacity * samples.count as f64),
            of_wanted_sampled: per_cent(samples.had_within, samples.wanted),
            of_wanted: per_cent(whole.had_within, whole.wanted),
            over_samples: samples.over,
            over_events: samples.over_events,
            over_most_sampled: per_cent(samples.over_most, capacity),
            over_mean_sampled: per_cent(samples.over_sum, capacity * samples.over as f64),
            over_seconds: whole.over_ms as f64 / 1000.0,
            over_most: per_cent(whole.peak.get(), capacity),
            over_mean: per_cent(whole.over, capacity * whole.over_ms as f64),
            first_95_s: seconds(self.first_95),
            first_99_s: seconds(self.first_99),
        }
    }
}

impl Samples {
    fn add(&mut self, had: f64, wanted: f64, capacity: Amount, over: bool) {
        self.count += 1;
        self.had += had;
        self.had_within += had.min(capacity.get());
        self.wanted += wanted;
        if over {
            self.over += 1;
            self.over_events += u64::from(!self.was_over);
            self.over_sum += had;
            self.over_most = self.over_most.max(had);
        }
        self.was_over = over;
    }
}

/// `part` in percent of `whole`; 0 if `whole` is 0.
pub(crate) fn per_cent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(value: f64) -> Amount {
        Amount::clamped(value)
    }

    fn accounting(bounded: bool) -> Accounting {
        Accounting::new(amount(100.0), Amount::ZERO, bounded, Millis(10_000))
    }

    /// A client of a resource with capacity 100: it wants 80, later 200, and has 60, then 110 for two seconds, then
    /// 100.
    fn history() -> Accounting {
        let mut accounting = accounting(false);
        accounting.want(Millis(0), Amount::ZERO, amount(80.0));
        accounting.believe(Millis(2_000), 0, Amount::ZERO, amount(60.0)).expect("not bounded");
        for second in 0..=40 {
            let now = Millis(second * 1_000);
            match second {
                20 => accounting.want(now, amount(80.0), amount(200.0)),
                29 => accounting.believe(now, 1, Amount::ZERO, amount(50.0)).expect("not bounded"),
                31 => accounting.believe(now, 1, amount(50.0), amount(40.0)).expect("not bounded"),
                _ => {}
            }
            accounting.sample(now);
        }
        accounting
    }

    fn near(is: f64, expected: f64) {
        assert!((is - expected).abs() < 1e-9, "{is}, expected {expected}");
    }

    #[test]
    fn usage_is_measured_from_the_given_time_on() {
        let figures = history().figures();
        // 10 s at 60 of 80, 9 s at 60 of 100, 11 s at 100 of 100.
        near(figures.of_wanted, 100.0 * (10.0 * 60.0 + 9.0 * 60.0 + 11.0 * 100.0) / (10.0 * 80.0 + 20.0 * 100.0));
        // At 10, 15, 20, 25: 60; at 30: 110; at 35 and 40: 100.
        near(figures.of_capacity, (4.0 * 60.0 + 110.0 + 2.0 * 100.0) / 7.0);
        near(figures.of_wanted_sampled, 100.0 * (4.0 * 60.0 + 3.0 * 100.0) / (2.0 * 80.0 + 5.0 * 100.0));
    }

    #[test]
    fn overuse_is_measured_in_samples_and_exactly() {
        let figures = history().figures();
        assert_eq!((figures.over_samples, figures.over_events), (1, 1));
        near(figures.over_most_sampled, 110.0);
        near(figures.over_mean_sampled, 110.0);
        near(figures.over_seconds, 2.0);
        near(figures.over_most, 110.0);
        near(figures.over_mean, 110.0);
    }

    #[test]
    fn the_first_second_with_95_and_99_percent_is_found() {
        let figures = history().figures();
        assert_eq!((figures.first_95_s, figures.first_99_s), (Some(29.0), Some(29.0)), "60 of 80 is not enough");
        let mut accounting = accounting(true);
        accounting.want(Millis(0), Amount::ZERO, amount(100.0));
        for (second, has) in [(1u64, 94.0), (2, 96.0), (3, 99.5), (4, 10.0)] {
            let before = accounting.believed.floor();
            accounting.believe(Millis(second * 1_000), 0, before, amount(has)).expect("within the capacity");
            accounting.sample(Millis(second * 1_000));
        }
        let figures = accounting.figures();
        assert_eq!((figures.first_95_s, figures.first_99_s), (Some(2.0), Some(3.0)));
    }
}
