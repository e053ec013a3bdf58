//! How much clients together may believe in while operators change the capacity.
//!
//! A raise counts from when it is requested. A cut counts when it has been acknowledged and older leases have had time
//! to end. A change with an unknown outcome counts as both.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CapacityChange {
    pub(crate) asked_us: u64,
    /// None: it failed, or the outcome is unknown.
    pub(crate) stored_us: Option<u64>,
    pub(crate) capacity: f64,
}

/// The capacities that count, and the times from which they do. `changes` are in order; a capacity counts until
/// `settle_us` after it was replaced.
pub(crate) fn limits(first: f64, changes: &[CapacityChange], settle_us: u64) -> Vec<(u64, f64)> {
    let begins = std::iter::once((0, first)).chain(changes.iter().map(|change| (change.asked_us, change.capacity)));
    let spans: Vec<(u64, u64, f64)> = begins
        .enumerate()
        .map(|(place, (from, capacity))| {
            // The first change that is known to have replaced it. Before `changes[place]` are `place` changes and the
            // first capacity.
            let replaced = changes[place..].iter().find_map(|change| change.stored_us);
            (from, replaced.map_or(u64::MAX, |at| at.saturating_add(settle_us)), capacity)
        })
        .collect();
    let mut moments: Vec<u64> = spans.iter().flat_map(|span| [span.0, span.1]).filter(|at| *at < u64::MAX).collect();
    moments.sort_unstable();
    moments.dedup();
    let most = |at: u64| {
        let now = spans.iter().filter(|(from, until, _)| (*from..*until).contains(&at));
        now.map(|span| span.2).fold(0.0, f64::max)
    };
    moments.into_iter().map(|at| (at, most(at))).collect()
}

/// The capacities that may be in force at the end: the last that was stored, and all that were tried after it.
pub(crate) fn may_be_in_force(first: f64, changes: &[CapacityChange]) -> Vec<f64> {
    let last = changes.iter().rposition(|change| change.stored_us.is_some());
    let stored = last.map_or(first, |last| changes[last].capacity);
    let after = changes[last.map_or(0, |last| last + 1)..].iter().map(|change| change.capacity);
    std::iter::once(stored).chain(after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(asked_us: u64, stored_us: Option<u64>, capacity: f64) -> CapacityChange {
        CapacityChange { asked_us, stored_us, capacity }
    }

    fn at(limits: &[(u64, f64)], at_us: u64) -> f64 {
        limits.iter().rev().find(|(from, _)| *from <= at_us).expect("from the start").1
    }

    #[test]
    fn a_raise_counts_at_once_and_a_cut_when_older_leases_have_ended() {
        let limits = limits(100.0, &[change(1000, Some(1100), 150.0), change(3000, Some(3200), 50.0)], 500);
        for (moment, expected) in [(0, 100.0), (999, 100.0), (1000, 150.0), (3699, 150.0), (3700, 50.0)] {
            assert_eq!(at(&limits, moment), expected, "at {moment}");
        }
    }

    #[test]
    fn what_may_or_may_not_be_stored_counts_as_both() {
        let unknown_cut = [change(1000, None, 50.0)];
        assert_eq!(at(&limits(100.0, &unknown_cut, 500), 9_000_000), 100.0);
        assert_eq!(may_be_in_force(100.0, &unknown_cut), [100.0, 50.0]);
        let raise_then_cut = [change(1000, None, 200.0), change(2000, Some(2100), 80.0)];
        let limits = limits(100.0, &raise_then_cut, 500);
        assert_eq!((at(&limits, 1500), at(&limits, 2599), at(&limits, 2600)), (200.0, 200.0, 80.0));
        assert_eq!(may_be_in_force(100.0, &raise_then_cut), [80.0]);
    }

    #[test]
    fn without_changes_there_is_what_there_is() {
        assert_eq!(limits(100.0, &[], 500), [(0, 100.0)]);
        assert_eq!(may_be_in_force(100.0, &[]), [100.0]);
    }
}
