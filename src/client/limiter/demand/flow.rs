//! The rate of a flow of arrivals, from how many there have been at a few times.
//!
//! A short look at a slow flow says little: at one arrival in ten seconds, five seconds see none or one. A long look at
//! a flow that has changed says what it was. So several spans are looked at, from one refresh interval to [`MAX_SPAN_REFRESHES`] of
//! them, and the longest counts that is still in agreement with all shorter ones: a count of k in t seconds is in
//! agreement with every rate whose expected count is within [`slack`] of k. A flow that changes beyond that is
//! recognised as soon as the shortest span shows it, and what was before no longer counts. A flow that has been looked
//! at for less than a refresh interval is looked at over shorter spans, too.
//!
//! Besides, it says how often callers come while nothing holds them up, see [`Flow::freely`].

use std::{collections::VecDeque, time::Duration};

use leaseway_core::Millis;

/// The longest span looked at, in refresh intervals.
const MAX_SPAN_REFRESHES: u64 = 32;

/// Counts are kept at most so often per refresh interval; one of these is the shortest span that is looked at.
const MARKS_PER_REFRESH: u64 = 8;

/// A look at a flow begins right after its first arrivals. If as many come at even times they come, on average, half a
/// time more often than they are counted; if they know nothing of each other, as often. In between, neither is far off.
const UNSEEN_FRACTION: f64 = 0.25;

/// What has been seen of a flow up to a moment; all of it ever.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FlowCounts {
    pub(super) count: u64,
    /// Those among them that found none waiting.
    pub(super) freely: u64,
    /// For how long there were callers waiting.
    pub(super) queued: Duration,
}

/// Arrivals per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Flow {
    pub(super) all: f64,
    /// Those that found none waiting, in the time in which none waited; the first of them is left out, for the time
    /// may begin with it. Callers that come back when they have been served come so often without a limit, and callers
    /// that know nothing of each other come so often anyway.
    pub(super) freely: f64,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Millis,
    counts: FlowCounts,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FlowEstimator {
    /// Milliseconds.
    refresh: u64,
    marks: VecDeque<Mark>,
    /// How many were there when the look at the flow began.
    first: f64,
}

impl FlowEstimator {
    pub(super) fn new(refresh: Duration) -> FlowEstimator {
        let refresh = u64::try_from(refresh.as_millis()).unwrap_or(u64::MAX).max(1);
        FlowEstimator { refresh, marks: VecDeque::new(), first: 0.0 }
    }

    /// How many have arrived within the last refresh interval, or since what is remembered begins.
    pub(super) fn recent(&self, now: Millis, count: u64) -> u64 {
        let before = self.marks.iter().rev().find(|mark| now.since(mark.at).0 >= self.refresh);
        before.or(self.marks.front()).map_or(0, |mark| count.saturating_sub(mark.counts.count))
    }

    /// Whether anything has arrived since what is remembered begins.
    pub(super) fn knows_less_than(&self, count: u64) -> bool {
        self.marks.front().is_none_or(|oldest| oldest.counts.count < count)
    }

    /// Whether some of those wait that were there when the look at the flow began, if so many have been served.
    pub(super) fn first_are_waiting(&self, served: u64) -> bool {
        self.marks.front().is_some_and(|oldest| served < oldest.counts.count)
    }

    /// What was before counts no more, and `first` are there to begin with.
    pub(super) fn restart(&mut self, first: u64) {
        self.marks.clear();
        self.first = first as f64;
    }

    /// For how long the flow has been looked at.
    pub(super) fn age(&self, now: Millis) -> Millis {
        self.marks.front().map_or(Millis(0), |oldest| now.since(oldest.at))
    }

    /// Whether it has been looked at for less than a refresh interval.
    pub(super) fn is_young(&self, now: Millis) -> bool {
        self.age(now).0 <= self.refresh
    }

    /// So much has been seen up to `now`; says what that means.
    pub(super) fn sample(&mut self, now: Millis, counts: FlowCounts) -> Flow {
        let newest = self.marks.back().copied().unwrap_or(Mark { at: now, counts });
        // Neither time nor counts run backwards; should they seem to, nothing happened.
        let here = Mark {
            at: Millis(now.0.max(newest.at.0)),
            counts: FlowCounts {
                count: counts.count.max(newest.counts.count),
                freely: counts.freely.max(newest.counts.freely),
                queued: counts.queued.max(newest.counts.queued),
            },
        };
        let flow = self.flow(here);
        self.keep(here);
        flow
    }

    fn flow(&self, here: Mark) -> Flow {
        let least_span = (self.refresh / MARKS_PER_REFRESH).max(1);
        let shortest = if self.is_young(here.at) { least_span } else { self.refresh };
        let (mut least, mut most) = (0.0f64, f64::INFINITY);
        let mut flow = Flow::default();
        for mark in self.marks.iter().rev() {
            let span = here.at.since(mark.at).0;
            let oldest = mark.at == self.marks[0].at;
            // The oldest counts in any case: there is no longer look back.
            if span < shortest && !oldest {
                continue;
            }
            let seconds = span.max(least_span) as f64 / 1000.0;
            let arrived = (here.counts.count - mark.counts.count) as f64;
            least = least.max((arrived - slack(arrived)) / seconds);
            most = most.min((arrived + slack(arrived)) / seconds);
            if least > most {
                break;
            }
            let unseen = if oldest && self.is_young(here.at) { UNSEEN_FRACTION * self.first } else { 0.0 };
            flow.all = ((arrived + unseen) / seconds).clamp(least, most);
            flow.freely = freely(mark, &here);
        }
        flow
    }

    fn keep(&mut self, here: Mark) {
        let spaced = |mark: &Mark| here.at.since(mark.at).0 >= self.refresh / MARKS_PER_REFRESH;
        if self.marks.back().is_none_or(spaced) {
            self.marks.push_back(here);
        }
        let horizon = self.refresh.saturating_mul(MAX_SPAN_REFRESHES);
        while self.marks.front().is_some_and(|mark| here.at.since(mark.at).0 > horizon) {
            self.marks.pop_front();
        }
    }
}

fn freely(since: &Mark, until: &Mark) -> f64 {
    let span = Duration::from_millis(until.at.since(since.at).0);
    let free = span.saturating_sub(until.counts.queued - since.counts.queued).as_secs_f64();
    let arrived = (until.counts.freely - since.counts.freely) as f64;
    // Clocks may differ by a little: nothing can be said of no time at all.
    ((arrived - 1.0) / free.max(1e-4)).max(0.0)
}

/// How far a count may be from what was to be expected. One is what even arrivals differ by, depending on when one
/// begins to count; the root is the deviation of arrivals that know nothing of each other.
fn slack(arrived: f64) -> f64 {
    1.0 + arrived.sqrt()
}
