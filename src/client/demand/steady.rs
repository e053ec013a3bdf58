//! The rate of a flow of arrivals, from how many there have been at a few times.
//!
//! A short look at a slow flow says little: at one arrival in ten seconds, five seconds see none or one. A long look at
//! a flow that has changed says what it was. So several spans are looked at, from one refresh interval to [`SPANS`] of
//! them, and the longest counts that is still in agreement with all shorter ones: a count of k in t seconds is in agreement
//! with every rate whose expected count is within [`slack`] of k. A flow that changes beyond that is recognised as soon as
//! the shortest span shows it, and what was before no longer counts.

use std::{collections::VecDeque, time::Duration};

use leaseway_core::Millis;

/// The longest span looked at, in refresh intervals.
const SPANS: u64 = 32;

/// Counts are kept at most so often per refresh interval.
const MARKS: u64 = 4;

/// Until there is one refresh interval to look back on, this part of it is the shortest span.
const FIRST: u64 = 8;

/// So many arrivals up to this moment.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Millis,
    count: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Steady {
    /// Milliseconds.
    refresh: u64,
    /// Oldest first.
    marks: VecDeque<Mark>,
}

impl Steady {
    pub(super) fn new(refresh: Duration) -> Steady {
        let refresh = u64::try_from(refresh.as_millis()).unwrap_or(u64::MAX).max(1);
        Steady { refresh, marks: VecDeque::new() }
    }

    /// `count` have arrived up to `now`; says how many per second that means.
    pub(super) fn sample(&mut self, now: Millis, count: u64) -> f64 {
        let newest = self.marks.back().copied().unwrap_or(Mark { at: now, count });
        // Neither time nor counts run backwards; should they seem to, nothing happened.
        let here = Mark { at: Millis(now.0.max(newest.at.0)), count: count.max(newest.count) };
        let rate = self.rate(here);
        self.keep(here);
        rate
    }

    fn rate(&self, here: Mark) -> f64 {
        let shortest = match self.marks.front() {
            Some(oldest) => self.refresh.min(here.at.since(oldest.at).0.max(self.refresh / FIRST)).max(1),
            None => return 0.0,
        };
        let (mut least, mut most) = (0.0f64, f64::INFINITY);
        let mut rate = 0.0;
        for mark in self.marks.iter().rev() {
            let span = here.at.since(mark.at).0;
            // The oldest counts in any case: there is no longer look back.
            if span < shortest && mark.at != self.marks[0].at {
                continue;
            }
            let seconds = span.max(shortest) as f64 / 1000.0;
            let arrived = (here.count - mark.count) as f64;
            least = least.max((arrived - slack(arrived)) / seconds);
            most = most.min((arrived + slack(arrived)) / seconds);
            if least > most {
                break;
            }
            rate = (arrived / seconds).clamp(least, most);
        }
        rate
    }

    fn keep(&mut self, here: Mark) {
        let spaced = |mark: &Mark| here.at.since(mark.at).0 >= self.refresh / MARKS;
        if self.marks.back().is_none_or(spaced) {
            self.marks.push_back(here);
        }
        let horizon = self.refresh.saturating_mul(SPANS);
        while self.marks.front().is_some_and(|mark| here.at.since(mark.at).0 > horizon) {
            self.marks.pop_front();
        }
    }
}

/// How far a count may be from what was to be expected. One is what even arrivals differ by, depending on when one begins
/// to count; the root is the deviation of arrivals that know nothing of each other.
fn slack(arrived: f64) -> f64 {
    1.0 + arrived.sqrt()
}
