//! Estimates the wants of a bucket from the reports of its Envoy.
//!
//! A rise applies immediately. A fall applies by half with each report, and fully once two reports agree. A slower
//! estimate would waste capacity, because other holders get the freed part only after the assignment has expired.

use std::ops::RangeInclusive;

use leaseway_core::types::Millis;

/// The requests at a bucket since its last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Truncated to whole seconds by Envoy.
    pub elapsed: Millis,
    pub allowed: u64,
    pub denied: u64,
}

impl Usage {
    /// Whether this is the first report of a new bucket, with the request that created the bucket.
    pub fn is_first(&self) -> bool {
        self.elapsed == Millis(0) && self.allowed.saturating_add(self.denied) <= 1
    }
}

/// The interval of Envoy's reports, which is not configurable.
pub const REPORT_INTERVAL: Millis = Millis(5_000);

/// Denied requests count up to this multiple of the quota, because denied callers retry.
const MAX_DENIED_FACTOR: f64 = 9.0;

/// The range of the margin for statistical noise, as a fraction of √k for k requests per second. The margin halves with
/// each report without denied requests, and doubles if requests were denied although fewer arrived than the quota.
const MARGIN: RangeInclusive<f64> = 0.1..=1.0;

/// The minimum wants, so that the next request of an idle bucket may pass.
const MIN_WANTS: f64 = 1.0;

/// Shorter reports are added up.
const MIN_SPAN: Millis = Millis(1_000);

#[derive(Debug)]
pub(crate) struct BucketDemand {
    /// The wants until there is an estimate.
    first: f64,
    /// The time of the last report.
    reported_at: Option<Millis>,
    /// The total time of reports that were too short.
    span: Millis,
    /// The requests in those reports.
    count: f64,
    /// The estimated rate per second.
    rate: Option<f64>,
    /// The rate of the last report.
    last: f64,
    margin: f64,
}

impl BucketDemand {
    pub(crate) fn new(first: f64) -> BucketDemand {
        BucketDemand {
            first,
            reported_at: None,
            span: Millis(0),
            count: 0.0,
            rate: None,
            last: f64::MAX,
            margin: *MARGIN.end(),
        }
    }

    /// Applies a report; `quota` was in force meanwhile.
    pub(crate) fn reported(&mut self, now: Millis, usage: &Usage, quota: f64) {
        // The time since the last report, within the range that Envoy's truncated seconds allow. A delayed report would
        // otherwise distort its own rate and that of the next report.
        let least = usage.elapsed.0;
        let elapsed = match self.reported_at.replace(now) {
            Some(reported_at) => now.since(reported_at).0.clamp(least, least.saturating_add(999)),
            // The first report has only the first request, unless the Envoy has reported to another gateway before.
            None if usage.elapsed < MIN_SPAN => return,
            None => least,
        };
        let allowed = usage.allowed as f64;
        let passable = allowed.max(quota.min(f64::MAX).max(self.first) * elapsed as f64 / 1000.0);
        let offered = allowed + (usage.denied as f64).min(passable * MAX_DENIED_FACTOR);
        if usage.denied == 0 {
            self.margin = (self.margin / 2.0).max(*MARGIN.start());
        } else if offered <= passable {
            self.margin = (self.margin * 2.0).min(*MARGIN.end());
        }
        self.span = self.span.plus(Millis(elapsed));
        self.count += offered;
        if self.span >= MIN_SPAN {
            let rate = std::mem::take(&mut self.count) / std::mem::take(&mut self.span).0 as f64 * 1000.0;
            let less = |before| f64::midpoint(before, rate).min(self.last);
            self.rate = Some(self.rate.map_or(rate, |before| less(before).max(rate)));
            self.last = rate;
        }
    }

    /// In whole requests per second.
    pub(crate) fn wants(&self) -> f64 {
        let Some(rate) = self.rate else { return self.first };
        (rate + rate.sqrt() * self.margin).ceil().clamp(MIN_WANTS, MAX_RATE)
    }
}

/// The maximum of the wants, because reported numbers are unbounded.
const MAX_RATE: f64 = 1e12;
