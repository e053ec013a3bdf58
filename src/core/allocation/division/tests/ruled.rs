//! Compares weights, minimums and maximums with a naive implementation.

use super::*;
use crate::{policy::client_rules::ClientRule, types::RuleNumber};

/// A claim after its client rule was applied.
#[derive(Debug, Clone, Copy)]
struct PlainClaim {
    wants: f64,
    least: f64,
    weight: f64,
    band: i16,
}

impl PlainClaim {
    fn at(&self, level: f64) -> f64 {
        self.wants.min(level * self.weight).max(self.least)
    }
}

fn sum(claims: &[PlainClaim], due: impl Fn(&PlainClaim) -> f64) -> f64 {
    claims.iter().map(due).sum()
}

/// Finds the level by bisection.
fn halved(claims: &[PlainClaim], capacity: f64, due: impl Fn(&PlainClaim, f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e13);
    for _ in 0..2_000 {
        let middle = (low + high) / 2.0;
        if sum(claims, |claim| due(claim, middle)) <= capacity { low = middle } else { high = middle }
    }
    low
}

fn one_band(kind: AlgorithmKind, capacity: f64, claims: &[PlainClaim]) -> Vec<f64> {
    if sum(claims, |claim| claim.wants) <= capacity {
        return claims.iter().map(|claim| claim.wants).collect();
    }
    let equal = capacity / sum(claims, |claim| claim.weight);
    let shares = sum(claims, |claim| claim.at(equal));
    if kind == AlgorithmKind::FairShare || shares > capacity {
        let level = halved(claims, capacity, PlainClaim::at);
        return claims.iter().map(|claim| claim.at(level)).collect();
    }
    let part = (capacity - shares) / (sum(claims, |claim| claim.wants) - shares);
    claims.iter().map(|claim| claim.at(equal) + (claim.wants - claim.at(equal)) * part).collect()
}

/// Divides from the highest band down. Each band gets what the bands above leave, minus the minimums of the bands
/// below. If the capacity is less than the sum of all minimums, only minimums are divided.
fn naive_ruled(kind: AlgorithmKind, capacity: f64, claims: &[PlainClaim]) -> Vec<f64> {
    let over = sum(claims, |claim| claim.least) > capacity;
    let mut bands: Vec<i16> = claims.iter().map(|claim| claim.band).collect();
    bands.sort_unstable();
    bands.dedup();
    let (mut left, mut due) = (capacity, vec![0.0; claims.len()]);
    for band in bands.into_iter().rev() {
        let members: Vec<usize> = (0..claims.len()).filter(|at| claims[*at].band == band).collect();
        let of_band: Vec<PlainClaim> = members.iter().map(|at| claims[*at]).collect();
        let below = sum(claims, |claim| if claim.band < band { claim.least } else { 0.0 });
        let dues = if over {
            let minimums: Vec<PlainClaim> =
                of_band.iter().map(|claim| PlainClaim { wants: claim.least, least: 0.0, ..*claim }).collect();
            one_band(AlgorithmKind::FairShare, left, &minimums)
        } else {
            one_band(kind, (left - below).max(sum(&of_band, |claim| claim.least)), &of_band)
        };
        left = (left - dues.iter().sum::<f64>()).max(0.0);
        members.into_iter().zip(dues).for_each(|(at, amount)| due[at] = amount);
    }
    due
}

#[derive(Debug, Clone, Copy)]
struct DrawnRule {
    weight: u32,
    min: f64,
    max: Option<f64>,
}

fn rule() -> impl Strategy<Value = DrawnRule> {
    let min = prop_oneof![2 => Just(0.0), 2 => 0.0..30.0, 1 => (1..4u32).prop_map(f64::from)];
    let more = prop_oneof![2 => Just(None), 1 => (0.0..60.0).prop_map(Some), 1 => Just(Some(0.0))];
    (prop_oneof![2 => Just(1u32), 1 => 1..1000u32], min, more).prop_map(|(weight, min, more)| DrawnRule {
        weight,
        min,
        max: more.map(|more| min + more),
    })
}

fn with_rules(mut settings: Settings, rules: &[DrawnRule]) -> Settings {
    for DrawnRule { weight, min, max } in rules {
        let max = max.map_or_else(|| "-".to_owned(), |max| max.to_string());
        let rule = ClientRule::read(&format!("{weight} {min} {max} c")).expect("a rule");
        assert!(settings.clients.push(rule));
    }
    settings
}

/// Claims of single clients, the rule of each, and the rules.
fn ruled() -> impl Strategy<Value = (Vec<DrawnRule>, Vec<Claim>)> {
    let claims = proptest::collection::vec((claim(), 0..6u8), 1..80);
    (proptest::collection::vec(rule(), 1..5), claims).prop_map(|(rules, claims)| {
        let claim = |(claim, number): (Claim, u8)| {
            let number = RuleNumber::new(number).filter(|number| usize::from(number.get()) <= rules.len());
            Claim { subclients: 1, rule: number, ..claim }
        };
        let claims = claims.into_iter().map(claim).collect();
        (rules, claims)
    })
}

fn plain(rules: &[DrawnRule], claim: &Claim, strict: bool) -> PlainClaim {
    let none = DrawnRule { weight: 1, min: 0.0, max: None };
    let rule = claim.rule.map_or(none, |number| rules[usize::from(number.get()) - 1]);
    let wants = claim.wants.get().min(rule.max.unwrap_or(f64::MAX));
    let band = if strict { claim.priority } else { 0 };
    PlainClaim { wants, least: rule.min.min(wants), weight: rule.weight.into(), band }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn client_rules_agree_with_the_naive_algorithm(
        kind in shared_kind(),
        strict in any::<bool>(),
        capacity in prop_oneof![0.0..2000.0, 0.0..60.0, Just(0.0)],
        (rules, claims) in ruled(),
    ) {
        let priority = if strict { Priority::Strict } else { Priority::Ignore };
        let settings = with_rules(settings(kind, priority, 0.0, capacity), &rules);
        let plain: Vec<PlainClaim> = claims.iter().map(|claim| plain(&rules, claim, strict)).collect();
        let ours = divide(&settings, &claims);
        let expected = naive_ruled(kind, capacity, &plain);
        for ((ours, expected), claim) in ours.iter().zip(&expected).zip(&plain) {
            let apart = (ours.get() - expected).abs();
            // The sums of the naive implementation are not exact.
            prop_assert!(apart <= 1e-7 * (1.0 + expected), "{claim:?}: {ours:?}, expected {expected}");
        }
        let wanted: Sum = plain.iter().map(|claim| Amount::clamped(claim.wants)).collect();
        if sum(&plain, |claim| claim.least) <= capacity {
            let complete = invariant::divided_completely(settings.capacity, wanted, ours.iter().copied());
            prop_assert_eq!(complete, Ok(()));
            let is_kept = |(ours, claim): (&Amount, &PlainClaim)| (claim.least..=claim.wants).contains(&ours.get());
            prop_assert!(ours.iter().zip(&plain).all(is_kept), "{ours:?} of {plain:?}");
        }
    }

    /// The slices that a child node reports are due the same as its claims.
    #[test]
    fn slices_are_due_as_much_as_their_claims(
        kind in shared_kind(),
        capacity in 0.0..2000.0,
        (rules, claims) in ruled(),
        at_child in proptest::collection::vec(any::<bool>(), 80),
    ) {
        let settings = with_rules(settings(kind, Priority::Ignore, 0.0, capacity), &rules);
        let (mut parent, mut child) = (Division::new(&settings), Division::new(&settings).summarizing());
        let mut theirs: Vec<Claim> = Vec::new();
        for (slot, (claim, at_child)) in claims.iter().zip(&at_child).enumerate() {
            let division = if *at_child { &mut child } else { &mut parent };
            division.insert(slot as u32, &[*claim]);
            theirs.extend(at_child.then_some(*claim));
        }
        let mut slices = child.summarize(MAX_SLICES);
        // With fewer distinct wants than the maximum number of slices, slices are exact up to the rounding of sums.
        prop_assume!(slices.len() < 64);
        slices.extend(child.summarize_minimums(MAX_SLICES));
        parent.insert(1_000, &slices);
        let of_slices: Sum = slices.iter().map(|slice| parent.due(&parent.terms(0), slice)).collect();
        let all = divide(&settings, &claims);
        let expected: Sum = all.iter().zip(&at_child).filter(|(_, at_child)| **at_child).map(|(due, _)| *due).collect();
        let apart = (of_slices.get() - expected.get()).abs();
        prop_assert!(apart <= 1e-7 * (1.0 + expected.get()), "{of_slices:?}, not {expected:?}");
    }
}
