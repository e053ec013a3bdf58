//! What is offered to an Envoy, from its reports: how much it should be able to let through.
//!
//! More is believed at once, less by half with each report, and altogether once two reports say so. An Envoy is told
//! less at once, and others have it when its assignment is over: what falls slowly here is late for others by that
//! much more.

use std::ops::RangeInclusive;

use leaseway_core::Millis;

/// What has passed at a bucket, and what was denied, since it was last reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// As Envoy says it: whole seconds, cut.
    pub elapsed: Millis,
    /// Requests let through.
    pub allowed: u64,
    /// Requests turned away.
    pub denied: u64,
}

impl Usage {
    /// Whether it is the first report of a bucket that its Envoy has just made, with the request that it was made for.
    pub fn is_first(&self) -> bool {
        self.elapsed == Millis(0) && self.allowed.saturating_add(self.denied) <= 1
    }
}

/// Envoy reports every five seconds, and takes no notice of what is configured.
pub const REPORTS: Millis = Millis(5_000);

/// What was denied counts as far as it is this many times what could pass. Those that are denied try again, some at
/// once; who asks ten times is not ten.
const DENIED: f64 = 9.0;

/// Of k requests in a second about √k more would have been as likely. Of those so much is wanted besides, at least and
/// at most: half as much with each report of none denied, twice as much where some were denied although no more were
/// offered than could pass. A bucket holds a second's worth besides; and of what is offered above the quota it is known
/// how much it is, so that nothing has to be added for chance.
const SPARE: RangeInclusive<f64> = 0.1..=1.0;

/// As long as an Envoy has a bucket, the next request should find it open.
const LEAST: f64 = 1.0;

/// A shorter time says little: the next report counts with it.
const SHORTEST: Millis = Millis(1_000);

/// Wants for one bucket.
#[derive(Debug)]
pub(crate) struct Offered {
    /// Wanted as long as too little is known.
    first: f64,
    /// When the last report came.
    heard: Option<Millis>,
    /// Of reports that were too short: how long they were together, and what they count.
    span: Millis,
    count: f64,
    /// Per second, once it is known; and as the last report has it.
    rate: Option<f64>,
    last: f64,
    spare: f64,
}

impl Offered {
    /// Before any report.
    pub(crate) fn new(first: f64) -> Offered {
        Offered { first, heard: None, span: Millis(0), count: 0.0, rate: None, last: f64::MAX, spare: *SPARE.end() }
    }

    /// A report has come, of what passed and what did not at an Envoy that was assigned `quota` meanwhile.
    pub(crate) fn reported(&mut self, now: Millis, usage: &Usage, quota: f64) {
        // Seconds are cut. A report that was held up is as long as it says, and so is the next.
        let least = usage.elapsed.0;
        let elapsed = match self.heard.replace(now) {
            Some(heard) => now.since(heard).0.clamp(least, least.saturating_add(999)),
            // The first one comes with the first request; or its Envoy has reported to another gateway before.
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

/// A number of any size may be reported; no Envoy lets more through.
const MAX_RATE: f64 = 1e12;
