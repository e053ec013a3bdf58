//! Reports of a resource, for status pages, tests and the simulator.

pub mod explain;
pub mod forecast;

use std::sync::Arc;

use crate::{
    allocation::{KnownTerms, groups::GroupReport},
    lease::ledger::{HolderMode, Sums},
    policy::settings::Settings,
    resource::{Overridden, OverriddenGroup, Resource, budget::report::BudgetReport, supply::SupplyReport},
    types::{Amount, HolderKind, Millis, Sum},
};

/// The state of a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceReport {
    pub settings: Arc<Settings>,
    pub sums: Sums,
    pub holders: usize,
    /// The remaining time of learning mode; zero after its end.
    pub learning: Millis,
    /// The supply from the parent; `None` at a root.
    pub supply: Option<SupplyReport>,
    pub overridden: Option<Overridden>,
    pub budget: Option<BudgetReport>,
    pub overridden_groups: Vec<OverriddenGroup>,
    /// The number of groups of clients; zero if clients are not grouped.
    pub group_count: usize,
    /// Up to [`MAX_REPORTED_GROUPS`] of them, in the order of their paths; if there are more, those with the largest
    /// wants.
    pub groups: Vec<GroupReport>,
}

/// The maximum number of groups in a report.
pub const MAX_REPORTED_GROUPS: usize = 100;

impl ResourceReport {
    /// Whether its holders share the capacity: at a root if the algorithm divides, below a parent always.
    pub fn is_divided(&self) -> bool {
        self.settings.shares() || self.supply.is_some()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct HolderReport {
    pub id: Arc<str>,
    pub kind: HolderKind,
    /// Whether it is a client that limits others with its lease.
    pub is_gateway: bool,
    /// The effective priority of its first claim.
    pub priority: i16,
    /// Clients it stands for.
    pub subclients: u64,
    pub wants: Amount,
    pub due: Amount,
    pub granted: Amount,
    /// Capacity that it may be using.
    pub held: Amount,
    /// The end of its newest lease.
    pub end: Millis,
}

/// Reports the state of a resource.
pub fn resource_report(resource: &Resource, now: Millis) -> ResourceReport {
    let learning = if resource.is_learning(now) { resource.book.learning_until().since(now) } else { Millis(0) };
    let supply = resource.supply_report(now);
    ResourceReport {
        settings: Arc::clone(&resource.settings),
        sums: resource.sums(),
        holders: resource.holders(),
        learning,
        supply,
        overridden: resource.overridden(),
        budget: resource.budget_report(now),
        overridden_groups: resource.overridden_groups(),
        group_count: resource.allocation.group_count(),
        groups: resource
            .allocation
            .group_reports(MAX_REPORTED_GROUPS, |label| resource.book.ledger().held_by_label(label)),
    }
}

/// Up to `limit` holders from slot `from` on, and the slot to continue from, roughly in the order of arrival.
pub fn holder_reports(
    resource: &Resource,
    now: Millis,
    from: usize,
    limit: usize,
) -> (Vec<HolderReport>, Option<usize>) {
    let mut terms = Vec::new();
    let mut page = Vec::new();
    for (slot, _) in
        resource.book.ledger().iter_from(from).filter(|(slot, _)| !resource.book.ledger().is_inherited(*slot))
    {
        if page.len() == limit {
            return (page, Some(slot as usize));
        }
        page.push(holder_report(resource, slot, now, &mut terms));
    }
    (page, None)
}

/// What a holder may be using; `None` if it is unknown.
pub fn held_by(resource: &Resource, now: Millis, kind: HolderKind, id: &str) -> Option<Amount> {
    let ledger = resource.book.ledger();
    ledger.find(kind, id).map(|slot| ledger.holder(slot).leases.held(now))
}

fn holder_report(resource: &Resource, slot: u32, now: Millis, terms: &mut KnownTerms) -> HolderReport {
    let holder = resource.book.ledger().holder(slot);
    HolderReport {
        id: Arc::clone(&holder.id),
        kind: holder.kind,
        is_gateway: holder.mode() == HolderMode::Gateway,
        priority: holder.claims.first().map_or(0, |claim| claim.priority),
        subclients: holder.subclients(),
        wants: match &holder.claims[..] {
            [one] => one.wants,
            several => several.iter().map(|claim| claim.wants).collect::<Sum>().floor(),
        },
        due: resource.due(slot, terms),
        granted: holder.leases.current(now),
        held: holder.leases.held(now),
        end: match holder.asked.filter(|_| resource.settings.is_budget()) {
            // The lease; what it gave counts until the period ends.
            Some(asked) => asked.at.plus(resource.settings.lease),
            None => holder.leases.newest_end(),
        },
    }
}
