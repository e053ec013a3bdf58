//! The index and the terms against the plainest code that computes the same.

use proptest::prelude::*;

use super::{
    Division, Kind, Priority, Terms,
    index::{Index, Key, Totals},
};
use crate::{Amount, Claim, Sum, invariant, tests::cases};

/// Max-min by sorting: satisfy the modest first, share what is left among the rest.
pub(crate) fn water_filling(capacity: f64, claims: &[Claim]) -> Vec<f64> {
    let ratio = |claim: &Claim| claim.wants.get() / f64::from(claim.subclients);
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by(|a, b| ratio(&claims[*a]).total_cmp(&ratio(&claims[*b])));
    let mut due = vec![0.0; claims.len()];
    let mut left = capacity;
    let mut weight: f64 = claims.iter().map(|claim| f64::from(claim.subclients)).sum();
    for at in order {
        let claim = &claims[at];
        let mine = left * f64::from(claim.subclients) / weight;
        due[at] = claim.wants.get().min(mine);
        left -= due[at];
        weight -= f64::from(claim.subclients);
    }
    due
}

/// The algorithms page, word for word.
pub(crate) fn proportional(capacity: f64, claims: &[Claim]) -> Vec<f64> {
    let wants: f64 = claims.iter().map(|claim| claim.wants.get()).sum();
    if wants <= capacity {
        return claims.iter().map(|claim| claim.wants.get()).collect();
    }
    let clients: f64 = claims.iter().map(|claim| f64::from(claim.subclients)).sum();
    let (mut extra, mut need) = (0.0, 0.0);
    for claim in claims {
        let beyond = claim.wants.get() - capacity / clients * f64::from(claim.subclients);
        extra += (-beyond).max(0.0);
        need += beyond.max(0.0);
    }
    let due = |claim: &Claim| {
        let mine = capacity / clients * f64::from(claim.subclients);
        let beyond = claim.wants.get() - mine;
        if beyond <= 0.0 { claim.wants.get() } else { mine + beyond * extra / need }
    };
    claims.iter().map(due).collect()
}

fn naive(kind: Kind, capacity: f64, claims: &[Claim]) -> Vec<f64> {
    match kind {
        // A pool says itself what is due.
        Kind::NoAlgorithm | Kind::PriorityPool => claims.iter().map(|claim| claim.wants.get()).collect(),
        Kind::Static => claims.iter().map(|claim| claim.wants.get().min(capacity)).collect(),
        Kind::ProportionalShare => proportional(capacity, claims),
        Kind::FairShare => water_filling(capacity, claims),
    }
}

/// Bands from the highest down, each dividing what those above left.
fn naive_strict(kind: Kind, capacity: f64, claims: &[Claim]) -> Vec<f64> {
    let mut due = vec![0.0; claims.len()];
    let mut bands: Vec<i16> = claims.iter().map(|claim| claim.priority).collect();
    bands.sort_unstable_by(|a, b| b.cmp(a));
    bands.dedup();
    let mut left = capacity;
    for band in bands {
        let members: Vec<usize> = (0..claims.len()).filter(|at| claims[*at].priority == band).collect();
        let of_band: Vec<Claim> = members.iter().map(|at| claims[*at]).collect();
        for (at, amount) in members.into_iter().zip(naive(kind, left, &of_band)) {
            due[at] = amount;
        }
        left = (left - of_band.iter().map(|claim| claim.wants.get()).sum::<f64>()).max(0.0);
    }
    due
}

fn claim() -> impl Strategy<Value = Claim> {
    let wants = prop_oneof![
        4 => 0.0..100.0,
        2 => (0..5u32).prop_map(f64::from),
        // Everybody's wants close together.
        2 => (0..1000u32).prop_map(|n| 100.0 + f64::from(n) * 1e-9),
        1 => 0.0..1e12,
        1 => Just(0.0),
    ];
    (wants, prop_oneof![3 => Just(1u32), 1 => 1..100u32], -2..3i16).prop_map(|(wants, subclients, priority)| Claim {
        wants: Amount::clamped(wants),
        subclients,
        priority,
    })
}

fn divide(kind: Kind, priority: Priority, capacity: f64, claims: &[Claim]) -> Vec<Amount> {
    let mut division = Division::new(kind, priority, Amount::clamped(capacity));
    for (slot, claim) in claims.iter().enumerate() {
        division.insert(slot as u32, &[*claim]);
    }
    claims.iter().map(|claim| division.terms(division.band(claim.priority)).due(claim)).collect()
}

fn close(ours: Amount, naive: f64, capacity: f64) -> bool {
    (ours.get() - naive).abs() <= 1e-9 * (naive + capacity.min(1e-3)) + 1e-12
}

fn any_kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(Kind::ALL.to_vec())
}

fn shared_kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(vec![Kind::ProportionalShare, Kind::FairShare])
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn agrees_with_the_naive_algorithms(
        kind in any_kind(),
        capacity in prop_oneof![0.0..2000.0, Just(0.0)],
        claims in proptest::collection::vec(claim(), 1..120),
    ) {
        let ours = divide(kind, Priority::Ignore, capacity, &claims);
        for ((ours, naive), claim) in ours.iter().zip(naive(kind, capacity, &claims)).zip(&claims) {
            prop_assert!(close(*ours, naive, capacity), "{claim:?}: {ours:?}, expected {naive}");
        }
    }

    #[test]
    fn strict_bands_get_what_the_bands_above_leave(
        kind in shared_kind(),
        capacity in 0.0..2000.0,
        claims in proptest::collection::vec(claim(), 1..120),
    ) {
        let ours = divide(kind, Priority::Strict, capacity, &claims);
        for ((ours, naive), claim) in ours.iter().zip(naive_strict(kind, capacity, &claims)).zip(&claims) {
            prop_assert!(close(*ours, naive, capacity), "{claim:?}: {ours:?}, expected {naive}");
        }
    }

    #[test]
    fn nothing_is_left_and_order_means_nothing(
        kind in shared_kind(),
        priority in prop_oneof![Just(Priority::Ignore), Just(Priority::Strict)],
        capacity in 0.0..2000.0,
        claims in proptest::collection::vec(claim(), 1..120),
    ) {
        let wants: Sum = claims.iter().map(|claim| claim.wants).collect();
        let due = divide(kind, priority, capacity, &claims);
        invariant::divided_completely(Amount::clamped(capacity), wants, due.iter().copied())?;

        let reversed: Vec<Claim> = claims.iter().rev().copied().collect();
        let mut again = divide(kind, priority, capacity, &reversed);
        again.reverse();
        prop_assert_eq!(due, again, "to the bit");
    }

    #[test]
    fn the_index_agrees_with_a_sorted_list(
        steps in proptest::collection::vec((any::<bool>(), 0..40u16, 0..3u32, 1..5u32), 1..2500),
        question in 0..40u16,
    ) {
        let mut index = Index::new();
        let mut list: Vec<(Key, u32)> = Vec::new();
        for (slot, (add, ratio, band, weight)) in steps.into_iter().enumerate() {
            // Grow at first, shrink later, so that leaves split and merge.
            if add || list.is_empty() || slot % 7 == 0 {
                let key = Key::new(band as i16 - 1, f64::from(ratio) / 8.0, slot as u32, 0);
                index.insert(key, weight);
                list.push((key, weight));
            } else {
                let (key, weight) = list.swap_remove(usize::from(ratio) * 31 % list.len());
                index.remove(key, weight);
            }
        }
        list.sort_unstable();
        let sum = |entries: &[(Key, u32)]| entries.iter().fold(Totals::default(), |mut sum, (key, weight)| {
            sum.wants += Amount::clamped(Index::ratio(*key) * f64::from(*weight));
            sum.weight += u64::from(*weight);
            sum
        });
        prop_assert_eq!(index.totals(), sum(&list));
        let pivot = Key::new(0, f64::from(question) / 8.0, 0, 0);
        let before = list.partition_point(|(key, _)| *key < pivot);
        prop_assert_eq!(index.before(pivot), sum(&list[..before]));
        prop_assert_eq!(index.prefix_where(|key, _| key < pivot), sum(&list[..before]));
        for (key, weight) in list {
            index.remove(key, weight);
        }
        prop_assert_eq!(index.totals(), Totals::default());
    }
}

#[test]
fn many_claims_on_the_same_level_are_told_apart() {
    let claims = vec![Claim { wants: Amount::clamped(10.0), subclients: 1, priority: 0 }; 10_000];
    let due = divide(Kind::FairShare, Priority::Ignore, 50_000.0, &claims);
    assert!(due.iter().all(|due| due.get() == 5.0));
}

#[test]
fn terms_alone_say_what_a_claim_is_due() {
    let claim = |wants, subclients| Claim { wants: Amount::clamped(wants), subclients, priority: 0 };
    let share = Terms::Share { equal: 10.0, top_up: 0.5 };
    assert_eq!(share.due(&claim(8.0, 1)).get(), 8.0);
    assert_eq!(share.due(&claim(30.0, 1)).get(), 20.0);
    assert_eq!(share.due(&claim(30.0, 2)).get(), 25.0);
    assert_eq!(Terms::Level(7.0).due(&claim(30.0, 3)).get(), 21.0);
    assert_eq!(Terms::Wants.due(&claim(30.0, 3)).get(), 30.0);
}
