//! The counters of a generator thread. Tallies of threads are added up.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::load::workload::Settled;

/// The longest latency in microseconds, kept to three digits. Longer ones count as this.
const LATENCY_MAX: Duration = Duration::from_secs(60);
const DIGITS: u8 = 3;
/// Each second has fewer digits, because a run may have many.
const SECOND_DIGITS: u8 = 2;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Resources that got a lease.
    pub(crate) granted: u64,
    /// Resources that were left out of an answer because of the minimum request interval.
    pub(crate) ignored: u64,
    /// New clients, and clients that released their leases. Only with `--churn`.
    pub(crate) newcomers: u64,
    pub(crate) releases: u64,
    /// By gRPC status or other cause.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Counts {
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    pub(crate) fn errors_text(&self) -> String {
        if self.errors.is_empty() {
            return "no errors".into();
        }
        let kinds: Vec<_> = self.errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        format!("{} errors: {}", self.error_count(), kinds.join(", "))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SecondTally {
    pub(crate) latency_us: Histogram<u64>,
    pub(crate) failed: u64,
}

pub(crate) struct Tally {
    /// The time since the beginning of the measurement.
    pub(crate) elapsed: Duration,
    pub(crate) seconds: Vec<SecondTally>,
    /// The longest time between two answers to one thread, and when the last one came.
    pub(crate) silence: Duration,
    last_answer: Duration,
    pub(crate) latency_us: Histogram<u64>,
    /// From when a request was due until it began. Empty without a schedule.
    pub(crate) late_us: Histogram<u64>,
    /// The longest that a request without an answer had waited at the end.
    pub(crate) unanswered: Duration,
    pub(crate) counts: Counts,
}

fn histogram(digits: u8) -> Histogram<u64> {
    let max = u64::try_from(LATENCY_MAX.as_micros()).expect("a minute fits");
    Histogram::new_with_bounds(1, max, digits).expect("the bounds are constants in order")
}

impl SecondTally {
    fn new() -> SecondTally {
        SecondTally { latency_us: histogram(SECOND_DIGITS), failed: 0 }
    }
}

impl Tally {
    pub(crate) fn new() -> Tally {
        let histogram = histogram(DIGITS);
        Tally {
            elapsed: Duration::ZERO,
            seconds: Vec::new(),
            silence: Duration::ZERO,
            last_answer: Duration::ZERO,
            latency_us: histogram.clone(),
            late_us: histogram,
            unanswered: Duration::ZERO,
            counts: Counts::default(),
        }
    }

    pub(crate) fn answered(&mut self, latency: Duration, settled: Settled) {
        record(&mut self.latency_us, latency);
        record(&mut self.second().latency_us, latency);
        self.silence = self.silence.max(self.elapsed.saturating_sub(self.last_answer));
        self.last_answer = self.elapsed;
        self.counts.granted += u64::from(settled.granted);
        self.counts.ignored += u64::from(settled.ignored);
    }

    pub(crate) fn late(&mut self, by: Duration) {
        record(&mut self.late_us, by);
    }

    pub(crate) fn unanswered(&mut self, waited: Duration) {
        self.unanswered = self.unanswered.max(waited);
    }

    pub(crate) fn failed(&mut self, kind: String) {
        *self.counts.errors.entry(kind).or_default() += 1;
        self.second().failed += 1;
    }

    fn second(&mut self) -> &mut SecondTally {
        let now = usize::try_from(self.elapsed.as_secs()).expect("a run is shorter");
        if self.seconds.len() <= now {
            self.seconds.resize_with(now + 1, SecondTally::new);
        }
        &mut self.seconds[now]
    }

    /// Requests for capacity that ended in any way; also failed attempts to connect and failed releases.
    pub(crate) fn requests(&self) -> u64 {
        self.latency_us.len() + self.counts.error_count()
    }

    pub(crate) fn add(&mut self, other: Tally) {
        let same = "all tallies have the same bounds";
        self.latency_us.add(&other.latency_us).expect(same);
        self.late_us.add(&other.late_us).expect(same);
        self.unanswered(other.unanswered);
        self.silence = self.silence.max(other.silence);
        let longer = self.seconds.len().max(other.seconds.len());
        self.seconds.resize_with(longer, SecondTally::new);
        for (second, other) in self.seconds.iter_mut().zip(other.seconds) {
            second.latency_us.add(other.latency_us).expect(same);
            second.failed += other.failed;
        }
        let counts = &mut self.counts;
        counts.granted += other.counts.granted;
        counts.ignored += other.counts.ignored;
        counts.newcomers += other.counts.newcomers;
        counts.releases += other.counts.releases;
        for (kind, count) in other.counts.errors {
            *counts.errors.entry(kind).or_default() += count;
        }
    }
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
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
        two.elapsed = Duration::from_millis(1500);
        two.answered(Duration::from_millis(1), Settled { granted: 1, ignored: 0 });
        one.add(two);
        let seconds: Vec<_> = one.seconds.iter().map(|second| (second.latency_us.len(), second.failed)).collect();
        assert!(one.seconds[0].latency_us.max() >= 59_000_000, "as in all of it");
        assert_eq!((seconds, one.silence), (vec![(2, 3), (1, 0)], Duration::from_millis(1500)));
        assert_eq!((one.requests(), one.counts.granted, one.counts.ignored), (6, 2, 2));
        assert_eq!(one.counts.errors, BTreeMap::from([("Unavailable".into(), 2), ("Internal".into(), 1)]));
        assert!(one.latency_us.max() >= 59_900_000, "a long wait is kept, at the upper bound");
    }
}
