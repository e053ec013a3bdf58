//! The assignments that may be in force at an Envoy.
//!
//! An Envoy acknowledges nothing, so each assignment that has not expired may be in force. The Envoy counts the time
//! from the arrival of the message, so each assignment counts for [`TRANSIT`] longer here.

use leaseway_core::{
    planted::{self, Fault},
    types::Millis,
};

/// The maximum time that a message to an Envoy takes; a later one never arrives.
pub const TRANSIT: Millis = Millis(1_000);

/// Beyond this number the two smallest assignments are merged into one with the larger rate and the later end.
const MAX_ASSIGNMENTS: usize = 16;

/// Each assignment is smaller than the one before it, and ends later.
#[derive(Debug, Default)]
pub(crate) struct LiveAssignments {
    assignments: Vec<Assignment>,
}

#[derive(Debug, Clone, Copy)]
struct Assignment {
    rate: f64,
    end: Millis,
}

impl LiveAssignments {
    /// Adds an assignment that may be in force until `end`.
    pub(crate) fn add(&mut self, now: Millis, rate: f64, end: Millis) {
        self.remove_expired(now);
        if planted::is(Fault::ForgetsAssignments) {
            self.assignments.clear();
        }
        if self.assignments.iter().any(|before| before.rate >= rate && before.end >= end) {
            return;
        }
        self.assignments.retain(|before| before.rate > rate || before.end > end);
        if self.assignments.len() == MAX_ASSIGNMENTS
            && let Some(Assignment { rate, end }) = self.assignments.pop()
            && let Some(last) = self.assignments.last_mut()
        {
            *last = Assignment { rate: last.rate.max(rate), end: last.end.max(end) };
        }
        let index = self.assignments.partition_point(|before| before.rate > rate);
        self.assignments.insert(index, Assignment { rate, end });
    }

    /// The largest rate that may be in force.
    pub(crate) fn max_rate(&self, now: Millis) -> f64 {
        self.assignments
            .iter()
            .filter(|assignment| now < assignment.end)
            .map(|assignment| assignment.rate)
            .fold(0.0, f64::max)
    }

    /// When that rate falls; `None` if no assignment is in force.
    pub(crate) fn next_fall(&self, now: Millis) -> Option<Millis> {
        self.assignments.iter().find(|assignment| now < assignment.end).map(|assignment| assignment.end)
    }

    /// When the last assignment expires.
    pub(crate) fn end(&self) -> Millis {
        self.assignments.iter().map(|assignment| assignment.end).max().unwrap_or_default()
    }

    fn remove_expired(&mut self, now: Millis) {
        self.assignments.retain(|assignment| now < assignment.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_largest_assignment_in_force_is_never_underestimated(
            sent in prop::collection::vec((0u64..50, 0u32..20, 0u64..100), 0..60),
        ) {
            let (mut now, mut live, mut all) = (Millis(0), LiveAssignments::default(), Vec::new());
            for (pause, rate, length) in sent {
                now = now.plus(Millis(pause));
                let (rate, end) = (f64::from(rate), now.plus(Millis(length)));
                live.add(now, rate, end);
                all.push((rate, end));
                for later in [0, 1, 10, 50] {
                    let at = now.plus(Millis(later));
                    let most = all.iter().filter(|(_, end)| at < *end).map(|(rate, _)| *rate).fold(0.0, f64::max);
                    prop_assert!(live.max_rate(at) >= most);
                    prop_assert!(all.len() > MAX_ASSIGNMENTS || live.max_rate(at) == most, "{live:?}");
                    prop_assert_eq!(live.next_fall(at).is_some(), live.end() > at);
                }
                prop_assert!(live.assignments.len() <= MAX_ASSIGNMENTS);
                let falls = live.assignments.windows(2).all(|two| two[0].rate > two[1].rate && two[0].end < two[1].end);
                prop_assert!(falls, "{live:?}");
            }
        }
    }
}
