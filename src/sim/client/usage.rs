//! Usage patterns of clients of a pool: each client uses its capacity in bursts. The client library computes the usage
//! that it reports.

use std::time::Duration;

use leaseway_client::session::pool::{PoolStanding, PoolState, Usage, UsageCounters, UsageTracker};
use leaseway_core::{
    self as core,
    types::{Amount, Millis},
};

use crate::{scenario::UsageSpec, units::Part};

pub(crate) struct UsagePattern {
    uses: UsageSpec,
    is_busy: bool,
    /// The generation of the pattern. Changes that were scheduled for an earlier one are ignored.
    pub(crate) generation: u32,
    at: Millis,
    taken: f64,
    recharging: Millis,
    /// Set once an answer shows that the resource is a pool.
    tracker: Option<UsageTracker>,
    /// The report in the request in flight.
    reported: Option<(UsageCounters, Option<f64>)>,
}

impl UsagePattern {
    /// Begins in a burst or in a pause, at random.
    pub(crate) fn new(uses: UsageSpec, now: Millis, rng: &mut fastrand::Rng) -> UsagePattern {
        let is_busy = rng.f64() < uses.part.0;
        UsagePattern {
            uses,
            is_busy,
            generation: 0,
            at: now,
            taken: 0.0,
            recharging: Millis(0),
            tracker: None,
            reported: None,
        }
    }

    /// Resets the counters for another client with the same pattern.
    pub(crate) fn forget(&mut self) {
        (self.tracker, self.reported) = (None, None);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    pub(crate) fn change(&mut self) {
        self.is_busy = !self.is_busy;
    }

    pub(crate) fn use_part(&mut self, part: Part, rng: &mut fastrand::Rng) {
        self.generation += 1;
        self.uses.part = part;
        self.is_busy = rng.f64() < part.0;
    }

    /// The time until the next change, if there is one.
    pub(crate) fn next(&self, rng: &mut fastrand::Rng) -> Option<Millis> {
        self.uses.stretch(self.is_busy, rng)
    }

    /// Counts usage until now, at a capacity of `had`.
    pub(crate) fn count(&mut self, now: Millis, had: Amount) {
        let passed = now.since(std::mem::replace(&mut self.at, now));
        if self.is_busy && had > Amount::ZERO {
            self.recharging = self.recharging.plus(passed);
            self.taken += had.get() * passed.0 as f64 / 1000.0;
        }
    }

    fn counters(&self) -> UsageCounters {
        UsageCounters { at: self.at, taken: self.taken as u64, recharging: Duration::from_millis(self.recharging.0) }
    }

    /// The usage to report. `None` until an answer shows that the resource is a pool.
    pub(crate) fn usage(&self) -> Option<Usage> {
        Some(self.tracker.as_ref()?.use_of_rate(self.counters()))
    }

    pub(crate) fn sent(&mut self, usage: Option<Usage>) {
        let counters = usage.map_or_else(|| self.counters(), |usage| usage.counters);
        self.reported = Some((counters, usage.map(|usage| usage.recharging)));
    }

    /// Handles an answer, with the state of the pool if there is one.
    pub(crate) fn answered(&mut self, state: Option<&core::pool::PoolState>) {
        let (before, reported) = (self.tracker.take(), self.reported.take());
        let (counters, part) = reported.unwrap_or_else(|| (self.counters(), None));
        self.tracker = state.map(|state| UsageTracker::answered(before, from_core(state), counters, part));
    }
}

fn from_core(state: &core::pool::PoolState) -> PoolState {
    PoolState {
        standing: match state.standing {
            core::pool::PoolStanding::Waiting => PoolStanding::Waiting,
            core::pool::PoolStanding::Free => PoolStanding::Free,
            core::pool::PoolStanding::Priority => PoolStanding::Priority,
            core::pool::PoolStanding::Revoking => PoolStanding::Revoking,
        },
        assigned: state.assigned.get(),
        min_capacity: state.min_capacity.get(),
        reason: None,
        burst: None,
    }
}

pub(crate) fn to_core(usage: Usage) -> core::pool::Usage {
    core::pool::Usage {
        recharging: usage.recharging,
        request_cost: Amount::clamped(usage.units as f64),
        interval: Some(usage.interval),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Span;

    fn uses(part: f64) -> UsageSpec {
        UsageSpec { part: Part(part), burst: Span::millis(30_000) }
    }

    #[test]
    fn bursts_take_the_given_fraction_of_the_time() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut usage_pattern = UsagePattern::new(uses(0.2), Millis(0), &mut rng);
        let (mut now, mut busy, mut bursts) = (0, 0, 0);
        for _ in 0..20_000 {
            let Millis(stretch) = usage_pattern.next(&mut rng).expect("it ends");
            now += stretch;
            busy += if usage_pattern.is_busy() { stretch } else { 0 };
            bursts += u64::from(usage_pattern.is_busy());
            usage_pattern.change();
        }
        let (part, burst) = (busy as f64 / now as f64, busy as f64 / bursts as f64);
        assert!((part - 0.2).abs() < 0.01 && (burst / 30_000.0 - 1.0).abs() < 0.03, "{part} {burst}");
    }

    #[test]
    fn usage_is_reported_since_the_last_request() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut usage_pattern = UsagePattern::new(uses(1.0), Millis(0), &mut rng);
        let state = core::pool::PoolState {
            standing: core::pool::PoolStanding::Free,
            assigned: Amount::ZERO,
            min_capacity: Amount::clamped(1.0),
            reason: None,
            burst: Millis(0),
        };
        usage_pattern.count(Millis(1_000), Amount::ZERO);
        assert_eq!(usage_pattern.usage(), None, "the server has not asked for it");
        usage_pattern.sent(None);
        usage_pattern.answered(Some(&state));
        usage_pattern.count(Millis(3_000), Amount::ZERO);
        usage_pattern.count(Millis(5_000), Amount::clamped(10.0));
        let usage = usage_pattern.usage().expect("it is a pool");
        assert_eq!(
            (usage.recharging, usage.units, usage.interval),
            (0.5, 20, Millis(4_000)),
            "usage without capacity counts"
        );
        usage_pattern.sent(Some(usage));
        usage_pattern.count(Millis(6_000), Amount::clamped(10.0));
        usage_pattern.answered(Some(&state));
        usage_pattern.count(Millis(7_000), Amount::clamped(10.0));
        assert_eq!(usage_pattern.usage().map(|usage| usage.units), Some(20), "usage during the request is lost");
    }
}
