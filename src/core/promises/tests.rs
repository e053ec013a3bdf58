//! The book of promises, rule by rule, and against one that is kept naively.

use proptest::prelude::*;

use super::{Ceiling, Changes, Inherited, Promises, Refused};
use crate::{Amount, Epoch, HolderKind, Millis, Sum, tests::cases};

fn ceiling(id: &str, amount: f64) -> Ceiling {
    Ceiling { kind: HolderKind::Client, id: id.into(), amount: Amount::clamped(amount) }
}

fn changes(epoch: u64, number: u64, ceilings: &[(&str, f64)], horizon: Option<u64>) -> Changes {
    let ceilings = ceilings.iter().map(|(id, amount)| ceiling(id, *amount)).collect();
    Changes { epoch: Epoch(epoch), number, ceilings, horizon: horizon.map(Millis) }
}

fn kept(promises: &Promises, now: u64) -> Vec<(String, f64, u64)> {
    let ceilings = promises.inherited(Millis(now)).ceilings;
    ceilings.into_iter().map(|(ceiling, until)| (ceiling.id.to_string(), ceiling.amount.get(), until.0)).collect()
}

fn book(history: &[(Changes, u64)]) -> Promises {
    let mut promises = Promises::default();
    for (changes, now) in history {
        promises.apply(changes, Millis(*now)).expect("in order");
    }
    promises
}

#[test]
fn a_ceiling_counts_until_the_horizon_as_this_peer_counts_it() {
    let promises = book(&[(changes(1, 1, &[("a", 5.0)], Some(100)), 30)]);
    assert_eq!(kept(&promises, 129), [("a".to_owned(), 5.0, 130)]);
    assert_eq!(kept(&promises, 130), []);
    assert_eq!(promises.inherited(Millis(130)), Inherited { newest: Some(Epoch(1)), ..Inherited::default() });
}

#[test]
fn a_horizon_extends_all_ceilings_of_its_epoch_and_no_others() {
    let promises = book(&[
        (changes(1, 1, &[("a", 5.0), ("b", 6.0)], Some(100)), 0),
        (changes(2, 1, &[("b", 7.0)], Some(40)), 10),
        (changes(2, 2, &[], Some(400)), 20),
    ]);
    assert_eq!(kept(&promises, 20), [("a".to_owned(), 5.0, 100), ("b".to_owned(), 7.0, 420)]);
    assert_eq!(promises.inherited(Millis(20)).until, Millis(420));
}

#[test]
fn a_shorter_horizon_takes_nothing_back_and_does_not_shorten_what_a_snapshot_says() {
    let mut promises = book(&[(changes(1, 1, &[("a", 5.0)], Some(100)), 0), (changes(1, 2, &[], Some(20)), 10)]);
    assert_eq!(kept(&promises, 10), [("a".to_owned(), 5.0, 100)]);
    assert_eq!(kept(&Promises::restore(promises.record(), Millis(10)), 10), [("a".to_owned(), 5.0, 110)]);
    // Once it ends later than what the longer one promised, the shorter is all there is to remember.
    promises.apply(&changes(1, 3, &[], Some(20)), Millis(90)).expect("in order");
    assert_eq!(kept(&Promises::restore(promises.record(), Millis(90)), 90), [("a".to_owned(), 5.0, 110)]);
}

#[test]
fn what_is_out_of_order_changes_nothing() {
    let mut promises = book(&[(changes(7, 1, &[("a", 5.0)], Some(100)), 0)]);
    let before = promises.clone();
    let mut refused = |epoch, number| {
        let result = promises.apply(&changes(epoch, number, &[("a", 9.0), ("b", 1.0)], Some(900)), Millis(1));
        assert_eq!(promises, before);
        result.expect_err("out of order")
    };
    assert_eq!(refused(6, 1), Refused::OlderEpoch { newest: Epoch(7), got: Epoch(6) });
    assert_eq!(refused(7, 1), Refused::Gap { epoch: Epoch(7), expected: 2, got: 1 });
    assert_eq!(refused(7, 3), Refused::Gap { epoch: Epoch(7), expected: 2, got: 3 });
    assert_eq!(refused(8, 2), Refused::Gap { epoch: Epoch(8), expected: 1, got: 2 });
}

#[test]
fn zero_forgets_and_the_newest_epoch_is_remembered_without_ceilings() {
    let mut promises = book(&[
        (changes(1, 1, &[("a", 5.0), ("b", 6.0)], Some(100)), 0),
        (changes(2, 1, &[("a", 0.0), ("c", 1.0)], Some(50)), 0),
    ]);
    assert_eq!((promises.len(), promises.sum()), (2, Sum::from(Amount::clamped(7.0))));
    promises.apply(&changes(2, 2, &[("b", 0.0), ("c", 0.0)], None), Millis(1)).expect("in order");
    assert!(promises.is_empty() && promises.sum() == Sum::ZERO);
    assert_eq!(promises.record().horizons, [(Epoch(2), Millis(50))], "an epoch without ceilings does not come back");
    // Its horizon still stands: a ceiling that comes under it need not say so again.
    promises.apply(&changes(2, 3, &[("c", 3.0)], None), Millis(2)).expect("in order");
    assert_eq!(kept(&promises, 49), [("c".to_owned(), 3.0, 50)]);
    assert_eq!(promises.record().newest, Some((Epoch(2), 3)));
}

#[test]
fn a_client_and_a_node_of_one_name_are_two() {
    let node = Ceiling { kind: HolderKind::Node, ..ceiling("a", 3.0) };
    let changes = Changes { ceilings: vec![ceiling("a", 2.0), node], ..changes(1, 1, &[], Some(10)) };
    assert_eq!(book(&[(changes, 0)]).len(), 2);
}

#[test]
fn what_has_ended_is_forgotten_once_another_epoch_has_followed() {
    let mut promises =
        book(&[(changes(1, 1, &[("a", 5.0)], Some(100)), 0), (changes(2, 1, &[("b", 6.0)], Some(80)), 0)]);
    promises.forget_ended(Millis(99));
    assert_eq!(promises.len(), 2);
    promises.forget_ended(Millis(100));
    assert_eq!(promises.iter().map(|(ceiling, _)| ceiling.id).collect::<Vec<_>>(), ["b".into()]);
    assert_eq!(promises.sum(), Sum::from(Amount::clamped(6.0)));
}

#[test]
fn a_peer_that_was_cut_off_for_long_still_has_what_the_newest_epoch_has_extended_meanwhile() {
    let mut promises = book(&[(changes(2, 1, &[("b", 6.0)], Some(80)), 0)]);
    promises.forget_ended(Millis(10_000));
    assert_eq!(kept(&promises, 10_000), [], "as far as it knows");
    promises.apply(&changes(2, 2, &[], Some(80)), Millis(10_000)).expect("in order");
    assert_eq!(kept(&promises, 10_000), [("b".to_owned(), 6.0, 10_080)]);
}

/// A book that forgets nothing and looks at everything.
#[derive(Default)]
struct Naive {
    applied: Vec<(Changes, Millis)>,
}

impl Naive {
    fn until(&self, epoch: Epoch) -> Millis {
        let of_epoch = self.applied.iter().filter(|(changes, _)| changes.epoch == epoch);
        of_epoch.filter_map(|(changes, at)| Some(at.plus(changes.horizon?))).max().unwrap_or_default()
    }

    fn kept(&self, now: Millis) -> Vec<(Ceiling, Millis)> {
        let mut kept: Vec<(Ceiling, Epoch)> = Vec::new();
        for (changes, _) in &self.applied {
            for new in &changes.ceilings {
                kept.retain(|(old, _)| (old.kind, &old.id) != (new.kind, &new.id));
                kept.push((new.clone(), changes.epoch));
            }
        }
        kept.retain(|(ceiling, _)| ceiling.amount > Amount::ZERO);
        let mut kept: Vec<_> = kept.into_iter().map(|(ceiling, epoch)| (ceiling, self.until(epoch))).collect();
        kept.retain(|(_, until)| now < *until);
        kept.sort_by(|(one, _), (other, _)| (one.kind, &one.id).cmp(&(other.kind, &other.id)));
        kept
    }
}

fn any_ceiling() -> impl Strategy<Value = Ceiling> {
    let kind = prop_oneof![Just(HolderKind::Client), Just(HolderKind::Node)];
    (kind, 0..6u8, prop_oneof![Just(0.0), 0.0..50.0]).prop_map(|(kind, id, amount)| Ceiling {
        kind,
        id: format!("holder-{id}").into(),
        amount: Amount::clamped(amount),
    })
}

/// Milliseconds that pass, whether a new master comes, and what it changes.
fn any_step() -> impl Strategy<Value = (u64, bool, Vec<Ceiling>, Option<u64>)> {
    let ceilings = proptest::collection::vec(any_ceiling(), 0..4);
    (0..40u64, proptest::bool::weighted(0.15), ceilings, proptest::option::of(1..200u64))
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn any_history_leaves_what_a_naive_book_says(
        steps in proptest::collection::vec(any_step(), 1..60),
        snapshot in any::<prop::sample::Index>(),
    ) {
        let (mut promises, mut naive) = (Promises::default(), Naive::default());
        let (mut now, mut epoch, mut number) = (Millis(0), Epoch(1), 0);
        let snapshot = snapshot.index(steps.len());
        let mut stale: Option<Promises> = None;
        for (n, (passes, new_master, ceilings, horizon)) in steps.into_iter().enumerate() {
            now = now.plus(Millis(passes));
            if new_master {
                (epoch, number) = (Epoch(epoch.0 + 1), 0);
            }
            number += 1;
            let changes = Changes { epoch, number, ceilings, horizon: horizon.map(Millis) };
            promises.apply(&changes, now).expect("in order");
            if let Some(restored) = &mut stale {
                restored.apply(&changes, now).expect("in order");
            }
            naive.applied.push((changes, now));
            promises.forget_ended(now);
            prop_assert_eq!(promises.inherited(now).ceilings, naive.kept(now));
            prop_assert_eq!(promises.sum(), promises.iter().map(|(ceiling, _)| ceiling.amount).collect::<Sum>());
            if n == snapshot {
                stale = Some(Promises::restore(promises.record(), now));
            }
        }
        // A peer that began from a snapshot errs upwards only.
        if let Some(restored) = stale {
            let restored = restored.inherited(now).ceilings;
            for (ceiling, until) in naive.kept(now) {
                prop_assert!(restored.iter().any(|(other, later)| *other == ceiling && *later >= until), "{:?}", ceiling);
            }
        }
    }
}
