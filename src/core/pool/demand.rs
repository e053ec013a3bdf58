//! Wants, usage and assignments of members.

use std::sync::Arc;

use super::{
    AssignError, Assigned, Pool,
    events::{Cause, PoolEventKind},
    member::{Demand, Free, Member},
};
use crate::{
    policy::settings::FreeKey,
    types::{Amount, Claims, HolderKind, Millis, Principal, Sum, Token},
};

/// Usage of a node's capacity by its holders.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UsageBelow {
    /// Capacity in use. Leases of holders that do not report usage count in full; unused capacity of the node does not
    /// count.
    pub used: Amount,
    /// Units used since the resource was created here, as reported. The uplink reports the increase to the parent.
    pub spent: f64,
}

impl UsageBelow {
    /// The fraction of the lease that is in use; 1 without a lease.
    pub fn part_of(&self, lease: f64) -> f64 {
        if lease > 0.0 { (self.used.get() / lease).min(1.0) } else { 1.0 }
    }
}

/// A usage report of a client since its last answered request, or of a child node for its holders.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// For a client: the fraction of the time in which its bucket was not full. For a child node: the fraction of its
    /// lease that is in use. From 0 to 1.
    pub recharging: f64,
    /// Usage, in units of the resource.
    pub request_cost: Amount,
    /// The period of the report; absent: since the last request.
    pub interval: Option<Millis>,
}

impl Usage {
    /// The fraction of its capacity that the client has used since its last request. Time without a report counts as
    /// full use.
    fn part_of(&self, since: Millis) -> f64 {
        let told = self.interval.unwrap_or(since).min(since).0 as f64;
        let untold = since.0 as f64 - told;
        if untold > 0.0 { (self.recharging * told + untold) / since.0 as f64 } else { self.recharging }
    }
}

/// The fields of a request that only a pool uses.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolFields {
    /// The account of a free client: its source address, if the caller knows it.
    pub key: Option<Arc<str>>,
    /// Usage since the last request. Without a report, all of the capacity counts as used.
    pub usage: Option<Usage>,
}

/// The parts of a request that a pool needs.
pub(crate) struct PoolRequest<'a> {
    pub(crate) kind: HolderKind,
    pub(crate) id: &'a Arc<str>,
    /// The principal that the record is charged to.
    pub(crate) principal: Principal,
    pub(crate) claims: &'a Claims,
    /// The token of the lease that the holder has shown.
    pub(crate) lease: Option<Token>,
    /// The capacity that the request claims.
    pub(crate) claimed: Amount,
    pub(crate) pool_fields: Option<&'a PoolFields>,
}

impl Pool {
    /// Applies a holder's request.
    pub(crate) fn absorb(&mut self, slot: u32, request: &PoolRequest<'_>) {
        let known = self.take_out(slot);
        let is_new = known.is_none();
        let mut member = known.unwrap_or_else(|| self.newcomer(request.kind, request.id));
        member.principal = request.principal;
        let had = if is_new { request.claimed } else { member.granted };
        if is_new {
            self.restore_cost(&mut member, request.claimed > Amount::ZERO);
        }
        let may_be_lost = is_new || std::mem::take(&mut member.inherited);
        member.accrue(self.clock.at);
        let updated = self.use_up(&mut member, slot, request);
        member.claims.clone_from(request.claims);
        self.update_demand(&mut member);
        let key = self.account_id(request);
        self.register(&mut member, &key);
        let downgraded = may_be_lost && !member.is_priority() && had > self.settings.min_capacity;
        let downgraded = downgraded && request.kind == HolderKind::Client;
        let passed = self.assignments.passes_mark(member.kind, &member.id, self.cost(&member));
        self.put_back(slot, member);
        self.moves += 1;
        if downgraded {
            self.emit(slot, PoolEventKind::Downgraded, Cause::Asked);
        }
        if updated {
            self.emit(slot, PoolEventKind::Update, Cause::Used);
        }
        if passed {
            self.emit(slot, PoolEventKind::Alarm, Cause::Used);
        }
    }

    /// Charges reported usage. Returns whether an event is due.
    fn use_up(&mut self, member: &mut Member, slot: u32, request: &PoolRequest<'_>) -> bool {
        let since = self.clock.at.since(std::mem::replace(&mut member.asked, self.clock.at));
        self.drop_report(member, slot);
        member.is_silent = false;
        member.fraction_of = None;
        let Some(usage) = request.pool_fields.and_then(|pool_fields| pool_fields.usage) else {
            member.fraction = 1.0;
            return false;
        };
        member.fraction = usage.part_of(since);
        if request.kind == HolderKind::Node {
            member.fraction_of = Some(request.claimed);
        }
        let until = self.report_until();
        member.reported_until = Some(until);
        self.reports.insert((until, slot));
        let cost = member.news_of(request.lease, usage.request_cost.get());
        self.spent += cost;
        if !member.is_connected() {
            return false;
        }
        member.costs.request += cost;
        let charge = cost * self.settings.request_factor * self.weights().1;
        if let (Free::Served(tab) | Free::Revoking(tab), Some(account)) = (&mut member.free, member.account) {
            self.accounts.charge(account, tab, charge, &self.clock);
        }
        if cost > 0.0 {
            self.note(member, slot, cost * self.settings.request_factor);
        }
        let (units, cost) = (self.settings.usage_update_units, self.cost(member));
        let tells = units > 0.0 && cost - member.costs.announced >= units;
        if tells {
            member.costs.announced = cost;
        }
        tells
    }

    /// Recomputes a member's demand from its assignment, and its target.
    pub(super) fn update_demand(&self, member: &mut Member) {
        if member.inherited {
            return; // It has not asked yet.
        }
        let minimum = self.settings.min_capacity;
        let assigned = self.assignments.get(member.kind, &member.id);
        let capacity = assigned.map(|assigned| assigned.of(self.total, minimum));
        let wants: Sum = member.claims.iter().map(|claim| claim.wants).collect();
        member.demand = match (member.kind, capacity, member.claims.first()) {
            _ if wants == Sum::ZERO => Demand::default(),
            (HolderKind::Node, capacity, _) => Demand::of_node(&member.claims, capacity, minimum),
            (HolderKind::Client, Some(capacity), Some(claim)) => Demand::of_assigned_client(claim, capacity, minimum),
            (HolderKind::Client, ..) => Demand::of_free_client(minimum),
        };
        if member.is_priority() && matches!(assigned, Some(Assigned::Share(_))) {
            member.demand.computed_from = Some(self.total);
        }
        self.update_target(member);
    }

    /// Makes a member a free client or not, depending on its current wants. `key`: its account, if known.
    fn register(&mut self, member: &mut Member, key: &Arc<str>) {
        let is_free = member.kind == HolderKind::Client && member.demand.places > 0;
        if !is_free {
            if member.demand == Demand::default() {
                member.cause = Cause::Unasked;
            }
            self.leave_free(member);
            return;
        }
        match member.account {
            Some(account) if self.accounts.is(account, key) => {
                // Other clients of the account may have connected or disconnected since.
                let key = self.away_key(account);
                match &mut member.free {
                    Free::Waiting(place) | Free::Pending(place) => *place = key,
                    _ => {}
                }
            }
            before => {
                let was = member.free;
                self.leave_free(member);
                self.join_free(member, key);
                if before.is_none() {
                    member.cause = Cause::Full;
                } else if let (Free::Revoking(_), Free::Served(tab)) = (was, member.free) {
                    // A change of address does not cost the place.
                    member.free = Free::Revoking(tab);
                } else if let (Free::Pending(_), Free::Waiting(key)) = (was, member.free) {
                    member.free = Free::Pending(key);
                }
            }
        }
    }

    fn account_id(&self, request: &PoolRequest<'_>) -> Arc<str> {
        let key = request.pool_fields.and_then(|pool_fields| pool_fields.key.as_ref());
        match (self.settings.free_key, key) {
            (FreeKey::PeerIp, Some(key)) => Arc::clone(key),
            (FreeKey::Host, _) => FreeKey::host(request.id).into(),
            (FreeKey::PeerIp, None) | (FreeKey::ClientId, _) => Arc::clone(request.id),
        }
    }

    /// Sets or removes an assignment, with immediate effect. If the new assignment is smaller, the holder is due less
    /// from now on.
    pub(crate) fn assign(
        &mut self,
        kind: HolderKind,
        id: &Arc<str>,
        slot: Option<u32>,
        assigned: Option<Assigned>,
    ) -> Result<Option<Assigned>, AssignError> {
        if let Some(assigned) = assigned {
            self.check(kind, id, slot, assigned)?;
        }
        Ok(self.put_assignment(kind, id, slot, assigned))
    }

    fn check(&self, kind: HolderKind, id: &str, slot: Option<u32>, assigned: Assigned) -> Result<(), AssignError> {
        let (total, minimum) = (self.total, self.settings.min_capacity);
        let capacity = match assigned {
            Assigned::Share(share) if !(share > 0.0 && share <= 1.0) => return Err(AssignError::BadShare { share }),
            Assigned::Share(share) => Amount::clamped(total.get() * share),
            Assigned::Capacity(capacity) => capacity,
        };
        if capacity < minimum {
            return Err(AssignError::BelowMinimum { capacity, least: minimum });
        }
        if self.assignments.is_full(kind, id) {
            return Err(AssignError::TooMany);
        }
        let Some(member) = slot.and_then(|slot| self.member(slot)).filter(|member| member.is_connected()) else {
            // Whether it fits into the total is checked at the holder's next request.
            return Ok(());
        };
        let mut connected = self.priority.connected() - Sum::from(member.target);
        connected += capacity;
        // A smaller assignment always fits, even during an underrun.
        if capacity > member.target && connected > Sum::from(total) {
            return Err(AssignError::OverTotal { capacity, connected: connected.get(), total });
        }
        Ok(())
    }

    /// Restores a stored assignment without checks.
    pub(crate) fn put_assignment(
        &mut self,
        kind: HolderKind,
        id: &Arc<str>,
        slot: Option<u32>,
        assigned: Option<Assigned>,
    ) -> Option<Assigned> {
        let before = self.assignments.set(kind, id, assigned);
        if let Some(slot) = slot.filter(|slot| self.member(*slot).is_some_and(|member| !member.inherited)) {
            self.change(slot, |pool, member| {
                pool.update_demand(member);
                if member.is_connected() {
                    // Members without capacity give way to connected members.
                    let room = (Sum::from(pool.total) - pool.priority.connected()).floor();
                    member.target = member.target.max(member.demand.wanted.min(room));
                }
                let key = match pool.settings.free_key {
                    FreeKey::Host => FreeKey::host(id).into(),
                    FreeKey::PeerIp | FreeKey::ClientId => Arc::clone(id),
                };
                if member.account.is_none() {
                    pool.register(member, &key);
                } else if member.demand.places == 0 {
                    pool.leave_free(member);
                }
                // Members without capacity, and victims, keep their causes.
                if member.is_connected() && !member.is_victim() {
                    member.cause = Cause::Assigned;
                }
            });
            if self.expect_member(slot).is_connected() {
                self.emit(slot, PoolEventKind::Update, Cause::Assigned);
            }
        }
        before
    }

    pub(crate) fn assigned(&self, kind: HolderKind, id: &str) -> Option<Assigned> {
        self.assignments.get(kind, id)
    }

    /// Requests an event when the cost of this holder reaches a mark; `None` cancels it.
    pub(crate) fn set_alarm(
        &mut self,
        kind: HolderKind,
        id: &Arc<str>,
        slot: Option<u32>,
        mark: Option<f64>,
    ) -> Result<(), AssignError> {
        self.assignments.set_mark(kind, id, mark)?;
        let cost = slot.and_then(|slot| Some(self.cost(self.member(slot)?))).unwrap_or_default();
        if let Some(slot) = slot.filter(|_| self.assignments.passes_mark(kind, id, cost)) {
            self.emit(slot, PoolEventKind::Alarm, Cause::Used);
        }
        Ok(())
    }
}
