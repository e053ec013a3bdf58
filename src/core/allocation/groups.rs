//! Division between groups of clients: the capacity goes to the groups of the first level, what each is due goes to the
//! groups in it, and so on down to the clients.
//!
//! Each group has a [`Division`] of its own, among its clients or among the groups in it. In the division of its parent
//! it is one claim: its wants are the sum of all wants in it up to its maximum, and its weight and minimum are those of
//! its rule, whatever the number of its clients. A change of one claim changes one claim at each level, and the due of
//! a client follows from the terms at each level. So a request costs O(levels · log n).
//!
//! Priorities order the clients of a group. Groups have none: a client cannot take from another group by claiming a
//! higher priority.
//!
//! In a tree of nodes the root divides between the groups of all clients, and each node inside a group what its parent
//! gave to the group ([`nodes`]).
//!
//! A group exists while it has a client, and also without one if its rule keeps the minimum from others. Because
//! clients choose their ids, the number of groups is bounded: beyond it, clients are members of [`OTHER_GROUP`].

mod nodes;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use slab::Slab;

pub(crate) use self::nodes::{ClaimParts, NodeClaims, completed};
pub use self::nodes::{GroupDemand, GroupSupply};
use crate::{
    allocation::{
        division::{Division, Terms},
        units::{Taker, UnitPart},
    },
    policy::{
        client_rules::ClientRules,
        groups::{GroupRule, GroupSettings, OTHER_GROUP},
        settings::{Priority, Settings},
    },
    types::{Amount, Claim, Claims, HolderKind, RuleNumber, Sum},
};

/// The number of the whole resource in the tree.
const ROOT: u32 = 0;
/// The number of [`OTHER_GROUP`].
const OTHER: u32 = 1;
/// Below a parent: the number of the group of inherited wants, whose clients are unknown until they ask.
const UNKNOWN: u32 = 2;
/// The entry of a holder that has joined no group.
const NONE: u32 = u32::MAX;

pub(crate) struct Groups {
    groups: Arc<GroupSettings>,
    /// The settings of the divisions among clients.
    among_clients: Settings,
    /// The settings of the divisions among groups: the rules of groups in the place of client rules.
    among_groups: Settings,
    tree: Slab<Group>,
    by_path: BTreeMap<Arc<str>, u32>,
    /// The group that each holder has joined, by ledger slot. [`ROOT`]: a child node with claims in several groups.
    of: Vec<u32>,
    /// The claims of child nodes that report groups.
    nodes: NodeClaims,
    /// Present below a parent.
    below: Option<nodes::BelowParent>,
    /// Wants and subclients by band, for the next master.
    bands: BTreeMap<i16, (Sum, u64)>,
    capacity: Amount,
    /// Rises with every change that affects a due.
    version: u64,
}

/// A group, or the whole resource.
struct Group {
    path: Arc<str>,
    parent: u32,
    rule: Option<RuleNumber>,
    /// The division among its clients, or among the groups in it.
    division: Division,
    /// The number of clients or of groups in it.
    members: u32,
    holds_groups: bool,
    /// Whether its rule, or that of a group that contains it, sets a maximum.
    is_limited: bool,
    /// Its claims in the division of its parent. The second one is present only below a parent: what it wants beyond
    /// the part of this node.
    claims: [Claim; 2],
    known: Cell<Known>,
    /// Below a parent: what this node may give to its clients; absent while the parent has not said so.
    supplied: Option<Amount>,
    /// Below a parent: its wants in the last report.
    reported: Amount,
}

/// What the claims of one version imply for a group.
#[derive(Clone, Copy)]
struct Known {
    version: u64,
    capacity: Amount,
    /// The terms of the band that was needed last.
    terms: Option<(i16, Terms)>,
}

/// Why the clients of a group are due less than they want: the group that is short for a reason of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupLimit {
    /// The path of the client's group.
    pub group: Arc<str>,
    pub share: Amount,
    pub wants: Sum,
    /// Below a parent: the share and the wants at this node, which are parts of those of the whole tree.
    pub here: Option<(Amount, Sum)>,
    /// The group that binds: the same one, or one that contains it.
    pub binding: Arc<str>,
    pub binding_weight: u32,
    pub binding_share: Amount,
    pub binding_wants: Sum,
    pub because: GroupBound,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GroupBound {
    /// The maximum of its rule.
    Maximum(Amount),
    /// The minimum of its rule, which is more than its share.
    Minimum(Amount),
    /// Its share among the groups of its level.
    Share(Terms),
    /// The lease of this node covers only a part of what its groups are due.
    Lease,
    /// The parent has not answered a report with this group yet.
    Unreported,
}

/// The state of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupReport {
    pub path: Arc<str>,
    pub weight: u32,
    pub minimum: Amount,
    pub maximum: Option<Amount>,
    /// Whether others may have the part of the minimum that it does not want.
    pub lends: bool,
    /// What it is due.
    pub share: Amount,
    /// The wants of its clients, before its maximum.
    pub wants: Sum,
    /// What its clients may be using.
    pub held: Sum,
    /// The number of clients or groups in it.
    pub members: usize,
}

impl Groups {
    /// `None` if these settings have no groups. `has_parent`: the node reports groups to a parent, which divides
    /// between them. `nodes`: the claims of child nodes, which then join their groups.
    pub(crate) fn new(settings: &Settings, has_parent: bool, nodes: NodeClaims) -> Option<Box<Groups>> {
        let groups = Arc::clone(settings.groups.as_ref().filter(|_| settings.dividing_algorithm().is_indexed())?);
        let among_clients = Settings { groups: None, ..settings.clone() };
        let priority = if has_parent { Priority::Strict } else { Priority::Ignore };
        let clients = rules_of_groups(&groups, has_parent || settings.is_budget());
        let among_groups = Settings { priority, reserve: 0.0, clients, ..among_clients.clone() };
        let mut new = Groups {
            groups,
            among_clients,
            among_groups,
            tree: Slab::new(),
            by_path: BTreeMap::new(),
            of: Vec::new(),
            nodes,
            below: has_parent.then(nodes::BelowParent::default),
            bands: BTreeMap::new(),
            capacity: settings.capacity,
            version: 1,
        };
        new.insert_group("", ROOT, true);
        new.insert_group(OTHER_GROUP, ROOT, false);
        if has_parent {
            new.insert_group("", ROOT, false);
            return Some(Box::new(new));
        }
        let groups = Arc::clone(&new.groups);
        for path in groups.kept() {
            let names: Vec<&str> = path.split('/').collect();
            new.find_or_insert(&names);
        }
        Some(Box::new(new))
    }

    /// Whether the groups and their clients stay under these settings. Their rules and the capacity may change.
    pub(crate) fn fit(&self, settings: &Settings) -> bool {
        let (ours, theirs) = (&self.among_clients, settings.groups.as_ref());
        theirs.is_some_and(|theirs| theirs.from == self.groups.from && theirs.kept().eq(self.groups.kept()))
            && (settings.dividing_algorithm(), settings.priority, settings.reserve)
                == (ours.dividing_algorithm(), ours.priority, ours.reserve)
            && (settings.whole_units, &settings.clients) == (ours.whole_units, &ours.clients)
    }

    pub(crate) fn set_capacity(&mut self, capacity: Amount) {
        self.capacity = capacity;
        self.version += 1;
    }

    /// Applies other rules to the groups. Visits each group, but no client.
    pub(crate) fn set_rules(&mut self, groups: &Arc<GroupSettings>) {
        if *groups == self.groups {
            return;
        }
        self.groups = Arc::clone(groups);
        self.among_groups.clients = rules_of_groups(groups, self.below.is_some() || self.among_clients.is_budget());
        // From the root down: the path of a group begins with that of its parent.
        let of_paths = self.by_path.values().copied();
        let downwards: Vec<u32> = (ROOT..=self.unknown()).chain(of_paths).collect();
        for at in &downwards {
            let (path, parent) = (Arc::clone(&self.tree[*at as usize].path), self.tree[*at as usize].parent);
            let rule = self.number_of(&path);
            let is_limited = self.is_limited(rule, parent);
            let group = &mut self.tree[*at as usize];
            (group.rule, group.is_limited) = (rule, is_limited);
            group.claims = group.claims.map(|claim| Claim { rule, ..claim });
            if group.holds_groups {
                group.division.reset(&self.among_groups);
            }
        }
        for at in downwards.into_iter().rev().filter(|at| *at != ROOT) {
            let claims = self.claims_of(at);
            let group = &mut self.tree[at as usize];
            group.claims = claims;
            let parent = group.parent;
            self.tree[parent as usize].division.insert(at, &claims);
        }
        self.version += 1;
    }

    // The tree.

    /// Makes the holder in `slot` a member of its group. Returns the number of the group; [`ROOT`] for a child node
    /// with claims in several groups.
    pub(crate) fn join(&mut self, slot: u32, kind: HolderKind, id: &str) -> u32 {
        self.leave(slot);
        let groups = Arc::clone(&self.groups);
        let group = match kind {
            HolderKind::Node if self.join_as_node(slot) => ROOT,
            HolderKind::Node => OTHER,
            HolderKind::Client => {
                groups.from.groups_of(id).and_then(|names| self.find_or_insert(&names)).unwrap_or(OTHER)
            }
        };
        if group != ROOT {
            self.tree[group as usize].members += 1;
        }
        let at = slot as usize;
        if at >= self.of.len() {
            self.of.resize(at + 1, NONE);
        }
        self.of[at] = group;
        group
    }

    /// Makes the holder in `slot` a member of no group. It has no claims any more.
    fn leave(&mut self, slot: u32) {
        let Some(of) = self.of.get_mut(slot as usize).filter(|of| **of != NONE) else { return };
        match std::mem::replace(of, NONE) {
            ROOT => self.leave_as_node(slot),
            group => self.remove_member(group),
        }
    }

    fn remove_member(&mut self, mut at: u32) {
        loop {
            let group = &mut self.tree[at as usize];
            group.members -= 1;
            if group.members > 0 || at <= self.unknown() || self.is_kept(at) {
                return;
            }
            let Group { path, parent, claims, .. } = self.tree.remove(at as usize);
            self.by_path.remove(&path);
            self.tree[parent as usize].division.remove(at, &claims);
            self.update(parent);
            at = parent;
        }
    }

    /// The group with these names, from the first level down. `None` if it does not exist and there are too many.
    fn find_or_insert(&mut self, names: &[&str]) -> Option<u32> {
        let path = names.join("/");
        if let Some(group) = self.by_path.get(path.as_str()) {
            return Some(*group);
        }
        if names[0] == OTHER_GROUP {
            return None;
        }
        let ends: Vec<usize> = names
            .iter()
            .scan(0, |end, name| {
                *end += name.len() + 1;
                Some(*end - 1)
            })
            .collect();
        let known = ends.iter().take_while(|end| self.by_path.contains_key(&path[..**end])).count();
        let maximum = if self.below.is_some() { GroupSettings::MAX_GROUPS_OF_CHILD } else { GroupSettings::MAX_GROUPS };
        if self.by_path.len() + ends.len() - known > maximum {
            return None;
        }
        let mut parent = known.checked_sub(1).map_or(ROOT, |last| self.by_path[&path[..ends[last]]]);
        for (level, end) in ends.iter().enumerate().skip(known) {
            self.tree[parent as usize].members += 1;
            let holds_groups = level + 1 < self.groups.from.levels();
            parent = self.insert_group(&path[..*end], parent, holds_groups);
            self.by_path.insert(path[..*end].into(), parent);
        }
        Some(parent)
    }

    fn insert_group(&mut self, path: &str, parent: u32, holds_groups: bool) -> u32 {
        let rule = self.number_of(path);
        let division = match (holds_groups, &self.below) {
            (true, _) => Division::new(&self.among_groups),
            (false, None) => Division::new(&self.among_clients),
            (false, Some(_)) => Division::new(&self.among_clients).summarizing(),
        };
        let claim = |priority| Claim { rule, ..Claim::new(Amount::ZERO, 0, priority) };
        let group = Group {
            path: path.into(),
            parent,
            rule,
            division,
            members: 0,
            holds_groups,
            is_limited: self.is_limited(rule, parent),
            claims: [claim(nodes::OWN_PART), claim(nodes::BEYOND)],
            known: Cell::new(Known { version: 0, capacity: Amount::ZERO, terms: None }),
            supplied: None,
            reported: Amount::ZERO,
        };
        let at = self.tree.insert(group) as u32;
        self.set_supply(at);
        self.update(at);
        at
    }

    /// The number of the rule for a group. The whole resource has none.
    fn number_of(&self, path: &str) -> Option<RuleNumber> {
        if path.is_empty() { None } else { self.groups.number_of(path) }
    }

    /// Whether a group with this rule and parent has a maximum, or is in a group that has one.
    fn is_limited(&self, rule: Option<RuleNumber>, parent: u32) -> bool {
        self.groups.rule(rule).is_some_and(|rule| rule.limits.max.is_some())
            || self.tree.get(parent as usize).is_some_and(|above| above.is_limited)
    }

    fn rule(&self, group: u32) -> Option<&GroupRule> {
        self.groups.rule(self.tree[group as usize].rule)
    }

    /// Whether the minimum of this group is kept from others. Only the root keeps it.
    fn is_kept(&self, group: u32) -> bool {
        self.below.is_none() && self.rule(group).is_some_and(|rule| !rule.lends)
    }

    /// The group of claims whose clients are unknown.
    fn unknown(&self) -> u32 {
        if self.below.is_some() { UNKNOWN } else { OTHER }
    }

    fn group_of(&self, slot: u32) -> u32 {
        self.of.get(slot as usize).copied().filter(|group| *group != NONE).unwrap_or(self.unknown())
    }

    // Claims.

    pub(crate) fn replace(&mut self, slot: u32, ordinal: usize, old: &Claim, new: &Claim) {
        let group = self.group_of(slot);
        self.tree[group as usize].division.replace(slot, ordinal, old, new);
        self.count(old, false);
        self.count(new, true);
        self.update(group);
    }

    /// Replaces the claims of the holder in `slot`.
    pub(crate) fn change(&mut self, slot: u32, old: &[Claim], new: &[Claim]) {
        old.iter().for_each(|claim| self.count(claim, false));
        new.iter().for_each(|claim| self.count(claim, true));
        match self.group_of(slot) {
            ROOT => self.change_as_node(slot, old, new),
            group => self.change_in(group, slot, (0, old), (0, new)),
        }
    }

    /// Replaces the claims of the holder in `slot` in one group, each with the position of the first one among all of
    /// its claims.
    fn change_in(&mut self, group: u32, slot: u32, old: (usize, &[Claim]), new: (usize, &[Claim])) {
        let division = &mut self.tree[group as usize].division;
        division.remove_from(slot, old.0, old.1);
        division.insert_from(slot, new.0, new.1);
        self.update(group);
    }

    /// Removes the claims of a departed holder.
    pub(crate) fn forget(&mut self, slot: u32, claims: &[Claim]) {
        self.change(slot, claims, &[]);
        self.leave(slot);
        self.nodes.remove(&slot);
    }

    fn count(&mut self, claim: &Claim, more: bool) {
        if claim.is_minimum || claim.subclients == 0 {
            return;
        }
        let division = &self.tree[OTHER as usize].division;
        let ruled = division.ruled(claim);
        match self.bands.entry(division.band(claim.priority)) {
            Entry::Vacant(band) => {
                band.insert((ruled.wants.into(), ruled.subclients.into()));
            }
            Entry::Occupied(mut band) => {
                let (wants, subclients) = band.get_mut();
                if more {
                    *wants += ruled.wants;
                    *subclients += u64::from(ruled.subclients);
                } else {
                    *wants -= ruled.wants;
                    *subclients -= u64::from(ruled.subclients);
                }
                if *subclients == 0 {
                    band.remove();
                }
            }
        }
    }

    /// Brings the claims of a group and of those that contain it up to date.
    fn update(&mut self, mut at: u32) {
        self.version += 1;
        self.note_moved(at);
        while at != ROOT {
            let claims = self.claims_of(at);
            let group = &mut self.tree[at as usize];
            let (old, parent) = (std::mem::replace(&mut group.claims, claims), group.parent);
            let division = &mut self.tree[parent as usize].division;
            if old.map(|claim| division.ruled(&claim)) == claims.map(|claim| division.ruled(&claim)) {
                return;
            }
            for (ordinal, (old, new)) in old.iter().zip(&claims).enumerate() {
                division.replace(at, ordinal, old, new);
            }
            at = parent;
        }
    }

    /// The claims of a group: all wants in it. A group without clients has none, unless it keeps its minimum.
    fn claims_of(&self, at: u32) -> [Claim; 2] {
        if let Some(below) = &self.below {
            return below.claims_of(&self.tree[at as usize], self.rule(at), self.among_clients.whole_units);
        }
        let group = &self.tree[at as usize];
        let totals = group.division.totals();
        let kept = self.rule(at).filter(|rule| !rule.lends).map_or(Amount::ZERO, |rule| rule.limits.min);
        let is_present = totals.weight > 0 || kept > Amount::ZERO;
        let [own, beyond] = group.claims;
        [Claim { wants: totals.wants.floor().max(kept), subclients: is_present.into(), ..own }, beyond]
    }

    /// Reads what a change of the claims of the holder in `slot` needs.
    pub(crate) fn touch(&self, slot: u32) -> u64 {
        let group = &self.tree[self.group_of(slot) as usize];
        group.division.touch() ^ group.known.get().version ^ u64::from(group.claims[0].subclients)
    }

    // Dues.

    /// The terms for claims of this priority of the holder in `slot`.
    pub(crate) fn terms_of(&self, slot: u32, priority: i16) -> Terms {
        let group = self.group_of(slot);
        self.terms(group, self.tree[group as usize].division.band(priority))
    }

    /// The division that the claims of the holder in `slot` are in.
    pub(crate) fn division_of(&self, slot: u32) -> &Division {
        &self.tree[self.group_of(slot) as usize].division
    }

    /// The capacity that the group of the holder in `slot` divides.
    pub(crate) fn capacity_of(&self, slot: u32) -> Amount {
        self.known(self.group_of(slot)).capacity
    }

    fn terms(&self, at: u32, band: i16) -> Terms {
        let known = self.known(at);
        if let Some((_, terms)) = known.terms.filter(|(of, _)| *of == band) {
            return terms;
        }
        let group = &self.tree[at as usize];
        let terms = group.division.shared_terms(known.capacity, band);
        group.known.set(Known { terms: Some((band, terms)), ..known });
        terms
    }

    fn known(&self, at: u32) -> Known {
        let group = &self.tree[at as usize];
        let known = group.known.get();
        if known.version == self.version {
            return known;
        }
        let capacity = if at == ROOT { self.capacity } else { self.shared_capacity(at) };
        let known = Known { version: self.version, capacity, terms: None };
        group.known.set(known);
        known
    }

    /// What the members of a group share: its due, or all wants in it if it is due that much. The claims of the group
    /// round them.
    fn shared_capacity(&self, at: u32) -> Amount {
        let due = self.share(at);
        let group = &self.tree[at as usize];
        let claimed = group.claims.iter().map(|claim| claim.wants).collect::<Sum>().floor();
        let wants = group.division.totals().wants;
        if due < claimed || claimed < wants.floor() { due } else { due.max(wants.ceil()) }
    }

    /// What a group is due.
    fn share(&self, at: u32) -> Amount {
        let group = &self.tree[at as usize];
        let above = &self.tree[group.parent as usize].division;
        let due = |claim: &Claim| above.due(&self.terms(group.parent, above.band(claim.priority)), claim);
        let mut claims = group.claims.iter().filter(|claim| claim.subclients > 0);
        match (claims.next(), claims.next()) {
            (Some(only), None) => due(only),
            (Some(own), Some(beyond)) => [due(own), due(beyond)].into_iter().collect::<Sum>().floor(),
            (None, _) => Amount::ZERO,
        }
    }

    // Whole units.

    /// The holders of `parts` in their groups. `order` has the positions of the parts in the order of their ids.
    pub(crate) fn takers(&self, parts: &[UnitPart], order: &[usize]) -> Vec<Taker> {
        let mut inner: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut holders: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for index in order {
            // A child node with claims in several groups is dealt units beside the groups.
            let mut at = self.group_of(parts[*index].slot);
            holders.entry(at).or_default().push(*index);
            while at != ROOT {
                let parent = self.tree[at as usize].parent;
                inner.entry(parent).or_default().insert(at);
                at = parent;
            }
        }
        members(ROOT, &inner, &holders)
    }

    // Reports.

    /// The wants of all clients, one claim for each band.
    pub(crate) fn summarize(&self) -> Claims {
        let claim = |(band, (wants, subclients)): (&i16, &(Sum, u64))| {
            let subclients = u32::try_from(*subclients).unwrap_or(u32::MAX).min(Claim::MAX_SUBCLIENTS);
            Claim::new(wants.ceil(), subclients, *band)
        };
        // The highest bands, if there are too many.
        let skipped = self.bands.len().saturating_sub(crate::types::MAX_SLICES);
        self.bands.iter().skip(skipped).map(claim).collect()
    }

    /// Why the group of the holder in `slot` is due less than its clients want; `None` if it is due that much.
    pub(crate) fn limit(&self, slot: u32) -> Option<GroupLimit> {
        match self.group_of(slot) {
            ROOT => None,
            group => self.limit_of(group),
        }
    }

    /// Whether the holder in `slot`, or a client of this child node, is in the group with this path.
    pub(crate) fn is_in(&self, slot: u32, path: &str) -> bool {
        let contains = |mut group: u32| {
            while group != ROOT && *self.tree[group as usize].path != *path {
                group = self.tree[group as usize].parent;
            }
            group != ROOT
        };
        match self.group_of(slot) {
            ROOT => self.groups_of_node(slot).any(contains),
            group => contains(group),
        }
    }

    fn limit_of(&self, group: u32) -> Option<GroupLimit> {
        if !self.is_short(group) {
            return None;
        }
        if self.below.is_some() {
            return Some(self.limit_below(group));
        }
        let mut binding = group;
        let because = loop {
            let Group { parent, claims, .. } = &self.tree[binding as usize];
            let limits = self.rule(binding).map(|rule| &rule.limits);
            let share = self.share(binding);
            if let Some(maximum) = limits.and_then(|limits| limits.max).filter(|max| share >= *max) {
                break GroupBound::Maximum(maximum);
            }
            let above = &self.tree[*parent as usize];
            if *parent == ROOT || !self.is_short(*parent) {
                let terms = self.terms(*parent, 0);
                let minimum = limits.map_or(Amount::ZERO, |limits| limits.min);
                let is_minimum = minimum > Amount::ZERO
                    && !matches!(terms, Terms::Minimums(_))
                    && above.division.share_of(&terms, &claims[..1]) < share;
                break if is_minimum { GroupBound::Minimum(minimum) } else { GroupBound::Share(terms) };
            }
            binding = *parent;
        };
        let of = |at: u32| {
            let group = &self.tree[at as usize];
            (Arc::clone(&group.path), self.share(at), group.division.totals().wants)
        };
        let binding_weight = self.rule(binding).map_or(1, |rule| rule.limits.weight);
        let ((group, share, wants), (binding, binding_share, binding_wants)) = (of(group), of(binding));
        let here = None;
        Some(GroupLimit { group, share, wants, here, binding, binding_weight, binding_share, binding_wants, because })
    }

    /// Whether a group is due less than its clients want.
    fn is_short(&self, at: u32) -> bool {
        self.share(at) < self.tree[at as usize].division.totals().wants.floor()
    }

    /// The number of groups that have clients or keep a minimum.
    pub(crate) fn len(&self) -> usize {
        self.by_path.len() + usize::from(self.tree[OTHER as usize].claims[0].subclients > 0)
    }

    /// Up to `maximum` groups, in the order of their paths; if there are more, those with the largest wants. `held`
    /// returns what the holders of a group may be using.
    pub(crate) fn reports(&self, maximum: usize, held: impl Fn(u32) -> Sum) -> Vec<GroupReport> {
        let mut chosen: Vec<u32> = self.by_path.values().copied().collect();
        if self.len() > chosen.len() {
            chosen.push(OTHER);
        }
        if chosen.len() > maximum {
            let wants = |at: &u32| std::cmp::Reverse(self.tree[*at as usize].division.totals().wants);
            chosen.sort_by_key(wants);
            chosen.truncate(maximum);
            chosen.sort_by(|one, other| self.tree[*one as usize].path.cmp(&self.tree[*other as usize].path));
        }
        let mut held_by: BTreeMap<u32, Sum> = BTreeMap::new();
        let held_by_clients = self.tree.iter().map(|(at, _)| (at as u32, held(at as u32)));
        for (mut at, own) in held_by_clients.chain(self.held_by_nodes()) {
            while at != ROOT && own > Sum::ZERO {
                *held_by.entry(at).or_default() += own;
                at = self.tree[at as usize].parent;
            }
        }
        let further = self.further_clients();
        let report = |at: u32| {
            let group = &self.tree[at as usize];
            let rule = self.rule(at);
            GroupReport {
                path: Arc::clone(&group.path),
                weight: rule.map_or(1, |rule| rule.limits.weight),
                minimum: rule.map_or(Amount::ZERO, |rule| rule.limits.min),
                maximum: rule.and_then(|rule| rule.limits.max),
                lends: rule.is_none_or(|rule| rule.lends),
                share: self.share(at),
                wants: group.division.totals().wants,
                held: held_by.get(&at).copied().unwrap_or_default(),
                members: group.members as usize + further.get(&at).copied().unwrap_or_default(),
            }
        };
        chosen.into_iter().map(report).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        let divisions: usize = self.tree.iter().map(|(_, group)| group.division.bytes() + 2 * group.path.len()).sum();
        let of_nodes: usize = self.nodes.values().map(ClaimParts::bytes).sum();
        divisions + self.tree.capacity() * size_of::<Group>() + self.of.capacity() * size_of::<u32>() + of_nodes
    }
}

/// The rules of groups as the client rules of the divisions among groups.
fn rules_of_groups(groups: &GroupSettings, weights_only: bool) -> ClientRules {
    if weights_only { groups.weights() } else { groups.limits() }
}

/// The members of a group among which units are dealt.
fn members(at: u32, inner: &BTreeMap<u32, BTreeSet<u32>>, holders: &BTreeMap<u32, Vec<usize>>) -> Vec<Taker> {
    let of_group = holders.get(&at).into_iter().flatten().map(|index| Taker::Holder(*index));
    let groups = inner.get(&at).into_iter().flatten().map(|group| Taker::Group(members(*group, inner, holders)));
    of_group.chain(groups).collect()
}

#[cfg(test)]
pub(crate) mod tests;
