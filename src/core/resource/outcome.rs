//! The effects of a step of a resource besides its answers, as one value. So none can be forgotten, and only this file
//! depends on the order in which they are collected.

use std::sync::Arc;

use crate::{
    lease::{LeaseBook, ledger::NOT_WATCHED, promises::Changes, proposer::Proposal},
    pool::PoolEvent,
    resource::{
        Resource,
        supply::summarized_claims,
        watch_list::{Hint, HintCandidate, HintContext, Version},
    },
    types::{HolderKind, Millis, Sum},
};

/// The number of watched holders visited at once: well below a millisecond of work.
const VISIT_BUDGET: usize = 2048;

/// What rounds, ticks and other changes have caused since the last [`Resource::outcome`].
#[derive(Debug, Default)]
pub struct Outcome {
    /// Changes to propose. If they are lost, no later change of this incarnation may be applied.
    pub changes: Option<Changes>,
    /// The leases given by the last round must wait for the changes of this number.
    pub awaits: Option<u64>,
    pub pool_events: Vec<PoolEvent>,
    /// Whether the parent should get a report before the next refresh.
    pub asks_parent: bool,
    /// Watched holders that should ask again now; none unless a visit was allowed.
    pub hints: Vec<Hint>,
    /// Whether watched holders were visited.
    pub visited: bool,
    /// When watched holders must be visited next: at once (`now`), later, or not before something changes.
    pub next_visit: Option<Millis>,
}

impl Resource {
    /// The changes to propose to the quorum now, see [`LeaseBook::take_changes`](crate::lease::LeaseBook::take_changes).
    pub(crate) fn take_changes(&mut self, now: Millis) -> Proposal {
        let capacity = self.is_bounded().then_some(self.total());
        let (allocation, pool) = (&self.allocation, self.pool.as_deref());
        let wants = |book: &LeaseBook| summarized_claims(allocation, pool, book.ledger().sums().wants);
        self.book.take_changes(now, self.settings.lease, capacity, wants)
    }

    /// Takes all effects since the last call. Call it after every step, before any of its answers is sent. `may_visit`:
    /// whether watched holders may be visited, which the caller paces. A new holder is watched from now on if it
    /// `is_watched`.
    pub fn outcome(&mut self, now: Millis, may_visit: bool, is_watched: impl Fn(HolderKind, &str) -> bool) -> Outcome {
        let Proposal { changes, awaits } = self.take_changes(now);
        let newcomers: Vec<_> =
            self.newcomers().filter(|(kind, id)| is_watched(*kind, id)).map(|(kind, id)| (kind, id.clone())).collect();
        self.last_round.newcomers.clear();
        for (kind, id) in newcomers {
            self.watch(kind, &id);
        }
        let mut hints = Vec::new();
        let visited = may_visit && self.next_hints(now).is_some_and(|next| next <= now);
        if visited {
            self.hints(now, VISIT_BUDGET, &mut hints);
        }
        Outcome {
            changes,
            awaits,
            pool_events: self.take_pool_events(),
            asks_parent: self.asks_early(),
            hints,
            visited,
            next_visit: self.next_hints(now),
        }
    }

    // Hints.

    /// Watches a holder, until [`unwatch`](Self::unwatch) or until it is forgotten. Returns false if it is not known
    /// here: then call again when it comes, see [`newcomers`](Self::newcomers).
    pub fn watch(&mut self, kind: HolderKind, id: &str) -> bool {
        let Some(slot) = self.book.ledger().find(kind, id) else { return false };
        match self.book.ledger().holder(slot).watch {
            NOT_WATCHED => {
                let place = self.watch_list.insert(slot);
                self.book.set_watch(slot, place);
            }
            place => self.watch_list.reset(place),
        }
        true
    }

    pub fn unwatch(&mut self, kind: HolderKind, id: &str) {
        if let Some(slot) = self.book.ledger().find(kind, id) {
            self.watch_list.remove(self.book.set_watch(slot, NOT_WATCHED));
        }
    }

    /// The holders that came with the last round and are still here. They are not watched yet.
    pub(crate) fn newcomers(&self) -> impl Iterator<Item = (HolderKind, &Arc<str>)> {
        let unwatched = |slot: &u32| self.book.ledger().get(*slot).filter(|holder| holder.watch == NOT_WATCHED);
        self.last_round.newcomers.iter().filter_map(unwatched).map(|holder| (holder.kind, &holder.id))
    }

    /// When [`hints`](Self::hints) next has something to do: at once (`now`), later, or not before something changes.
    pub(crate) fn next_hints(&self, now: Millis) -> Option<Millis> {
        if self.is_learning(now) {
            return Some(self.book.learning_until()).filter(|_| !self.watch_list.is_empty());
        }
        if self.awaits_supply() {
            return None;
        }
        self.watch_list.next_visit(self.version(), now)
    }

    /// Visits up to `budget` watched holders, from where it stopped the last time, and adds those that should ask now
    /// to `hints`: first those that must shrink, then those that must confirm, then those that wait. Does nothing if
    /// nothing has changed since all were visited.
    pub(crate) fn hints(&mut self, now: Millis, budget: usize, hints: &mut Vec<Hint>) {
        if self.is_learning(now) || self.awaits_supply() {
            return;
        }
        let mut visits = Vec::new();
        self.watch_list.next_part(self.version(), now, budget, &mut visits);
        let mut terms = Vec::new();
        let mut candidates = Vec::with_capacity(visits.len());
        for visit in &visits {
            let holder = self.book.ledger().holder(visit.slot);
            let due = self.due_now(visit.slot, now, &mut terms);
            let candidate = HintCandidate { due, current: holder.leases.current(now), held: holder.leases.held(now) };
            // Candidates are judged after all `waits` flags are current, because dues may have changed since the last
            // requests.
            self.book.set_waits(visit.slot, candidate.waits());
            candidates.push(candidate);
        }
        let first = hints.len();
        let mut context = self.hint_context();
        for (visit, candidate) in visits.iter().zip(&candidates) {
            if let Some(reason) = self.watch_list.judge(visit.place, candidate, &mut context, now) {
                let holder = self.book.ledger().holder(visit.slot);
                hints.push(Hint { kind: holder.kind, id: Arc::clone(&holder.id), reason });
            }
        }
        self.watch_list.end_part();
        hints[first..].sort_by_key(|hint| hint.reason);
    }

    fn hint_context(&self) -> HintContext {
        let capacity = self.total();
        HintContext {
            bounded: self.is_bounded(),
            decided: self.pool.is_some(),
            any_waits: self.book.ledger().waiting() > 0,
            capacity,
            free: Sum::from(capacity) - self.book.ledger().sums().held,
            reserved: Sum::ZERO,
        }
    }

    /// If the capacity is not shared, requests do not change the dues of others, so changes of the ledger do not count.
    fn version(&self) -> Version {
        let elsewhere = self.allocation.rotations() + self.pool.as_ref().map_or(0, |pool| pool.moves());
        (self.reforms + elsewhere, if self.is_bounded() { self.book.ledger().changes() } else { 0 })
    }
}
