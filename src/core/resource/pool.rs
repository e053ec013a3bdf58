//! PRIORITY_POOL and reports of load: the interface between a resource, its pool and the pool's manager. See
//! [`crate::pool`] for what a pool is.

use std::sync::Arc;

use super::{PendingGrant, Resource};
use crate::{
    allocation::settlement,
    policy::{
        overrides::{Load, Override},
        settings::{AlgorithmKind, Settings},
    },
    pool::{
        AssignError, Assigned, Cause, MOVES_PER_REQUEST, MOVES_PER_TICK, Pool, PoolCursor, PoolEvent, PoolFilter,
        PoolMember, PoolNotes, PoolPage, PoolReport, PoolRequest, PoolState,
    },
    resource::Ask,
    types::{
        amount::{Amount, Sum},
        claim::HolderKind,
        principal::PrincipalShare,
        time::Millis,
    },
};

/// A report of the protected resource about what it can serve now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReport {
    /// An amount, or a part of the template's capacity.
    pub load: Load,
    /// Until when the report counts; absent: until the next one. After that the template counts again.
    pub until: Option<Millis>,
}

/// Why a report of load is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The template does not allow reports to move the capacity.
    #[error(
        "the capacity may not be moved by reports; the parameters `capacity_floor` and `capacity_ceiling` allow it"
    )]
    NotAllowed,
    /// The capacity comes from a parent.
    #[error("the capacity of this resource is lent by a parent; report its load where the tree begins")]
    HasParent,
    /// A factor is none.
    #[error("the factor must be finite and not negative")]
    BadFactor,
}

/// The template's capacity, and the reported one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CapacityInputs {
    /// Below a parent: what it lends.
    pub(super) template: Amount,
    /// What an operator has set in its place.
    pub(super) overridden: Option<Arc<Override>>,
    report: Option<LoadReport>,
}

impl CapacityInputs {
    pub(super) fn new(template: Amount) -> CapacityInputs {
        CapacityInputs { template, overridden: None, report: None }
    }

    /// The template's capacity, or what was set in its place.
    pub(super) fn base(&self) -> Amount {
        self.overridden.as_ref().map_or(self.template, |overridden| overridden.instead_of(self.template))
    }

    /// What counts as the capacity.
    pub(super) fn capacity(&self, settings: &Settings) -> Amount {
        let base = self.base();
        let Some(report) = self.report else { return base };
        let reported = match report.load {
            Load::Capacity(capacity) => capacity,
            Load::Factor(factor) => Amount::clamped(base.get() * factor),
        };
        let (floor, ceiling) = self.bounds(settings);
        reported.max(floor).min(ceiling)
    }

    fn bounds(&self, settings: &Settings) -> (Amount, Amount) {
        let base = self.base();
        // What was lowered no report raises.
        let most = if base < self.template { base } else { Amount::MAX };
        let (floor, ceiling) = settings.load_bounds;
        (floor.unwrap_or(base).min(most), ceiling.unwrap_or(base).min(most))
    }
}

impl Resource {
    /// Applies a report of load. Returns the capacity in force now, which lies within the bounds of the template. The
    /// report is forgotten with this master.
    pub fn report_load(&mut self, now: Millis, report: LoadReport) -> Result<Amount, LoadError> {
        if self.has_parent() {
            return Err(LoadError::HasParent);
        }
        if self.settings.load_bounds == (None, None) {
            return Err(LoadError::NotAllowed);
        }
        if matches!(report.load, Load::Factor(factor) if !factor.is_finite() || factor < 0.0) {
            return Err(LoadError::BadFactor);
        }
        self.step_pool(now, MOVES_PER_REQUEST);
        self.capacity_inputs.report = Some(report);
        self.measure();
        self.balance_pool(now, 1);
        Ok(self.settings.capacity)
    }

    /// The capacity by the report in force, and until when it counts.
    pub fn reported_load(&self) -> Option<(Amount, Option<Millis>)> {
        // A report of exactly the template's capacity takes an earlier one back.
        let report = self.capacity_inputs.report.filter(|report| report.load != Load::Factor(1.0))?;
        Some((self.settings.capacity, report.until))
    }

    /// The least and the most that a report of load may make of the capacity.
    pub fn load_bounds(&self) -> (Amount, Amount) {
        self.capacity_inputs.bounds(&self.settings)
    }

    pub(super) fn measure(&mut self) {
        let capacity = self.available();
        if capacity != self.settings.capacity {
            self.set_capacity(capacity);
        }
    }

    /// New settings do not raise the capacity above the report in force.
    pub(super) fn template_says(&mut self, settings: &mut Settings) {
        self.capacity_inputs.template = settings.capacity;
        settings.capacity = self.capacity_inputs.capacity(settings);
    }

    pub(super) fn end_of_report(&mut self, now: Millis) {
        if self.load_reported_until().is_some_and(|until| until <= now) {
            self.capacity_inputs.report = None;
            self.measure();
        }
    }

    pub(super) fn load_reported_until(&self) -> Option<Millis> {
        self.capacity_inputs.report.and_then(|report| report.until)
    }

    /// What part of the places of a pool one principal keeps while clients of others wait.
    pub fn set_place_share(&mut self, share: PrincipalShare) {
        self.place_share = share;
        if let Some(pool) = &mut self.pool {
            pool.set_share(share);
        }
    }

    /// What all may hold together: the capacity, or the total of a pool.
    pub fn total(&self) -> Amount {
        self.pool.as_ref().map_or(self.settings.capacity, |pool| pool.limit())
    }

    /// Assigns capacity to a holder, connected or not, in place of an earlier assignment; `None` or zero removes it.
    /// Returns the earlier one. Dues change at once.
    ///
    /// Assignments are forgotten with this master, and when the algorithm changes: see
    /// [`remember_assignments`](Self::remember_assignments).
    pub fn assign(
        &mut self,
        now: Millis,
        kind: HolderKind,
        id: &Arc<str>,
        assigned: Option<Assigned>,
    ) -> Result<Option<Assigned>, AssignError> {
        self.step_pool(now, MOVES_PER_REQUEST);
        let assigned = assigned.filter(|assigned| *assigned != Assigned::Capacity(Amount::ZERO));
        let slot = self.ledger.find(kind, id);
        let pool = self.pool.as_mut().ok_or(AssignError::NoPool)?;
        let before = pool.assign(kind, id, slot, assigned)?;
        self.balance_pool(now, 1);
        Ok(before)
    }

    /// Restores assignments from the facts. To be called before the first round.
    pub fn remember_assignments(&mut self, facts: impl IntoIterator<Item = (HolderKind, Arc<str>, Assigned)>) {
        for (kind, id, assigned) in facts {
            let slot = self.ledger.find(kind, &id);
            if let Some(pool) = &mut self.pool {
                pool.put_assignment(kind, &id, slot, Some(assigned));
            }
        }
    }

    /// From now on the pool keeps notes for peers, to be taken by [`take_notes`](Self::take_notes).
    pub fn keep_notes(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.keep_notes();
        }
    }

    /// Restores what peers remember of the pool under earlier masters. To be called before the first round.
    pub fn restore_pool(&mut self, now: Millis, notes: PoolNotes) {
        let (until, held) = (now.plus(self.settings.lease), self.ledger.sums().held);
        if let Some(pool) = &mut self.pool {
            pool.restore(now, until, notes);
            pool.begin_with(held);
        }
    }

    /// Whether notes are due; with `all`, whether anything has changed at all.
    pub fn has_notes(&self, now: Millis, all: bool) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.has_notes(now, all))
    }

    /// The notes that are due: at most so many entries of about so many bytes together. With `all` also those not due.
    pub fn take_notes(&mut self, now: Millis, entries: usize, bytes: usize, all: bool) -> Option<PoolNotes> {
        self.pool.as_mut()?.take_notes(now, entries, bytes, all)
    }

    /// Notes that were taken may be lost: all are due again.
    pub fn note_anew(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.note_anew();
        }
    }

    /// This master leaves cleanly: the last events have the costs of priority clients.
    pub fn part(&mut self, now: Millis) {
        self.step_pool(now, MOVES_PER_REQUEST);
        if let Some(pool) = &mut self.pool {
            pool.part(now);
        }
    }

    /// A holder's assignment, if it has one.
    pub fn assigned(&self, kind: HolderKind, id: &str) -> Option<Assigned> {
        self.pool.as_ref()?.assigned(kind, id)
    }

    /// The pool at a glance. `None`: the resource is run by another algorithm.
    pub fn pool(&self) -> Option<PoolReport> {
        self.pool.as_ref().map(|pool| pool.report(self.sums().held))
    }

    /// A member's report; `None` if it has no lease and does not wait for one.
    pub fn pool_member(&self, kind: HolderKind, id: &str) -> Option<PoolMember> {
        self.pool.as_ref()?.member_at(self.ledger.find(kind, id)?)
    }

    /// Up to `limit` of the holders that the filter lets pass, and where to go on.
    pub fn pool_members(&self, filter: PoolFilter, from: Option<&PoolCursor>, limit: usize) -> PoolPage {
        let find = |kind: HolderKind, id: &str| self.ledger.find(kind, id);
        self.pool.as_ref().map_or_else(PoolPage::default, |pool| pool.list(filter, from, limit, find))
    }

    /// What has happened in the pool since the last call. To be called after every round and tick: few wait.
    pub(crate) fn take_pool_events(&mut self) -> Vec<PoolEvent> {
        self.pool.as_mut().map_or_else(Vec::new, |pool| pool.take_events())
    }

    /// Causes an event once a holder has cost so much since it was connected; `None` removes the mark.
    pub fn set_alarm(
        &mut self,
        now: Millis,
        kind: HolderKind,
        id: &Arc<str>,
        mark: Option<f64>,
    ) -> Result<(), AssignError> {
        self.step_pool(now, MOVES_PER_REQUEST);
        let slot = self.ledger.find(kind, id);
        self.pool.as_mut().ok_or(AssignError::NoPool)?.set_alarm(kind, id, slot, mark)
    }

    /// Whether the pool's books are right.
    #[cfg(test)]
    pub(crate) fn audit_pool(&self) -> Result<(), String> {
        self.pool.as_ref().map_or(Ok(()), |pool| pool.audit())
    }

    /// Creates the pool if the algorithm needs one, and drops it if not.
    pub(super) fn renew_pool(&mut self, seed: u64) {
        if self.settings.kind != AlgorithmKind::PriorityPool {
            self.pool = None;
            return;
        }
        if let Some(pool) = &mut self.pool {
            pool.configure(&self.settings);
            return;
        }
        let mut pool = Pool::new(&self.settings, self.has_parent(), seed);
        pool.set_share(self.place_share);
        if let Some(slot) = self.inherited_slot() {
            pool.set_unclaimed(slot, self.unclaimed());
        }
        for (slot, holder) in self.ledger.iter_from(0).filter(|(slot, _)| !self.ledger.is_inherited(*slot)) {
            let request = PoolRequest {
                kind: holder.kind,
                id: &holder.id,
                principal: self.ledger.principal(slot),
                claims: &holder.claims,
                lease: None,
                claimed: Amount::ZERO,
                news: None,
            };
            pool.absorb(slot, &request);
            pool.granted(slot, self.ledger.granted(slot), self.ledger.sums().held, Cause::Asked);
        }
        pool.begin_with(self.sums().held);
        self.pool = Some(Box::new(pool));
    }

    /// Advances time in the pool.
    pub(super) fn step_pool(&mut self, now: Millis, budget: usize) {
        let (learning, held) = (self.is_learning(now), self.ledger.sums().held);
        if let Some(pool) = &mut self.pool {
            pool.step(now, held, learning, budget);
        }
    }

    pub(super) fn tick_pool(&mut self, now: Millis) {
        self.step_pool(now, MOVES_PER_TICK);
    }

    /// Places clients before any answer says so.
    pub(super) fn balance_pool(&mut self, now: Millis, requests: usize) {
        if let Some(pool) = &mut self.pool {
            pool.balance(now, MOVES_PER_REQUEST * requests);
        }
    }

    pub(super) fn pool_absorbs(&mut self, slot: u32, ask: &Ask, claimed: Amount) {
        if self.pool.is_none() {
            return;
        }
        let claims = self.counted(ask.kind, ask.heeds_terms(), ask.claims.clone());
        let (kind, id, lease) = (ask.kind, &ask.id, ask.has.and_then(|has| has.token));
        let principal = self.ledger.principal(slot);
        let news = ask.news.as_deref();
        let request = PoolRequest { kind, id, principal, claims: &claims, lease, claimed, news };
        let inherited = self.ledger.holder(slot).leases.claimed();
        if let Some(pool) = &mut self.pool {
            if inherited > Amount::ZERO && !pool.has_member(slot) {
                pool.inherit(slot, kind, id, inherited);
            }
            pool.absorb(slot, &request);
        }
    }

    /// A holder has another lease now; returns its standing for the answer.
    pub(super) fn pool_grants(&mut self, slot: u32, cause: Cause) -> Option<PoolState> {
        let (granted, held) = (self.ledger.granted(slot), self.ledger.sums().held);
        let pool = self.pool.as_mut()?;
        pool.granted(slot, granted, held, cause);
        pool.state(slot)
    }

    pub(super) fn pool_loses(&mut self, slot: u32, cause: Cause) {
        let held = self.ledger.sums().held;
        if let Some(pool) = &mut self.pool {
            pool.gone(slot, held, cause);
        }
    }

    /// The leases that have ended since the last call.
    pub(super) fn pool_looks_at(&mut self) {
        while let Some((slot, is_gone)) = self.lapsed.pop() {
            if is_gone {
                self.pool_loses(slot, Cause::Expired);
            } else {
                self.pool_grants(slot, Cause::Expired);
            }
        }
    }

    /// Settles one holder after the other, priority clients first: a part of the least useful capacity is of no use.
    /// What priority clients are owed that have not asked in this round is not free for others.
    pub(super) fn settle_pool(
        pool: &Pool,
        learning: bool,
        free: Sum,
        pending: &[PendingGrant],
        participants: &[settlement::Participant],
        kinds: impl Fn(u32) -> HolderKind,
        grants: &mut Vec<Amount>,
    ) {
        let least = |at: usize| match kinds(pending[at].slot) {
            HolderKind::Client if !learning => pool.least_grant(),
            _ => Amount::ZERO,
        };
        let goes_first = |at: usize| pool.is_priority(pending[at].slot);
        let owed = pending.iter().fold(pool.owed(), |owed, pending| owed - pool.owed_to(pending.slot).into());
        let owed = if learning { Sum::ZERO } else { owed };
        settlement::settle_in_turn(free, participants, goes_first, owed, least, grants);
    }
}
