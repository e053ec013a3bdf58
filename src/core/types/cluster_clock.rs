//! The cluster clock: elapsed time that outlives masters.
//!
//! The log stores a moment, and each master counts on from it with its own monotonic clock, from the start of its term.
//! While any stored end is in the future, the master stores the current moment about once a second
//! ([`ClusterClock::advance`]). So all masters agree on when a promise ends, and a change of master loses at most the
//! time since the last advance.
//!
//! The clock may be slow, never fast. It stands still between two masters, and while no peer runs; promises then last
//! longer. Clocks of masters may differ in rate, so a stored end includes an allowance for that
//! ([`ClusterClock::end`]).
//!
//! The caller reads its clock and writes the log.

use crate::{
    planted::{self, Fault},
    types::time::Millis,
};

/// The master stores the cluster time this often while a stored end is in the future.
const ADVANCE_EVERY: Millis = Millis(1000);

/// The relative difference between the clock rates of two masters is at most one part in this many.
const CLOCK_RATE_ALLOWANCE: u64 = 1000;

/// A moment on the clock of a cluster, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClusterTime(pub u64);

impl ClusterTime {
    #[must_use]
    pub const fn plus(self, span: Millis) -> ClusterTime {
        ClusterTime(self.0.saturating_add(span.0))
    }

    /// How much later this is than `earlier`; zero if it is not.
    #[must_use]
    pub const fn since(self, earlier: ClusterTime) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// The clock of the cluster as one master counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterClock {
    /// The moment in the log when the term began.
    base: ClusterTime,
    /// When that was, on the master's own clock.
    since: Millis,
}

impl ClusterClock {
    /// The clock of a term that begins at `since` on the master's own clock, when the log has the moment `stored`.
    pub fn new(stored: ClusterTime, since: Millis) -> ClusterClock {
        let jump = if planted::is(Fault::ClusterClockJumps) { Millis::from_secs(60) } else { Millis(0) };
        ClusterClock { base: stored.plus(jump), since }
    }

    /// When the term began, on the master's own clock.
    pub fn begun(&self) -> Millis {
        self.since
    }

    /// The cluster time at `now` on the master's own clock.
    pub fn at(&self, now: Millis) -> ClusterTime {
        self.base.plus(now.since(self.since))
    }

    /// The time of `moment` on the master's own clock.
    pub fn local(&self, moment: ClusterTime) -> Millis {
        let before = self.base.since(moment);
        Millis(self.since.0.saturating_sub(before.0)).plus(moment.since(self.base))
    }

    /// The moment to store for an end at `end` on the master's own clock. It includes the allowance for faster clocks
    /// of later masters.
    pub fn end(&self, end: Millis, now: Millis) -> ClusterTime {
        let span = end.since(now);
        self.at(now).plus(span).plus(Millis(span.0.div_ceil(CLOCK_RATE_ALLOWANCE)))
    }

    /// The advance to store at `now`, if it is due. The log has the moment `stored`, and the last promise in it ends at
    /// `last`.
    pub fn advance(&self, now: Millis, stored: ClusterTime, last: ClusterTime) -> Option<ClusterTime> {
        let reached = self.reached(now);
        (stored < last && reached.since(stored) >= ADVANCE_EVERY).then_some(reached)
    }

    /// The moment to store at `now` together with other changes.
    pub fn reached(&self, now: Millis) -> ClusterTime {
        let at = self.at(now);
        if planted::is(Fault::ClusterClockIsFast) { at.plus(at.since(self.base)) } else { at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_master_loses_no_more_than_the_time_since_the_last_advance() {
        let first = ClusterClock::new(ClusterTime(0), Millis(500));
        let last = first.end(Millis(60_500), Millis(500));
        assert_eq!(last, ClusterTime(60_060), "the next clock may be faster");
        assert_eq!(first.advance(Millis(1_499), ClusterTime(0), last), None);
        let stored = first.advance(Millis(20_700), ClusterTime(19_000), last).expect("more than a second has passed");
        assert_eq!(stored, ClusterTime(20_200));
        // The master dies at 21 s. The next one, whose own clock shows 7 s, begins immediately.
        let second = ClusterClock::new(stored, Millis(7_000));
        assert_eq!(second.local(last), Millis(7_000 + 60_060 - 20_200), "300 ms later than without a change");
    }

    #[test]
    fn clock_advances_until_the_last_end() {
        let clock = ClusterClock::new(ClusterTime(5_000), Millis(0));
        assert_eq!(clock.advance(Millis(2_000), ClusterTime(5_000), ClusterTime(6_500)), Some(ClusterTime(7_000)));
        assert_eq!(clock.advance(Millis(9_000), ClusterTime(7_000), ClusterTime(6_500)), None);
        assert_eq!(clock.advance(Millis(9_000), ClusterTime(0), ClusterTime(0)), None, "nothing was ever promised");
    }

    #[test]
    fn moments_before_the_term_are_in_the_past() {
        let clock = ClusterClock::new(ClusterTime(5_000), Millis(3_000));
        assert_eq!((clock.local(ClusterTime(4_000)), clock.local(ClusterTime(1_000))), (Millis(2_000), Millis(0)));
        assert_eq!(clock.at(Millis(1_000)), ClusterTime(5_000), "it never runs backwards");
    }
}
