//! The total: how it follows base and usage, and which clients an overload disconnects.

mod dynamics;

use self::dynamics::Gauge;
use super::{
    Pool,
    events::{PoolEvent, PoolEventKind},
    member::Member,
};
use crate::{
    policy::settings::{CostWeights, DropMode},
    pool::{Cause, PoolClient},
    types::{Amount, Millis, Sum},
};

/// An event is sent when the total has changed by this fraction.
const EVENT_THRESHOLD: f64 = 0.001;
/// Excess usage below this fraction of the base is a rounding error, not an overload.
const ROUNDING: f64 = 1e-9;
/// With [`CostWeights::Auto`]: the weight of the cost that does not dominate.
const SECONDARY_WEIGHT: f64 = 0.1;

impl Pool {
    /// The maximum of the total.
    pub(crate) fn max_total(&self) -> Amount {
        // Lent capacity is not overbooked again: an overbooked parent has promised it to others, too.
        let maximum = self.settings.max_capacity.filter(|_| !self.is_lent).unwrap_or(self.base);
        maximum.max(self.base)
    }

    fn gauge(&self) -> Gauge {
        Gauge {
            base: self.base.get(),
            floor: self.base.get(),
            ceiling: self.max_total().get(),
            used: self.used().get(),
            possible_use: self.possible_use.get(),
            connected: self.connected.get(),
            waiting: self.priority.wanted().get() + self.wanted_places(),
            minimum: self.settings.min_capacity.get(),
        }
    }

    pub(super) fn set_total(&mut self, total: f64) {
        let total = Amount::clamped(total.min(self.max_total().get()).max(self.base.get()));
        self.moves += u64::from(total != self.total);
        self.total = total;
    }

    /// Starts with the held amount, so that a change of master kicks no client out.
    pub(crate) fn begin_with(&mut self, held: Sum) {
        self.connected = held;
        self.set_total(self.notes.begins_with(held.get()));
        self.reported_total = self.total;
    }

    /// Sets the base. If the base falls, the total falls in proportion. A higher base does not raise the total at once;
    /// it rises slowly as usage permits.
    pub(crate) fn set_base(&mut self, base: Amount) {
        let before = std::mem::replace(&mut self.base, base);
        let ratio = if before > Amount::ZERO { (base.get() / before.get()).min(1.0) } else { 1.0 };
        self.set_total(self.total.get() * ratio);
    }

    /// Updates the total for a period without requests. Usage was not observed in that time, so a long period counts as
    /// a short one.
    pub(super) fn move_total(&mut self, elapsed: Millis) {
        if self.unseen > 0 {
            // Usage is unknown.
            return;
        }
        let elapsed = elapsed.min(self.lease.max(self.settings.eval_interval.unwrap_or(self.refresh)));
        self.set_total(dynamics::after(self.total.get(), elapsed.0 as f64 / 1000.0, &self.gauge(), &self.settings));
    }

    /// Handles an overload: closes places of child nodes and disconnects free clients, until usage is below the base.
    /// If no free client uses any capacity, the total falls below the capacity of priority clients, which starts an
    /// underrun.
    pub(super) fn cut_overload(&mut self, budget: &mut usize) {
        // An overload lasts until its victims have asked, regardless of other reports.
        self.is_overloaded &= self.too_much(self.uses) > 0.0;
        // Without overbooking, usage exceeds the base only after the base has fallen. Then all excess must go.
        if self.used_too_much() == 0.0 || self.total <= self.base && self.surge_total.is_none() {
            self.lower_for_priority(0);
            return;
        }
        self.overloads += u64::from(!self.is_overloaded);
        self.is_overloaded = true;
        if self.settings.drop_mode == DropMode::Rate {
            return;
        }
        self.close_places_of_nodes(self.part_of_nodes());
        let mut cut = Sum::ZERO;
        while *budget > 0
            && self.used() > Sum::from(self.base)
            && let Some(capacity) = self.cut_free_client()
        {
            *budget -= 1;
            cut += capacity;
        }
        if cut > Sum::ZERO {
            self.set_total(dynamics::dropped(self.total.get(), cut.get(), &self.gauge(), &self.settings));
        }
        // Free clients give way first, even if priority clients cause the excess.
        self.close_places_of_nodes(1.0);
        self.lower_for_priority(*budget);
    }

    /// Lowers the total by the excess usage of priority clients, even during a reduction window, because a report
    /// within the window must not wait for the next one. While the clients that would give way can still change, the
    /// excess is recomputed from them. In any case, the total falls by the largest excess of the window.
    fn lower_for_priority(&mut self, budget: usize) {
        let excess = self.used_too_much();
        if excess == 0.0 {
            let chosen = self.surge_total.take().filter(|_| self.underrun.is_some());
            if let Some(total) = chosen {
                // The manager has chosen other clients.
                self.set_total(total);
            }
        } else if budget > 0 && !self.shares_fall() {
            let without = self.priority.connected().get() - excess;
            let total = self.surge_total.unwrap_or(self.total.get()).min(without);
            self.surge_total = Some(total);
            self.set_total(total.min(self.left_by_overload(excess, budget)));
        }
    }

    /// Excess usage by clients that may keep their capacity.
    fn used_too_much(&self) -> f64 {
        self.too_much(self.used())
    }

    /// Usage beyond the base; zero within rounding, because fractions of leases do not add up exactly.
    fn too_much(&self, used: Sum) -> f64 {
        let excess = (used - Sum::from(self.base)).get();
        if excess > self.base.get() * ROUNDING { excess } else { 0.0 }
    }

    /// Whether usage is low and nothing limits the total.
    pub(super) fn is_calm(&self) -> bool {
        self.total >= self.max_total() && self.used().get() < self.base.get() * self.settings.calm_ratio
    }

    /// The current weights of time cost and request cost.
    pub(super) fn weights(&self) -> (f64, f64) {
        if self.settings.cost_weights == CostWeights::Static {
            return (1.0, 1.0);
        }
        let is_long = |since: Millis| self.clock.at.since(since) >= self.settings.calm;
        if self.total < self.max_total() {
            (SECONDARY_WEIGHT, 1.0)
        } else if self.calm_since.is_some_and(is_long) {
            (1.0, SECONDARY_WEIGHT)
        } else {
            (1.0, 1.0)
        }
    }

    /// The weighted cost of a member since it connected.
    pub(super) fn cost(&self, member: &Member) -> f64 {
        member.costs.time * self.settings.time_factor + member.costs.request * self.settings.request_factor
    }

    /// Expires usage reports: their members may be using all of their capacity.
    pub(super) fn forget_reports(&mut self, now: Millis, budget: usize) {
        for _ in 0..budget {
            let Some((_, slot)) = self.reports.first().copied().filter(|(until, _)| *until <= now) else { return };
            self.change(slot, |pool, member| {
                pool.drop_report(member, slot);
                member.is_silent = true;
            });
        }
    }

    pub(super) fn drop_report(&mut self, member: &mut Member, slot: u32) {
        if let Some(until) = member.reported_until.take() {
            self.reports.remove(&(until, slot));
        }
    }

    pub(super) fn emit_total(&mut self) {
        let (told, total) = (self.reported_total.get(), self.total.get());
        if (total - told).abs() > told.max(total) * EVENT_THRESHOLD {
            self.reported_total = self.total;
            self.emit_pool_event(PoolEventKind::Total, None);
        }
    }

    /// Queues an event about the pool.
    pub(super) fn emit_pool_event(&mut self, kind: PoolEventKind, deadline: Option<Millis>) {
        let event = PoolEvent { deadline, ..self.event(kind) };
        self.events.push(event, self.next_deadline());
    }

    /// Queues an event about a member.
    pub(super) fn emit(&mut self, slot: u32, kind: PoolEventKind, cause: Cause) {
        let member = self.expect_member(slot);
        let client = PoolClient {
            kind: member.kind,
            id: member.id.clone(),
            capacity: member.granted,
            is_priority: member.is_priority(),
            time_cost: member.costs.time,
            request_cost: member.costs.request,
        };
        self.emit_for(client, kind, cause);
    }

    pub(super) fn emit_for(&mut self, client: PoolClient, kind: PoolEventKind, cause: Cause) {
        let event = PoolEvent { client: Some(client), cause: Some(cause), ..self.event(kind) };
        self.events.push(event, self.next_deadline());
    }

    fn event(&self, kind: PoolEventKind) -> PoolEvent {
        PoolEvent {
            seq: 0, // the queue counts
            at: self.clock.at,
            kind,
            total: self.total,
            connected: self.connected,
            priority_connected: self.priority.granted(),
            client: None,
            cause: None,
            deadline: None,
        }
    }

    pub(crate) fn take_events(&mut self) -> Vec<PoolEvent> {
        self.events.take()
    }
}
