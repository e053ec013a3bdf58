//! The assignments that an Envoy may believe in.
//!
//! An Envoy acknowledges nothing, so any assignment that has not expired may be in force. An Envoy counts the time from
//! the arrival of an assignment, so each counts for [`TRANSIT`] longer here.

use leaseway_core::{
    planted::{self, Fault},
    types::Millis,
};

/// An assignment reaches its Envoy within this time, or never.
pub const TRANSIT: Millis = Millis(1_000);

/// Beyond this number, the two smallest assignments are merged into one with the larger rate and the later end.
const MAX_BELIEFS: usize = 16;

/// Each assignment is smaller than the one before it, and ends later.
#[derive(Debug, Default)]
pub(crate) struct Beliefs {
    assignments: Vec<Belief>,
}

#[derive(Debug, Clone, Copy)]
struct Belief {
    rate: f64,
    end: Millis,
}

impl Beliefs {
    /// Adds an assignment that may be believed until `end`.
    pub(crate) fn add(&mut self, now: Millis, rate: f64, end: Millis) {
        self.forget(now);
        if planted::is(Fault::ForgetsAssignments) {
            self.assignments.clear();
        }
        if self.assignments.iter().any(|before| before.rate >= rate && before.end >= end) {
            return;
        }
        self.assignments.retain(|before| before.rate > rate || before.end > end);
        if self.assignments.len() == MAX_BELIEFS
            && let Some(Belief { rate, end }) = self.assignments.pop()
            && let Some(last) = self.assignments.last_mut()
        {
            *last = Belief { rate: last.rate.max(rate), end: last.end.max(end) };
        }
        let place = self.assignments.partition_point(|before| before.rate > rate);
        self.assignments.insert(place, Belief { rate, end });
    }

    /// The largest rate that may be believed.
    pub(crate) fn most(&self, now: Millis) -> f64 {
        self.assignments.iter().filter(|belief| now < belief.end).map(|belief| belief.rate).fold(0.0, f64::max)
    }

    /// When that rate falls. None: no assignment is in force.
    pub(crate) fn falls(&self, now: Millis) -> Option<Millis> {
        self.assignments.iter().find(|belief| now < belief.end).map(|belief| belief.end)
    }

    /// When the last assignment expires.
    pub(crate) fn end(&self) -> Millis {
        self.assignments.iter().map(|belief| belief.end).max().unwrap_or_default()
    }

    fn forget(&mut self, now: Millis) {
        self.assignments.retain(|belief| now < belief.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_largest_assignment_in_force_is_never_underestimated(
            told in prop::collection::vec((0u64..50, 0u32..20, 0u64..100), 0..60),
        ) {
            let (mut now, mut beliefs, mut all) = (Millis(0), Beliefs::default(), Vec::new());
            for (pause, rate, length) in told {
                now = now.plus(Millis(pause));
                let (rate, end) = (f64::from(rate), now.plus(Millis(length)));
                beliefs.add(now, rate, end);
                all.push((rate, end));
                for later in [0, 1, 10, 50] {
                    let at = now.plus(Millis(later));
                    let most = all.iter().filter(|(_, end)| at < *end).map(|(rate, _)| *rate).fold(0.0, f64::max);
                    prop_assert!(beliefs.most(at) >= most);
                    prop_assert!(all.len() > MAX_BELIEFS || beliefs.most(at) == most, "{beliefs:?}");
                    prop_assert_eq!(beliefs.falls(at).is_some(), beliefs.end() > at);
                }
                prop_assert!(beliefs.assignments.len() <= MAX_BELIEFS);
                let falls = beliefs.assignments.windows(2).all(|two| two[0].rate > two[1].rate && two[0].end < two[1].end);
                prop_assert!(falls, "{beliefs:?}");
            }
        }
    }
}
