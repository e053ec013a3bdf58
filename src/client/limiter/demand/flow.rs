//! Estimates the rate of a flow of arrivals from counts at a few times.
//!
//! A short observation of a slow flow says little: at one arrival in ten seconds, five seconds see none or one. A long
//! observation of a flow that has changed gives its former rate. So the estimator compares spans of one to
//! [`MAX_SPAN_REFRESHES`] refresh intervals, and uses the longest span that agrees with all shorter ones. A count of k
//! in t seconds agrees with every rate whose expected count is within [`slack`] of k. A larger change is recognised as
//! soon as the shortest span shows it, and older counts are ignored from then on. A flow younger than a refresh
//! interval is observed over shorter spans, too.
//!
//! It also estimates the rate at which callers arrive while nobody waits, see [`Flow::freely`].

use std::{collections::VecDeque, time::Duration};

use leaseway_core::types::Millis;

/// The longest span, in refresh intervals.
const MAX_SPAN_REFRESHES: u64 = 32;

/// Counts are kept at most this often per refresh interval. The inverse is the shortest span.
const MARKS_PER_REFRESH: u64 = 8;

/// Observation starts after the first arrivals, so they are missed. Adds a quarter of them: the mean of half (even
/// spacing) and zero (independent).
const UNSEEN_FRACTION: f64 = 0.25;

/// Counts of a flow up to a time, since the limiter was created.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FlowCounts {
    pub(super) count: u64,
    /// Arrivals that found no caller waiting.
    pub(super) freely: u64,
    /// Total time in which callers were waiting.
    pub(super) queued: Duration,
}

/// Arrivals per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Flow {
    pub(super) all: f64,
    /// Arrivals that found nobody waiting, divided by the time in which nobody waited. The first arrival is excluded,
    /// because that time may begin with it. For closed-loop callers this is the rate that they would have without a
    /// limit; for open-loop callers it is their rate.
    pub(super) freely: f64,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Millis,
    counts: FlowCounts,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct FlowEstimator {
    /// The refresh interval in milliseconds.
    refresh: u64,
    marks: VecDeque<Mark>,
    /// The number of arrivals when the observation began.
    first: f64,
}

impl FlowEstimator {
    pub(super) fn new(refresh: Duration) -> FlowEstimator {
        let refresh = u64::try_from(refresh.as_millis()).unwrap_or(u64::MAX).max(1);
        FlowEstimator { refresh, marks: VecDeque::new(), first: 0.0 }
    }

    /// Arrivals within the last refresh interval, or in the whole observation if that is shorter.
    pub(super) fn recent(&self, now: Millis, count: u64) -> u64 {
        let before = self.marks.iter().rev().find(|mark| now.since(mark.at).0 >= self.refresh);
        before.or(self.marks.front()).map_or(0, |mark| count.saturating_sub(mark.counts.count))
    }

    /// Whether anything has arrived since the observation began.
    pub(super) fn has_fewer_than(&self, count: u64) -> bool {
        self.marks.front().is_none_or(|oldest| oldest.counts.count < count)
    }

    /// Whether some of the initial callers of the observation still wait, given the number of permits served.
    pub(super) fn initial_callers_wait(&self, served: u64) -> bool {
        self.marks.front().is_some_and(|oldest| served < oldest.counts.count)
    }

    /// Begins a new observation, with `first` arrivals to begin with.
    pub(super) fn restart(&mut self, first: u64) {
        self.marks.clear();
        self.first = first as f64;
    }

    /// The age of the observation.
    pub(super) fn age(&self, now: Millis) -> Millis {
        self.marks.front().map_or(Millis(0), |oldest| now.since(oldest.at))
    }

    /// Whether the observation is younger than a refresh interval.
    pub(super) fn is_young(&self, now: Millis) -> bool {
        self.age(now).0 <= self.refresh
    }

    /// Takes the counts up to `now`. Returns the estimated rates.
    pub(super) fn sample(&mut self, now: Millis, counts: FlowCounts) -> Flow {
        let newest = self.marks.back().copied().unwrap_or(Mark { at: now, counts });
        // Time and counts never run backwards.
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
            // The oldest count is always used: there is no longer span.
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
    // Avoids dividing by 0; clocks may differ by a little.
    ((arrived - 1.0) / free.max(1e-4)).max(0.0)
}

/// How far a count may be from the expected one: 1 for evenly spaced arrivals, depending on the phase, plus the
/// standard deviation of independent arrivals.
fn slack(arrived: f64) -> f64 {
    1.0 + arrived.sqrt()
}
