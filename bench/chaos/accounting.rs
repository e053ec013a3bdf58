//! The auditor. Each client records the capacity that it believes it may use ([`LeaseRecord`]). The auditor adds these
//! traces up and compares the sum with the capacity. It asks no server and uses no code of the server.

use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

use leaseway_client::LeaseChange;
use serde::{Deserialize, Serialize};

/// A change: from `at_us` on, the client believes that it may use `capacity`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LeaseRecord {
    /// Microseconds on the machine's monotonic clock, which is the same for all processes.
    pub(crate) at_us: u64,
    pub(crate) client: String,
    pub(crate) resource: String,
    pub(crate) capacity: f64,
}

/// Converts an [`Instant`] of this process into the machine's monotonic clock.
#[derive(Clone, Copy)]
pub(crate) struct MachineClock {
    known: Instant,
    us: u64,
}

/// The sum of the traces of one resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Accounting {
    clients: usize,
    pub(crate) entries: usize,
    /// The largest sum, and the time at which it was reached.
    peak: f64,
    peak_us: u64,
    /// The time for which the sum was above the capacity.
    pub(crate) over_us: u64,
    /// The mean of the sum over time.
    pub(crate) mean: f64,
}

/// A sum may exceed the capacity by this fraction, because of rounding.
const ROUNDING: f64 = 1e-9;

impl MachineClock {
    /// Reads the clock. Call it before the first entry is recorded.
    pub(crate) fn read() -> MachineClock {
        let known = Instant::now();
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        MachineClock { known, us: seconds * 1_000_000 + nanos / 1_000 }
    }

    pub(crate) fn us(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.known);
        self.us + u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn traces(&self, entries: Vec<LeaseChange>) -> Vec<LeaseRecord> {
        let trace = |entry: LeaseChange| LeaseRecord {
            at_us: self.us(entry.at.into_std()),
            client: entry.client.to_string(),
            resource: entry.resource.to_string(),
            capacity: entry.capacity,
        };
        entries.into_iter().map(trace).collect()
    }
}

/// Adds up traces by resource. Returns the resources in the order of their names. `limits` has the times at which the
/// capacity changes, in order, and the new capacity; the first holds from the start.
pub(crate) fn account(mut traces: Vec<LeaseRecord>, limits: &[(u64, f64)]) -> Vec<(String, Accounting)> {
    // The sort is stable. At equal times, entries keep the order in which they were recorded.
    traces.sort_by(|a, b| (&a.resource, a.at_us).cmp(&(&b.resource, b.at_us)));
    let by_resource = traces.chunk_by(|a, b| a.resource == b.resource);
    by_resource.map(|traces| (traces[0].resource.clone(), one(traces, limits))).collect()
}

fn one(traces: &[LeaseRecord], limits: &[(u64, f64)]) -> Accounting {
    let mut accounting = Accounting { entries: traces.len(), ..Accounting::default() };
    let mut usable: HashMap<&str, f64> = HashMap::new();
    let (first, last) = (traces[0].at_us, traces[traces.len() - 1].at_us);
    let changed = limits.iter().map(|(from, _)| *from).filter(|from| (first..=last).contains(from));
    let moments: BTreeSet<u64> = traces.iter().map(|trace| trace.at_us).chain(changed).collect();
    let mut left = traces;
    let mut moments = moments.into_iter().peekable();
    while let Some(at) = moments.next() {
        let (now, later) = left.split_at(left.partition_point(|trace| trace.at_us <= at));
        usable.extend(now.iter().map(|trace| (trace.client.as_str(), trace.capacity)));
        left = later;
        // Recompute the sum each time, because a running sum of floats would drift.
        let sum: f64 = usable.values().sum();
        let until = moments.peek().copied().unwrap_or(last);
        accounting.mean += sum * (until - at) as f64;
        if sum > accounting.peak {
            (accounting.peak, accounting.peak_us) = (sum, at - first);
        }
        let capacity = limits.iter().rev().find(|(from, _)| *from <= at).map_or(0.0, |limit| limit.1);
        if sum > capacity * (1.0 + ROUNDING) {
            // An excess in the last entry counts, although it has no duration.
            accounting.over_us += (until - at).max(1);
        }
    }
    accounting.clients = usable.len();
    accounting.mean /= (last - first).max(1) as f64;
    accounting
}

// A raise of the capacity counts as soon as it is requested. A cut counts once it has been acknowledged and older
// leases have had time to end. A change with an unknown outcome may or may not be in force, so the larger capacity
// counts.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CapacityChange {
    pub(crate) asked_us: u64,
    /// The time of the acknowledgement. `None` if the change failed, or its outcome is unknown.
    pub(crate) stored_us: Option<u64>,
    pub(crate) capacity: f64,
}

/// The capacity that the auditor allows, as times and the value from then on. `changes` are in order. A capacity is
/// allowed until `settle_us` after it was replaced.
pub(crate) fn limits(first: f64, changes: &[CapacityChange], settle_us: u64) -> Vec<(u64, f64)> {
    let begins = std::iter::once((0, first)).chain(changes.iter().map(|change| (change.asked_us, change.capacity)));
    let spans: Vec<(u64, u64, f64)> = begins
        .enumerate()
        .map(|(place, (from, capacity))| {
            // The first later change that is known to be stored has replaced this capacity. Capacity number 0 is the
            // first one, so capacity number `place` is replaced by `changes[place]` or a later change.
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

/// The capacities that may be in force at the end: the last one that was stored, and all later ones, whose outcome is
/// unknown.
pub(crate) fn may_be_in_force(first: f64, changes: &[CapacityChange]) -> Vec<f64> {
    let last = changes.iter().rposition(|change| change.stored_us.is_some());
    let stored = last.map_or(first, |last| changes[last].capacity);
    let after = changes[last.map_or(0, |last| last + 1)..].iter().map(|change| change.capacity);
    std::iter::once(stored).chain(after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(at_us: u64, client: &str, capacity: f64) -> LeaseRecord {
        LeaseRecord { at_us, client: client.into(), resource: "r".into(), capacity }
    }

    fn accounted(traces: &[LeaseRecord]) -> Accounting {
        account(traces.to_vec(), &[(0, 100.0)]).remove(0).1
    }

    #[test]
    fn capacity_that_moves_between_clients_is_counted_once() {
        let sum = accounted(&[trace(0, "a", 100.0), trace(5, "a", 40.0), trace(9, "b", 60.0), trace(20, "b", 0.0)]);
        assert_eq!((sum.peak, sum.over_us, sum.clients), (100.0, 0, 2));
        assert_eq!(sum.mean, (100.0 * 5.0 + 40.0 * 4.0 + 100.0 * 11.0) / 20.0);
    }

    #[test]
    fn a_rise_before_the_matching_cut_is_an_excess_in_any_order_of_traces() {
        let sum = accounted(&[trace(9, "a", 40.0), trace(0, "a", 100.0), trace(5, "b", 60.0)]);
        assert_eq!((sum.peak, sum.peak_us, sum.over_us), (160.0, 5, 4));
    }

    #[test]
    fn an_excess_in_the_last_entry_counts() {
        assert_eq!(accounted(&[trace(0, "a", 100.0), trace(5, "b", 1.0)]).over_us, 1);
        assert_eq!(accounted(&[trace(0, "a", 100.0), trace(5, "b", 1e-9)]).over_us, 0, "rounding is allowed");
    }

    #[test]
    fn a_capacity_that_falls_between_entries_is_noticed() {
        let traces = vec![trace(0, "a", 60.0), trace(90, "a", 0.0)];
        let over = |limits: &[(u64, f64)]| account(traces.clone(), limits).remove(0).1.over_us;
        assert_eq!(over(&[(0, 100.0), (40, 50.0)]), 50);
        assert_eq!(over(&[(0, 100.0), (40, 50.0), (70, 60.0)]), 30);
        assert_eq!(over(&[(0, 50.0), (40, 100.0)]), 40);
    }

    #[test]
    fn resources_are_added_up_separately() {
        let other = LeaseRecord { resource: "s".into(), ..trace(1, "a", 70.0) };
        let all = account(vec![trace(0, "a", 70.0), other], &[(0, 100.0)]);
        assert!(all.iter().all(|(_, sum)| sum.over_us == 0) && all.len() == 2);
    }

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
    fn a_change_with_an_unknown_outcome_counts_as_both() {
        let unknown_cut = [change(1000, None, 50.0)];
        assert_eq!(at(&limits(100.0, &unknown_cut, 500), 9_000_000), 100.0);
        assert_eq!(may_be_in_force(100.0, &unknown_cut), [100.0, 50.0]);
        let raise_then_cut = [change(1000, None, 200.0), change(2000, Some(2100), 80.0)];
        let limits = limits(100.0, &raise_then_cut, 500);
        assert_eq!((at(&limits, 1500), at(&limits, 2599), at(&limits, 2600)), (200.0, 200.0, 80.0));
        assert_eq!(may_be_in_force(100.0, &raise_then_cut), [80.0]);
    }
}
