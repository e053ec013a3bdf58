//! Forecasts the dues of holders under other settings, with the allocation and the sums of a resource over copies of
//! its records.
//!
//! The copies are taken a page at a time, so that a resource with many holders stays responsive; the rest does not need
//! the resource. The forecast cannot include what the records do not contain: wants that were rounded to whole units, a
//! priority beyond the current `max_priority`, and which clients a pool admits. A child node under `priority: weighted`
//! reports weights as numbers of clients, so the forecast of another mode counts its clients by their weights.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    allocation::groups::{ClaimParts, GroupDemand, GroupReport},
    lease::{
        holder::Leases,
        ledger::{BUCKET_MS, HolderMode},
        promises::Inherited,
    },
    policy::{
        groups::OTHER_GROUP,
        settings::{AlgorithmKind, Settings},
    },
    resource::{Resource, ResourceOptions, report::MAX_REPORTED_GROUPS, supply::Source, watch_list::differs_visibly},
    types::{Amount, Claims, HolderKind, Millis, Principal, Sum, readable},
};

#[derive(Debug)]
pub struct HolderCopy {
    id: Arc<str>,
    kind: HolderKind,
    claims: Claims,
    /// A child node: the same claims by group. Empty if it does not report groups.
    groups: Vec<GroupDemand>,
    leases: Leases,
    mode: HolderMode,
    due: Amount,
}

/// A resource under other settings, with the holders that were copied to it.
pub struct Forecast {
    resource: Resource,
    at: Millis,
    learning: Option<Millis>,
    capacity_before: Amount,
    due_before: Vec<(u32, Amount)>,
    groups_before: Vec<GroupReport>,
    /// The number of child nodes that do not report groups yet.
    ungrouped_nodes: usize,
}

/// The state of a resource under other settings if wants stay the same.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecastReport {
    /// The capacity before and after. A report of load counts in both.
    pub capacity: (Amount, Amount),
    /// Holders, and the clients that they stand for.
    pub holders: usize,
    pub subclients: u64,
    pub wants: Sum,
    pub held: Sum,
    /// The sum of all dues, before and after. What a pool will admit is not forecast.
    pub due: (Sum, Option<Sum>),
    pub gains: ChangeTotals,
    pub losses: ChangeTotals,
    /// The amount held beyond the new capacity. No holder gets more before this has ended.
    pub over_capacity: Sum,
    /// The amount that holders have beyond their new dues. Others get it when it ends, or when smaller leases are
    /// confirmed.
    pub over_due: Sum,
    /// Inherited leases that nobody has claimed. They count until they are claimed or have ended.
    pub unclaimed: Sum,
    /// The time until all of these have ended at the latest; zero if there are none.
    pub until: Millis,
    /// Time left in learning mode.
    pub learning: Millis,
    /// Holders whose due changes, the most changed first.
    pub changes: Vec<DueChange>,
    /// Groups of clients before and after, in the order of their paths. If there are many, those with the largest
    /// wants.
    pub groups: Vec<GroupChange>,
    /// If clients are grouped: the number of child nodes that do not report groups yet. Their clients count in one
    /// group.
    pub ungrouped_nodes: usize,
}

/// The share of a group; `None` if there is no such group before or after.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupChange {
    pub path: Arc<str>,
    pub wants: Sum,
    pub before: Option<Amount>,
    pub after: Option<Amount>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ChangeTotals {
    pub holders: usize,
    pub amount: Sum,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DueChange {
    pub id: Arc<str>,
    pub kind: HolderKind,
    /// Clients it stands for.
    pub subclients: u64,
    pub wants: Amount,
    pub held: Amount,
    pub before: Amount,
    pub after: Amount,
}

/// Copies of up to `limit` holders from slot `from` on, and the slot to continue from.
pub fn copy_holders(resource: &Resource, now: Millis, from: usize, limit: usize) -> (Vec<HolderCopy>, Option<usize>) {
    let (mut terms, mut page) = (Vec::new(), Vec::new());
    for (slot, holder) in
        resource.book.ledger().iter_from(from).filter(|(slot, _)| !resource.book.ledger().is_inherited(*slot))
    {
        if page.len() == limit {
            return (page, Some(slot as usize));
        }
        page.push(HolderCopy {
            id: Arc::clone(&holder.id),
            kind: holder.kind,
            claims: holder.claims.clone(),
            groups: resource.allocation.demands_of(slot, &holder.claims),
            leases: holder.leases.clone(),
            mode: holder.mode(),
            due: resource.due_now(slot, now, &mut terms),
        });
    }
    (page, None)
}

fn group_reports(resource: &Resource) -> Vec<GroupReport> {
    resource.allocation.group_reports(MAX_REPORTED_GROUPS, |_| Sum::ZERO)
}

impl Forecast {
    /// Begins a forecast. `None` below a parent, which determines capacity and settings.
    pub fn begin(of: &Resource, now: Millis, settings: Settings) -> Option<Forecast> {
        if of.has_parent() {
            return None;
        }
        let inherited = of.book.inherited_slot().map(|slot| Inherited {
            total: of.book.unclaimed(),
            wants: of.book.ledger().holder(slot).claims.clone(),
            newest: None,
            until: of.book.inherited_until().unwrap_or(now),
            ..Inherited::default()
        });
        let mut resource = Resource::new(ResourceOptions {
            settings: Arc::clone(&of.settings),
            source: Source::Own,
            epoch: of.book.epoch(),
            since: now,
            learning_until: now,
            inherited,
            max_holders: usize::MAX,
            seed: of.seed,
        });
        resource.capacity_inputs = of.capacity_inputs.clone();
        resource.group_overrides = of.group_overrides.clone();
        resource.configure(settings);
        let learning = of.is_learning(now).then_some(of.book.learning_until());
        Some(Forecast {
            resource,
            at: now,
            learning,
            capacity_before: of.settings.capacity,
            due_before: Vec::new(),
            groups_before: group_reports(of),
            ungrouped_nodes: 0,
        })
    }

    /// Adds a holder. If it is known already, it has left and come back while the pages were taken, and counts once.
    pub fn add(&mut self, copy: HolderCopy) {
        let HolderCopy { id, kind, claims, groups, leases, mode, due } = copy;
        let resource = &mut self.resource;
        if resource.book.ledger().find(kind, &id).is_some() {
            return;
        }
        let has_groups = resource.allocation.has_groups();
        self.ungrouped_nodes += usize::from(kind == HolderKind::Node && has_groups && groups.is_empty());
        let (mut claims, parts) = if has_groups && !groups.is_empty() {
            resource.counted_in_groups(groups)
        } else {
            (resource.counted(kind, mode == HolderMode::UnderstandsTerms, claims), ClaimParts::default())
        };
        resource.settings.put_rule(kind, &id, &mut claims);
        if let Some(maximum) = resource.settings.max_priority {
            // A child node gets the rules, and caps the claims of its own clients.
            claims.iter_mut().for_each(|claim| claim.priority = claim.priority.min(maximum));
        }
        let slot = resource.book.add_holder(kind, id, Principal::NONE);
        resource.book.set_mode(slot, mode);
        if kind == HolderKind::Node {
            resource.allocation.change_node(slot, &[], &[], parts);
        }
        resource.join_group(slot);
        resource.allocation.insert(slot, &claims);
        resource.book.set_claims(slot, claims);
        resource.book.put_leases(slot, leases, self.at);
        self.due_before.push((slot, due));
    }

    /// Finishes the forecast. The report names up to `maximum` holders whose due changes.
    pub fn finish(mut self, maximum: usize) -> ForecastReport {
        self.resource.deal_units(self.at);
        let (resource, now) = (&self.resource, self.at);
        let sums = resource.sums();
        let capacity = resource.settings.capacity;
        let is_bounded = resource.is_bounded();
        let is_foreseen = resource.settings.kind != AlgorithmKind::PriorityPool;
        let mut forecast = ForecastReport {
            capacity: (self.capacity_before, capacity),
            holders: self.due_before.len(),
            subclients: sums.subclients,
            wants: sums.wants,
            held: sums.held,
            due: (self.due_before.iter().map(|(_, due)| *due).collect(), is_foreseen.then_some(Sum::ZERO)),
            gains: ChangeTotals::default(),
            losses: ChangeTotals::default(),
            over_capacity: if is_bounded { (sums.held - capacity.into()).max(Sum::ZERO) } else { Sum::ZERO },
            over_due: Sum::ZERO,
            unclaimed: Sum::ZERO,
            until: Millis(0),
            learning: self.learning.map_or(Millis(0), |until| until.since(now)),
            changes: Vec::new(),
            groups: self.group_changes(),
            ungrouped_nodes: self.ungrouped_nodes,
        };
        if is_foreseen {
            self.divide(&mut forecast, is_bounded, maximum);
        }
        forecast
    }

    fn group_changes(&self) -> Vec<GroupChange> {
        let mut changes: BTreeMap<Arc<str>, GroupChange> = BTreeMap::new();
        for group in &self.groups_before {
            let (path, before) = (Arc::clone(&group.path), Some(group.share));
            let change = GroupChange { path: Arc::clone(&path), wants: group.wants, before, after: None };
            changes.insert(path, change);
        }
        for group in group_reports(&self.resource) {
            let (path, wants, after) = (Arc::clone(&group.path), group.wants, Some(group.share));
            let change = GroupChange { path, wants, before: None, after };
            changes.entry(group.path).and_modify(|known| known.after = after).or_insert(change);
        }
        changes.into_values().collect()
    }

    fn divide(&self, forecast: &mut ForecastReport, is_bounded: bool, maximum: usize) {
        let (resource, now, mut terms) = (&self.resource, self.at, Vec::new());
        let (mut all, mut until) = (Sum::ZERO, None);
        let mut changed = Vec::new();
        for (slot, before) in &self.due_before {
            let after = resource.due_now(*slot, now, &mut terms);
            all += after;
            if differs_visibly(after, *before) {
                let moved = if after > *before { &mut forecast.gains } else { &mut forecast.losses };
                moved.holders += 1;
                moved.amount += after.max(*before).saturating_sub(after.min(*before));
                changed.push((*slot, *before, after));
            }
            let leases = &resource.book.ledger().holder(*slot).leases;
            let beyond = leases.held(now).saturating_sub(after);
            if is_bounded && beyond > Amount::ZERO {
                forecast.over_due += beyond;
                until = until.max(Some(leases.last_above(after, now)));
            }
        }
        if is_bounded && resource.book.unclaimed() > Amount::ZERO {
            forecast.unclaimed = resource.book.unclaimed().into();
            until = until.max(resource.book.inherited_until());
        }
        // The ledger notices an end with this delay.
        forecast.until = until.map_or(Millis(0), |until| until.plus(Millis(BUCKET_MS)).since(now));
        forecast.due.1 = Some(all);
        let by = |(_, before, after): &(u32, Amount, Amount)| (after.get() - before.get()).abs();
        changed.sort_by(|one, other| by(other).total_cmp(&by(one)));
        changed.truncate(maximum);
        forecast.changes = changed.into_iter().map(|changed| self.change(changed)).collect();
    }

    fn change(&self, (slot, before, after): (u32, Amount, Amount)) -> DueChange {
        let holder = self.resource.book.ledger().holder(slot);
        DueChange {
            id: Arc::clone(&holder.id),
            kind: holder.kind,
            subclients: holder.subclients(),
            wants: holder.wants().floor(),
            held: holder.leases.held(self.at),
            before,
            after,
        }
    }
}

impl ForecastReport {
    /// Sentences about what delays the new dues, and about what is not forecast.
    pub fn sentences(&self) -> Vec<String> {
        let said = |sum: Sum| (sum > Sum::ZERO).then(|| readable(sum.get()));
        let end = self.until.0.div_ceil(1000);
        let mut all = Vec::new();
        if self.due.1.is_none() {
            all.push("a pool decides as requests arrive, so the due of each client is not forecast".to_owned());
        }
        all.extend(said(self.over_capacity).map(|over| {
            format!("clients hold {over} more than the new capacity: no client gets more until that excess has ended")
        }));
        all.extend(said(self.over_due).map(|beyond| {
            format!(
                "clients hold {beyond} more than their new dues: other clients get that when these clients confirm \
                 smaller leases, in {end} s at the latest"
            )
        }));
        all.extend(said(self.unclaimed).map(|unnamed| {
            format!(
                "earlier masters leased {unnamed} to holders that have not claimed it yet: what they do not claim goes \
                 to other clients, in {end} s at the latest"
            )
        }));
        if self.ungrouped_nodes > 0 {
            all.push(format!(
                "{} child nodes do not report groups yet: their clients count in the group {OTHER_GROUP} until they do",
                self.ungrouped_nodes
            ));
        }
        if self.learning.0 > 0 {
            let left = self.learning.0.div_ceil(1000);
            all.push(format!("the master is in learning mode for another {left} s, and then divides the capacity"));
        }
        all
    }
}
