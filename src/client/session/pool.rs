//! PRIORITY_POOL as a client sees it: where it stands there, and what the server is told of how much it uses.
//!
//! Use is counted from what was told with the request whose answer brought the newest lease: nothing is told twice, and
//! what is used while a request is under way is told with the next. If an answer is lost, the same lease is echoed with
//! all that has been used since; the server counts what is new in that.
//!
//! Nothing is counted or sent where the server has not said that the resource is a pool: others have no use for it.

use std::time::Duration;

use leaseway_core::Millis;

/// Where this client stands in a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolState {
    /// What it is to the pool.
    pub standing: PoolStanding,
    /// What was assigned to it; nothing, if it has no assignment.
    pub assigned: f64,
    /// The least that is of any use: a client has nothing or at least this much.
    pub min_capacity: f64,
    /// Why it has nothing, if it has nothing and the server says why.
    pub reason: Option<String>,
    /// What a rate may save up while less is used: so much time of its capacity. Absent: the server does not say.
    pub burst: Option<Duration>,
}

/// No pool lets a client save up more.
pub const MAX_BURST: Duration = Duration::from_secs(3600);

/// What a client is to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolStanding {
    /// It has nothing, and waits for a place.
    Waiting,
    /// It has what every client may have that has no assignment.
    Free,
    /// It has what was assigned to it.
    Priority,
    /// It will lose what it has.
    Revoking,
}

/// What a limiter has let through, ever; or what a client that limits itself says it has used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UsageCounters {
    /// When this was so.
    pub at: Millis,
    pub taken: u64,
    /// Rates: for how long the capacity was in use.
    pub recharging: Duration,
}

/// What has been used of a lease.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// The part of the time in which the capacity was in use; of a gauge, the largest part of it that was.
    pub recharging: f64,
    pub units: u64,
    /// How long that was.
    pub interval: Millis,
    /// What is counted from once this has been heard.
    pub counters: UsageCounters,
}

/// The shortest time in seconds over which use is measured.
const MIN_MEASURE_SECONDS: f64 = 0.1;

/// A resource that is a pool.
#[derive(Debug)]
pub struct UsageTracker {
    /// Where the client stands there.
    pub state: PoolState,
    /// What the server has been told of, and the part in use that it was told last.
    reported: UsageCounters,
    reported_part: f64,
    /// Gauges: the largest part of the capacity that was in use since then, and since it was last looked at.
    peak: f64,
    newest_peak: f64,
}

impl UsageTracker {
    /// The server has answered a request that told of use up to `reported`, and of this part if it told of any.
    pub fn answered(
        before: Option<UsageTracker>,
        state: PoolState,
        reported: UsageCounters,
        reported_part: Option<f64>,
    ) -> UsageTracker {
        // What came after the request was sent is not known from what came before: both count, rather than neither.
        let peak = before.as_ref().map_or(0.0, |before| before.newest_peak);
        // As long as nothing is known, all counts as used.
        let reported_part = reported_part.or(before.map(|before| before.reported_part)).unwrap_or(1.0);
        UsageTracker { state, reported, reported_part, peak, newest_peak: peak }
    }

    /// Of a rate, which is used for as long as its credit comes back.
    pub fn use_of_rate(&self, counters: UsageCounters) -> Usage {
        let used = counters.recharging.saturating_sub(self.reported.recharging).as_secs_f64();
        let passed = counters.at.since(self.reported.at).0 as f64 / 1000.0;
        // A moment says little: what was told last counts for the rest of the time. A request that follows another at
        // once, because of a hint or a new master, must not look like use of everything.
        let rest = self.reported_part * (MIN_MEASURE_SECONDS - passed).max(0.0);
        self.usage(counters, (used + rest) / passed.max(MIN_MEASURE_SECONDS))
    }

    /// Of a gauge, of whose capacity this part was in use since it was last looked at.
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
    fn what_was_told_is_not_told_again_and_what_was_used_meanwhile_is() {
        let tracker = UsageTracker::answered(None, state(), counters(1_000, 10, 500), None);
        let sent = tracker.use_of_rate(counters(5_000, 30, 1_500));
        assert_eq!((sent.recharging, sent.units, sent.interval), (0.25, 20, Millis(4_000)));
        // The answer is lost: all is told again, with what came since.
        let again = tracker.use_of_rate(counters(9_000, 40, 3_500));
        assert_eq!((again.recharging, again.units), (0.375, 30));
        // It arrives after more was used.
        let tracker = UsageTracker::answered(Some(tracker), state(), again.counters, None);
        assert_eq!(tracker.use_of_rate(counters(9_500, 45, 4_000)).units, 5);
    }

    #[test]
    fn a_moment_after_a_request_what_it_said_still_holds() {
        let part = |reported, at, recharging| {
            let tracker = UsageTracker::answered(None, state(), counters(1_000, 0, 0), reported);
            tracker.use_of_rate(counters(at, 0, recharging)).recharging
        };
        assert_eq!(part(None, 1_000, 0), 1.0, "nothing is known");
        assert_eq!(part(Some(0.25), 1_000, 0), 0.25, "it was told just now");
        assert_eq!(part(Some(0.25), 1_050, 50), 0.625, "half of the time says so much, the other half as before");
        assert_eq!(part(Some(0.25), 1_200, 0), 0.0);
        assert_eq!(part(None, 1_010, 11), 1.0, "clocks may differ by a little");
    }

    #[test]
    fn a_gauge_used_the_largest_part_that_was_out() {
        let mut tracker = UsageTracker::answered(None, state(), UsageCounters::default(), None);
        assert_eq!(tracker.use_of_gauge(counters(100, 1, 0), 0.5).recharging, 0.5);
        assert_eq!(tracker.use_of_gauge(counters(200, 1, 0), 0.25).recharging, 0.5);
        let mut tracker = UsageTracker::answered(Some(tracker), state(), counters(200, 1, 0), None);
        assert_eq!(
            tracker.use_of_gauge(counters(300, 1, 0), 0.0).recharging,
            0.25,
            "it may have come after the request"
        );
    }
}
