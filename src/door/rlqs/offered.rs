//! What is offered to an Envoy, from its reports: how much it should be able to let through.

use std::{ops::RangeInclusive, time::Duration};

use leaseway_client::demand::{Demand, Kind, Sample, Settings};
use leaseway_core::Millis;

use super::report::Usage;

/// Envoy reports every five seconds, whatever it is configured to.
pub(super) const REPORTS: Millis = Millis(5_000);

/// What was denied counts as far as it is this many times what could pass. Those that are denied try again, some at
/// once; who asks ten times is not ten.
const DENIED: f64 = 9.0;

/// Of k requests in a second about √k more would have been as likely. Of those so much is wanted besides after a report
/// of denied ones, and at least; it falls by a fifth with each report of none.
const SPARE: RangeInclusive<f64> = 0.2..=1.0;

/// Wants for one bucket.
#[derive(Debug)]
pub(super) struct Offered {
    demand: Demand,
    /// Wanted as long as too little is known.
    first: f64,
    /// By the Envoy's clock, as far as it is known; begins with the first report.
    at: Millis,
    /// When the last report came.
    heard: Option<Millis>,
    count: f64,
    spare: f64,
    wants: f64,
}

impl Offered {
    /// Before any report.
    pub(super) fn new(first: f64) -> Offered {
        let refresh = Duration::from_millis(REPORTS.0);
        let demand = Demand::new(Settings { kind: Kind::Rate, refresh });
        Offered { demand, first, at: Millis(0), heard: None, count: 0.0, spare: *SPARE.end(), wants: first }
    }

    /// A report has come, of what passed and what did not at an Envoy that was assigned `quota` meanwhile.
    pub(super) fn reported(&mut self, now: Millis, usage: &Usage, quota: f64) {
        let Some(heard) = self.heard.replace(now) else {
            // The first one comes with the first request.
            self.sample(0);
            return;
        };
        let since = now.since(heard).0;
        // Seconds are cut. A report that was held up is as long as it says, and so is the next.
        let least = usage.elapsed.0;
        let elapsed = since.clamp(least, least.saturating_add(999)).max(1);
        self.at = self.at.plus(Millis(elapsed));
        let passable = (usage.allowed as f64).max(quota.min(f64::MAX).max(self.first) * elapsed as f64 / 1000.0);
        self.count += usage.allowed as f64 + (usage.denied as f64).min(passable * DENIED);
        self.sample(self.count as u64);
        let (offered, young) = (self.demand.wants(self.at), self.at < REPORTS);
        self.spare = if usage.denied > 0 { *SPARE.end() } else { (self.spare * 0.8).max(*SPARE.start()) };
        let wants = (offered + offered.sqrt() * self.spare).ceil();
        self.wants = if young { wants.max(self.first) } else { wants.max(LEAST) };
    }

    fn sample(&mut self, count: u64) {
        // None waits at an Envoy: all arrive freely.
        self.demand.sample(self.at, Sample { count, freely: count, ..Sample::default() });
    }

    /// In requests per second.
    pub(super) fn wants(&self) -> f64 {
        self.wants
    }
}

/// As long as an Envoy has a bucket, the next request should find it open.
const LEAST: f64 = 1.0;
