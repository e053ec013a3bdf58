//! Division: a pure function from the capacity and the claims to the due of each holder.
//!
//! An [`index`](self::index) keeps the claims with sums over any prefix. A single walk of the index yields the
//! [`Terms`] of a band, such as the level or the equal share. The due of a claim depends only on the terms and the
//! claim. So the cost of a request does not depend on the number of claims, and a child node can apply the terms of its
//! parent to its own clients.

mod index;
mod minimums;
mod priorities;
mod reserve;
mod slices;
#[cfg(test)]
pub(crate) mod tests;

use self::{
    index::{ClaimKey, Index, Totals},
    minimums::{Members, level_above},
    priorities::{ClaimOrder, Priorities},
    reserve::Reserve,
};
use crate::{
    policy::{
        client_rules::{ClientRule, ClientRules},
        settings::{AlgorithmKind, Settings},
    },
    types::{Amount, Claim, Claims, Sum},
};

/// The parameters that determine the due of every claim of a band.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Terms {
    /// Every claim is due its wants.
    Wants,
    /// Every claim is due its wants, up to this amount (STATIC).
    Each(Amount),
    /// Every claim is due its wants, up to this level per subclient (FAIR_SHARE).
    Level(f64),
    /// An equal share per subclient, and a fraction of the wants beyond it (PROPORTIONAL_SHARE).
    Share {
        /// Capacity divided by the number of subclients.
        equal: f64,
        /// From 0 to 1.
        top_up: f64,
    },
    /// The capacity is less than the sum of all minimums. Every claim is due its minimum, up to this level per
    /// subclient.
    Minimums(f64),
}

impl Terms {
    /// Whether the values are in range. Invalid terms of a parent are ignored.
    fn can_be(&self) -> bool {
        let numbers = match *self {
            Terms::Wants | Terms::Each(_) => [0.0, 0.0],
            Terms::Level(level) | Terms::Minimums(level) => [level, 0.0],
            Terms::Share { equal, top_up } => [equal, top_up],
        };
        numbers.iter().all(|number| number.is_finite() && number.is_sign_positive())
    }

    /// The due of a claim whose subclients each count as one. Never more than its wants.
    pub fn due(&self, claim: &Claim) -> Amount {
        self.due_at_least(Amount::ZERO, claim)
    }

    /// As [`due`](Self::due), but at least the minimum.
    fn due_at_least(&self, minimum: Amount, claim: &Claim) -> Amount {
        let (wants, subclients) = (claim.wants.get(), f64::from(claim.subclients));
        match *self {
            Terms::Wants => claim.wants,
            Terms::Each(maximum) => claim.wants.min(maximum),
            Terms::Level(level) => Amount::clamped(wants.min(level * subclients)).max(minimum),
            Terms::Share { equal, top_up } => {
                let mine = (equal * subclients).max(minimum.get());
                if wants <= mine { claim.wants } else { Amount::clamped((mine + (wants - mine) * top_up).min(wants)) }
            }
            Terms::Minimums(level) => Amount::clamped(minimum.get().min(level * subclients)),
        }
    }

    /// The amount that a child node's minimum adds to the due of its claims.
    fn secured(&self, minimum: &Claim) -> Amount {
        let (least, subclients) = (minimum.wants.get(), f64::from(minimum.subclients));
        match *self {
            Terms::Wants | Terms::Each(_) => Amount::ZERO,
            Terms::Level(level) => Amount::clamped(least - level * subclients),
            Terms::Share { equal, top_up } => Amount::clamped((least - equal * subclients) * (1.0 - top_up)),
            Terms::Minimums(level) => Amount::clamped(least.min(level * subclients)),
        }
    }
}

/// The claims of one resource, and how its capacity is divided among them.
pub(crate) struct Division {
    kind: AlgorithmKind,
    order: ClaimOrder,
    capacity: Amount,
    /// Whether claims are indexed even if the algorithm does not need it, because they are summarized for a parent.
    summarizes: bool,
    /// The parent's terms, by priority.
    parent_terms: Vec<(i16, Terms)>,
    index: Index,
    /// Present if bands share a reserve.
    reserve: Option<Box<Reserve>>,
    /// Claims by priority, if priorities are reported to a parent but not used here.
    priorities: Option<Box<Priorities>>,
    clients: ClientRules,
    /// The minimums of claims, if there may be any.
    minimums: Option<Box<Index>>,
}

impl Division {
    pub(crate) fn new(settings: &Settings) -> Division {
        let mut division = Division {
            kind: settings.dividing_algorithm(),
            order: ClaimOrder::OneBand,
            capacity: settings.capacity,
            summarizes: false,
            parent_terms: Vec::new(),
            index: Index::new(),
            reserve: None,
            priorities: None,
            clients: ClientRules::default(),
            minimums: None,
        };
        division.reset(settings);
        division
    }

    /// Enables summaries for a parent.
    pub(crate) fn summarizing(self) -> Division {
        let mut division = Division { summarizes: true, ..self };
        division.priorities = division.reported_priorities();
        division
    }

    /// Sets the parent's terms. Invalid terms are ignored. Returns whether the terms have changed.
    pub(crate) fn set_parent_terms(&mut self, mut terms: Vec<(i16, Terms)>) -> bool {
        terms.retain(|(_, terms)| terms.can_be());
        let is_new = self.parent_terms != terms;
        self.parent_terms = terms;
        self.share_anew();
        is_new
    }

    /// The parent's terms, by priority.
    pub(crate) fn parent_terms(&self) -> &[(i16, Terms)] {
        &self.parent_terms
    }

    pub(super) fn summarizes(&self) -> bool {
        self.summarizes
    }

    pub(super) fn capacity(&self) -> Amount {
        self.capacity
    }

    fn is_indexed(&self) -> bool {
        self.indexes(self.kind)
    }

    /// A pool summarizes its own members.
    fn indexes(&self, kind: AlgorithmKind) -> bool {
        kind.is_indexed() || self.summarizes && kind != AlgorithmKind::PriorityPool
    }

    fn reported_priorities(&self) -> Option<Box<Priorities>> {
        (self.summarizes && self.is_indexed() && self.order == ClaimOrder::OneBand).then(Box::default)
    }

    pub(crate) fn set_capacity(&mut self, capacity: Amount) {
        self.capacity = capacity;
        self.share_anew();
    }

    fn share_anew(&mut self) {
        if let Some(reserve) = &mut self.reserve {
            reserve.reset();
        }
    }

    /// Reads what a query needs, if there are few claims.
    pub(super) fn touch(&self) -> u64 {
        self.index.touch() ^ u64::from(self.minimums.is_some())
    }

    /// The sums over all claims.
    pub(super) fn totals(&self) -> Totals {
        self.index.totals()
    }

    /// The sums over the claims of a band.
    pub(super) fn totals_of(&self, band: i16) -> Totals {
        self.index.before(ClaimKey::band_end(band)).minus(self.index.before(ClaimKey::band_start(band)))
    }

    /// Whether the index stays valid under these settings.
    pub(crate) fn same_order(&self, settings: &Settings) -> bool {
        self.is_indexed() == self.indexes(settings.dividing_algorithm())
            && self.order == ClaimOrder::of(settings)
            && self.clients == settings.clients
    }

    /// Applies settings under which the index stays valid.
    pub(crate) fn reconfigure(&mut self, settings: &Settings) {
        debug_assert!(self.same_order(settings), "claims would have to be sorted again");
        self.kind = settings.dividing_algorithm();
        if let Some(reserve) = &mut self.reserve {
            reserve.set_part(settings.reserve);
        }
    }

    /// Drops all claims and applies other settings. The caller inserts the claims again.
    pub(crate) fn reset(&mut self, settings: &Settings) {
        (self.kind, self.order) = (settings.dividing_algorithm(), ClaimOrder::of(settings));
        self.index = Index::new();
        self.reserve = (self.order == ClaimOrder::ReservedBands).then(|| Box::new(Reserve::new(settings.reserve)));
        self.priorities = self.reported_priorities();
        self.clients = settings.clients.clone();
        self.minimums = settings.heeds_minimums().then(|| Box::new(Index::new()));
    }

    /// Inserts the claims of the holder in `slot`.
    pub(crate) fn insert(&mut self, slot: u32, claims: &[Claim]) {
        self.insert_from(slot, 0, claims);
    }

    pub(crate) fn remove(&mut self, slot: u32, claims: &[Claim]) {
        self.remove_from(slot, 0, claims);
    }

    /// Inserts some of the claims of the holder in `slot`. `first`: the position of the first one among all of its
    /// claims.
    pub(crate) fn insert_from(&mut self, slot: u32, first: usize, claims: &[Claim]) {
        for (at, claim) in claims.iter().enumerate() {
            self.insert_one(slot, first + at, claim);
        }
    }

    pub(crate) fn remove_from(&mut self, slot: u32, first: usize, claims: &[Claim]) {
        for (at, claim) in claims.iter().enumerate() {
            self.remove_one(slot, first + at, claim);
        }
    }

    /// Replaces a claim of the holder in `slot`.
    pub(crate) fn replace(&mut self, slot: u32, ordinal: usize, old: &Claim, new: &Claim) {
        self.remove_one(slot, ordinal, old);
        self.insert_one(slot, ordinal, new);
    }

    /// The entries of a claim in the index of claims and in that of minimums. A claim without subclients has none.
    fn entries(&self, slot: u32, ordinal: usize, claim: &Claim) -> [Option<(ClaimKey, u32)>; 2] {
        if !self.is_indexed() || claim.subclients == 0 {
            return [None; 2];
        }
        let (claim, minimum) = self.split(claim);
        let minimum = minimum.filter(|_| self.minimums.is_some());
        [claim, minimum].map(|claim| claim.map(|claim| self.order.entry(slot, ordinal, &claim)))
    }

    fn insert_one(&mut self, slot: u32, ordinal: usize, claim: &Claim) {
        let [entry, minimum] = self.entries(slot, ordinal, claim);
        if let (Some(minimums), Some((key, weight))) = (&mut self.minimums, minimum) {
            minimums.insert(key, weight);
        }
        let Some((key, weight)) = entry else { return };
        if let Some(priorities) = &mut self.priorities {
            priorities.insert(claim.priority, key, weight, &self.index);
        }
        self.index.insert(key, weight);
        if let Some(reserve) = &mut self.reserve {
            reserve.insert(key, weight);
        }
    }

    fn remove_one(&mut self, slot: u32, ordinal: usize, claim: &Claim) {
        let [entry, minimum] = self.entries(slot, ordinal, claim);
        if let (Some(minimums), Some((key, weight))) = (&mut self.minimums, minimum) {
            minimums.remove(key, weight);
        }
        let Some((key, weight)) = entry else { return };
        self.index.remove(key, weight);
        if let Some(priorities) = &mut self.priorities {
            priorities.remove(claim.priority, key, weight);
        }
        if let Some(reserve) = &mut self.reserve {
            reserve.remove(key, weight);
        }
    }

    /// A claim limited by its client rule, and its minimum.
    fn split(&self, claim: &Claim) -> (Option<Claim>, Option<Claim>) {
        if claim.is_minimum {
            return (None, Some(*claim));
        }
        let ruled = self.ruled(claim);
        let minimum = self.minimum(claim, &ruled);
        (Some(ruled), (minimum > Amount::ZERO).then_some(Claim { wants: minimum, ..ruled }))
    }

    /// The claim limited by its client rule.
    pub(crate) fn ruled(&self, claim: &Claim) -> Claim {
        let Some(rule) = self.clients.get(claim.rule) else { return *claim };
        let wants = rule.max.map_or(claim.wants, |max| claim.wants.min(max));
        let weight = if self.kind.is_indexed() { rule.weight } else { 1 };
        Claim { wants, subclients: claim.subclients.saturating_mul(weight), ..*claim }
    }

    /// The minimum of a claim. `ruled`: the claim after its client rule.
    fn minimum(&self, claim: &Claim, ruled: &Claim) -> Amount {
        let rule = self.clients.get(claim.rule).filter(|_| self.minimums.is_some());
        rule.map_or(Amount::ZERO, |rule| rule.min.min(ruled.wants))
    }

    pub(crate) fn has_rules(&self) -> bool {
        !self.clients.is_empty()
    }

    /// The client rule of a claim.
    pub(crate) fn rule(&self, claim: &Claim) -> Option<&ClientRule> {
        self.clients.get(claim.rule)
    }

    /// The band of claims of this priority.
    pub(crate) fn band(&self, priority: i16) -> i16 {
        self.order.band(priority)
    }

    /// The sum of the wants in higher bands.
    pub(crate) fn wanted_above(&self, band: i16) -> Sum {
        match self.order {
            ClaimOrder::OneBand | ClaimOrder::Weighted => Sum::ZERO,
            ClaimOrder::Bands | ClaimOrder::ReservedBands => {
                self.index.totals().minus(self.index.before(ClaimKey::band_end(band))).wants
            }
        }
    }

    /// The due of a claim by the terms of its band.
    pub(crate) fn due(&self, terms: &Terms, claim: &Claim) -> Amount {
        if claim.is_minimum {
            return if self.minimums.is_some() { terms.secured(&self.order.weighed(claim)) } else { Amount::ZERO };
        }
        let ruled = self.ruled(claim);
        terms.due_at_least(self.minimum(claim, &ruled), &self.order.weighed(&ruled))
    }

    /// The sum of the dues without minimums.
    pub(crate) fn share_of(&self, terms: &Terms, claims: &[Claim]) -> Amount {
        let due = |claim: &Claim| terms.due(&self.order.weighed(&self.ruled(claim)));
        claims.iter().map(due).fold(Amount::ZERO, Amount::saturating_add)
    }

    /// The terms for claims of a band.
    pub(crate) fn terms(&self, band: i16) -> Terms {
        match self.kind {
            // A pool computes dues itself.
            AlgorithmKind::NoAlgorithm | AlgorithmKind::PriorityPool | AlgorithmKind::Budget => Terms::Wants,
            AlgorithmKind::Static => Terms::Each(self.per_client()),
            AlgorithmKind::ProportionalShare | AlgorithmKind::FairShare => self.shared_terms(self.capacity, band),
        }
    }

    /// STATIC: the maximum of one client, the same at every node.
    fn per_client(&self) -> Amount {
        let terms_of_band = self.parent_terms.iter().find_map(|(_, terms)| match terms {
            Terms::Each(maximum) => Some(*maximum),
            _ => None,
        });
        terms_of_band.unwrap_or(self.capacity)
    }

    /// The parent's terms for this band. `None` if the band comprises several bands of the parent with different terms.
    fn parent_terms_of(&self, band: i16) -> Option<Terms> {
        let mut terms_of_band =
            self.parent_terms.iter().filter(|(priority, _)| self.band(*priority) == band).map(|(_, terms)| terms);
        let first = terms_of_band.next()?;
        terms_of_band.all(|terms| terms == first).then_some(*first)
    }

    /// The parent's equal share in this band, if the parent had less than all wants.
    fn equal_share(&self, band: i16) -> Option<f64> {
        match self.parent_terms_of(band) {
            Some(Terms::Share { equal, .. }) => Some(equal),
            _ => None,
        }
    }

    /// The sum of all wants as indexed. The wants of claims with several subclients are rounded.
    pub(crate) fn wanted(&self) -> Sum {
        self.index.totals().wants
    }

    /// Merges all claims into at most `maximum` slices of similar wants and equal priority, see [`slices`].
    pub(crate) fn summarize(&self, maximum: usize) -> Claims {
        self.priorities.as_ref().map_or_else(
            || slices::summarize(&self.index, maximum),
            |priorities| priorities.summarize(&self.index, maximum),
        )
    }

    /// Merges all minimums in the same way.
    pub(crate) fn summarize_minimums(&self, maximum: usize) -> Claims {
        let slices = self.minimums.as_ref().map_or_else(Claims::new, |minimums| slices::summarize(minimums, maximum));
        slices.into_iter().map(Claim::as_minimum).collect()
    }

    /// The terms for claims of a band if `total` is shared. The algorithm is FAIR_SHARE or PROPORTIONAL_SHARE.
    pub(super) fn shared_terms(&self, total: Amount, band: i16) -> Terms {
        let minimums = self.minimums.as_deref().filter(|minimums| minimums.totals().weight > 0);
        if let Some(minimums) = minimums.filter(|minimums| minimums.totals().wants > total.into()) {
            return self.terms_of_minimums(minimums, total, band);
        }
        let (below, members, mut capacity) = match &self.reserve {
            None => self.left_for(&self.index, total, band),
            Some(reserve) => {
                let share = reserve.share(band, &self.index, total, |band| self.parent_terms_of(band));
                let Some(share) = share else { return Terms::Wants };
                (share.below, share.members, share.capacity)
            }
        };
        let minimums = minimums.map(|minimums| Members::of(minimums, band));
        if let Some(minimums) = &minimums {
            // The remainder of the bands above minus the minimums of bands below, but at least the minimums of this
            // band.
            capacity = (capacity - minimums.below.wants).max(minimums.all.wants);
        }
        if members.wants <= capacity {
            return Terms::Wants;
        }
        let members = Members { index: &self.index, band, below, all: members };
        match self.kind {
            AlgorithmKind::FairShare => level_of(members, minimums, capacity),
            _ => self.share(members, minimums, capacity),
        }
    }

    /// The terms if the capacity is less than the sum of all minimums. The capacity goes to the bands from the top
    /// down, and each band divides its part.
    fn terms_of_minimums(&self, minimums: &Index, total: Amount, band: i16) -> Terms {
        let (below, members, capacity) = self.left_for(minimums, total, band);
        let fits = members.wants <= capacity;
        match if fits { Terms::Wants } else { level(minimums, band, below, members, capacity) } {
            Terms::Level(level) => Terms::Minimums(level),
            _ => Terms::Minimums(Amount::MAX.get()),
        }
    }

    /// The sums over all bands below this one, the sums over its own claims, and the part of `total` that the bands
    /// above leave.
    fn left_for(&self, index: &Index, total: Amount, band: i16) -> (Totals, Totals, Sum) {
        let (below, through) = match self.order {
            ClaimOrder::OneBand | ClaimOrder::Weighted => (Totals::default(), index.totals()),
            ClaimOrder::Bands | ClaimOrder::ReservedBands => {
                (index.before(ClaimKey::band_start(band)), index.before(ClaimKey::band_end(band)))
            }
        };
        let above = index.totals().minus(through);
        (below, through.minus(below), (Sum::from(total) - above.wants).max(Sum::ZERO))
    }

    /// The equal share, and the fraction of the wants beyond it that unused shares cover. Below a parent, the share is
    /// that of the whole tree, and the parent's lease covers both. If the lease does not cover the shares, or the
    /// minimums beyond them, they are lowered.
    fn share(&self, members: Members<'_>, minimums: Option<Members<'_>>, capacity: Sum) -> Terms {
        let Members { index, band, below, all } = members;
        let equal = self.equal_share(band).unwrap_or_else(|| capacity.get() / all.weight as f64);
        let modest = index.before(ClaimKey::after(band, equal)).minus(below);
        let greedy = all.minus(modest);
        let secured = minimums.map_or(0.0, |minimums| minimums.beyond(equal));
        let shares = equal * greedy.weight as f64 + secured;
        let extra = capacity.get() - modest.wants.get() - shares;
        if extra < 0.0 && (secured > 0.0 || !self.parent_terms.is_empty()) {
            return match level_of(members, minimums, capacity) {
                Terms::Level(equal) => Terms::Share { equal, top_up: 0.0 },
                other => other,
            };
        }
        let need = greedy.wants.get() - shares;
        let top_up = if need > 0.0 { (extra / need).clamp(0.0, 1.0) } else { 0.0 };
        Terms::Share { equal, top_up }
    }

    pub(crate) fn bytes(&self) -> usize {
        let reserve = self.reserve.as_ref().map_or(0, |reserve| reserve.bytes());
        self.index.bytes() + reserve + self.priorities.as_ref().map_or(0, |priorities| priorities.bytes())
    }
}

/// The level of one band, with minimums or without.
fn level_of(members: Members<'_>, minimums: Option<Members<'_>>, capacity: Sum) -> Terms {
    match minimums.filter(|minimums| minimums.all.weight > 0) {
        Some(minimums) => level_above(members, minimums, capacity),
        None => level(members.index, members.band, members.below, members.all, capacity),
    }
}

/// The level λ with Σ min(wants, λ·weight) = capacity, over the `members` of a band. The index is sorted by wants per
/// weight. The walk finds the first claim that wants more than λ, and divides the remaining capacity by the weights
/// from there on.
fn level(index: &Index, band: i16, below: Totals, members: Totals, capacity: Sum) -> Terms {
    let (start, end) = (ClaimKey::band_start(band), ClaimKey::band_end(band));
    let satisfied = index.prefix_where(|key, before| {
        if key < start || key >= end {
            return key < start;
        }
        let before = before.minus(below);
        let left = (capacity - before.wants).get();
        Index::ratio(key) * (members.weight - before.weight) as f64 <= left
    });
    let satisfied = satisfied.minus(below);
    let above = members.weight - satisfied.weight;
    if above == 0 {
        // The wants exceed the capacity by less than a float can express. Settlement absorbs the difference.
        return Terms::Wants;
    }
    let left = (capacity - satisfied.wants).get();
    Terms::Level((left / above as f64).max(0.0))
}
