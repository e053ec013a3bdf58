//! Reports about a pool.

use std::sync::Arc;

use super::{
    Assigned, Pool,
    events::Cause,
    member::{Free, Member},
};
use crate::types::{Amount, HolderKind, Millis, Sum};

/// The state of a pool. Quantities of the LES proposal have its names in parentheses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolReport {
    /// The minimum capacity (minCapacity).
    pub min_capacity: Amount,
    /// Capacity of a free client (freeCapacity).
    pub free_capacity: Amount,
    /// Maximum capacity of connected clients (totalCapacity).
    pub total: Amount,
    /// Load that can be served at the same time (totalRecharge).
    pub base: Amount,
    /// Maximum of the total (maxCapacity).
    pub max: Amount,
    /// Capacity held by connected clients, including those about to be disconnected (totalConnCap).
    pub connected: Sum,
    /// The part of `connected` held by priority clients (totalPriConnCap).
    pub priority_connected: Sum,
    /// The sum of all assignments, connected or not (totalPriCap).
    pub priority_assigned: Sum,
    /// Usage (sumRecharge).
    pub used: Sum,
    pub overloads: u64,
    pub is_overloaded: bool,
    /// During an underrun: when the pool lowers priority clients itself.
    pub deadline: Option<Millis>,
    /// Whether the pool is in learning mode, in which no client is kicked out.
    pub is_learning: bool,
    /// Number of free clients that wait for a place.
    pub free_waiting: usize,
    /// Number of priority clients that want more than they may have.
    pub priority_waiting: usize,
    /// Number of free clients that will lose their capacity with their next request.
    pub revoking: usize,
    /// Number of remembered balances of disconnected clients.
    pub remembered: usize,
    /// How much unused capacity clients may save up, as a duration.
    pub burst: Millis,
    pub newest_event: u64,
}

/// A client's standing in its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolStanding {
    Waiting,
    /// It has, or waits for, the capacity of a free client.
    Free,
    /// It has, or waits for, its assignment.
    Priority,
    /// It will lose its capacity with its next request.
    Revoking,
}

impl PoolStanding {
    pub fn name(self) -> &'static str {
        match self {
            PoolStanding::Waiting => "waiting",
            PoolStanding::Free => "free",
            PoolStanding::Priority => "priority",
            PoolStanding::Revoking => "revoking",
        }
    }
}

/// The state of a client, as sent to the client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolState {
    pub standing: PoolStanding,
    /// The assignment of a priority client.
    pub assigned: Amount,
    pub min_capacity: Amount,
    /// Why the client has no capacity, if it has none.
    pub reason: Option<Cause>,
    /// How much unused capacity the client may save up, as a duration.
    pub burst: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolFilter {
    /// All known clients.
    Known,
    /// Clients with capacity.
    Connected,
    /// Clients with an assignment, connected or not.
    Assigned,
    /// Clients with an assignment and capacity.
    PriorityConnected,
}

/// The position of the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolCursor {
    /// Starts with this record.
    Slot(usize),
    /// Starts after this holder.
    After(HolderKind, Arc<str>),
}

/// A member, or a holder that only has an assignment.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolMember {
    pub kind: HolderKind,
    pub id: Arc<str>,
    pub capacity: Amount,
    pub due: Amount,
    pub assigned: Option<Assigned>,
    pub standing: PoolStanding,
    /// The balance of a free client.
    pub balance: f64,
    /// Capacity times seconds since the client connected.
    pub time_cost: f64,
    /// Reported usage since the client connected.
    pub request_cost: f64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolPage {
    pub members: Vec<PoolMember>,
    /// The position of the next page; `None` at the end.
    pub next: Option<PoolCursor>,
}

impl Pool {
    pub(crate) fn report(&self, held: Sum) -> PoolReport {
        let (free_waiting, revoking) = self.free.counts();
        PoolReport {
            min_capacity: self.settings.min_capacity,
            free_capacity: self.settings.min_capacity,
            total: self.limit(),
            base: self.base,
            max: self.max_total(),
            connected: held,
            priority_connected: (self.priority.granted() - self.unclaimed.into()).max(Sum::ZERO),
            priority_assigned: self.assignments.sum(self.total),
            used: self.used(),
            overloads: self.overloads,
            is_overloaded: self.is_overloaded,
            deadline: self.next_deadline(),
            is_learning: self.learning,
            free_waiting,
            priority_waiting: self.priority.waiting(),
            revoking,
            remembered: self.accounts.remembered(),
            burst: self.settings.burst,
            newest_event: self.events.newest(),
        }
    }

    pub(crate) fn state(&self, slot: u32) -> Option<PoolState> {
        let member = self.member(slot)?;
        let assigned = self.assignments.get(member.kind, &member.id);
        let minimum = self.settings.min_capacity;
        Some(PoolState {
            standing: self.standing(slot, member),
            assigned: assigned.map_or(Amount::ZERO, |assigned| assigned.of(self.total, minimum)),
            min_capacity: minimum,
            reason: (!member.is_connected()).then_some(member.cause),
            burst: self.settings.burst,
        })
    }

    fn standing(&self, slot: u32, member: &Member) -> PoolStanding {
        match (member.is_connected(), self.due(slot) > Amount::ZERO) {
            (false, _) => PoolStanding::Waiting,
            (true, false) if !self.learning => PoolStanding::Revoking,
            _ if member.is_priority() => PoolStanding::Priority,
            _ => PoolStanding::Free,
        }
    }

    fn describe(&self, slot: u32, member: &Member) -> PoolMember {
        PoolMember {
            kind: member.kind,
            id: Arc::clone(&member.id),
            capacity: member.granted,
            due: self.due(slot),
            assigned: self.assignments.get(member.kind, &member.id),
            standing: self.standing(slot, member),
            balance: match member.free {
                Free::Waiting(key) | Free::Pending(key) => self.clock.of_away(key),
                Free::Served(tab) | Free::Revoking(tab) => self.clock.of_connected(tab.key),
                Free::No => 0.0,
            },
            time_cost: member.costs.time
                + member.granted.get() * self.clock.at.since(member.costs.until).0 as f64 / 1000.0,
            request_cost: member.costs.request,
        }
    }

    /// A member's report; `None` if it has no lease and waits for none.
    pub(crate) fn member_at(&self, slot: u32) -> Option<PoolMember> {
        Some(self.describe(slot, self.member(slot)?))
    }

    /// Up to `limit` members that pass the filter. `find` returns the slot of a holder.
    pub(crate) fn list(
        &self,
        filter: PoolFilter,
        from: Option<&PoolCursor>,
        limit: usize,
        find: impl Fn(HolderKind, &str) -> Option<u32>,
    ) -> PoolPage {
        match filter {
            PoolFilter::Known | PoolFilter::Connected => self.list_members(filter, from, limit),
            PoolFilter::Assigned | PoolFilter::PriorityConnected => self.list_assigned(filter, from, limit, find),
        }
    }

    fn list_members(&self, filter: PoolFilter, from: Option<&PoolCursor>, limit: usize) -> PoolPage {
        let from = match from {
            Some(PoolCursor::Slot(slot)) => *slot,
            _ => 0,
        };
        let mut page = PoolPage::default();
        for (slot, member) in self.members.iter().enumerate().skip(from) {
            let Some(member) = member.as_deref().filter(|member| !member.is_inherited()) else { continue };
            if filter == PoolFilter::Connected && !member.is_connected() {
                continue;
            }
            if page.members.len() == limit {
                page.next = Some(PoolCursor::Slot(slot));
                return page;
            }
            page.members.push(self.describe(slot as u32, member));
        }
        page
    }

    fn list_assigned(
        &self,
        filter: PoolFilter,
        from: Option<&PoolCursor>,
        limit: usize,
        find: impl Fn(HolderKind, &str) -> Option<u32>,
    ) -> PoolPage {
        let from = match from {
            Some(PoolCursor::After(kind, id)) => Some((*kind, Arc::clone(id))),
            _ => None,
        };
        let mut page = PoolPage::default();
        for (kind, id, assigned) in self.assignments.after(from.as_ref()) {
            let known = find(kind, id).and_then(|slot| Some((slot, self.member(slot)?)));
            if filter == PoolFilter::PriorityConnected && !known.is_some_and(|(_, member)| member.is_connected()) {
                continue;
            }
            if page.members.len() == limit {
                page.next = page.members.last().map(|last| PoolCursor::After(last.kind, Arc::clone(&last.id)));
                return page;
            }
            let absent = || PoolMember {
                kind,
                id: Arc::clone(id),
                capacity: Amount::ZERO,
                due: Amount::ZERO,
                assigned: Some(assigned),
                standing: PoolStanding::Waiting,
                balance: 0.0,
                time_cost: 0.0,
                request_cost: 0.0,
            };
            page.members.push(known.map_or_else(absent, |(slot, member)| self.describe(slot, member)));
        }
        page
    }
}
