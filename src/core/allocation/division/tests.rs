//! Compares the index and the terms with naive implementations.

mod ruled;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    Division, Terms,
    index::{ClaimKey, Index, Totals},
};
use crate::{
    policy::settings::{AlgorithmKind, Priority, Settings},
    resource::invariant,
    tests::cases,
    types::{Amount, Claim, MAX_SLICES, Sum},
};

/// Max-min fairness by sorting: satisfies the smallest wants first and shares the rest.
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

/// PROPORTIONAL_SHARE as documented.
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

fn naive(kind: AlgorithmKind, capacity: f64, claims: &[Claim]) -> Vec<f64> {
    match kind {
        // Pools and budgets compute dues themselves.
        AlgorithmKind::NoAlgorithm | AlgorithmKind::PriorityPool | AlgorithmKind::Budget => {
            claims.iter().map(|claim| claim.wants.get()).collect()
        }
        AlgorithmKind::Static => claims.iter().map(|claim| claim.wants.get().min(capacity)).collect(),
        AlgorithmKind::ProportionalShare => proportional(capacity, claims),
        AlgorithmKind::FairShare => water_filling(capacity, claims),
    }
}

/// Bands from the highest down, each dividing what those above left.
fn naive_strict(kind: AlgorithmKind, capacity: f64, claims: &[Claim]) -> Vec<f64> {
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

/// Replaces each claim by unweighted single clients, as many as its weight.
fn naive_weighted(kind: AlgorithmKind, capacity: f64, claims: &[Claim]) -> Vec<f64> {
    let weight = |claim: &Claim| claim.subclients as usize * claim.priority.max(1) as usize;
    let single = |claim: &Claim| {
        let wants = Amount::clamped(claim.wants.get() / weight(claim) as f64);
        vec![Claim::new(wants, 1, 0); weight(claim)]
    };
    let singles: Vec<Claim> = claims.iter().flat_map(single).collect();
    let mut due = naive(kind, capacity, &singles).into_iter();
    claims.iter().map(|claim| due.by_ref().take(weight(claim)).sum()).collect()
}

/// Divides the reserve max-min over all claims, the rest from the highest band down, then each band.
fn naive_reserved(kind: AlgorithmKind, reserve: f64, capacity: f64, claims: &[Claim]) -> Vec<f64> {
    let band = |claim: &Claim| claim.priority.clamp(-128, 127);
    let reserved = water_filling(capacity * reserve, claims);
    let mut left = (capacity - reserved.iter().sum::<f64>()).max(0.0);
    let mut bands: Vec<i16> = claims.iter().map(band).collect();
    bands.sort_unstable();
    bands.dedup();
    let mut due = vec![0.0; claims.len()];
    for highest in bands.into_iter().rev() {
        let members: Vec<usize> = (0..claims.len()).filter(|at| band(&claims[*at]) == highest).collect();
        let of_band: Vec<Claim> = members.iter().map(|at| claims[*at]).collect();
        let own: f64 = members.iter().map(|at| reserved[*at]).sum();
        let wants: f64 = of_band.iter().map(|claim| claim.wants.get()).sum();
        let extra = (wants - own).min(left);
        left -= extra;
        for (at, amount) in members.into_iter().zip(naive(kind, own + extra, &of_band)) {
            due[at] = amount;
        }
    }
    due
}

fn claim() -> impl Strategy<Value = Claim> {
    let wants = prop_oneof![
        4 => 0.0..100.0,
        2 => (0..5u32).prop_map(f64::from),
        // All wants close together.
        2 => (0..1000u32).prop_map(|n| 100.0 + f64::from(n) * 1e-9),
        1 => 0.0..1e12,
        1 => Just(0.0),
    ];
    (wants, prop_oneof![3 => Just(1u32), 1 => 1..100u32], -2..3i16)
        .prop_map(|(wants, subclients, priority)| Claim::new(Amount::clamped(wants), subclients, priority))
}

fn settings(kind: AlgorithmKind, priority: Priority, reserve: f64, capacity: f64) -> Settings {
    Settings { priority, reserve, ..Settings::new(kind, Amount::clamped(capacity)) }
}

fn divide(settings: &Settings, claims: &[Claim]) -> Vec<Amount> {
    let mut division = Division::new(settings);
    for (slot, claim) in claims.iter().enumerate() {
        division.insert(slot as u32, &[*claim]);
    }
    dues(&division, claims)
}

fn dues(division: &Division, claims: &[Claim]) -> Vec<Amount> {
    claims.iter().map(|claim| division.due(&division.terms(division.band(claim.priority)), claim)).collect()
}

fn close(ours: Amount, naive: f64, capacity: f64) -> bool {
    (ours.get() - naive).abs() <= 1e-9 * (naive + capacity.min(1e-3)) + 1e-12
}

fn any_kind() -> impl Strategy<Value = AlgorithmKind> {
    proptest::sample::select(AlgorithmKind::ALL.to_vec())
}

fn shared_kind() -> impl Strategy<Value = AlgorithmKind> {
    proptest::sample::select(vec![AlgorithmKind::ProportionalShare, AlgorithmKind::FairShare])
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn agrees_with_the_naive_algorithms(
        kind in any_kind(),
        capacity in prop_oneof![0.0..2000.0, Just(0.0)],
        claims in proptest::collection::vec(claim(), 1..120),
    ) {
        let ours = divide(&settings(kind, Priority::Ignore, 0.0, capacity), &claims);
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
        let ours = divide(&settings(kind, Priority::Strict, 0.0, capacity), &claims);
        for ((ours, naive), claim) in ours.iter().zip(naive_strict(kind, capacity, &claims)).zip(&claims) {
            prop_assert!(close(*ours, naive, capacity), "{claim:?}: {ours:?}, expected {naive}");
        }
    }

    /// Ignored priorities change no due, and the summary for a parent is the same as with strict priorities.
    #[test]
    fn ignored_priorities_are_summarized(
        kind in shared_kind(),
        changes in proptest::collection::vec((0..40u32, claim()), 1..200),
    ) {
        let division = |priority| Division::new(&settings(kind, priority, 0.0, 100.0));
        let mut ignoring = division(Priority::Ignore).summarizing();
        let mut strict = division(Priority::Strict).summarizing();
        let mut alone = division(Priority::Ignore);
        let mut claims: BTreeMap<u32, Claim> = BTreeMap::new();
        for (slot, claim) in changes {
            let (old, new) = match claims.remove(&slot) {
                Some(old) => (Some(old), None),
                None => (None, Some(claim)),
            };
            for division in [&mut ignoring, &mut strict, &mut alone] {
                division.remove(slot, old.as_slice());
                division.insert(slot, new.as_slice());
            }
            claims.extend(new.map(|new| (slot, new)));
            prop_assert_eq!(ignoring.summarize(MAX_SLICES), strict.summarize(MAX_SLICES));
            prop_assert_eq!(ignoring.terms(0), alone.terms(0));
        }
    }

    #[test]
    fn weight_three_counts_as_three_clients(
        kind in shared_kind(),
        capacity in 0.0..2000.0,
        claims in proptest::collection::vec((claim(), -3..40i16), 1..30),
    ) {
        let claims: Vec<Claim> =
            claims.into_iter().map(|(claim, priority)| Claim { priority, ..claim }).collect();
        let ours = divide(&settings(kind, Priority::Weighted, 0.0, capacity), &claims);
        for ((ours, naive), claim) in ours.iter().zip(naive_weighted(kind, capacity, &claims)).zip(&claims) {
            prop_assert!(close(*ours, naive, capacity), "{claim:?}: {ours:?}, expected {naive}");
        }
    }

    #[test]
    fn bands_share_the_reserve_and_the_rest_goes_from_the_top(
        kind in shared_kind(),
        reserve in prop_oneof![1e-6..1.0, Just(1.0)],
        capacity in 0.0..2000.0,
        claims in proptest::collection::vec(claim(), 1..120),
        far in proptest::collection::vec(prop_oneof![9 => Just(0i16), 1 => Just(-1_000), 1 => Just(1_000)], 1..120),
    ) {
        let mut claims = claims;
        claims.iter_mut().zip(far.iter().cycle()).for_each(|(claim, far)| claim.priority += far);
        let ours = divide(&settings(kind, Priority::Strict, reserve, capacity), &claims);
        for ((ours, naive), claim) in ours.iter().zip(naive_reserved(kind, reserve, capacity, &claims)).zip(&claims) {
            prop_assert!(close(*ours, naive, capacity), "{claim:?}: {ours:?}, expected {naive}");
        }
    }

    /// The capacity of each band is cached. Every change must invalidate the cache.
    #[test]
    fn dues_follow_changes_of_claims_and_capacity(
        kind in shared_kind(),
        priority in proptest::sample::select(Priority::ALL.to_vec()),
        claims in proptest::collection::vec(claim(), 1..30),
        changes in proptest::collection::vec((0..30usize, claim(), 0.0..2000.0, 1e-3..1.0f64), 1..12),
    ) {
        let mut claims = claims;
        let mut settings = settings(kind, priority, 0.3, 1_000.0);
        let mut division = Division::new(&settings);
        claims.iter().enumerate().for_each(|(slot, claim)| division.insert(slot as u32, &[*claim]));
        for (n, (at, claim, capacity, reserve)) in changes.into_iter().enumerate() {
            let at = at % claims.len();
            match n % 3 {
                0 => {
                    division.remove(at as u32, &[claims[at]]);
                    claims[at] = claim;
                    division.insert(at as u32, &[claim]);
                }
                1 => {
                    settings.capacity = Amount::clamped(capacity);
                    division.set_capacity(settings.capacity);
                }
                _ => {
                    settings.reserve = reserve;
                    division.reconfigure(&settings);
                }
            }
            prop_assert_eq!(dues(&division, &claims), divide(&settings, &claims), "to the bit");
        }
    }

    #[test]
    fn all_capacity_is_divided_in_any_order_of_claims(
        kind in shared_kind(),
        priority in proptest::sample::select(Priority::ALL.to_vec()),
        reserve in prop_oneof![Just(0.0), 0.0..1.0],
        capacity in 0.0..2000.0,
        claims in proptest::collection::vec(claim(), 1..120),
    ) {
        let settings = settings(kind, priority, reserve, capacity);
        let wants: Sum = claims.iter().map(|claim| claim.wants).collect();
        let due = divide(&settings, &claims);
        invariant::divided_completely(Amount::clamped(capacity), wants, due.iter().copied())?;

        let reversed: Vec<Claim> = claims.iter().rev().copied().collect();
        let mut again = divide(&settings, &reversed);
        again.reverse();
        prop_assert_eq!(due, again, "to the bit");
    }

    #[test]
    fn the_index_agrees_with_a_sorted_list(
        steps in proptest::collection::vec((any::<bool>(), 0..40u16, 0..3u32, 1..5u32), 1..2500),
        question in 0..40u16,
    ) {
        let mut index = Index::new();
        let mut list: Vec<(ClaimKey, u32)> = Vec::new();
        for (slot, (add, ratio, band, weight)) in steps.into_iter().enumerate() {
            // Grows at first and shrinks later, so that leaves split and merge.
            if add || list.is_empty() || slot % 7 == 0 {
                let key = ClaimKey::new(band as i16 - 1, f64::from(ratio) / 8.0, slot as u32, 0);
                index.insert(key, weight);
                list.push((key, weight));
            } else {
                let (key, weight) = list.swap_remove(usize::from(ratio) * 31 % list.len());
                index.remove(key, weight);
            }
            // Most queries end near the last one, others anywhere.
            let near = if slot % 5 == 0 { ratio } else { (slot / 50 % 40) as u16 };
            let pivot = ClaimKey::new(0, f64::from(near) / 8.0, slot as u32 / 2, 0);
            prop_assert_eq!(index.prefix_where(|key, _| key < pivot), index.before(pivot));
        }
        list.sort_unstable();
        let sum = |entries: &[(ClaimKey, u32)]| entries.iter().fold(Totals::default(), |mut sum, (key, weight)| {
            sum.wants += Amount::clamped(Index::ratio(*key) * f64::from(*weight));
            sum.weight += u64::from(*weight);
            sum
        });
        prop_assert_eq!(index.totals(), sum(&list));
        let pivot = ClaimKey::new(0, f64::from(question) / 8.0, 0, 0);
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
fn equal_claims_are_distinct() {
    let claims = vec![Claim::new(Amount::clamped(10.0), 1, 0); 10_000];
    let due = divide(&settings(AlgorithmKind::FairShare, Priority::Ignore, 0.0, 50_000.0), &claims);
    assert!(due.iter().all(|due| due.get() == 5.0));
}

fn of(wants: f64, priority: i16) -> Claim {
    Claim::new(Amount::clamped(wants), 1, priority)
}

/// Two clients of each priority, all of which want more than the capacity.
fn two_of_each(priorities: [i16; 3]) -> Vec<Claim> {
    priorities.iter().flat_map(|priority| [of(50.0, *priority), of(100.0, *priority)]).collect()
}

#[test]
fn a_full_reserve_ignores_priorities_and_an_empty_one_is_strict() {
    let claims = two_of_each([5, 0, -3]);
    let strictly = |reserve| divide(&settings(AlgorithmKind::FairShare, Priority::Strict, reserve, 180.0), &claims);
    assert_eq!(strictly(1.0), divide(&settings(AlgorithmKind::FairShare, Priority::Ignore, 0.0, 180.0), &claims));
    assert_eq!(strictly(0.0), [50.0, 100.0, 15.0, 15.0, 0.0, 0.0].map(Amount::clamped));
    assert_eq!(strictly(0.5), [50.0, 70.0, 15.0, 15.0, 15.0, 15.0].map(Amount::clamped), "90 for all, 90 from the top");
}

#[test]
fn with_a_reserve_extreme_priorities_share_the_outermost_bands() {
    let claims: Vec<Claim> = [i16::MAX, 127, 126, -127, -128, i16::MIN].map(|priority| of(60.0, priority)).to_vec();
    let due = divide(&settings(AlgorithmKind::FairShare, Priority::Strict, 0.1, 120.0), &claims);
    assert_eq!(due, [56.0, 56.0, 2.0, 2.0, 2.0, 2.0].map(Amount::clamped));
}

#[test]
fn new_terms_of_the_parent_apply_immediately() {
    let claims = [of(60.0, 5), of(50.0, 0), of(50.0, 0)];
    let mut division = Division::new(&settings(AlgorithmKind::FairShare, Priority::Strict, 0.3, 80.0));
    claims.iter().enumerate().for_each(|(slot, claim)| division.insert(slot as u32, &[*claim]));
    assert_eq!(
        dues(&division, &claims),
        [60.0, 10.0, 10.0].map(Amount::clamped),
        "8 for each, and the rest from the top"
    );
    division.set_parent_terms(vec![(5, Terms::Level(40.0)), (0, Terms::Level(20.0))]);
    assert_eq!(dues(&division, &claims), [40.0, 20.0, 20.0].map(Amount::clamped));
}

/// Weights saturate: no claim is omitted, and nothing overflows.
#[test]
fn the_heaviest_claims_weigh_the_same() {
    let crowd = Claim::new(Amount::MAX, Claim::MAX_SUBCLIENTS, i16::MAX);
    let due = divide(&settings(AlgorithmKind::FairShare, Priority::Weighted, 0.0, 120.0), &[crowd; 3]);
    assert!(due.iter().all(|due| (due.get() - 40.0).abs() < 1e-9), "{due:?}");
    let (most, half) = (f64::from(u32::MAX), Claim { priority: 2, ..crowd });
    let due = divide(&settings(AlgorithmKind::FairShare, Priority::Weighted, 0.0, 2e9 + most), &[crowd, half]);
    assert!((due[0].get() - most).abs() < 1e-3, "{due:?}: a weight saturates at u32::MAX and never wraps");
    let one = Claim { subclients: 1, ..crowd };
    let due = divide(&settings(AlgorithmKind::FairShare, Priority::Weighted, 0.0, 32_768.0), &[one, of(5.0, i16::MIN)]);
    assert_eq!(due, [32_767.0, 1.0].map(Amount::clamped));
}

#[test]
fn algorithms_that_do_not_share_ignore_weights() {
    for kind in [AlgorithmKind::NoAlgorithm, AlgorithmKind::Static] {
        let mut division = Division::new(&settings(kind, Priority::Weighted, 0.0, 10.0)).summarizing();
        division.insert(0, &[of(30.0, 7)]);
        assert_eq!(division.summarize(MAX_SLICES)[..], [of(30.0, 7)], "{kind:?}");
    }
}

#[test]
fn the_due_of_a_claim_follows_from_the_terms() {
    let claim = |wants, subclients| Claim::new(Amount::clamped(wants), subclients, 0);
    let share = Terms::Share { equal: 10.0, top_up: 0.5 };
    assert_eq!(share.due(&claim(8.0, 1)).get(), 8.0);
    assert_eq!(share.due(&claim(30.0, 1)).get(), 20.0);
    assert_eq!(share.due(&claim(30.0, 2)).get(), 25.0);
    assert_eq!(Terms::Level(7.0).due(&claim(30.0, 3)).get(), 21.0);
    assert_eq!(Terms::Wants.due(&claim(30.0, 3)).get(), 30.0);
}
