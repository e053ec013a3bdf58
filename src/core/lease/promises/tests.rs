//! Promises of a peer: each rule by example, and random histories against a simple model.

use proptest::prelude::*;

use super::{Changes, Inherited, Part, Promises, Refused};
use crate::{
    tests::cases,
    types::{Amount, Claim, Claims, ClusterClock, ClusterTime, Epoch, Millis, Token},
};

fn changes(epoch: u64, number: u64, total: f64, horizon: Option<u64>) -> Changes {
    let wants = Claims::from_slice(&[Claim::of_client(Amount::clamped(total * 2.0), 0)]);
    let (total, horizon, parts) = (Amount::clamped(total), horizon.map(ClusterTime), Vec::new());
    Changes {
        epoch: Epoch(epoch),
        number,
        total,
        horizon,
        lease: None,
        high_water_mark: None,
        wants: Some(wants),
        parts,
        period: None,
    }
}

fn book(history: &[Changes]) -> Promises {
    let mut promises = Promises::default();
    for changes in history {
        promises.apply(changes, ClusterTime(0)).expect("in order");
    }
    promises
}

/// The state that a master inherits if its clock equals the cluster clock.
fn inherited(promises: &Promises, now: u64) -> Inherited {
    promises.inherited(ClusterClock::default(), Millis(now), Millis(now))
}

fn kept(promises: &Promises, now: u64) -> (f64, u64) {
    let inherited = inherited(promises, now);
    (inherited.total.get(), inherited.until.0)
}

#[test]
fn a_total_counts_until_the_horizon() {
    let promises = book(&[changes(1, 1, 5.0, Some(130))]);
    assert_eq!(kept(&promises, 129), (5.0, 130));
    assert_eq!(inherited(&promises, 129).wants[0].wants.get(), 10.0);
    let untold = Changes { wants: None, ..changes(1, 2, 6.0, None) };
    let promises = book(&[changes(1, 1, 5.0, Some(130)), untold]);
    assert_eq!(inherited(&promises, 129).wants[0].wants.get(), 10.0, "wants stay if absent");
    assert_eq!(inherited(&promises, 130), Inherited { newest: Some(Epoch(1)), ..Inherited::default() });
}

#[test]
fn horizon_continues_on_the_cluster_clock() {
    let promises = book(&[changes(1, 1, 5.0, Some(60_000))]);
    let until = |stored, since| {
        let since = Millis(since);
        promises.inherited(ClusterClock::new(ClusterTime(stored), since), since, since).until
    };
    assert_eq!([until(20_000, 7), until(40_000, 7)], [Millis(40_007), Millis(20_007)], "the horizon does not restart");
}

#[test]
fn the_newest_total_counts_and_the_latest_horizon() {
    let promises = book(&[changes(1, 1, 5.0, Some(100)), changes(2, 1, 7.0, Some(50))]);
    assert_eq!(kept(&promises, 20), (7.0, 100), "a total includes what was inherited");
    let promises = book(&[changes(1, 1, 5.0, Some(100)), changes(1, 2, 3.0, None)]);
    assert_eq!(kept(&promises, 20), (3.0, 100));
}

#[test]
fn a_snapshot_keeps_total_horizon_and_parts() {
    let part = Part { until: ClusterTime(60), before: Token::first(Epoch(1)), amount: Amount::clamped(2.0) };
    let promises = book(&[Changes { parts: vec![part], ..changes(1, 1, 5.0, Some(100)) }]);
    let restored = Promises::restore(&promises.record(ClusterTime(10)));
    assert_eq!(kept(&restored, 10), (5.0, 100));
    assert_eq!(inherited(&restored, 10).parts, [part]);
    assert_eq!([59, 60].map(|at| restored.total_at(ClusterTime(at)).get()), [5.0, 3.0]);
}

#[test]
fn new_incarnation_waits_for_the_longest_earlier_lease() {
    let lease = |lease, promises: Changes| Changes { lease: Some(Millis(lease)), ..promises };
    let ends = |promises: &Promises, now, since| {
        promises.inherited(ClusterClock::default(), Millis(now), Millis(since)).until.0
    };
    let mut promises = book(&[lease(60_000, changes(1, 1, 5.0, Some(98_000)))]);
    assert_eq!((ends(&promises, 20_000, 10_000), ends(&promises, 20_000, 50_000)), (71_060, 98_000));
    // Leases are shorter from now on, and those given before count until the horizon.
    let shorter = lease(20_000, changes(1, 2, 5.0, Some(149_000)));
    promises.apply(&shorter, ClusterTime(50_000)).expect("in order");
    assert_eq!((ends(&promises, 90_000, 60_000), ends(&promises, 98_000, 90_000)), (121_060, 111_020));
    let unknown = Changes { lease: None, ..changes(1, 3, 5.0, None) };
    promises.apply(&unknown, ClusterTime(100_000)).expect("in order");
    assert_eq!(ends(&promises, 100_000, 10), 149_000);
    let restored = Promises::restore(&promises.record(ClusterTime(100_000)));
    assert_eq!(ends(&restored, 140_000, 10), 149_000, "the length stays unknown after a snapshot");
}

#[test]
fn out_of_order_changes_are_refused() {
    let mut promises = book(&[changes(7, 1, 5.0, Some(100))]);
    let before = promises.clone();
    let mut refused = |epoch, number| {
        let result = promises.apply(&changes(epoch, number, 9.0, Some(900)), ClusterTime(1));
        assert_eq!(promises, before);
        result.expect_err("out of order")
    };
    assert_eq!(refused(6, 1), Refused::OlderEpoch { newest: Epoch(7), got: Epoch(6) });
    assert_eq!(refused(7, 1), Refused::Gap { epoch: Epoch(7), expected: 2, got: 1 });
    assert_eq!(refused(7, 3), Refused::Gap { epoch: Epoch(7), expected: 2, got: 3 });
    assert_eq!(refused(8, 2), Refused::Gap { epoch: Epoch(8), expected: 1, got: 2 });
}

proptest! {
    #![proptest_config(cases(300))]

    /// A peer that restarts from a snapshot behaves the same.
    #[test]
    fn any_history_leaves_the_newest_total_until_the_latest_horizon(
        steps in proptest::collection::vec((0..40u64, 0.0..50.0, proptest::option::of(1..200u64)), 1..60),
        snapshot in any::<prop::sample::Index>(),
    ) {
        let mut promises = Promises::default();
        let (mut now, mut latest) = (0, 0);
        let snapshot = snapshot.index(steps.len());
        for (n, (passes, total, horizon)) in steps.into_iter().enumerate() {
            now += passes;
            let horizon = horizon.map(|length| now + length);
            promises.apply(&changes(1, 1 + n as u64, total, horizon), ClusterTime(now)).expect("in order");
            latest = latest.max(horizon.unwrap_or(0));
            prop_assert_eq!(kept(&promises, now), if now < latest { (total, latest) } else { (0.0, 0) });
            if n == snapshot {
                promises = Promises::restore(&promises.record(ClusterTime(now)));
            }
        }
    }
}
