//! The client side of pools (PRIORITY_POOL): the state of the client in the pool, and the usage that it reports.
//!
//! A request reports the usage since the last answered request. So usage during a request is reported with the next
//! one. If an answer is lost, the next request echoes the same lease with all usage since, and the server counts the
//! difference.
//!
//! Usage is counted and sent only after the server has said that the resource is a pool.

use std::time::Duration;

use leaseway_core::types::Millis;

/// The state of this client in a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolState {
    /// Its standing.
    pub standing: PoolStanding,
    /// Its assignment; 0 if it has none.
    pub assigned: f64,
    /// The minimum capacity: a client gets at least this much or nothing.
    pub min_capacity: f64,
    /// Why the client has no capacity, if the server gives a reason.
    pub reason: Option<String>,
    /// The maximum burst of a rate, in time at full capacity; `None` if the server does not set one.
    pub burst: Option<Duration>,
}

/// The maximum burst of a pool.
pub const MAX_BURST: Duration = Duration::from_secs(3600);

/// The standing of a client in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolStanding {
    /// The client has no capacity and waits for a place.
    Waiting,
    /// A free client: it has the minimum capacity.
    Free,
    /// A priority client: it has its assignment.
    Priority,
    /// The client will lose its capacity with its next request.
    Revoking,
}

/// Counters of usage: what a limiter has let through so far, or what a client without a limiter has reported.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UsageCounters {
    /// The time of the reading.
    pub at: Millis,
    /// Units used so far.
    pub taken: u64,
    /// Rates: total time in which the capacity was in use.
    pub recharging: Duration,
}

/// The usage of a lease.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Rates: the fraction of the time in which the capacity was in use. Gauges: the largest fraction of it in use.
    pub recharging: f64,
    /// Units used.
    pub units: u64,
    /// The length of the measured interval.
    pub interval: Millis,
    /// The counters at the end of the interval. The next interval starts there once the server has answered.
    pub counters: UsageCounters,
}

/// Usage is measured over at least this many seconds.
const MIN_MEASURE_SECONDS: f64 = 0.1;

/// Tracks which usage the server knows of.
#[derive(Debug)]
pub struct UsageTracker {
    /// The state of this client in the pool.
    pub state: PoolState,
    /// The counters that were last reported, and the fraction in use.
    reported: UsageCounters,
    reported_part: f64,
    /// Gauges: the largest fraction in use since the last report, and since the last reading.
    peak: f64,
    newest_peak: f64,
}

impl UsageTracker {
    /// Records an answer. Its request reported the usage up to `reported` and, if it had any usage, `reported_part`.
    pub fn answered(
        before: Option<UsageTracker>,
        state: PoolState,
        reported: UsageCounters,
        reported_part: Option<f64>,
    ) -> UsageTracker {
        // Whether the newest peak came before or after the request was sent is unknown: count it in both.
        let peak = before.as_ref().map_or(0.0, |before| before.newest_peak);
        // Everything counts as used until something is known.
        let reported_part = reported_part.or(before.map(|before| before.reported_part)).unwrap_or(1.0);
        UsageTracker { state, reported, reported_part, peak, newest_peak: peak }
    }

    /// The usage of a rate, which is in use while its credit recharges.
    pub fn use_of_rate(&self, counters: UsageCounters) -> Usage {
        let used = counters.recharging.saturating_sub(self.reported.recharging).as_secs_f64();
        let passed = counters.at.since(self.reported.at).0 as f64 / 1000.0;
        // A very short interval says little, so it is extended to the minimum with the last reported fraction. A
        // request right after another one (a hint, a new master) must not look like full usage.
        let rest = self.reported_part * (MIN_MEASURE_SECONDS - passed).max(0.0);
        self.usage(counters, (used + rest) / passed.max(MIN_MEASURE_SECONDS))
    }

    /// The usage of a gauge; `peak` is the largest fraction in use since the last reading.
    pub fn use_of_gauge(&mut self, counters: UsageCounters, peak: f64) -> Usage {
        (self.newest_peak, self.peak) = (peak, self.peak.max(peak));
        self.usage(counters, self.peak)
    }

    fn usage(&self, counters: UsageCounters, recharging: f64) -> Usage {
        Usage {
            recharging: recharging.clamp(0.0, 1.0),
            units: counters.taken.saturating_sub(self.reported.taken),
            interval: counters.at.since(self.reported.at),
            counters,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> PoolState {
        PoolState { standing: PoolStanding::Free, assigned: 0.0, min_capacity: 1.0, reason: None, burst: None }
    }

    fn counters(at: u64, taken: u64, recharging: u64) -> UsageCounters {
        UsageCounters { at: Millis(at), taken, recharging: Duration::from_millis(recharging) }
    }

    #[test]
    fn usage_is_reported_once_including_usage_during_requests() {
        let tracker = UsageTracker::answered(None, state(), counters(1_000, 10, 500), None);
        let sent = tracker.use_of_rate(counters(5_000, 30, 1_500));
        assert_eq!((sent.recharging, sent.units, sent.interval), (0.25, 20, Millis(4_000)));
        // The answer is lost: everything is reported again, with usage since then.
        let again = tracker.use_of_rate(counters(9_000, 40, 3_500));
        assert_eq!((again.recharging, again.units), (0.375, 30));
        // It arrives after more was used.
        let tracker = UsageTracker::answered(Some(tracker), state(), again.counters, None);
        assert_eq!(tracker.use_of_rate(counters(9_500, 45, 4_000)).units, 5);
    }

    #[test]
    fn a_very_short_interval_keeps_the_last_reported_fraction() {
        let part = |reported, at, recharging| {
            let tracker = UsageTracker::answered(None, state(), counters(1_000, 0, 0), reported);
            tracker.use_of_rate(counters(at, 0, recharging)).recharging
        };
        assert_eq!(part(None, 1_000, 0), 1.0, "nothing is known: everything counts as used");
        assert_eq!(part(Some(0.25), 1_000, 0), 0.25, "just reported");
        assert_eq!(part(Some(0.25), 1_050, 50), 0.625, "half measured, half as last reported");
        assert_eq!(part(Some(0.25), 1_200, 0), 0.0);
        assert_eq!(part(None, 1_010, 11), 1.0, "clocks may differ by a little");
    }

    #[test]
    fn a_gauge_reports_the_largest_fraction_in_use() {
        let mut tracker = UsageTracker::answered(None, state(), UsageCounters::default(), None);
        assert_eq!(tracker.use_of_gauge(counters(100, 1, 0), 0.5).recharging, 0.5);
        assert_eq!(tracker.use_of_gauge(counters(200, 1, 0), 0.25).recharging, 0.5);
        let mut tracker = UsageTracker::answered(Some(tracker), state(), counters(200, 1, 0), None);
        let newest = tracker.use_of_gauge(counters(300, 1, 0), 0.0).recharging;
        assert_eq!(newest, 0.25, "the peak may have come after the request was sent");
    }
}
