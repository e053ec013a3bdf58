//! Compares the division between groups with the plainest nested division, in exact fractions.

pub(crate) mod oracle;

use proptest::prelude::*;

use self::oracle::{Client, exact};
use super::*;
use crate::{
    policy::{client_rules::ClientRule, groups::GroupPattern, settings::AlgorithmKind},
    tests::cases,
    types::Glob,
};

/// A rule as drawn: pattern, weight, minimum, maximum beyond it, and whether the minimum is lent.
#[derive(Debug, Clone)]
pub(crate) struct DrawnRule {
    pub(crate) pattern: String,
    pub(crate) weight: u32,
    pub(crate) min: f64,
    pub(crate) max: Option<f64>,
    pub(crate) lends: bool,
}

/// Everything that a division depends on.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) kind: AlgorithmKind,
    pub(crate) priority: Priority,
    pub(crate) levels: usize,
    pub(crate) capacity: f64,
    pub(crate) groups: Vec<DrawnRule>,
    pub(crate) clients: Vec<Client>,
    pub(crate) client_rules: Vec<DrawnRule>,
}

pub(crate) const PATTERNS: [&str; 4] = ["{a}", "{a}/{b}", "{a}/{b}/{c}", "{a}/{b}/{c}/{d}"];

fn drawn_rule(pattern: impl Strategy<Value = String>) -> impl Strategy<Value = DrawnRule> {
    let min = prop_oneof![2 => Just(0.0), 2 => (0..400u32).prop_map(|n| f64::from(n) / 8.0)];
    let more = prop_oneof![2 => Just(None), 1 => (0..800u32).prop_map(|n| Some(f64::from(n) / 8.0))];
    let weight = prop_oneof![3 => 1..5u32, 1 => 1..1000u32];
    (pattern, weight, min, more, prop_oneof![3 => Just(true), 1 => Just(false)]).prop_map(
        |(pattern, weight, min, more, lends)| {
            let lends = lends || min == 0.0 || pattern.contains('*');
            DrawnRule { pattern, weight, min, max: more.map(|more| min + more), lends }
        },
    )
}

fn name() -> impl Strategy<Value = String> {
    "[a-d]"
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    (1..=4usize).prop_flat_map(|levels| {
        let path = proptest::collection::vec(name(), levels).prop_map(|names| names.join("/"));
        let part = prop_oneof![3 => name(), 1 => Just("*".to_owned())];
        let pattern = proptest::collection::vec(part, 1..=levels).prop_map(|parts| parts.join("/"));
        let wants = prop_oneof![
            4 => (0..1600u32).prop_map(|n| f64::from(n) / 8.0),
            2 => (0..5u32).prop_map(f64::from),
            1 => (0..1000u32).prop_map(|n| 100.0 + f64::from(n) / f64::from(1 << 20)),
            1 => 1.0..1e6,
        ];
        let id = prop_oneof![9 => path, 1 => Just("no/such/group/at/all".to_owned())];
        let client = (id, wants, -1..2i16, 0..4usize).prop_map(|(id, wants, priority, rule)| Client {
            id,
            wants,
            priority,
            rule: rule.checked_sub(1),
        });
        let kind = proptest::sample::select(vec![AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare]);
        let priority = proptest::sample::select(vec![Priority::Ignore, Priority::Strict]);
        let capacity = prop_oneof![4 => (0..16_000u32).prop_map(|n| f64::from(n) / 8.0), 1 => Just(0.0), 1 => 0.0..1e6];
        (
            (kind, priority, Just(levels), capacity),
            proptest::collection::vec(drawn_rule(pattern), 0..8),
            proptest::collection::vec(client, 1..40),
            proptest::collection::vec(drawn_rule(Just("x".to_owned())), 0..3),
        )
            .prop_map(|((kind, priority, levels, capacity), groups, clients, client_rules)| {
                let has_rule =
                    |client: Client| Client { rule: client.rule.filter(|rule| *rule < client_rules.len()), ..client };
                let clients = clients.into_iter().map(has_rule).collect();
                Case { kind, priority, levels, capacity, groups, clients, client_rules }
            })
    })
}

fn limits(rule: &DrawnRule) -> ClientRule {
    let mut limits = ClientRule::new(&rule.pattern, Glob::new(&rule.pattern).expect("a valid pattern"));
    (limits.weight, limits.min, limits.max) = (rule.weight, Amount::clamped(rule.min), rule.max.map(Amount::clamped));
    limits
}

fn settings(case: &Case) -> Settings {
    settings_with(case, PATTERNS[case.levels - 1])
}

/// The settings of a case if the groups of a client follow from its id by this pattern.
pub(crate) fn settings_with(case: &Case, pattern: &str) -> Settings {
    let mut groups = GroupSettings::new(GroupPattern::new(pattern).expect("a valid pattern"));
    for rule in &case.groups {
        assert!(groups.push(GroupRule { limits: limits(rule), lends: rule.lends }));
    }
    let mut settings = Settings::new(case.kind, Amount::clamped(case.capacity));
    case.client_rules.iter().for_each(|rule| assert!(settings.clients.push(limits(rule))));
    (settings.priority, settings.groups) = (case.priority, Some(Arc::new(groups)));
    settings
}

fn claim(client: &Client) -> Claim {
    let rule = client.rule.and_then(|rule| RuleNumber::new(rule as u8 + 1));
    Claim { rule, ..Claim::new(Amount::clamped(client.wants), 1, client.priority) }
}

fn divided(case: &Case) -> Box<Groups> {
    let mut groups = Groups::new(&settings(case), false, NodeClaims::default()).expect("there are groups");
    for (slot, client) in case.clients.iter().enumerate() {
        groups.join(slot as u32, HolderKind::Client, &client.id);
        groups.change(slot as u32, &[], &[claim(client)]);
    }
    groups
}

fn due(groups: &Groups, slot: usize, client: &Client) -> Amount {
    let (slot, claim) = (slot as u32, claim(client));
    groups.division_of(slot).due(&groups.terms_of(slot, claim.priority), &claim)
}

fn dues(groups: &Groups, case: &Case) -> Vec<Amount> {
    case.clients.iter().enumerate().map(|(slot, client)| due(groups, slot, client)).collect()
}

proptest! {
    #![proptest_config(cases(10_000))]

    /// Rules that change in place divide as if they had been there from the beginning.
    #[test]
    fn changed_rules_divide_like_new_ones(
        case in case(),
        rules in proptest::collection::vec(drawn_rule("[a-d*](/[a-d*])?"), 0..8),
    ) {
        // With the same minimums kept from others, the groups stay.
        let lending = |rules: Vec<DrawnRule>| rules.into_iter().map(|rule| DrawnRule { lends: true, ..rule }).collect();
        let other = Case { groups: lending(rules), ..case.clone() };
        let case = Case { groups: lending(case.groups.clone()), ..case };
        let mut groups = divided(&other);
        let settings = settings(&case);
        prop_assert!(groups.fit(&settings));
        groups.set_rules(settings.groups.as_ref().expect("there are groups"));
        prop_assert_eq!(dues(&groups, &case), dues(&divided(&case), &case));
    }

    /// Equal up to the last digits of the capacity: each level rounds a few times.
    #[test]
    fn nested_groups_agree_with_exact_fractions(case in case()) {
        let ours = dues(&divided(&case), &case);
        let last_digit = case.capacity.max(1.0) * f64::EPSILON;
        for ((ours, expected), client) in ours.iter().zip(&exact(&case)).zip(&case.clients) {
            let apart = oracle::apart(*ours, expected);
            prop_assert!(apart <= 4.0 * last_digit, "{client:?}: {ours:?}, expected {}", oracle::number(expected));
        }
    }
}

proptest! {
    #![proptest_config(cases(500))]

    /// What a client is due depends on the claims alone, not on those that were there before.
    #[test]
    fn dues_follow_changes(
        case in case(),
        changes in proptest::collection::vec((0..40usize, 0..40usize, prop_oneof![0.0..200.0, Just(0.0)]), 1..40),
    ) {
        let mut case = case;
        let mut groups = divided(&case);
        for (n, (index, other, number)) in changes.into_iter().enumerate() {
            let (index, other) = (index % case.clients.len(), other % case.clients.len());
            let old = case.clients[index].clone();
            match n % 4 {
                0 => {
                    case.clients[index].id = case.clients[other].id.clone();
                    groups.forget(index as u32, &[claim(&old)]);
                    groups.join(index as u32, HolderKind::Client, &case.clients[index].id);
                    groups.change(index as u32, &[], &[claim(&case.clients[index])]);
                }
                1 => {
                    case.capacity = number * 10.0;
                    groups.set_capacity(Amount::clamped(case.capacity));
                }
                2 => {
                    case.clients[index].wants = number;
                    groups.change(index as u32, &[claim(&old)], &[claim(&case.clients[index])]);
                }
                _ => {
                    case.clients[index].wants = number;
                    groups.replace(index as u32, 0, &claim(&old), &claim(&case.clients[index]));
                }
            }
            let anew = divided(&case);
            prop_assert_eq!(dues(&groups, &case), dues(&anew, &case), "to the bit");
            prop_assert_eq!(groups.summarize(), anew.summarize());
            let held = |_| Sum::ZERO;
            prop_assert_eq!(groups.reports(100, held), anew.reports(100, held));
        }
    }

    /// A group gains nothing by splitting its wants among more clients.
    #[test]
    fn shares_do_not_depend_on_the_number_of_clients(
        capacity in 1.0..1000.0,
        wants in proptest::collection::vec(proptest::collection::vec(1.0..100.0, 1..20), 2..6),
    ) {
        let client = |group: usize, wants: f64| Client { id: format!("g{group}"), wants, priority: 0, rule: None };
        let clients = |split: bool| -> Vec<Client> {
            let of_group = |(group, wants): (usize, &Vec<f64>)| {
                let sum: f64 = wants.iter().sum();
                let wants = if split { wants.clone() } else { vec![sum] };
                wants.into_iter().map(|wants| client(group, wants)).collect::<Vec<_>>()
            };
            wants.iter().enumerate().flat_map(of_group).collect()
        };
        let shares = |split| {
            let case = Case {
                kind: AlgorithmKind::FairShare,
                priority: Priority::Ignore,
                levels: 1,
                capacity,
                groups: Vec::new(),
                clients: clients(split),
                client_rules: Vec::new(),
            };
            let dues = dues(&divided(&case), &case);
            (0..wants.len()).map(|group| {
                let id = format!("g{group}");
                let of_group = case.clients.iter().zip(&dues).filter(|(client, _)| client.id == id);
                of_group.map(|(_, due)| due.get()).sum::<f64>()
            }).collect::<Vec<_>>()
        };
        for (split, whole) in shares(true).iter().zip(shares(false)) {
            prop_assert!((split - whole).abs() <= 1e-9 * whole.max(1.0), "{split} split, {whole} whole");
        }
    }
}
