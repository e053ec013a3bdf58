//! PRIORITY_POOL: the interface between a resource, its pool and the manager of the pool. See [`crate::pool`] for what
//! a pool is.

use std::sync::Arc;

use crate::{
    allocation::settlement,
    policy::settings::AlgorithmKind,
    pool::{
        AssignError, Assigned, Cause, MOVES_PER_REQUEST, MOVES_PER_TICK, Pool, PoolCursor, PoolEvent, PoolFilter,
        PoolMember, PoolNotes, PoolPage, PoolReport, PoolRequest, PoolState,
    },
    resource::{Ask, Resource, round::PendingGrant},
    types::{Amount, HolderKind, Millis, PrincipalShare, Sum},
};

impl Resource {
    /// Sets the share of the places of a pool that one principal keeps while clients of others wait.
    pub fn set_place_share(&mut self, share: PrincipalShare) {
        self.limits.place_share = share;
        if let Some(pool) = &mut self.pool {
            pool.set_share(share);
        }
    }

    /// The maximum that all holders may hold together: the capacity, or the total of a pool.
    pub fn total(&self) -> Amount {
        self.pool.as_ref().map_or(self.settings.capacity, |pool| pool.limit())
    }

    /// Assigns capacity to a holder, connected or not, in place of an earlier assignment; `None` or zero removes it.
    /// Returns the earlier one. Dues change immediately.
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
        let slot = self.book.ledger().find(kind, id);
        let pool = self.pool.as_mut().ok_or(AssignError::NoPool)?;
        let before = pool.assign(kind, id, slot, assigned)?;
        self.balance_pool(now, 1);
        Ok(before)
    }

    /// Restores stored assignments. Call it before the first round.
    pub fn remember_assignments(&mut self, stored: impl IntoIterator<Item = (HolderKind, Arc<str>, Assigned)>) {
        for (kind, id, assigned) in stored {
            let slot = self.book.ledger().find(kind, &id);
            if let Some(pool) = &mut self.pool {
                pool.put_assignment(kind, &id, slot, Some(assigned));
            }
        }
    }

    /// Makes the pool keep notes for peers. [`take_notes`](Self::take_notes) takes them.
    pub fn keep_notes(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.keep_notes();
        }
    }

    /// Restores the notes of the pool from earlier masters. Call it before the first round.
    pub fn restore_pool(&mut self, now: Millis, notes: PoolNotes) {
        let (until, held) = (now.plus(self.settings.lease), self.book.ledger().sums().held);
        if let Some(pool) = &mut self.pool {
            pool.restore(now, until, notes);
            pool.begin_with(held);
        }
    }

    /// Prepares for the end of this master: emits events with the costs of priority clients.
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

    /// The state of the pool; `None` if the resource has another algorithm.
    pub fn pool(&self) -> Option<PoolReport> {
        self.pool.as_ref().map(|pool| pool.report(self.sums().held))
    }

    /// A member's report; `None` if it has no lease and does not wait for one.
    pub fn pool_member(&self, kind: HolderKind, id: &str) -> Option<PoolMember> {
        self.pool.as_ref()?.member_at(self.book.ledger().find(kind, id)?)
    }

    /// Up to `limit` of the holders that pass the filter, and where to continue.
    pub fn pool_members(&self, filter: PoolFilter, from: Option<&PoolCursor>, limit: usize) -> PoolPage {
        let find = |kind: HolderKind, id: &str| self.book.ledger().find(kind, id);
        self.pool.as_ref().map_or_else(PoolPage::default, |pool| pool.list(filter, from, limit, find))
    }

    /// Takes the events since the last call. Call it after every round and tick.
    pub(crate) fn take_pool_events(&mut self) -> Vec<PoolEvent> {
        self.pool.as_mut().map_or_else(Vec::new, |pool| pool.take_events())
    }

    /// Requests an event when the cost of a holder since it connected reaches `mark`; `None` removes the mark.
    pub fn set_alarm(
        &mut self,
        now: Millis,
        kind: HolderKind,
        id: &Arc<str>,
        mark: Option<f64>,
    ) -> Result<(), AssignError> {
        self.step_pool(now, MOVES_PER_REQUEST);
        let slot = self.book.ledger().find(kind, id);
        self.pool.as_mut().ok_or(AssignError::NoPool)?.set_alarm(kind, id, slot, mark)
    }

    /// Checks the pool's accounting.
    #[cfg(test)]
    pub(crate) fn audit_pool(&self) -> Result<(), String> {
        self.pool.as_ref().map_or(Ok(()), |pool| pool.audit())
    }

    /// Creates the pool if the algorithm needs one, drops it if not.
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
        pool.set_share(self.limits.place_share);
        if let Some(slot) = self.book.inherited_slot() {
            pool.set_unclaimed(slot, self.book.unclaimed());
        }
        for (slot, holder) in
            self.book.ledger().iter_from(0).filter(|(slot, _)| !self.book.ledger().is_inherited(*slot))
        {
            let request = PoolRequest {
                kind: holder.kind,
                id: &holder.id,
                principal: self.book.ledger().principal(slot),
                claims: &holder.claims,
                lease: None,
                claimed: Amount::ZERO,
                pool_fields: None,
            };
            pool.absorb(slot, &request);
            pool.granted(slot, self.book.ledger().granted(slot), self.book.ledger().sums().held, Cause::Asked);
        }
        pool.begin_with(self.sums().held);
        self.pool = Some(Box::new(pool));
    }

    /// Advances the time of the pool.
    pub(super) fn step_pool(&mut self, now: Millis, budget: usize) {
        let (learning, held) = (self.is_learning(now), self.book.ledger().sums().held);
        if let Some(pool) = &mut self.pool {
            pool.step(now, held, learning, budget);
        }
    }

    pub(super) fn tick_pool(&mut self, now: Millis) {
        self.step_pool(now, MOVES_PER_TICK);
    }

    /// Admits clients, before the round answers their requests.
    pub(super) fn balance_pool(&mut self, now: Millis, requests: usize) {
        if let Some(pool) = &mut self.pool {
            pool.balance(now, MOVES_PER_REQUEST * requests);
        }
    }

    pub(super) fn pool_absorbs(&mut self, slot: u32, ask: &Ask, claimed: Amount) {
        if self.pool.is_none() {
            return;
        }
        let claims = self.counted(ask.kind, ask.understands_terms(), ask.claims.clone());
        let (kind, id, lease) = (ask.kind, &ask.id, ask.has.and_then(|has| has.token));
        let principal = self.book.ledger().principal(slot);
        let pool_fields = ask.pool_fields.as_deref();
        let request = PoolRequest { kind, id, principal, claims: &claims, lease, claimed, pool_fields };
        let inherited = self.book.ledger().holder(slot).leases.claimed();
        if let Some(pool) = &mut self.pool {
            if inherited > Amount::ZERO && !pool.has_member(slot) {
                pool.inherit(slot, kind, id, inherited);
            }
            pool.absorb(slot, &request);
        }
    }

    /// Tells the pool that a holder has a new lease. Returns the holder's state for the answer.
    pub(super) fn pool_grants(&mut self, slot: u32, cause: Cause) -> Option<PoolState> {
        let (granted, held) = (self.book.ledger().granted(slot), self.book.ledger().sums().held);
        let pool = self.pool.as_mut()?;
        pool.granted(slot, granted, held, cause);
        pool.state(slot)
    }

    pub(super) fn pool_removes(&mut self, slot: u32, cause: Cause) {
        let held = self.book.ledger().sums().held;
        if let Some(pool) = &mut self.pool {
            pool.remove_member(slot, held, cause);
        }
    }

    /// Tells the pool of leases that have ended.
    pub(super) fn notify_pool_of_expiry(&mut self) {
        while let Some((slot, is_gone)) = self.last_round.lapsed.pop() {
            if is_gone {
                self.pool_removes(slot, Cause::Expired);
            } else {
                self.pool_grants(slot, Cause::Expired);
            }
        }
    }

    /// Settles one holder after the other, priority clients first. A grant below the minimum capacity is useless.
    /// Capacity owed to priority clients that have not asked in this round is withheld from the others.
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
            HolderKind::Client if !learning => pool.min_grant(),
            _ => Amount::ZERO,
        };
        let goes_first = |at: usize| pool.is_priority(pending[at].slot);
        let owed = pending.iter().fold(pool.owed(), |owed, pending| owed - pool.owed_to(pending.slot).into());
        let owed = if learning { Sum::ZERO } else { owed };
        settlement::settle_in_turn(free, participants, goes_first, owed, least, grants);
    }
}
