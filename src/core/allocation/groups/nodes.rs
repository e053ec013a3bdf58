//! Groups in a tree of nodes.
//!
//! A child node reports the demand in each group: slices of similar wants, as for a resource without groups. At its
//! parent the node has claims in all these groups, so a group has the wants of all its clients, wherever they are. With
//! its lease the node gets its part of each group, which is the sum of what its claims in the group are due, and
//! divides that part among its own clients.
//!
//! Below a parent the tree of groups has no minimums and no maximums: the root has applied them. Each group claims the
//! part that the parent gave to this node. In a band below, groups without a maximum claim what they want beyond. So
//! capacity that was given to a group whose clients have left in the meantime, or that the parent lent in advance, is
//! used until the parent knows better.
//!
//! A new master of a child node knows inherited wants, but not their groups. Until the clients have asked, its parent
//! keeps the claims of the last complete report for each group that the node reports less for.

use std::{collections::BTreeMap, sync::Arc};

use super::{Group, GroupBound, GroupLimit, Groups, NONE, OTHER, ROOT};
use crate::{
    allocation::{division::Terms, raised_to},
    policy::groups::{GroupRule, GroupSettings, OTHER_GROUP},
    types::{Amount, Claim, Claims, Sum, wanted},
};

/// The demand of a child node in one group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupDemand {
    /// The path of the group. Empty for inherited wants whose clients, and so whose groups, are unknown yet.
    pub path: Arc<str>,
    /// Wants as slices of similar wants, followed by minimums.
    pub claims: Claims,
    /// Capacity that the clients in it may be using. For reports.
    pub held: Amount,
}

/// A child node's part of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSupply {
    pub path: Arc<str>,
    pub capacity: Amount,
    /// The terms of the division in the group, by priority.
    pub terms: Vec<(i16, Terms)>,
    /// Why the group is due less than its clients want.
    pub limit: Option<GroupLimit>,
}

/// The priorities of the claims of a group below a parent: its part of this node's lease, and what it wants beyond.
pub(super) const OWN_PART: i16 = 1;
pub(super) const BEYOND: i16 = 0;

/// Relative to all wants: a group whose wants have changed by more is reported before the next refresh.
const REPORT_THRESHOLD: f64 = 0.005;
/// The number of slices of one group that are always worth reporting.
const MAX_SLICES_OF_GROUP: usize = 256;

/// The claims of child nodes by ledger slot.
pub(crate) type NodeClaims = BTreeMap<u32, ClaimParts>;

/// The groups of the claims of a child node, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimParts(Vec<ClaimPart>);

#[derive(Debug, Clone)]
struct ClaimPart {
    path: Arc<str>,
    /// Its number in the tree.
    group: u32,
    /// The number of claims.
    len: usize,
    subclients: u64,
    held: Amount,
}

impl ClaimParts {
    /// Adds the next claims.
    pub(crate) fn push(&mut self, path: Arc<str>, claims: &[Claim], held: Amount) {
        let subclients = wanted(claims).map(|claim| u64::from(claim.subclients)).sum();
        self.0.push(ClaimPart { path, group: NONE, len: claims.len(), subclients, held });
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<ClaimPart>() + self.0.iter().map(|part| part.path.len()).sum::<usize>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each part with its claims. `claims` are all of them, or none.
    fn with<'a>(&'a self, claims: &'a [Claim]) -> impl Iterator<Item = (&'a ClaimPart, &'a [Claim])> {
        self.with_position(claims).map(|(part, (_, claims))| (part, claims))
    }

    /// As [`with`](Self::with), with the position of the first claim of each part. Several parts may be in the same
    /// group, so a claim is identified by its position among all claims of the node.
    fn with_position<'a>(&'a self, claims: &'a [Claim]) -> impl Iterator<Item = (&'a ClaimPart, (usize, &'a [Claim]))> {
        let firsts = self.0.iter().scan(0, |end, part| {
            *end += part.len;
            Some(*end - part.len)
        });
        let of_part = |(part, first): (&'a ClaimPart, usize)| {
            (part, (first, claims.get(first..first + part.len).unwrap_or_default()))
        };
        self.0.iter().zip(firsts).map(of_part)
    }

    fn has_same_groups(&self, other: &ClaimParts) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(one, other)| one.path == other.path)
    }
}

/// The state of groups at a node with a parent.
#[derive(Default)]
pub(super) struct BelowParent {
    /// The parent's answer, by path. Absent if the parent has not divided between groups: then this node does.
    supplies: Option<BTreeMap<Arc<str>, GroupSupply>>,
    /// All wants in the last report.
    reported: f64,
    /// Whether the wants of a group have changed visibly since.
    has_moved: bool,
}

impl BelowParent {
    pub(super) fn claims_of(&self, group: &Group, rule: Option<&GroupRule>, whole_units: bool) -> [Claim; 2] {
        let [own, beyond] = group.claims;
        let present = |claim: Claim, wants: Amount, is_present: bool| Claim {
            wants: if is_present { wants } else { Amount::ZERO },
            subclients: is_present.into(),
            ..claim
        };
        if group.holds_groups {
            return [own, beyond].map(|claim| {
                let totals = group.division.totals_of(claim.priority);
                present(claim, totals.wants.floor(), totals.weight > 0)
            });
        }
        let totals = group.division.totals();
        let wants = totals.wants.floor();
        let part = match (&self.supplies, group.supplied) {
            (None, _) => wants,
            (Some(_), part) => wants.min(part.unwrap_or_default()),
        };
        let maximum = match group.supplied {
            _ if !group.is_limited => Amount::MAX,
            // With whole units a node is lent a unit for the fractions of several groups.
            Some(_) if whole_units => Amount::clamped(1.0),
            Some(_) => Amount::ZERO,
            // Until the parent knows of the group, it divides without it.
            None => rule.and_then(|rule| rule.limits.max).unwrap_or(Amount::MAX),
        };
        let rest = wants.saturating_sub(part).min(maximum);
        [present(own, part, totals.weight > 0), present(beyond, rest, rest > Amount::ZERO)]
    }
}

/// The report of a child node. If its master does not know all clients yet, the last report counts for each group with
/// smaller wants, in the place of wants in unknown groups.
pub(crate) fn completed(last: Vec<GroupDemand>, learning: bool, report: Vec<GroupDemand>) -> Vec<GroupDemand> {
    let is_complete = !learning && report.iter().all(|demand| !demand.path.is_empty());
    if is_complete || last.iter().all(|demand| demand.path.is_empty()) {
        return report;
    }
    let wants = |demand: &GroupDemand| wanted(&demand.claims).map(|claim| claim.wants).collect::<Sum>();
    let named = |demands: Vec<GroupDemand>| demands.into_iter().filter(|demand| !demand.path.is_empty());
    let mut by_path: BTreeMap<_, _> = named(report).map(|demand| (Arc::clone(&demand.path), demand)).collect();
    for last in named(last) {
        match by_path.get_mut(&last.path) {
            Some(demand) if wants(demand) < wants(&last) => demand.claims = last.claims,
            Some(_) => {}
            None => _ = by_path.insert(Arc::clone(&last.path), last),
        }
    }
    by_path.into_values().collect()
}

// Claims of child nodes.
impl Groups {
    /// The claims of child nodes, for the groups of other settings.
    pub(crate) fn into_nodes(self) -> NodeClaims {
        self.nodes
    }

    /// Makes a child node a member of each of its groups. Returns false if it has not reported any.
    pub(super) fn join_as_node(&mut self, slot: u32) -> bool {
        let Some(mut parts) = self.nodes.remove(&slot) else { return false };
        for part in &mut parts.0 {
            part.group = self.group_at(&part.path);
            self.tree[part.group as usize].members += 1;
        }
        self.nodes.insert(slot, parts);
        true
    }

    pub(super) fn leave_as_node(&mut self, slot: u32) {
        let groups: Vec<u32> = self.groups_of_node(slot).collect();
        groups.into_iter().for_each(|group| self.remove_member(group));
    }

    /// The group with a path that a child node reports. A path that does not fit the pattern is that of no group.
    fn group_at(&mut self, path: &str) -> u32 {
        if path.is_empty() {
            return self.unknown();
        }
        let names: Vec<&str> = path.split('/').collect();
        if path == OTHER_GROUP || names.len() != self.groups.from.levels() || names.iter().any(|name| name.is_empty()) {
            return OTHER;
        }
        self.find_or_insert(&names).unwrap_or(OTHER)
    }

    /// Replaces the claims of a child node that has joined its groups. Without `new` claims they are removed.
    pub(super) fn change_as_node(&mut self, slot: u32, old: &[Claim], new: &[Claim]) {
        let Some(parts) = self.nodes.remove(&slot) else { return };
        for ((part, old), (_, new)) in parts.with_position(old).zip(parts.with_position(new)) {
            self.change_in(part.group, slot, old, new);
        }
        self.nodes.insert(slot, parts);
    }

    /// Replaces the claims of a child node and their groups. Returns whether the groups have changed; then its claims
    /// were removed, and the caller makes it join the groups and inserts the new ones.
    pub(crate) fn change_node(&mut self, slot: u32, old: &[Claim], new: &[Claim], parts: ClaimParts) -> bool {
        if !self.nodes.get(&slot).is_some_and(|known| known.has_same_groups(&parts)) {
            self.change(slot, old, &[]);
            self.leave(slot);
            match parts.0.is_empty() {
                true => self.nodes.remove(&slot),
                false => self.nodes.insert(slot, parts),
            };
            return true;
        }
        old.iter().for_each(|claim| self.count(claim, false));
        new.iter().for_each(|claim| self.count(claim, true));
        let Some(before) = self.nodes.remove(&slot) else { return true };
        let mut parts = parts;
        for (part, known) in parts.0.iter_mut().zip(&before.0) {
            part.group = known.group;
        }
        // All old claims go first: a new one may take the place of an old one in the same group.
        let changed = before.with_position(old).zip(parts.with_position(new)).filter(|((_, old), (_, new))| old != new);
        let changed: Vec<_> = changed.map(|((part, old), (_, new))| (part.group, old, new)).collect();
        changed.iter().for_each(|(group, old, _)| self.change_in(*group, slot, *old, (0, &[])));
        changed.iter().for_each(|(group, _, new)| self.change_in(*group, slot, (0, &[]), *new));
        self.nodes.insert(slot, parts);
        false
    }

    /// The groups that a child node has claims in.
    pub(super) fn groups_of_node(&self, slot: u32) -> impl Iterator<Item = u32> {
        self.nodes.get(&slot).into_iter().flat_map(|parts| &parts.0).map(|part| part.group)
    }

    /// The number of groups that a child node has reported claims in; zero for other holders.
    pub(crate) fn reported_groups(&self, slot: u32) -> usize {
        self.nodes.get(&slot).map_or(0, |parts| parts.0.len())
    }

    /// The last report of a child node; empty if it did not report groups.
    pub(crate) fn demands_of(&self, slot: u32, claims: &[Claim]) -> Vec<GroupDemand> {
        let demand = |(part, claims): (&ClaimPart, &[Claim])| GroupDemand {
            path: Arc::clone(&part.path),
            claims: claims.into(),
            held: part.held,
        };
        self.nodes.get(&slot).map_or_else(Vec::new, |parts| parts.with(claims).map(demand).collect())
    }

    /// What the claims of a child node are due; `None` if it did not report groups.
    pub(crate) fn due_of_node(&self, slot: u32, claims: &[Claim]) -> Option<Sum> {
        let parts = self.nodes.get(&slot)?;
        Some(parts.with(claims).map(|(part, claims)| self.due_in(part.group, claims)).collect())
    }

    fn due_in(&self, group: u32, claims: &[Claim]) -> Amount {
        let division = &self.tree[group as usize].division;
        let due = |claim: &Claim| division.due(&self.terms(group, division.band(claim.priority)), claim);
        match claims {
            // A sum rounds amounts below 1 up.
            [one] => due(one),
            several => {
                let wants: Sum = wanted(several).map(|claim| claim.wants).collect();
                several.iter().map(due).collect::<Sum>().min(wants).floor()
            }
        }
    }

    /// A child node's part of each group that it reported, in the same order.
    pub(crate) fn supplies_of(&self, slot: u32, claims: &[Claim]) -> Vec<GroupSupply> {
        let Some(parts) = self.nodes.get(&slot) else { return Vec::new() };
        let supply = |(part, claims): (&ClaimPart, &[Claim])| {
            let division = &self.tree[part.group as usize].division;
            let mut terms: Vec<(i16, Terms)> = Vec::new();
            for claim in wanted(claims) {
                if terms.last().is_none_or(|(priority, _)| *priority != claim.priority) {
                    terms.push((claim.priority, self.terms(part.group, division.band(claim.priority))));
                }
            }
            let capacity = self.due_in(part.group, claims);
            GroupSupply { path: Arc::clone(&part.path), capacity, terms, limit: self.limit_of(part.group) }
        };
        parts.with(claims).map(supply).collect()
    }

    /// What the clients of child nodes may be using, by group.
    pub(super) fn held_by_nodes(&self) -> impl Iterator<Item = (u32, Sum)> {
        self.nodes.values().flat_map(|parts| &parts.0).map(|part| (part.group, part.held.into()))
    }

    /// By group: the clients of child nodes beyond those nodes themselves, which are members.
    pub(super) fn further_clients(&self) -> BTreeMap<u32, usize> {
        let mut further = BTreeMap::new();
        for part in self.nodes.values().flat_map(|parts| &parts.0).filter(|part| part.group != NONE) {
            *further.entry(part.group).or_default() +=
                usize::try_from(part.subclients).unwrap_or_default().saturating_sub(1);
        }
        further
    }
}

// Below a parent.
impl Groups {
    /// Sets the parts of this node; empty if the parent does not divide between groups. Returns whether they have
    /// changed.
    pub(crate) fn set_supplies(&mut self, supplies: Vec<GroupSupply>) -> bool {
        let Some(below) = &mut self.below else { return false };
        let supplies: BTreeMap<_, _> = supplies.into_iter().map(|supply| (Arc::clone(&supply.path), supply)).collect();
        let supplies = (!supplies.is_empty()).then_some(supplies);
        if below.supplies == supplies {
            return false;
        }
        below.supplies = supplies;
        let leaves: Vec<u32> = self.leaves().collect();
        for at in leaves {
            self.set_supply(at);
            self.update(at);
        }
        true
    }

    /// The groups of clients.
    fn leaves(&self) -> impl Iterator<Item = u32> {
        self.tree.iter().filter(|(_, group)| !group.holds_groups).map(|(at, _)| at as u32)
    }

    /// Applies the parent's answer to a group.
    pub(super) fn set_supply(&mut self, at: u32) {
        let Some(below) = &self.below else { return };
        let group = &mut self.tree[at as usize];
        let supply = below.supplies.as_ref().and_then(|supplies| supplies.get(&group.path));
        group.supplied = supply.map(|supply| supply.capacity);
        group.division.set_parent_terms(supply.map_or_else(Vec::new, |supply| supply.terms.clone()));
    }

    /// Notes whether the wants of a group have changed visibly since the last report.
    pub(super) fn note_moved(&mut self, at: u32) {
        if let Some(below) = &mut self.below {
            let group = &self.tree[at as usize];
            let apart = (group.division.totals().wants.get() - group.reported.get()).abs();
            below.has_moved |= at != ROOT && apart > below.reported * REPORT_THRESHOLD;
        }
    }

    /// Whether the parent should know of changes between groups before the next refresh.
    pub(crate) fn have_moved(&self) -> bool {
        self.below.as_ref().is_some_and(|below| below.has_moved)
    }

    /// The demand in each group, for a parent. `held`: as for [`reports`](Self::reports).
    pub(crate) fn demands(&mut self, held: impl Fn(u32) -> Sum) -> Vec<GroupDemand> {
        let mut held_by: BTreeMap<u32, Sum> = BTreeMap::new();
        for (group, held) in self.held_by_nodes() {
            *held_by.entry(group).or_default() += held;
        }
        let wanting: Vec<u32> =
            self.leaves().filter(|at| self.tree[*at as usize].division.totals().weight > 0).collect();
        let maximum = self.slices_of_each(&wanting);
        let demand = |at: &u32| {
            let group = &self.tree[*at as usize];
            let wants = group.division.wanted();
            let mut claims = raised_to(group.division.summarize(maximum), wants.ceil());
            claims.extend(group.division.summarize_minimums(maximum));
            let mut held = held(*at);
            held += held_by.get(at).copied().unwrap_or_default();
            GroupDemand { path: Arc::clone(&group.path), claims, held: held.ceil() }
        };
        let demands = wanting.iter().map(demand).collect();
        for (_, group) in &mut self.tree {
            group.reported = group.division.totals().wants.floor();
        }
        let all = self.tree[ROOT as usize].division.totals().wants.get();
        if let Some(below) = &mut self.below {
            (below.reported, below.has_moved) = (all, false);
        }
        demands
    }

    /// The number of slices for each group, so that all of them are at most [`GroupSettings::MAX_GROUP_SLICES`].
    /// Groups of few clients leave theirs to others.
    fn slices_of_each(&self, groups: &[u32]) -> usize {
        let mut needs: Vec<usize> = groups
            .iter()
            .map(|at| self.tree[*at as usize].division.totals().weight)
            .map(|clients| usize::try_from(clients).unwrap_or(usize::MAX).min(MAX_SLICES_OF_GROUP))
            .collect();
        needs.sort_unstable();
        let mut left = GroupSettings::MAX_GROUP_SLICES;
        for (index, need) in needs.iter().enumerate() {
            let each = left / (needs.len() - index);
            if *need > each {
                return each.max(1);
            }
            left -= need;
        }
        MAX_SLICES_OF_GROUP
    }

    /// Whether the parent may lend more for a group once it knows its wants, because it has not limited the group.
    fn may_grow(&self, group: u32) -> bool {
        let divides = |(_, terms): &(i16, Terms)| !matches!(terms, Terms::Wants | Terms::Each(_));
        !self.tree[group as usize].division.parent_terms().iter().any(divides)
    }

    /// Whether the parent may lend more for the claims of a holder. `None` if the parent does not divide between
    /// groups.
    pub(crate) fn parent_may_add(&self, slot: u32, claims: &[Claim]) -> Option<bool> {
        self.below.as_ref()?.supplies.as_ref()?;
        let short = |(part, claims): (&ClaimPart, &[Claim])| {
            let wants = wanted(claims).map(|claim| claim.wants).collect::<Sum>().floor();
            self.may_grow(part.group) && self.due_in(part.group, claims) < wants
        };
        Some(match self.group_of(slot) {
            ROOT => self.nodes.get(&slot).is_some_and(|parts| parts.with(claims).any(short)),
            group => self.may_grow(group),
        })
    }

    /// Why a group has less than its clients at this node want.
    pub(super) fn limit_below(&self, at: u32) -> GroupLimit {
        let group = &self.tree[at as usize];
        let here = (self.share(at), group.division.totals().wants);
        let supplies = self.below.as_ref().and_then(|below| below.supplies.as_ref());
        let supply = supplies.and_then(|supplies| supplies.get(&group.path));
        let is_cut = self.share(at) < group.claims[0].wants;
        if let Some(limit) = supply.and_then(|supply| supply.limit.as_ref()).filter(|_| !is_cut) {
            return GroupLimit { here: Some(here), ..limit.clone() };
        }
        let because = if supplies.is_some() && supply.is_none() { GroupBound::Unreported } else { GroupBound::Lease };
        let binding_weight = self.rule(at).map_or(1, |rule| rule.limits.weight);
        GroupLimit {
            group: Arc::clone(&group.path),
            share: here.0,
            wants: here.1,
            here: None,
            binding: Arc::clone(&group.path),
            binding_weight,
            binding_share: here.0,
            binding_wants: here.1,
            because,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(path: &str, wants: f64) -> GroupDemand {
        let claims = Claims::from_slice(&[Claim::of_client(Amount::clamped(wants), 0)]);
        GroupDemand { path: path.into(), claims, held: Amount::ZERO }
    }

    #[test]
    fn an_incomplete_report_is_completed_by_the_last_one() {
        let last = || vec![demand("a", 10.0), demand("b", 20.0)];
        let all = |learning, report| -> Vec<(String, f64)> {
            let demands = completed(last(), learning, report).into_iter();
            demands.map(|demand| (demand.path.to_string(), demand.claims[0].wants.get())).collect()
        };
        let expected = |demands: &[(&str, f64)]| -> Vec<(String, f64)> {
            demands.iter().map(|(path, wants)| ((*path).to_owned(), *wants)).collect()
        };
        let report = || vec![demand("b", 5.0), demand("c", 1.0)];
        assert_eq!(all(false, report()), expected(&[("b", 5.0), ("c", 1.0)]), "it is complete");
        assert_eq!(all(true, report()), expected(&[("a", 10.0), ("b", 20.0), ("c", 1.0)]));
        let unknown = vec![demand("", 40.0), demand("b", 25.0)];
        assert_eq!(all(false, unknown.clone()), expected(&[("a", 10.0), ("b", 25.0)]));
        let first = completed(Vec::new(), false, unknown.clone());
        assert_eq!(first, unknown, "a new parent knows no earlier report");
    }
}
