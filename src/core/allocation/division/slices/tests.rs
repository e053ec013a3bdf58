//! Slices against merging single claims, and what is wrong with a division over them.

use proptest::prelude::*;

use super::*;
use crate::{
    allocation::division::tests::water_filling,
    tests::cases,
    types::amount::{Amount, Sum},
};

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

/// Single claims, merged one after the other.
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
    fn they_are_what_merging_single_claims_comes_to(claims in claims(400), most in 1..40usize) {
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
    fn slices_of_slices_lose_no_client_either(regions in proptest::collection::vec(claims(200), 1..8)) {
        let told: Vec<Claim> = regions.iter().flat_map(|claims| summarize(&index(claims))).collect();
        let again = summarize(&index(&told));
        let heads = |claims: &[Claim]| claims.iter().map(|claim| u64::from(claim.subclients)).sum::<u64>();
        prop_assert_eq!(heads(&again), regions.iter().map(|claims| heads(claims)).sum::<u64>());
        prop_assert!(again.len() <= MAX_SLICES_OF_BAND);
    }
}

#[test]
fn no_claims_make_no_slices() {
    assert!(summarize(&index(&[])).is_empty());
}

#[test]
fn few_different_wants_are_told_as_they_are() {
    let wants = [0.0, 0.0, 0.1, 0.1, 0.1, 7.0, 1e15];
    let claims: Vec<Claim> = wants.map(of_client).to_vec();
    let told: Vec<(f64, u32)> =
        summarize(&index(&claims)).iter().map(|slice| (slice.wants.get(), slice.subclients)).collect();
    assert_eq!(told.iter().map(|(_, heads)| *heads).collect::<Vec<_>>(), [2, 3, 1, 1]);
    assert_eq!((told[0].0, told[2].0, told[3].0), (0.0, 7.0, 1e15));
    assert!(told[1].0 <= 0.1 * 3.0 + 1e-15);
}

#[test]
fn beyond_what_a_claim_can_say_it_says_the_most() {
    let crowd = Claim::new(Amount::MAX, Claim::MAX_SUBCLIENTS, 0);
    let summary = summarize(&index(&[crowd; 6]));
    assert_eq!(summary[..], [crowd]);
}

/// A request that is refused for its length would be refused for ever.
#[test]
fn of_too_many_priorities_the_lowest_are_told_as_one() {
    let claims: Vec<Claim> =
        (0..1_000).flat_map(|n| [1.0, 2.0].map(|wants| Claim { priority: n - 500, ..of_client(wants) })).collect();
    let summary = summarize(&index(&claims));
    assert_eq!(summary.len(), MAX_SLICES);
    let lowest = summary[0];
    assert_eq!((lowest.priority, lowest.subclients), (-500, 2 * 745), "it claims no more than the lowest may");
    assert_eq!(summary[1..], (0..255).map(|n| Claim::new(Amount::clamped(3.0), 2, 245 + n)).collect::<Vec<_>>()[..]);
    let few: Vec<Claim> =
        (0..16).flat_map(|n| (0..40).map(move |w| Claim { priority: n, ..of_client(f64::from(w)) })).collect();
    assert!(summarize(&index(&few)).iter().all(|slice| slice.priority >= 0));
    assert_eq!(summarize(&index(&few)).len(), 16 * 16, "of many priorities each gets fewer");
}

/// The same numbers on every machine; good enough to draw demands from.
struct Draws(u64);

impl Draws {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn pareto(&mut self) -> f64 {
        self.unit().powf(-1.0 / 1.1)
    }

    fn lognormal(&mut self) -> f64 {
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        (2.0 * normal).exp()
    }
}

/// Regions of leaves of clients' wants.
type WantsByNode = Vec<Vec<Vec<f64>>>;

fn tree(mut wants: impl FnMut(usize, usize) -> Vec<f64>) -> WantsByNode {
    (0..3).map(|region| (0..3).map(|leaf| wants(region, leaf)).collect()).collect()
}

type Draw = fn(&mut Draws) -> WantsByNode;

/// A greedy one alone, hundreds of small ones, and everything between.
fn lopsided(draws: &mut Draws) -> WantsByNode {
    tree(|region, leaf| match (region, leaf) {
        (0, 0) => vec![50_000.0],
        (0, _) => (0..20).map(|_| 100.0 * draws.unit()).collect(),
        (1, _) => (0..500).map(|_| draws.unit()).collect(),
        _ => (0..100).map(|_| draws.pareto()).collect(),
    })
}

fn water(capacity: f64, wants: &[f64]) -> Vec<f64> {
    water_filling(capacity, &wants.iter().copied().map(of_client).collect::<Vec<_>>())
}

fn divided(capacity: f64, claims: &[Vec<Claim>]) -> Vec<f64> {
    let mut due = water_filling(capacity, &claims.concat()).into_iter();
    claims.iter().map(|claims| due.by_ref().take(claims.len()).sum()).collect()
}

/// The error of the client that is worst off, as a part of what it should have: clients' wants go up as slices, and
/// down comes nothing but a sum for each node, which it divides by itself.
fn worst(tree: &WantsByNode, capacity: f64, summarize: &impl Fn(&[Claim]) -> Vec<Claim>) -> f64 {
    let leaves: Vec<Vec<Vec<Claim>>> = tree
        .iter()
        .map(|leaves| {
            leaves.iter().map(|wants| summarize(&wants.iter().copied().map(of_client).collect::<Vec<_>>())).collect()
        })
        .collect();
    let regions: Vec<Vec<Claim>> = leaves.iter().map(|leaves| summarize(&leaves.concat())).collect();
    let all: Vec<f64> = tree.concat().concat();
    let mut fair = water(capacity, &all).into_iter();
    let mut worst: f64 = 0.0;
    for (region, lent) in divided(capacity, &regions).into_iter().enumerate() {
        for (wants, lent) in tree[region].iter().zip(divided(lent, &leaves[region])) {
            for has in water(lent, wants) {
                let due = fair.next().expect("one due for each");
                worst = worst.max((has - due).abs() / due.max(1e-9));
            }
        }
    }
    worst
}

/// Over levels from where hardly any client is satisfied to where nearly all are.
fn worst_of_all(tree: &WantsByNode, summarize: &impl Fn(&[Claim]) -> Vec<Claim>) -> f64 {
    let wants: f64 = tree.concat().concat().iter().sum();
    (1..10).map(|part| worst(tree, wants * f64::from(2 * part - 1) / 20.0, summarize)).fold(0.0, f64::max)
}

/// `cargo test -p leaseway-core in_a_slice -- --nocapture` prints the table.
#[test]
#[expect(clippy::print_stdout, reason = "the figures are the output")]
fn a_client_at_the_end_of_a_tree_is_hardly_worse_off_for_being_in_a_slice() {
    let sum = |claims: &[Claim]| {
        let wants = claims.iter().map(|claim| claim.wants).collect::<Sum>().floor();
        vec![Claim::new(wants, claims.iter().map(|claim| claim.subclients).sum(), 0)]
    };
    let trees: [(&str, Draw); 3] = [
        ("lopsided", lopsided),
        ("Pareto 1.1", |draws| tree(|_, _| (0..200).map(|_| draws.pareto()).collect())),
        ("lognormal", |draws| tree(|_, _| (0..200).map(|_| draws.lognormal()).collect())),
    ];
    let mut table = String::new();
    for (name, draw) in trees {
        let trees: Vec<WantsByNode> = (1..=5).map(|seed| draw(&mut Draws(seed))).collect();
        let error = |summarize: &dyn Fn(&[Claim]) -> Vec<Claim>| {
            trees.iter().map(|tree| worst_of_all(tree, &|claims: &[Claim]| summarize(claims))).fold(0.0, f64::max)
                * 100.0
        };
        let merged = [8, 16, 32].map(|most| error(&|claims| slices(&index(claims), 0, most).to_vec()));
        table += &format!("{name:<12}{:>10.1} %", error(&sum));
        table += &merged.map(|error| format!("{error:>10.2} %")).concat();
        table += "\n";
        assert!(merged[2] <= 0.75 && merged[2] < merged[0], "{name}: {merged:?} % with 8, 16 and 32 slices");
        assert!(error(&sum) > 20.0, "{name} would not show that slices are needed");
    }
    println!("{:<12}{:>12}{:>12}{:>12}{:>12}\n{table}", "", "sums", "8", "16", "32");
}
