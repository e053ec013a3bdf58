//! Priority clients: placement of assignments.
//!
//! A client whose assignment does not fit waits, and a client that wants less may overtake it: capacity that one client
//! can use is not reserved for another that cannot. A connected client loses capacity only if the total falls below the
//! capacity of all of them. Then the manager may choose within the reduction window; after that, the least important
//! clients lose capacity.

use std::collections::BTreeSet;

use super::{
    Pool, Underrun,
    accounts::BalanceKey,
    events::{Cause, PoolEventKind},
    member::{Member, Rank, sorted::BusyIdleSet},
};
use crate::types::{Amount, HolderKind, Millis, Sum};

/// Maximum number of waiting clients to try.
const MAX_TRIED: usize = 16;

#[derive(Debug, Default)]
pub(super) struct PriorityClients {
    /// Members that want more than their target, and the difference.
    wanting: BTreeSet<Rank>,
    wanting_sum: Sum,
    /// Members with a target and without capacity.
    pending: BTreeSet<Rank>,
    connected: BusyIdleSet<Rank>,
    pending_sum: Sum,
    connected_sum: Sum,
    granted: Sum,
    /// Capacity that members may have beyond their leases. They precede free clients.
    owed: Sum,
    /// Members with proportional assignments, by the total that these were computed from.
    shares: BTreeSet<(BalanceKey, u32)>,
}

impl PriorityClients {
    pub(super) fn insert(&mut self, member: &Member, slot: u32) {
        let rank = member.rank(slot);
        if member.target < member.demand.wanted {
            self.wanting.insert(rank);
            self.wanting_sum += member.demand.wanted.saturating_sub(member.target);
        }
        if member.target > Amount::ZERO {
            if member.is_connected() {
                self.connected.insert(rank, member.used > Amount::ZERO);
                self.connected_sum += member.target;
            } else {
                self.pending.insert(rank);
                self.pending_sum += member.target;
            }
        }
        if member.is_priority() {
            self.granted += member.granted;
        }
        self.owed += member.owed();
        if let Some(total) = member.demand.computed_from {
            self.shares.insert((BalanceKey(total.get()), slot));
        }
    }

    pub(super) fn remove(&mut self, member: &Member, slot: u32) {
        let rank = member.rank(slot);
        if self.wanting.remove(&rank) {
            self.wanting_sum -= member.demand.wanted.saturating_sub(member.target);
        }
        if member.target > Amount::ZERO {
            if member.is_connected() {
                self.connected.remove(rank);
                self.connected_sum -= member.target;
            } else {
                self.pending.remove(&rank);
                self.pending_sum -= member.target;
            }
        }
        if member.is_priority() {
            self.granted -= member.granted;
        }
        self.owed -= member.owed();
        if let Some(total) = member.demand.computed_from {
            self.shares.remove(&(BalanceKey(total.get()), slot));
        }
    }

    /// The sum of targets.
    pub(super) fn placed(&self) -> Sum {
        let mut placed = self.connected_sum;
        placed += self.pending_sum;
        placed
    }

    /// The sum of targets of connected members.
    pub(super) fn connected(&self) -> Sum {
        self.connected_sum
    }

    /// Capacity of connected members.
    pub(super) fn granted(&self) -> Sum {
        self.granted
    }

    /// Capacity that members may have and do not have yet.
    pub(super) fn owed(&self) -> Sum {
        self.owed
    }

    pub(super) fn waiting(&self) -> usize {
        self.wanting.len()
    }

    /// Wants beyond targets.
    pub(super) fn wanted(&self) -> Sum {
        self.wanting_sum
    }

    pub(super) fn bytes(&self) -> usize {
        (self.wanting.len() + self.pending.len() + self.connected.len()) * size_of::<Rank>()
    }
}

impl Pool {
    fn room(&self) -> Amount {
        (Sum::from(self.total) - self.priority.placed()).floor()
    }

    /// Updates a member's target after a change of its wants or of free capacity. At first the target is all or
    /// nothing, later as much as fits. Any part is useful to a child node, because it has many clients. The caller
    /// has taken the member out.
    pub(super) fn update_target(&self, member: &mut Member) {
        let (wanted, target) = (member.demand.wanted, member.target);
        if wanted <= target || self.learning {
            member.target = target.min(wanted);
            return;
        }
        let maximum = wanted.min(self.room());
        let takes_part = target > Amount::ZERO || member.kind == HolderKind::Node;
        if maximum >= wanted || takes_part {
            member.target = target.max(maximum);
        }
    }

    /// Lowers proportional assignments that were computed from a larger total.
    pub(super) fn update_shares(&mut self, budget: &mut usize) {
        while *budget > 0
            && let Some((BalanceKey(total), slot)) = self.priority.shares.last().copied()
            && total > self.total.get()
        {
            *budget -= 1;
            self.change(slot, |pool, member| pool.update_demand(member));
        }
    }

    /// Whether some proportional assignments exceed the current total.
    pub(super) fn shares_fall(&self) -> bool {
        self.priority.shares.last().is_some_and(|(BalanceKey(total), _)| *total > self.total.get())
    }

    /// Places the first members that fit. Revokes placements of members without capacity if it is needed elsewhere: the
    /// capacity is gone, or a member before them would fit.
    pub(super) fn place_priority(&mut self, budget: &mut usize) {
        while *budget > 0
            && self.priority.placed() > Sum::from(self.total)
            && let Some((.., slot)) = self.priority.pending.last().copied()
        {
            *budget -= 1;
            self.take_back(slot, Cause::Underrun);
        }
        let (first, last) = (self.priority.wanting.first(), self.priority.pending.last());
        let is_in_order = last.is_none_or(|last| first.is_none_or(|first| first > last));
        if self.room() == Amount::ZERO && is_in_order {
            return;
        }
        let mut ahead = [0; MAX_TRIED];
        let mut found = 0;
        for ((.., slot), place) in self.priority.wanting.iter().zip(&mut ahead) {
            *place = *slot;
            found += 1;
        }
        for slot in &ahead[..found] {
            if *budget == 0 {
                return;
            }
            let member = self.expect_member(*slot);
            let takes_all = member.target == Amount::ZERO && member.kind == HolderKind::Client;
            let fits = match takes_all {
                true => member.demand.wanted <= self.room() || self.make_way(*slot, budget),
                false => self.room() > Amount::ZERO,
            };
            if fits {
                *budget = budget.saturating_sub(1);
                self.change(*slot, |pool, member| pool.update_target(member));
            }
        }
    }

    /// Revokes placements of members after this one that have no capacity yet, the last first, until this one fits.
    /// Revokes none if it cannot fit. Returns whether it fits.
    fn make_way(&mut self, slot: u32, budget: &mut usize) -> bool {
        let member = self.expect_member(slot);
        let (rank, wanted) = (member.rank(slot), member.demand.wanted);
        let mut room = Sum::from(self.total) - self.priority.placed();
        let behind = self.priority.pending.iter().rev().take_while(|other| **other > rank);
        let enough = behind.take(*budget).position(|(.., other)| {
            room += self.expect_member(*other).target;
            room.floor() >= wanted
        });
        let Some(others) = enough else { return false };
        for _ in 0..=others {
            let (.., other) = *self.priority.pending.last().expect("they have just been counted");
            self.take_back(other, Cause::Crowded);
        }
        *budget -= others + 1;
        true
    }

    /// Revokes the placement of a member without capacity.
    fn take_back(&mut self, slot: u32, cause: Cause) {
        self.change(slot, |_, member| {
            member.target = Amount::ZERO;
            member.cause = cause;
        });
    }

    /// Detects underruns, and ends them when their deadline has passed.
    pub(super) fn watch_underrun(&mut self, now: Millis, budget: &mut usize) {
        if self.priority.connected() <= Sum::from(self.total) {
            self.end_underrun();
            return;
        }
        if self.shares_fall() {
            return;
        }
        // A later fall does not extend the deadline. A raise ends the underrun.
        let deadline = self.underrun.map_or(now.plus(self.window()), |underrun| underrun.deadline);
        if self.underrun.is_none_or(|underrun| self.total < underrun.reported) {
            self.underrun = Some(Underrun { deadline, reported: self.total });
            self.emit_pool_event(PoolEventKind::Underrun, Some(deadline));
        }
        if now < deadline {
            return;
        }
        while *budget > 0 && self.priority.connected() > Sum::from(self.total) {
            *budget -= 1;
            self.cut_priority();
        }
        if self.priority.connected() <= Sum::from(self.total) {
            self.end_underrun();
        }
    }

    fn end_underrun(&mut self) {
        if self.underrun.take().is_some() {
            self.surge_total = None;
            self.awaits_relief = true;
        }
        self.emit_relief();
    }

    /// Emits the end of an underrun, once members have given up their excess capacity and the events about that are
    /// queued.
    pub(super) fn emit_relief(&mut self) {
        let is_over = self.underrun.is_none() && self.priority.granted() <= Sum::from(self.total);
        if self.awaits_relief && is_over {
            self.awaits_relief = false;
            self.emit_pool_event(PoolEventKind::Relieved, None);
        }
    }

    /// The capacity that connected members will keep after the least important ones have given up the excess usage, in
    /// the order of [`cut_priority`](Self::cut_priority). Only `maximum` members are visited; for the rest, a unit of
    /// usage counts as a unit of capacity, which is a lower bound.
    pub(super) fn left_by_overload(&self, excess: f64, maximum: usize) -> f64 {
        let (mut excess, mut left) = (excess, self.priority.connected().get());
        for (.., slot) in self.priority.connected.busy().rev().take(maximum) {
            let member = self.expect_member(slot);
            let (target, granted) = (member.target.get(), member.granted.get());
            let kept = granted.min(target);
            let used = member.in_use().get() * kept / granted;
            if used <= excess {
                (excess, left) = (excess - used, left - target);
                continue;
            }
            let rest = kept * (1.0 - excess / used);
            left -= if rest < self.least_of(member).get() { target } else { target - rest };
            return left;
        }
        left - excess
    }

    /// The smallest useful capacity of this member. Any part is useful to a child node.
    fn least_of(&self, member: &Member) -> Amount {
        if member.kind == HolderKind::Node { Amount::ZERO } else { self.settings.min_capacity }
    }

    /// Takes the excess from the least important member, or all of its capacity if the rest would be useless. In an
    /// overload only members that use capacity are considered.
    fn cut_priority(&mut self) {
        let connected = &self.priority.connected;
        let busy = connected.last_busy().filter(|_| self.used() > Sum::from(self.base));
        let Some((.., slot)) = busy.or(connected.last()) else { return };
        let excess = (self.priority.connected() - Sum::from(self.total)).ceil();
        self.change(slot, |pool, member| {
            let rest = member.target.saturating_sub(excess);
            member.target = if rest < pool.least_of(member) { Amount::ZERO } else { rest };
            member.cause = Cause::Underrun;
        });
    }
}
