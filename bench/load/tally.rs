//! What a generator thread counts while the measurement runs. Tallies of threads add up.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

use super::workload::Settled;

/// Latencies are kept in microseconds to three digits; what takes longer counts as this long.
const LATENCY_MAX: Duration = Duration::from_secs(60);
const DIGITS: u8 = 3;

pub(crate) struct Tally {
    pub(crate) latency_us: Histogram<u64>,
    /// Resources granted, and left out of an answer.
    pub(crate) granted: u64,
    pub(crate) ignored: u64,
    /// By gRPC status, or by what else went wrong.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        let max = u64::try_from(LATENCY_MAX.as_micros()).expect("a minute fits");
        let latency_us = Histogram::new_with_bounds(1, max, DIGITS).expect("the bounds are constants in order");
        Tally { latency_us, granted: 0, ignored: 0, errors: BTreeMap::new() }
    }

    pub(crate) fn answered(&mut self, latency: Duration, settled: Settled) {
        self.latency_us.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        self.granted += u64::from(settled.granted);
        self.ignored += u64::from(settled.ignored);
    }

    pub(crate) fn failed(&mut self, kind: String) {
        *self.errors.entry(kind).or_default() += 1;
    }

    /// Requests that ended, one way or another.
    pub(crate) fn requests(&self) -> u64 {
        self.latency_us.len() + self.errors.values().sum::<u64>()
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.latency_us.add(&other.latency_us).expect("all tallies have the same bounds");
        self.granted += other.granted;
        self.ignored += other.ignored;
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let (mut one, mut two) = (Tally::new(), Tally::new());
        one.answered(Duration::from_micros(100), Settled { granted: 1, ignored: 0 });
        one.failed("Unavailable".into());
        two.answered(Duration::from_secs(3600), Settled { granted: 0, ignored: 2 });
        two.failed("Unavailable".into());
        two.failed("Internal".into());
        one.add(two);
        assert_eq!((one.requests(), one.granted, one.ignored), (5, 1, 2));
        assert_eq!(one.errors, BTreeMap::from([("Unavailable".into(), 2), ("Internal".into(), 1)]));
        assert!(one.latency_us.max() >= 59_900_000, "a long wait is kept, at the upper bound");
    }
}
