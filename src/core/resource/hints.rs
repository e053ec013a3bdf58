//! Hints of a resource: which holders are watched, and which of them should ask again now ([`super::watch_list`]).

use std::sync::Arc;

use super::Resource;
use crate::{
    lease::ledger::NOT_WATCHED,
    resource::watch_list::{Hint, HintCandidate, HintContext, Version},
    types::{amount::Sum, claim::HolderKind, time::Millis},
};

impl Resource {
    /// Watches a holder, until [`unwatch`](Self::unwatch) or until it is forgotten. Returns false if it is not known
    /// here: then call again when it comes, see [`newcomers`](Self::newcomers).
    pub fn watch(&mut self, kind: HolderKind, id: &str) -> bool {
        let Some(slot) = self.book.ledger.find(kind, id) else { return false };
        match self.book.ledger.holder(slot).watch {
            NOT_WATCHED => self.book.ledger.holder_mut(slot).watch = self.watch_list.insert(slot),
            place => self.watch_list.reset(place),
        }
        true
    }

    pub fn unwatch(&mut self, kind: HolderKind, id: &str) {
        if let Some(slot) = self.book.ledger.find(kind, id) {
            let holder = self.book.ledger.holder_mut(slot);
            self.watch_list.remove(holder.watch);
            holder.watch = NOT_WATCHED;
        }
    }

    /// The holders that came with the last round and are still here. They are not watched yet.
    pub(crate) fn newcomers(&self) -> impl Iterator<Item = (HolderKind, &Arc<str>)> {
        let unwatched = |slot: &u32| self.book.ledger.get(*slot).filter(|holder| holder.watch == NOT_WATCHED);
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
        self.watch_list.next_look(self.version(), now)
    }

    /// Visits up to `budget` watched holders, from where it stopped the last time, and adds those that should ask now
    /// to `hints`: first those that must shrink, then those that must confirm, then those that wait. Does nothing if
    /// nothing has changed since all were visited.
    pub(crate) fn hints(&mut self, now: Millis, budget: usize, hints: &mut Vec<Hint>) {
        if self.is_learning(now) || self.awaits_supply() {
            return;
        }
        let mut looks = Vec::new();
        self.watch_list.next_part(self.version(), now, budget, &mut looks);
        let mut terms = Vec::new();
        let mut candidates = Vec::with_capacity(looks.len());
        for look in &looks {
            let holder = self.book.ledger.holder(look.slot);
            let due = self.due_now(look.slot, now, &mut terms);
            let candidate = HintCandidate { due, current: holder.leases.current(now), held: holder.leases.held(now) };
            // Judged only once it is known which holders wait: dues may have changed since they asked.
            self.book.ledger.set_waits(look.slot, candidate.waits());
            candidates.push(candidate);
        }
        let first = hints.len();
        let mut context = self.hint_context();
        for (look, candidate) in looks.iter().zip(&candidates) {
            if let Some(why) = self.watch_list.judge(look.place, candidate, &mut context, now) {
                let holder = self.book.ledger.holder(look.slot);
                hints.push(Hint { kind: holder.kind, id: Arc::clone(&holder.id), why });
            }
        }
        self.watch_list.end_part();
        hints[first..].sort_by_key(|hint| hint.why);
    }

    fn hint_context(&self) -> HintContext {
        let capacity = self.total();
        HintContext {
            bounded: self.is_bounded(),
            decided: self.pool.is_some(),
            any_waits: self.book.ledger.waiting() > 0,
            capacity,
            free: Sum::from(capacity) - self.book.ledger.sums().held,
            spoken_for: Sum::ZERO,
        }
    }

    /// Where capacity is not shared, no request changes the due of another holder.
    fn version(&self) -> Version {
        let elsewhere = self.allocation.rotations() + self.pool.as_ref().map_or(0, |pool| pool.moves());
        (self.reforms + elsewhere, if self.is_bounded() { self.book.ledger.changes() } else { 0 })
    }
}
