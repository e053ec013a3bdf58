//! What a peer keeps, rule by rule, and against one that forgets nothing.

use proptest::prelude::*;

use super::{Changes, Inherited, Promises, Refused};
use crate::{Amount, Claim, Claims, Epoch, Millis, tests::cases};

fn changes(epoch: u64, number: u64, total: f64, horizon: Option<u64>) -> Changes {
    let wants = Claims::from_slice(&[Claim::of_client(Amount::clamped(total * 2.0), 0)]);
    let (total, horizon) = (Amount::clamped(total), horizon.map(Millis));
    Changes { epoch: Epoch(epoch), number, total, horizon, lease: None, floor: None, wants: Some(wants) }
}

fn book(history: &[(Changes, u64)]) -> Promises {
    let mut promises = Promises::default();
    for (changes, now) in history {
        promises.apply(changes, Millis(*now)).expect("in order");
    }
    promises
}

fn kept(promises: &Promises, now: u64) -> (f64, u64) {
    let inherited = promises.inherited(Millis(now), Millis(now));
    (inherited.total.get(), inherited.until.0)
}

#[test]
fn a_total_counts_until_the_horizon_as_this_peer_counts_it() {
    let promises = book(&[(changes(1, 1, 5.0, Some(100)), 30)]);
    assert_eq!(kept(&promises, 129), (5.0, 130));
    assert_eq!(promises.inherited(Millis(129), Millis(129)).wants[0].wants.get(), 10.0);
    let untold = Changes { wants: None, ..changes(1, 2, 6.0, None) };
    let promises = book(&[(changes(1, 1, 5.0, Some(100)), 30), (untold, 31)]);
    assert_eq!(promises.inherited(Millis(129), Millis(129)).wants[0].wants.get(), 10.0, "as they were");
    assert_eq!(
        promises.inherited(Millis(130), Millis(130)),
        Inherited { newest: Some(Epoch(1)), ..Inherited::default() }
    );
}

#[test]
fn the_newest_total_counts_and_the_latest_horizon() {
    let promises = book(&[(changes(1, 1, 5.0, Some(100)), 0), (changes(2, 1, 7.0, Some(40)), 10)]);
    assert_eq!(kept(&promises, 20), (7.0, 100), "a total includes what was inherited");
    let promises = book(&[(changes(1, 1, 5.0, Some(100)), 0), (changes(1, 2, 3.0, None), 10)]);
    assert_eq!(kept(&promises, 20), (3.0, 100));
}

#[test]
fn a_shorter_horizon_takes_nothing_back_and_does_not_shorten_what_a_snapshot_says() {
    let mut promises = book(&[(changes(1, 1, 5.0, Some(100)), 0), (changes(1, 2, 5.0, Some(20)), 10)]);
    assert_eq!(kept(&promises, 10), (5.0, 100));
    assert_eq!(kept(&Promises::restore(&promises.record(Millis(10)), Millis(10)), 10), (5.0, 110));
    // Once it ends later than what the longer one promised, the shorter is all there is to remember.
    promises.apply(&changes(1, 3, 5.0, Some(20)), Millis(90)).expect("in order");
    assert_eq!(kept(&Promises::restore(&promises.record(Millis(90)), Millis(90)), 90), (5.0, 110));
}

#[test]
fn a_new_life_waits_for_the_longest_lease_given_before_it_and_for_no_more_than_the_horizon() {
    let lease = |lease, promises: Changes| Changes { lease: Some(Millis(lease)), ..promises };
    let ends = |promises: &Promises, now, since| promises.inherited(Millis(now), Millis(since)).until.0;
    let mut promises = book(&[(lease(60_000, changes(1, 1, 5.0, Some(98_000))), 0)]);
    assert_eq!((ends(&promises, 20_000, 10_000), ends(&promises, 20_000, 50_000)), (71_060, 98_000));
    // Leases are shorter from now on, and those given before count until the horizon.
    promises.apply(&lease(20_000, changes(1, 2, 5.0, Some(99_000))), Millis(50_000)).expect("in order");
    assert_eq!((ends(&promises, 90_000, 60_000), ends(&promises, 98_000, 90_000)), (121_060, 111_020));
    let unknown = Changes { lease: None, ..changes(1, 3, 5.0, None) };
    promises.apply(&unknown, Millis(100_000)).expect("in order");
    assert_eq!(ends(&promises, 100_000, 10), 149_000);
    let restored = Promises::restore(&promises.record(Millis(100_000)), Millis(100_000));
    assert_eq!(ends(&restored, 150_000, 10), 199_000, "nor does a snapshot know more");
}

#[test]
fn what_is_out_of_order_changes_nothing() {
    let mut promises = book(&[(changes(7, 1, 5.0, Some(100)), 0)]);
    let before = promises.clone();
    let mut refused = |epoch, number| {
        let result = promises.apply(&changes(epoch, number, 9.0, Some(900)), Millis(1));
        assert_eq!(promises, before);
        result.expect_err("out of order")
    };
    assert_eq!(refused(6, 1), Refused::OlderEpoch { newest: Epoch(7), got: Epoch(6) });
    assert_eq!(refused(7, 1), Refused::Gap { epoch: Epoch(7), expected: 2, got: 1 });
    assert_eq!(refused(7, 3), Refused::Gap { epoch: Epoch(7), expected: 2, got: 3 });
    assert_eq!(refused(8, 2), Refused::Gap { epoch: Epoch(8), expected: 1, got: 2 });
}

#[test]
fn a_peer_that_was_cut_off_for_long_still_has_what_the_newest_epoch_has_extended_meanwhile() {
    let mut promises = book(&[(changes(2, 1, 6.0, Some(80)), 0)]);
    assert_eq!(kept(&promises, 10_000), (0.0, 0), "as far as it knows");
    promises.apply(&changes(2, 2, 6.0, Some(80)), Millis(10_000)).expect("in order");
    assert_eq!(kept(&promises, 10_000), (6.0, 10_080));
}

proptest! {
    #![proptest_config(cases(300))]

    /// A peer that began from a snapshot errs upwards only.
    #[test]
    fn any_history_leaves_the_newest_total_until_the_latest_horizon(
        steps in proptest::collection::vec((0..40u64, 0.0..50.0, proptest::option::of(1..200u64)), 1..60),
        snapshot in any::<prop::sample::Index>(),
    ) {
        let mut promises = Promises::default();
        let (mut now, mut latest) = (0, 0);
        let snapshot = snapshot.index(steps.len());
        let mut restored: Option<Promises> = None;
        for (n, (passes, total, horizon)) in steps.into_iter().enumerate() {
            now += passes;
            let changes = changes(1, 1 + n as u64, total, horizon);
            promises.apply(&changes, Millis(now)).expect("in order");
            if let Some(restored) = &mut restored {
                restored.apply(&changes, Millis(now)).expect("in order");
                prop_assert!(restored.until() >= promises.until());
                prop_assert_eq!(restored.total(), promises.total());
            }
            latest = latest.max(horizon.map_or(0, |horizon| now + horizon));
            prop_assert_eq!(kept(&promises, now), if now < latest { (total, latest) } else { (0.0, 0) });
            if n == snapshot {
                restored = Some(Promises::restore(&promises.record(Millis(now)), Millis(now)));
            }
        }
    }
}
