//! What is fair: what each holder is *due*.
//!
//! # Division
//! A [`Division`] splits the capacity among *claims*. A claim says how much a client wants and at which priority; a
//! child node has one claim for each group of similar clients below it. What a claim is due depends on the capacity and
//! on all claims, and on nothing else: not on the order of requests, and not on the leases that holders have. So two
//! masters with the same claims divide in the same way.
//!
//! The claims are kept in an index that is sorted by wants and holds sums, so a change of one claim costs the same with
//! ten claims as with a million. From the index follow the [`Terms`] of a priority band: for FAIR_SHARE the *level* up
//! to which every client gets what it wants. What one claim is due follows from the terms and the claim alone. A child
//! node gets the terms of its parent with its lease, and applies them to its own clients.
//!
//! For example, the capacity is 100 and clients a, b and c want 20, 50 and 60. The level is 40. Then d comes and wants
//! 10, and the level falls to 35, because 20 + 35 + 35 + 10 = 100:
//!
//! | client | wants | due before | due with d |
//! |---|---|---|---|
//! | a | 20 | 20 | 20 |
//! | b | 50 | 40 | 35 |
//! | c | 60 | 40 | 35 |
//! | d | 10 | | 10 |
//!
//! If clients are [grouped](groups), the capacity is divided between groups first, and each group has a division of its
//! own.
//!
//! # Settlement
//! [`settlement`] turns dues into grants. A holder that has more than its due shrinks immediately. One that has less
//! grows by what is free, which is the capacity minus everything that is held ([`crate::lease`]). Settlement knows
//! nothing about fairness: if several holders lack more than is free, each gets the same fraction of what it lacks.
//!
//! In the example, d gets nothing at first: 20 + 40 + 40 is held and nothing is free. When b has asked and is known to
//! use no more than 35, 5 is free, and d gets 5 at its next request. When c has done the same, d gets its 10. At no
//! moment was more than 100 in use.
//!
//! # Whole units
//! Some capacities come in [whole units](units). Then dues are rounded down, and the units that are left over rotate
//! among the holders, so that on average each has its exact due.

pub mod division;
pub mod groups;
pub mod settlement;
pub mod units;

use crate::{
    allocation::{
        division::{Division, Terms},
        groups::{ClaimParts, GroupDemand, GroupLimit, GroupReport, GroupSupply, Groups, NodeClaims},
        settlement::without_dust,
        units::{Rotation, Taker, UnitPart, in_order, left_over, whole},
    },
    policy::settings::Settings,
    types::{Amount, Claim, Claims, HolderKind, MAX_SLICES, Millis, Sum, wanted},
};

/// The holder that gets a unit refreshes this much later than the holder that gives it up.
const HAND_OVER: Millis = Millis(1000);

/// How the capacity of one resource is allocated to its holders, each known by its slot in the ledger.
pub(crate) struct Allocation {
    /// The claims, unless they are grouped.
    division: Division,
    /// Present if clients are grouped.
    groups: Option<Box<Groups>>,
    /// Present if units are whole.
    rotation: Option<Box<Rotation>>,
    /// Rises when left-over units pass to other holders.
    rotations: u64,
}

/// The terms of the priority bands that this round has computed so far.
pub(crate) type KnownTerms = Vec<(i16, Terms)>;

impl Allocation {
    /// An allocation without holders. `summarizes`: this node reports summaries of the claims to a parent.
    pub(crate) fn new(settings: &Settings, summarizes: bool) -> Allocation {
        let division = Division::new(settings);
        let division = if summarizes { division.summarizing() } else { division };
        let groups = Groups::new(settings, summarizes, NodeClaims::default());
        Allocation { division, groups, rotation: settings.whole_units.then(Box::default), rotations: 0 }
    }

    /// Applies other settings. Returns true if the caller must insert the claims of all holders again, and make each
    /// [join](Self::join) its group before.
    pub(crate) fn configure(&mut self, settings: &Settings) -> bool {
        let keeps_groups = match &self.groups {
            Some(groups) => groups.fit(settings),
            None => settings.groups.is_none() || !settings.dividing_algorithm().is_indexed(),
        };
        let keeps_claims = keeps_groups && self.division.same_order(settings);
        if keeps_claims {
            self.division.reconfigure(settings);
            if let (Some(groups), Some(rules)) = (&mut self.groups, &settings.groups) {
                groups.set_rules(rules);
            }
        } else {
            self.division.reset(settings);
            let nodes = self.groups.take().map_or_else(NodeClaims::default, |groups| groups.into_nodes());
            self.groups = Groups::new(settings, self.division.summarizes(), nodes);
        }
        self.set_capacity(settings.capacity);
        match (settings.whole_units, &self.rotation) {
            (true, None) => self.rotation = Some(Box::default()),
            (false, Some(_)) => self.rotation = None,
            _ => {}
        }
        !keeps_claims
    }

    /// Whether it follows from its settings and the claims of the holders alone.
    pub(crate) fn can_pack(&self) -> bool {
        self.rotation.is_none() && self.rotations == 0 && self.groups.is_none()
    }

    /// The division of a node that has no groups. With groups it has no claims, but the same rules and bands.
    pub(crate) fn division(&self) -> &Division {
        &self.division
    }

    /// The division that contains the claims of the holder in `slot`.
    pub(crate) fn division_of(&self, slot: u32) -> &Division {
        self.groups.as_ref().map_or(&self.division, |groups| groups.division_of(slot))
    }

    /// The capacity that this division divides.
    pub(crate) fn capacity_of(&self, slot: u32) -> Amount {
        self.groups.as_ref().map_or(self.division.capacity(), |groups| groups.capacity_of(slot))
    }

    /// Why the group of the holder in `slot` is due less than its clients want.
    pub(crate) fn group_limit(&self, slot: u32) -> Option<GroupLimit> {
        self.groups.as_ref()?.limit(slot)
    }

    /// Whether the holder in `slot`, or a client of this child node, is in the group with this path.
    pub(crate) fn is_in_group(&self, slot: u32, path: &str) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.is_in(slot, path))
    }

    /// Whether the claims of child nodes are counted by group.
    pub(crate) fn has_groups(&self) -> bool {
        self.groups.is_some()
    }

    /// The number of groups that a child node has reported claims in; zero for other holders.
    pub(crate) fn reported_groups(&self, slot: u32) -> usize {
        self.groups.as_ref().map_or(0, |groups| groups.reported_groups(slot))
    }

    /// Replaces the claims of a child node and their groups. Returns whether the groups have changed; then the caller
    /// makes it [join](Self::join) them and inserts the new claims.
    pub(crate) fn change_node(&mut self, slot: u32, old: &[Claim], new: &[Claim], parts: ClaimParts) -> bool {
        self.groups.as_mut().is_some_and(|groups| groups.change_node(slot, old, new, parts))
    }

    /// The demand of a child node by group, completed by the last report while its master does not know all clients.
    pub(crate) fn completed(
        &self,
        slot: u32,
        claims: &[Claim],
        learning: bool,
        report: Vec<GroupDemand>,
    ) -> Vec<GroupDemand> {
        groups::completed(self.demands_of(slot, claims), learning, report)
    }

    /// The last report of a child node by group.
    pub(crate) fn demands_of(&self, slot: u32, claims: &[Claim]) -> Vec<GroupDemand> {
        self.groups.as_ref().map_or_else(Vec::new, |groups| groups.demands_of(slot, claims))
    }

    /// A child node's part of each group that it reported.
    pub(crate) fn group_supplies(&self, slot: u32, claims: &[Claim]) -> Vec<GroupSupply> {
        self.groups.as_ref().map_or_else(Vec::new, |groups| groups.supplies_of(slot, claims))
    }

    /// Below a parent: sets the parts of this node. Returns whether they have changed.
    pub(crate) fn set_group_supplies(&mut self, supplies: Vec<GroupSupply>) -> bool {
        self.groups.as_mut().is_some_and(|groups| groups.set_supplies(supplies))
    }

    /// Below a parent: the demand in each group. `held`: as in [`group_reports`](Self::group_reports).
    pub(crate) fn group_demands(&mut self, held: impl Fn(u32) -> Sum) -> Vec<GroupDemand> {
        self.groups.as_mut().map_or_else(Vec::new, |groups| groups.demands(held))
    }

    /// Below a parent: whether demand has moved between groups since the last report.
    pub(crate) fn groups_have_moved(&self) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.have_moved())
    }

    /// Whether the parent may lend more for the claims of a holder, because it has not limited their groups. `None` if
    /// the parent does not divide between groups.
    pub(crate) fn parent_may_add(&self, slot: u32, claims: &[Claim]) -> Option<bool> {
        self.groups.as_ref()?.parent_may_add(slot, claims)
    }

    /// The number of groups that have clients or keep a minimum.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.as_ref().map_or(0, |groups| groups.len())
    }

    /// Up to `maximum` groups. `held` returns what the holders with the label of a group may be using.
    pub(crate) fn group_reports(&self, maximum: usize, held: impl Fn(u32) -> Sum) -> Vec<GroupReport> {
        self.groups.as_ref().map_or_else(Vec::new, |groups| groups.reports(maximum, held))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.division.bytes() + self.groups.as_ref().map_or(0, |groups| groups.bytes())
    }

    pub(crate) fn set_capacity(&mut self, capacity: Amount) {
        self.division.set_capacity(capacity);
        if let Some(groups) = &mut self.groups {
            groups.set_capacity(capacity);
        }
    }

    /// Sets the parent's terms; impossible ones are ignored. Returns whether they have changed.
    pub(crate) fn set_parent_terms(&mut self, terms: Vec<(i16, Terms)>) -> bool {
        self.division.set_parent_terms(terms)
    }

    /// Makes the holder in `slot`, which has no claims, a member of its group until it is [forgotten](Self::forget).
    /// Returns the label of the group; `None` without groups.
    pub(crate) fn join(&mut self, slot: u32, kind: HolderKind, id: &str) -> Option<u32> {
        self.groups.as_mut().map(|groups| groups.join(slot, kind, id))
    }

    /// Reads what a change of the claims of the holder in `slot` needs, if clients are grouped.
    pub(crate) fn touch(&self, slot: u32) -> u64 {
        self.groups.as_ref().map_or(0, |groups| groups.touch(slot))
    }

    /// Inserts the claims of the holder in `slot`.
    pub(crate) fn insert(&mut self, slot: u32, claims: &[Claim]) {
        self.change(slot, &[], claims);
    }

    pub(crate) fn remove(&mut self, slot: u32, claims: &[Claim]) {
        self.change(slot, claims, &[]);
    }

    /// Replaces all claims of the holder in `slot`.
    pub(crate) fn change(&mut self, slot: u32, old: &[Claim], new: &[Claim]) {
        if let Some(groups) = &mut self.groups {
            return groups.change(slot, old, new);
        }
        self.division.remove(slot, old);
        self.division.insert(slot, new);
    }

    /// Replaces a claim of the holder in `slot`.
    pub(crate) fn replace(&mut self, slot: u32, ordinal: usize, old: &Claim, new: &Claim) {
        match &mut self.groups {
            Some(groups) => groups.replace(slot, ordinal, old, new),
            None => self.division.replace(slot, ordinal, old, new),
        }
    }

    /// Removes the claims of a departed holder, and its credit for left-over units.
    pub(crate) fn forget(&mut self, slot: u32, claims: &[Claim]) {
        match &mut self.groups {
            Some(groups) => groups.forget(slot, claims),
            None => self.division.remove(slot, claims),
        }
        if let Some(rotation) = &mut self.rotation {
            rotation.forget(slot);
        }
    }

    /// The sum of the wants of `claims` after the client rules, without minimums.
    pub(crate) fn ruled_wants(&self, claims: &[Claim]) -> Sum {
        wanted(claims).map(|claim| self.division.ruled(claim).wants).collect()
    }

    /// The terms for claims of this priority of the holder in `slot`.
    pub(crate) fn terms_of(&self, slot: u32, priority: i16, known: &mut KnownTerms) -> Terms {
        if let Some(groups) = &self.groups {
            return groups.terms_of(slot, priority);
        }
        let band = self.division.band(priority);
        if let Some((_, terms)) = known.iter().find(|(other, _)| *other == band) {
            return *terms;
        }
        let terms = self.division.terms(band);
        known.push((band, terms));
        terms
    }

    /// The total due of a holder's claims. `per_client`: the holder is a child node that understands terms, so STATIC
    /// applies to each of its clients.
    pub(crate) fn divided(
        &self,
        slot: u32,
        claims: &[Claim],
        per_client: bool,
        wants: impl FnOnce() -> Sum,
        known: &mut KnownTerms,
    ) -> Amount {
        if let Some(due) = self.groups.as_ref().and_then(|groups| groups.due_of_node(slot, claims)) {
            return due.min(wants()).floor();
        }
        let division = self.division_of(slot);
        let mut due = |claim: &Claim| match self.terms_of(slot, claim.priority, known) {
            Terms::Each(maximum) if per_client => Terms::Level(maximum.get()).due(claim),
            terms => division.due(&terms, claim),
        };
        match claims {
            // Not summed, because a sum rounds amounts below 1 up.
            [one] => due(one),
            // Wants and minimums come in separate, rounded slices, so their sum may exceed the wants by a rounding
            // error.
            several => several.iter().map(due).collect::<Sum>().min(wants()).floor(),
        }
    }

    /// Rounds the due of a holder: dust becomes zero, and if units are whole, the due becomes a whole number. `extra`:
    /// the holder has one of the left-over units.
    pub(crate) fn rounded(&self, due: Amount, capacity: Amount, extra: bool) -> Amount {
        let due = without_dust(due, due, capacity);
        if self.rotation.is_some() { whole(due, extra) } else { due }
    }

    /// Whether the left-over units must be dealt now. `version` changes with claims and capacity.
    pub(crate) fn must_deal(&self, now: Millis, version: u64) -> bool {
        self.rotation.as_ref().is_some_and(|rotation| rotation.is_due(now, version))
    }

    /// Deals the left-over units. Returns the holders that get one, in ascending order.
    pub(crate) fn deal(&mut self, now: Millis, period: Millis, version: u64, parts: &[UnitPart]) -> Vec<u32> {
        let Some(rotation) = &mut self.rotation else { return Vec::new() };
        let order = in_order(parts);
        let takers = match &self.groups {
            Some(groups) => groups.takers(parts, &order),
            None => order.into_iter().map(Taker::Holder).collect(),
        };
        let mut winners = rotation.deal(now, period, version, parts, &takers, left_over(parts));
        winners.sort_unstable();
        winners
    }

    /// Counts a deal that moved left-over units to other holders.
    pub(crate) fn note_rotation(&mut self) {
        self.rotations += 1;
    }

    /// The number of deals that moved left-over units to other holders.
    pub(crate) fn rotations(&self) -> u64 {
        self.rotations
    }

    /// The end of the current rotation; `None` if units are not whole.
    pub(crate) fn rotation_ends(&self) -> Option<Millis> {
        self.rotation.as_ref().map(|rotation| rotation.ends())
    }

    /// Shortens a refresh interval to the end of the rotation: then the holder that gives its unit up refreshes, and
    /// the next holder refreshes [`HAND_OVER`] later. `extra`: this holder has one of the left-over units.
    pub(crate) fn until_rotation(&self, refresh: Millis, extra: bool, now: Millis) -> Millis {
        let Some(rotation) = &self.rotation else { return refresh };
        let left = rotation.ends().since(now);
        if left == Millis(0) {
            return refresh;
        }
        let pause = if extra { Millis(0) } else { HAND_OVER };
        left.plus(pause).max(HAND_OVER).min(refresh)
    }

    /// Summarizes all claims in a few slices of similar wants and equal priority. `wants`: the sum over all holders.
    pub(crate) fn summarize(&self, wants: Sum) -> Claims {
        match &self.groups {
            Some(groups) => groups.summarize(),
            None => self.summarize_ungrouped(wants),
        }
    }

    fn summarize_ungrouped(&self, wants: Sum) -> Claims {
        let wanted = self.division.wanted();
        // Client rules limit the reported wants.
        let all = if self.division.has_rules() { wanted } else { wanted.max(wants) };
        raised_to(self.division.summarize(MAX_SLICES), all.ceil())
    }

    /// Summarizes all minimums in the same way.
    pub(crate) fn summarize_minimums(&self) -> Claims {
        self.division.summarize_minimums(MAX_SLICES)
    }
}

/// Raises the slices until they add up to at least `all`, the wants of all holders. If slices were rounded down, a
/// parent with enough capacity would lend too little, and a client that wants 7 whole units would get 6.
fn raised_to(mut slices: Claims, all: Amount) -> Claims {
    let (reported, all): (Sum, Sum) = (slices.iter().map(|claim| claim.wants).collect(), all.into());
    if let Some(last) = slices.last_mut().filter(|_| reported < all) {
        let mut wants = Sum::from(last.wants);
        wants += all - reported;
        last.wants = wants.ceil();
    }
    slices
}
