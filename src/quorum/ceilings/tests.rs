//! Logs and snapshots of versions that promised by holder, against a book that is kept naively.

use std::collections::BTreeMap;

use leaseway_core::{Amount, Changes, Claims, Epoch, Millis, Promises, Sum};
use proptest::prelude::*;

use super::CeilingChanges;
use crate::{Fact, Facts, codec, stored::StoredFacts};

fn ceilings(changes: CeilingChanges) -> Fact {
    Fact::Ceilings { resource: "r".into(), changes }
}

fn apply(facts: &mut Facts, fact: &Fact, now: Millis) {
    let read = codec::decode::<Fact>(&codec::encode(fact)).expect("it was just encoded");
    facts.apply(facts.reign(), &[read], now).expect("in order");
}

fn through_a_snapshot(facts: &Facts, now: Millis) -> Facts {
    let bytes = codec::encode(&facts.record(now));
    Facts::restore(StoredFacts::decode(&bytes).expect("it was just encoded"), now)
}

#[test]
fn the_first_change_of_this_format_takes_the_place_of_all_ceilings() {
    let mut facts = Facts::default();
    facts.begin_reign();
    let many = CeilingChanges::of((1, 1), &[(false, "a", 5.0), (true, "a", 6.0)], Some(100));
    apply(&mut facts, &ceilings(many), Millis(0));
    assert_eq!(facts.promises("r").map(Promises::total), Some(Amount::clamped(11.0)), "a node is not the client");
    let (total, wants) = (Amount::clamped(7.0), Claims::new());
    let changes =
        Changes { epoch: Epoch(2), number: 1, total, horizon: None, lease: None, floor: None, wants: Some(wants) };
    apply(&mut facts, &Fact::Promises { resource: "r".into(), changes }, Millis(10));
    let inherited = facts.promises("r").expect("it is promised").inherited(Millis(10), Millis(10));
    assert_eq!((inherited.total, inherited.until, inherited.wants.len()), (total, Millis(100), 0));
    let record = facts.record(Millis(10));
    assert_eq!((record.ceilings.len(), record.promises.len()), (0, 1));
    // The peer that wrote the ceilings comes too late.
    let late = ceilings(CeilingChanges::of((1, 2), &[(false, "b", 9.0)], None));
    assert!(facts.apply(facts.reign(), &[late], Millis(10)).is_err());
    assert_eq!(facts.record(Millis(10)), record);
}

/// Milliseconds that pass, whether a new master comes, and what it changes.
type Change = (u64, bool, Vec<(bool, u8, f64)>, Option<u64>);

fn any_step() -> impl Strategy<Value = Change> {
    let ceiling = (any::<bool>(), 0..6u8, prop_oneof![Just(0.0), 0.0..50.0]);
    (
        0..40u64,
        proptest::bool::weighted(0.15),
        proptest::collection::vec(ceiling, 0..4),
        proptest::option::of(1..200u64),
    )
}

proptest! {
    #[test]
    fn a_total_is_the_sum_of_the_ceilings_and_lasts_as_long_as_any(
        steps in proptest::collection::vec(any_step(), 1..60),
        snapshots in proptest::collection::vec(any::<bool>(), 60),
    ) {
        let mut facts = Facts::default();
        facts.begin_reign();
        let (mut now, mut epoch, mut number) = (Millis(0), 1, 0);
        let mut naive: BTreeMap<(bool, u8), f64> = BTreeMap::new();
        let mut until = Millis(0);
        for ((passes, new_master, changed, horizon), snapshot) in steps.into_iter().zip(snapshots) {
            now = now.plus(Millis(passes));
            (epoch, number) = if new_master { (epoch + 1, 1) } else { (epoch, number + 1) };
            until = until.max(horizon.map_or(until, |length| now.plus(Millis(length))));
            let names: Vec<String> = changed.iter().map(|(_, id, _)| format!("holder-{id}")).collect();
            let named = changed.iter().zip(&names).map(|((node, _, amount), name)| (*node, name.as_str(), *amount));
            let changes = CeilingChanges::of((epoch, number), &named.collect::<Vec<_>>(), horizon);
            naive.extend(changed.into_iter().map(|(node, id, amount)| ((node, id), amount)));
            apply(&mut facts, &ceilings(changes), now);
            if snapshot {
                let restored = through_a_snapshot(&facts, now);
                prop_assert_eq!(restored.record(now), facts.record(now));
                facts = restored;
            }
            let promises = facts.promises("r").expect("it is promised");
            let sum: Sum = naive.values().map(|amount| Amount::clamped(*amount)).collect();
            prop_assert_eq!(promises.total(), sum.ceil());
            prop_assert_eq!(promises.newest(), Some((Epoch(epoch), number)));
            prop_assert!(promises.until() >= until, "{:?} after {:?}", promises.until(), until);
            let inherited = promises.inherited(now, now);
            if promises.until() > now && sum > Sum::ZERO {
                let held = naive.values().filter(|amount| **amount > 0.0).count();
                prop_assert_eq!(inherited.wants[0].subclients as usize, held);
                prop_assert_eq!(inherited.wants[0].wants, sum.ceil());
            }
        }
    }
}
