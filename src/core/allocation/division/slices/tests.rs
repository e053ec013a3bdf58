//! Slices compared with merging single claims, and the error of a division over slices.

use proptest::prelude::*;

use super::*;
use crate::{
    tests::cases,
    types::{Amount, MAX_SLICES, Sum},
};

fn summarize(index: &Index) -> Claims {
    super::summarize(index, MAX_SLICES)
}

fn index(claims: &[Claim]) -> Index {
    let mut index = Index::new();
    for (slot, claim) in claims.iter().enumerate() {
        let ratio = claim.wants.get() / f64::from(claim.subclients);
        index.insert(ClaimKey::new(claim.priority, ratio, slot as u32, 0), claim.subclients);
    }
    index
}

fn of_client(wants: f64) -> Claim {
    Claim::of_client(Amount::clamped(wants), 0)
}

fn ratio(claim: &Claim) -> f64 {
    claim.wants.get() / f64::from(claim.subclients)
}

/// Merges single claims one by one.
fn naive(claims: &[Claim], most: usize) -> Vec<(f64, f64)> {
    let mut order: Vec<(f64, f64)> = Vec::new();
    let mut sorted: Vec<&Claim> = claims.iter().collect();
    sorted.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    for claim in sorted {
        let (wants, weight) = (claim.wants.get(), f64::from(claim.subclients));
        match order.last_mut() {
            // Equal wants are never separated.
            Some(last) if last.0 / last.1 == ratio(claim) => *last = (last.0 + wants, last.1 + weight),
            _ => order.push((wants, weight)),
        }
    }
    while order.len() > most {
        let cost = |at: &usize| {
            let ((w1, n1), (w2, n2)) = (order[*at], order[at + 1]);
            let upwards: f64 = order[*at..].iter().map(|(_, weight)| weight).sum();
            n1 * n2 / (n1 + n2) * (w2 / n2 - w1 / n1) / ((w1 + w2) / (n1 + n2) * upwards)
        };
        let at = (0..order.len() - 1).min_by(|one, other| cost(one).total_cmp(&cost(other))).expect("two or more");
        let (wants, weight) = order.remove(at + 1);
        order[at] = (order[at].0 + wants, order[at].1 + weight);
    }
    order
}

/// Wants that are exact in binary, so that ties are exact.
fn claims(most: usize) -> impl Strategy<Value = Vec<Claim>> {
    let wants = prop_oneof![
        4 => (0..100_000u32).prop_map(|n| f64::from(n) / 64.0),
        1 => (0..8u32).prop_map(f64::from),
        1 => (0..1u64 << 40).prop_map(|n| n as f64),
        1 => Just(0.0),
    ];
    let claim = (wants, prop_oneof![3 => Just(1u32), 1 => 1..100u32]);
    proptest::collection::vec(claim, 1..most).prop_map(|claims| {
        let claim = |(ratio, subclients): (f64, u32)| {
            let wants = Amount::clamped(ratio * f64::from(subclients));
            Claim::new(wants, subclients, 0)
        };
        claims.into_iter().map(claim).collect()
    })
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn slices_equal_merged_single_claims(claims in claims(400), most in 1..40usize) {
        let slices = slices(&index(&claims), 0, most);
        let naive = naive(&claims, most);
        prop_assert_eq!(slices.len(), naive.len());
        for (slice, (wants, weight)) in slices.iter().zip(naive) {
            prop_assert_eq!(f64::from(slice.subclients), weight);
            prop_assert!((slice.wants.get() - wants).abs() <= wants * 1e-12, "{:?}, expected {}", slice, wants);
        }
    }

    #[test]
    fn no_client_is_lost_and_slices_are_in_order(
        claims in claims(1500),
        priorities in proptest::collection::vec(prop_oneof![-2..2i16, any::<i16>()], 1..600),
    ) {
        let mut claims = claims;
        for (claim, priority) in claims.iter_mut().zip(priorities.iter().cycle()) {
            claim.priority = *priority;
        }
        let summary = summarize(&index(&claims));
        prop_assert!(summary.len() <= MAX_SLICES);
        let exact = |claims: &[Claim]| claims.iter().map(|claim| claim.wants).collect::<Sum>().get();
        let (all, told) = (exact(&claims), exact(&summary));
        prop_assert!(told <= all && all - told <= all * 1e-12, "{} of {}", told, all);
        let heads = |claims: &[Claim]| claims.iter().map(|claim| u64::from(claim.subclients)).sum::<u64>();
        prop_assert_eq!(heads(&summary), heads(&claims));
        for pair in summary.windows(2) {
            let (one, other) = (pair[0], pair[1]);
            prop_assert!(one.priority <= other.priority);
            prop_assert!(one.priority < other.priority || ratio(&one) < ratio(&other), "{:?} {:?}", one, other);
            let of_band = summary.iter().filter(|claim| claim.priority == one.priority).count();
            prop_assert!(of_band <= MAX_SLICES_OF_BAND);
        }
        let known = |priority| claims.iter().any(|claim| claim.priority == priority);
        prop_assert!(summary.iter().all(|claim| known(claim.priority)));
    }

    #[test]
    fn slices_of_slices_lose_no_client(regions in proptest::collection::vec(claims(200), 1..8)) {
        let told: Vec<Claim> = regions.iter().flat_map(|claims| summarize(&index(claims))).collect();
        let again = summarize(&index(&told));
        let heads = |claims: &[Claim]| claims.iter().map(|claim| u64::from(claim.subclients)).sum::<u64>();
        prop_assert_eq!(heads(&again), regions.iter().map(|claims| heads(claims)).sum::<u64>());
        prop_assert!(again.len() <= MAX_SLICES_OF_BAND);
    }
}

#[test]
fn few_distinct_wants_are_exact() {
    let wants = [0.0, 0.0, 0.1, 0.1, 0.1, 7.0, 1e15];
    let claims: Vec<Claim> = wants.map(of_client).to_vec();
    let told: Vec<(f64, u32)> =
        summarize(&index(&claims)).iter().map(|slice| (slice.wants.get(), slice.subclients)).collect();
    assert_eq!(told.iter().map(|(_, heads)| *heads).collect::<Vec<_>>(), [2, 3, 1, 1]);
    assert_eq!((told[0].0, told[2].0, told[3].0), (0.0, 7.0, 1e15));
    assert!(told[1].0 <= 0.1 * 3.0 + 1e-15);
}

#[test]
fn slice_saturates_at_the_limits_of_a_claim() {
    let crowd = Claim::new(Amount::MAX, Claim::MAX_SUBCLIENTS, 0);
    let summary = summarize(&index(&[crowd; 6]));
    assert_eq!(summary[..], [crowd]);
}

/// A request that was rejected for its length would be rejected forever.
#[test]
fn excess_priorities_are_merged() {
    let claims: Vec<Claim> =
        (0..1_000).flat_map(|n| [1.0, 2.0].map(|wants| Claim { priority: n - 500, ..of_client(wants) })).collect();
    let summary = summarize(&index(&claims));
    assert_eq!(summary.len(), MAX_SLICES);
    let lowest = summary[0];
    assert_eq!((lowest.priority, lowest.subclients), (-500, 2 * 745), "no client is reported above its priority");
    assert_eq!(summary[1..], (0..255).map(|n| Claim::new(Amount::clamped(3.0), 2, 245 + n)).collect::<Vec<_>>()[..]);
    let few: Vec<Claim> =
        (0..16).flat_map(|n| (0..40).map(move |w| Claim { priority: n, ..of_client(f64::from(w)) })).collect();
    assert!(summarize(&index(&few)).iter().all(|slice| slice.priority >= 0));
    assert_eq!(summarize(&index(&few)).len(), 16 * 16, "with many priorities each gets fewer slices");
}
