//! Nested division in exact fractions, as plainly as possible: no index, no sums that are kept, no floats.

use std::collections::BTreeMap;

use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};

use super::{Case, DrawnRule};
use crate::{
    policy::{
        groups::OTHER_GROUP,
        settings::{AlgorithmKind, Priority},
    },
    types::Amount,
};

#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) id: String,
    pub(crate) wants: f64,
    pub(crate) priority: i16,
    /// The position of its client rule.
    pub(crate) rule: Option<usize>,
}

/// A client or a group among its like, after its rule was applied.
#[derive(Debug, Clone)]
struct Member {
    wants: BigRational,
    least: BigRational,
    weight: BigRational,
    band: i16,
}

/// A group, or the whole resource.
#[derive(Debug, Default)]
struct Group {
    groups: BTreeMap<String, Group>,
    /// Places in the list of clients.
    clients: Vec<usize>,
}

fn fraction(number: f64) -> BigRational {
    BigRational::from_float(number).expect("a finite number")
}

pub(crate) fn number(fraction: &BigRational) -> f64 {
    fraction.to_f64().expect("it is in range")
}

/// The distance from the exact due.
pub(crate) fn apart(ours: Amount, expected: &BigRational) -> f64 {
    number(&(fraction(ours.get()) - expected)).abs()
}

fn min(one: &BigRational, other: &BigRational) -> BigRational {
    if one < other { one.clone() } else { other.clone() }
}

fn max(one: &BigRational, other: &BigRational) -> BigRational {
    if one > other { one.clone() } else { other.clone() }
}

fn sum<'a>(members: impl IntoIterator<Item = &'a Member>, due: impl Fn(&Member) -> BigRational) -> BigRational {
    members.into_iter().map(due).fold(BigRational::zero(), |sum, due| sum + due)
}

impl Member {
    fn at(&self, level: &BigRational) -> BigRational {
        max(&min(&self.wants, &(level * &self.weight)), &self.least)
    }
}

/// The level at which the dues add up to the capacity, which is less than all wants and covers all minimums: between
/// two of the levels at which a member has its minimum or all that it wants, the sum is a straight line.
fn level(members: &[Member], capacity: &BigRational) -> BigRational {
    let corners = members.iter().flat_map(|member| [&member.wants / &member.weight, &member.least / &member.weight]);
    let mut corners: Vec<BigRational> = corners.chain([BigRational::zero()]).collect();
    corners.sort();
    let at = |level: &BigRational| sum(members, |member| member.at(level));
    for pair in corners.windows(2) {
        let (low, high) = (at(&pair[0]), at(&pair[1]));
        if low <= *capacity && *capacity < high {
            return &pair[0] + (&pair[1] - &pair[0]) * (capacity - &low) / (high - &low);
        }
    }
    unreachable!("the capacity is between the minimums and the wants")
}

fn one_band(kind: AlgorithmKind, capacity: &BigRational, members: &[Member]) -> Vec<BigRational> {
    if sum(members, |member| member.wants.clone()) <= *capacity {
        return members.iter().map(|member| member.wants.clone()).collect();
    }
    let equal = capacity / sum(members, |member| member.weight.clone());
    let shares = sum(members, |member| member.at(&equal));
    if kind == AlgorithmKind::FairShare || shares > *capacity {
        let level = level(members, capacity);
        return members.iter().map(|member| member.at(&level)).collect();
    }
    let part = (capacity - &shares) / (sum(members, |member| member.wants.clone()) - &shares);
    members.iter().map(|member| member.at(&equal) + (&member.wants - member.at(&equal)) * &part).collect()
}

/// Divides from the highest band down, as the oracle of client rules does.
fn divide(kind: AlgorithmKind, capacity: &BigRational, members: &[Member]) -> Vec<BigRational> {
    let over = sum(members, |member| member.least.clone()) > *capacity;
    let mut bands: Vec<i16> = members.iter().map(|member| member.band).collect();
    bands.sort_unstable();
    bands.dedup();
    let (mut left, mut due) = (capacity.clone(), vec![BigRational::zero(); members.len()]);
    for band in bands.into_iter().rev() {
        let positions: Vec<usize> = (0..members.len()).filter(|at| members[*at].band == band).collect();
        let of_band: Vec<Member> = positions.iter().map(|at| members[*at].clone()).collect();
        let below = sum(members.iter().filter(|member| member.band < band), |member| member.least.clone());
        let dues = if over {
            let minimums: Vec<Member> = of_band
                .iter()
                .map(|member| Member { wants: member.least.clone(), least: BigRational::zero(), ..member.clone() })
                .collect();
            one_band(AlgorithmKind::FairShare, &left, &minimums)
        } else {
            let least = sum(&of_band, |member| member.least.clone());
            one_band(kind, &max(&(&left - below), &least), &of_band)
        };
        left = max(&(left - dues.iter().fold(BigRational::zero(), |sum, due| sum + due)), &BigRational::zero());
        positions.into_iter().zip(dues).for_each(|(at, amount)| due[at] = amount);
    }
    due
}

impl Case {
    fn tree(&self) -> Group {
        let mut root = Group::default();
        for rule in
            self.groups.iter().filter(|rule| !rule.lends && self.rule_of(&rule.pattern).is_some_and(|of| !of.lends))
        {
            rule.pattern.split('/').fold(&mut root, |group, name| group.groups.entry(name.to_owned()).or_default());
        }
        for (position, client) in self.clients.iter().enumerate() {
            let names: Vec<&str> = client.id.split('/').collect();
            let names = if names.len() == self.levels { names } else { vec![OTHER_GROUP] };
            let group =
                names.into_iter().fold(&mut root, |group, name| group.groups.entry(name.to_owned()).or_default());
            group.clients.push(position);
        }
        root
    }

    /// The rule of a group: that of its path, or else the first that matches.
    fn rule_of(&self, path: &str) -> Option<&DrawnRule> {
        let matches = |rule: &&DrawnRule| {
            let (pattern, path): (Vec<&str>, Vec<&str>) =
                (rule.pattern.split('/').collect(), path.split('/').collect());
            pattern.len() == path.len() && pattern.iter().zip(&path).all(|(part, name)| *part == "*" || part == name)
        };
        self.groups.iter().find(|rule| rule.pattern == path).or_else(|| self.groups.iter().find(matches))
    }

    fn client(&self, position: usize) -> Member {
        let client = &self.clients[position];
        let rule = client.rule.map(|rule| &self.client_rules[rule]);
        let wants = rule.and_then(|rule| rule.max).map_or(client.wants, |max| client.wants.min(max));
        Member {
            wants: fraction(wants),
            least: fraction(rule.map_or(0.0, |rule| rule.min).min(wants)),
            weight: fraction(rule.map_or(1.0, |rule| f64::from(rule.weight))),
            band: if self.priority == Priority::Strict { client.priority } else { 0 },
        }
    }

    fn group(&self, path: &str, group: &Group) -> Member {
        let rule = self.rule_of(path);
        let mut wants = sum(&self.members(path, group), |member| member.wants.clone());
        if let Some(max) = rule.and_then(|rule| rule.max) {
            wants = min(&wants, &fraction(max));
        }
        let least = fraction(rule.map_or(0.0, |rule| rule.min));
        if rule.is_some_and(|rule| !rule.lends) {
            wants = max(&wants, &least);
        }
        let weight = fraction(rule.map_or(1.0, |rule| f64::from(rule.weight)));
        Member { least: min(&least, &wants), wants, weight, band: 0 }
    }

    fn members(&self, path: &str, group: &Group) -> Vec<Member> {
        let clients = group.clients.iter().map(|position| self.client(*position));
        clients.chain(group.groups.iter().map(|(name, inner)| self.group(&below(path, name), inner))).collect()
    }

    fn fill(&self, path: &str, group: &Group, capacity: &BigRational, dues: &mut [BigRational]) {
        let mut shares = divide(self.kind, capacity, &self.members(path, group)).into_iter();
        for (position, share) in group.clients.iter().zip(&mut shares) {
            dues[*position] = share;
        }
        for ((name, inner), share) in group.groups.iter().zip(&mut shares) {
            self.fill(&below(path, name), inner, &share, dues);
        }
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// The due of each client.
pub(crate) fn exact(case: &Case) -> Vec<BigRational> {
    let mut dues = vec![BigRational::zero(); case.clients.len()];
    case.fill("", &case.tree(), &fraction(case.capacity), &mut dues);
    dues
}
