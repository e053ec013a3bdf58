//! How clients of a pool use what they have: in bursts, each in its own time. What a limiter would measure of that is
//! what they report; the report itself is made by the client library.

use std::time::Duration;

use leaseway_client::session::pool::{PoolStanding, PoolState, Usage, UsageCounters, UsageTracker};
use leaseway_core::{self as core, Amount, Millis};
use serde::Deserialize;

use crate::scenario::units::{Part, Span};

/// What clients do with what they have.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageSpec {
    /// The part of the time in which they use all of it; the rest of the time they use nothing.
    pub(crate) part: Part,
    /// For so long at a stretch, on average.
    pub(crate) burst: Span,
}

impl UsageSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.burst.0.0 == 0 { Err("`burst` is 0s, expected some time".into()) } else { Ok(()) }
    }

    /// How long it goes on as it is, if it ends at all.
    fn stretch(&self, is_busy: bool, rng: &mut fastrand::Rng) -> Option<Millis> {
        let Part(part) = self.part;
        let burst = self.burst.0.0 as f64;
        let mean = if is_busy { burst } else { burst * (1.0 - part) / part };
        let for_ever = if is_busy { part >= 1.0 } else { part <= 0.0 };
        // When it will end does not depend on how long it has been: an exponential distribution.
        (!for_ever).then(|| Millis(((1.0 - rng.f64()).ln() * -mean).max(1.0) as u64))
    }
}

/// One client's bursts, and its limiter.
pub(crate) struct UsagePattern {
    uses: UsageSpec,
    is_busy: bool,
    /// A change that was set for an earlier habit is none.
    pub(crate) turn: u32,
    at: Millis,
    taken: f64,
    recharging: Millis,
    /// Where it stands, once the server has said that there is a pool.
    tracker: Option<UsageTracker>,
    /// What the request that is under way says.
    told: Option<(UsageCounters, Option<f64>)>,
}

impl UsagePattern {
    /// It may begin in the middle of a burst.
    pub(crate) fn new(uses: UsageSpec, now: Millis, rng: &mut fastrand::Rng) -> UsagePattern {
        let is_busy = rng.f64() < uses.part.0;
        UsagePattern { uses, is_busy, turn: 0, at: now, taken: 0.0, recharging: Millis(0), tracker: None, told: None }
    }

    /// Another client with the same habit: it has used nothing yet.
    pub(crate) fn forget(&mut self) {
        (self.tracker, self.told) = (None, None);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// The other way round from now on.
    pub(crate) fn change(&mut self) {
        self.is_busy = !self.is_busy;
    }

    /// It uses another part of the time from now on.
    pub(crate) fn use_part(&mut self, part: Part, rng: &mut fastrand::Rng) {
        self.turn += 1;
        self.uses.part = part;
        self.is_busy = rng.f64() < part.0;
    }

    /// When it changes, if it does.
    pub(crate) fn next(&self, rng: &mut fastrand::Rng) -> Option<Millis> {
        self.uses.stretch(self.is_busy, rng)
    }

    /// Counts the time until now, in which it had so much.
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

    /// What a request says of it, once the server has asked for it.
    pub(crate) fn usage(&self) -> Option<Usage> {
        Some(self.tracker.as_ref()?.use_of_rate(self.counters()))
    }

    /// A request has left that says this.
    pub(crate) fn sent(&mut self, usage: Option<Usage>) {
        let counters = usage.map_or_else(|| self.counters(), |usage| usage.counters);
        self.told = Some((counters, usage.map(|usage| usage.recharging)));
    }

    /// The answer to it says where the client stands.
    pub(crate) fn answered(&mut self, state: Option<&core::PoolState>) {
        let (before, told) = (self.tracker.take(), self.told.take());
        let (counters, part) = told.unwrap_or_else(|| (self.counters(), None));
        self.tracker = state.map(|state| UsageTracker::answered(before, from_core(state), counters, part));
    }
}

/// As it comes off the wire.
fn from_core(state: &core::PoolState) -> PoolState {
    PoolState {
        standing: match state.standing {
            core::PoolStanding::Waiting => PoolStanding::Waiting,
            core::PoolStanding::Free => PoolStanding::Free,
            core::PoolStanding::Priority => PoolStanding::Priority,
            core::PoolStanding::Revoking => PoolStanding::Revoking,
        },
        assigned: state.assigned.get(),
        min_capacity: state.min_capacity.get(),
        reason: None,
        burst: None,
    }
}

/// As it arrives.
pub(crate) fn to_core(usage: Usage) -> core::Usage {
    core::Usage {
        recharging: usage.recharging,
        request_cost: Amount::clamped(usage.units as f64),
        interval: Some(usage.interval),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(part: f64) -> UsageSpec {
        UsageSpec { part: Part(part), burst: Span::millis(30_000) }
    }

    #[test]
    fn bursts_take_the_part_of_the_time_that_they_should() {
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
    fn all_of_the_time_and_none_of_it_never_end() {
        let mut rng = fastrand::Rng::with_seed(1);
        for (part, is_busy) in [(0.0, false), (1.0, true)] {
            let usage_pattern = UsagePattern::new(uses(part), Millis(0), &mut rng);
            assert_eq!((usage_pattern.is_busy(), usage_pattern.next(&mut rng)), (is_busy, None));
        }
    }

    #[test]
    fn what_is_used_is_reported_from_the_request_before_on() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut usage_pattern = UsagePattern::new(uses(1.0), Millis(0), &mut rng);
        let state = core::PoolState {
            standing: core::PoolStanding::Free,
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
            "of nothing it used nothing"
        );
        usage_pattern.sent(Some(usage));
        usage_pattern.count(Millis(6_000), Amount::clamped(10.0));
        usage_pattern.answered(Some(&state));
        usage_pattern.count(Millis(7_000), Amount::clamped(10.0));
        assert_eq!(usage_pattern.usage().map(|usage| usage.units), Some(20), "also what was used while it was told");
    }
}
