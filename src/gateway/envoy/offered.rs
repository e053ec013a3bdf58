//! Estimates the wants of a bucket from the reports of its Envoy.
//!
//! A rise counts at once. A fall counts by half with each report, and fully once two reports agree. Others get the freed
//! capacity only when the assignment has expired, so a slow estimate delays them further.

use std::ops::RangeInclusive;

use leaseway_core::types::Millis;

/// The requests at a bucket since its last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Envoy truncates it to whole seconds.
    pub elapsed: Millis,
    pub allowed: u64,
    pub denied: u64,
}

impl Usage {
    /// Whether it is the first report of a new bucket, with the request that created the bucket.
    pub fn is_first(&self) -> bool {
        self.elapsed == Millis(0) && self.allowed.saturating_add(self.denied) <= 1
    }
}

/// Envoy reports at this interval, whatever is configured.
pub const REPORTS: Millis = Millis(5_000);

/// Denied requests count up to this many times the quota, because denied callers retry.
const DENIED: f64 = 9.0;

/// A margin for chance is added to the wants: this fraction of √k for k requests per second. It halves with each report
/// without denied requests. It doubles if some were denied although fewer were offered than the quota. Offers above the
/// quota are measured, and change nothing.
const SPARE: RangeInclusive<f64> = 0.1..=1.0;

/// The minimum wants, so that the next request of an idle bucket may pass.
const LEAST: f64 = 1.0;

/// Reports of shorter times are added up.
const SHORTEST: Millis = Millis(1_000);

#[derive(Debug)]
pub(crate) struct Offered {
    /// The wants until there is an estimate.
    first: f64,
    /// The time of the last report.
    heard: Option<Millis>,
    /// The total time of reports that were too short, and the requests in them.
    span: Millis,
    count: f64,
    /// The estimated rate per second, and the rate of the last report.
    rate: Option<f64>,
    last: f64,
    spare: f64,
}

impl Offered {
    pub(crate) fn new(first: f64) -> Offered {
        Offered { first, heard: None, span: Millis(0), count: 0.0, rate: None, last: f64::MAX, spare: *SPARE.end() }
    }

    /// Applies a report. `quota` was assigned meanwhile.
    pub(crate) fn reported(&mut self, now: Millis, usage: &Usage, quota: f64) {
        // Envoy truncates seconds. A delayed report covers the time that it says, and so does the next.
        let least = usage.elapsed.0;
        let elapsed = match self.heard.replace(now) {
            Some(heard) => now.since(heard).0.clamp(least, least.saturating_add(999)),
            // The first report comes with the first request, unless the Envoy has reported to another gateway before.
            None if usage.elapsed < SHORTEST => return,
            None => least,
        };
        let allowed = usage.allowed as f64;
        let passable = allowed.max(quota.min(f64::MAX).max(self.first) * elapsed as f64 / 1000.0);
        let offered = allowed + (usage.denied as f64).min(passable * DENIED);
        if usage.denied == 0 {
            self.spare = (self.spare / 2.0).max(*SPARE.start());
        } else if offered <= passable {
            self.spare = (self.spare * 2.0).min(*SPARE.end());
        }
        self.span = self.span.plus(Millis(elapsed));
        self.count += offered;
        if self.span >= SHORTEST {
            let rate = std::mem::take(&mut self.count) / std::mem::take(&mut self.span).0 as f64 * 1000.0;
            let less = |before| f64::midpoint(before, rate).min(self.last);
            self.rate = Some(self.rate.map_or(rate, |before| less(before).max(rate)));
            self.last = rate;
        }
    }

    /// In whole requests per second.
    pub(crate) fn wants(&self) -> f64 {
        let Some(rate) = self.rate else { return self.first };
        (rate + rate.sqrt() * self.spare).ceil().clamp(LEAST, MAX_RATE)
    }
}

/// Reported numbers may be of any size.
const MAX_RATE: f64 = 1e12;
