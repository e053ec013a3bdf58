//! The number of requests that a gateway may allow beside a competing client of the same limit.
//!
//! For a limit per second, a gateway saves up at most one second of its lease, and at least one permit; a smaller lease
//! cuts its savings. At any time its lease is at most the part of the capacity that the other client does not believe
//! in. So in any time span at most ∫ (capacity − believed) requests pass, plus one second of that difference at the
//! beginning of the span.
//!
//! A gateway starts with full savings: another second, when it gets its first lease. That happens between its start and
//! the first answer to a request that was sent after the start.

use std::collections::BTreeMap;

/// A request that passed. The gateway decided on it between the two times, which are on the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pass {
    pub(crate) sent_us: u64,
    pub(crate) answered_us: u64,
}

/// The history of one limit. Each value holds from its time on, and times ascend.
pub(crate) struct RouteHistory<'a> {
    pub(crate) passes: &'a [Pass],
    /// The times at which the gateway was started.
    pub(crate) starts_us: &'a [u64],
    /// The capacity that the other client believes in, initially zero.
    pub(crate) believed: &'a [(u64, f64)],
    pub(crate) limits: &'a [(u64, f64)],
}

/// The time span with the largest excess of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Excess {
    pub(crate) requests: f64,
    pub(crate) from_us: u64,
    pub(crate) until_us: u64,
}

impl Excess {
    pub(crate) fn told(&self, resource: &str, began_us: u64) -> String {
        let seconds = |from: u64, until: u64| until.saturating_sub(from) as f64 / 1e6;
        let (from, until) = (seconds(began_us, self.from_us), seconds(began_us, self.until_us));
        format!("{:.1} requests too many passed for `{resource}` between {from:.3} s and {until:.3} s", self.requests)
    }
}

/// The time for which a gateway saves up unused permits, in seconds.
const WINDOW: f64 = 1.0;

/// The tolerance for timers on a busy machine, in seconds: the holder may end a lease this late.
const LATE: f64 = 0.1;

/// The tolerance for rounding errors, in requests.
const ROUNDING: f64 = 1e-6;

/// A step of the sums at one time: amounts that count for spans that end then or later, and amounts that do not count
/// for spans that begin later.
#[derive(Clone, Copy, Default)]
struct SpanStep {
    ends: f64,
    begins: f64,
}

/// The span with the largest excess, if any. A request counts for a span if it was sent and answered within the span. A
/// request that lasted longer than the span is subtracted.
pub(crate) fn excess(history: &RouteHistory<'_>) -> Option<Excess> {
    let (mut ends, mut begins, mut unused) = (0.0_f64, 0.0, 0.0);
    let (mut least, mut from_us) = (f64::INFINITY, 0);
    let mut worst: Option<Excess> = None;
    let (mut free, mut last) = (0.0, history.first());
    let late = history.late();
    for (at, step) in history.steps() {
        unused += free * (at - last) as f64 / 1e6;
        // A span that begins at this time includes the changes at this time.
        let begun = begins - unused + saved(free);
        if begun < least {
            (least, from_us) = (begun, at);
        }
        let most = ends.max(ends + step.ends);
        let requests = most - unused - least - late;
        if requests > worst.map_or(ROUNDING, |worst| worst.requests) {
            worst = Some(Excess { requests, from_us, until_us: at });
        }
        ends += step.ends;
        begins += step.begins;
        (free, last) = (history.free(at), at);
    }
    worst
}

/// The maximum savings of a gateway with a lease of `lent`.
fn saved(lent: f64) -> f64 {
    (lent * WINDOW).max(1.0)
}

impl RouteHistory<'_> {
    /// All times at which a value changes or a request passes, with their steps.
    fn steps(&self) -> BTreeMap<u64, SpanStep> {
        let mut steps: BTreeMap<u64, SpanStep> = BTreeMap::new();
        for (at, _) in self.limits.iter().chain(self.believed) {
            steps.entry(self.first().max(*at)).or_default();
        }
        for pass in self.passes {
            steps.entry(pass.sent_us).or_default().begins += 1.0;
            steps.entry(pass.answered_us).or_default().ends += 1.0;
        }
        for &start in self.starts_us {
            let later = self.passes.iter().filter(|pass| pass.sent_us >= start);
            let first = later.map(|pass| pass.answered_us).min();
            let filled = self.most_saved(start, first.unwrap_or(u64::MAX));
            steps.entry(start).or_default().ends -= filled;
            first.into_iter().for_each(|first| steps.entry(first).or_default().begins -= filled);
        }
        steps
    }

    /// The first start of the gateway. No request passes before it.
    fn first(&self) -> u64 {
        self.starts_us.iter().copied().min().unwrap_or(0)
    }

    /// The capacity that the gateway may have at this time.
    fn free(&self, at: u64) -> f64 {
        level(self.limits, at) - level(self.believed, at)
    }

    /// The maximum savings of a gateway whose first lease begins between these times.
    fn most_saved(&self, from: u64, until: u64) -> f64 {
        let changes = self.limits.iter().chain(self.believed).map(|(at, _)| *at);
        let within = changes.filter(|at| (from..=until).contains(at)).chain([from]);
        within.map(|at| saved(self.free(at))).fold(0.0, f64::max)
    }

    /// The permits to tolerate because of late timers.
    fn late(&self) -> f64 {
        self.limits.iter().map(|(_, limit)| limit * LATE).fold(0.0, f64::max)
    }
}

fn level(levels: &[(u64, f64)], at: u64) -> f64 {
    let begun = levels.partition_point(|(from, _)| *from <= at);
    begun.checked_sub(1).map_or(0.0, |last| levels[last].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// A limit of 100 per second of which the other client believes in 60, and a gateway that starts at the beginning.
    fn history(passes: &[Pass]) -> RouteHistory<'_> {
        RouteHistory { passes, starts_us: &[0], believed: &[(0, 60.0)], limits: &[(0, 100.0)] }
    }

    /// Requests at equal intervals in microseconds, each decided within a millisecond.
    fn flow(from_us: u64, every_us: u64, many: u64) -> Vec<Pass> {
        let pass = |at: u64| Pass { sent_us: at, answered_us: at + 1000 };
        (0..many).map(|n| pass(from_us + n * every_us)).collect()
    }

    fn requests(history: &RouteHistory<'_>) -> f64 {
        excess(history).map_or(0.0, |excess| excess.requests)
    }

    #[test]
    fn a_gateway_may_pass_its_lease_and_its_initial_savings() {
        let passes = [flow(0, 100, 40), flow(0, 25_000, 400)].concat();
        assert_eq!(excess(&history(&passes)), None);
    }

    #[test]
    fn unused_permits_are_saved_for_at_most_a_second() {
        let quiet = |burst| [flow(0, 100, 40), flow(5 * SECOND, 100, burst), flow(6 * SECOND, 25_000, 40)].concat();
        assert_eq!(excess(&history(&quiet(40))), None);
        let found = excess(&history(&quiet(80))).unwrap();
        assert!((20.0..40.0).contains(&found.requests), "{found:?}");
        assert!(found.from_us >= 5 * SECOND && found.until_us < 6 * SECOND, "{found:?}");
    }

    #[test]
    fn a_flow_above_the_lease_is_found_once_it_exceeds_the_savings() {
        assert_eq!(excess(&history(&flow(0, 24_000, 400))), None, "less than was saved up");
        let found = excess(&history(&flow(0, 20_000, 2_000))).unwrap();
        assert!((found.requests - (400.0 - 50.0)).abs() < 2.0, "{found:?}");
    }

    #[test]
    fn only_a_restarted_gateway_begins_with_full_savings() {
        let passes = [flow(4 * SECOND, 100, 1), flow(5 * SECOND, 100, 40), flow(5_100_000, 100, 40)].concat();
        let started = |again| requests(&RouteHistory { starts_us: &[0, again], ..history(&passes) });
        assert!(requests(&history(&passes)) > 20.0);
        assert!(started(3 * SECOND) > 20.0, "it has let something through before");
        assert_eq!(started(5_050_000), 0.0);
    }

    #[test]
    fn a_gateway_that_uses_an_ended_lease_is_found() {
        let passes = flow(0, 25_000, 160);
        let believed = [(0, 60.0), (2 * SECOND, 100.0)];
        let found = excess(&RouteHistory { believed: &believed, ..history(&passes) }).unwrap();
        assert!((found.requests - (80.0 - 11.0)).abs() < 2.0 && found.from_us >= 2 * SECOND, "{found:?}");
    }

    #[test]
    fn savings_are_cut_with_the_capacity() {
        let passes = [flow(0, 100, 40), flow(4 * SECOND, 100, 40)].concat();
        let limits = [(0, 100.0), (3 * SECOND, 65.0)];
        assert!(requests(&RouteHistory { limits: &limits, ..history(&passes) }) > 20.0);
        let raised = [(0, 65.0), (3 * SECOND, 100.0)];
        let found = requests(&RouteHistory { limits: &raised, ..history(&passes) });
        assert!((20.0..30.0).contains(&found), "at first there was less: {found}");
    }

    #[test]
    fn a_request_that_may_have_been_decided_outside_of_a_span_does_not_count() {
        let mut waited = flow(0, 25_000, 400);
        waited.iter_mut().for_each(|pass| pass.answered_us = 10 * SECOND);
        assert_eq!(excess(&history(&waited)), None, "all answers come at once");
        waited.iter_mut().for_each(|pass| pass.sent_us = 10 * SECOND - 1000);
        assert!(requests(&history(&waited)) > 300.0);
    }
}
