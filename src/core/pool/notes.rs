//! Pending notes of a pool, and the restoration of a pool from stored notes.
//!
//! Notes of large changes are due immediately, others after a delay. They are written in the order in which they become
//! due, up to the amount that the caller allows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Pool,
    accounts::Clock,
    events::{Cause, PoolClient, PoolEventKind},
    member::{Costs, Member, Note},
};
use crate::pool::{
    accounts::memory::{NotedCost, PoolNotes},
    accounts::pacing::{LARGE_CHANGE, MAX_NOTE_AGE, NoteBudget, until_large_change},
};
use crate::types::{Amount, HolderKind, Millis};

/// A note of the total is due immediately if the total has changed by more than this fraction.
const LARGE_TOTAL_CHANGE: f64 = 0.01;
/// Maximum number of priority clients that get an event of their own when the master leaves.
const MAX_LEAVE_EVENTS: usize = 1000;

type HolderName = (HolderKind, Arc<str>);

/// Members with pending notes, and the last notes about the pool.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Whether notes are written for peers.
    pub(super) kept: bool,
    anew: bool,
    due: BTreeSet<(Millis, u32)>,
    dropped: BTreeSet<HolderName>,
    /// The number of members in the notes.
    noted: usize,
    last_noted: Option<LastNoted>,
    /// Costs from earlier masters, of clients that have not asked yet.
    restored: BTreeMap<HolderName, Costs>,
    /// When the leases of those clients expire.
    restored_until: Millis,
    /// The total of the earlier master.
    pub(super) total: Option<f64>,
}

/// The last notes about the pool.
#[derive(Debug, Clone, Copy)]
struct LastNoted {
    at: Millis,
    speed: f64,
    time_constant: Millis,
    total: f64,
}

impl Notes {
    /// The initial total of a pool in which `held` is held. Small changes of the total may be missing in the notes. If
    /// `held` exceeds the noted total only by such changes, the pool starts with `held`, so it kicks no client out.
    pub(super) fn begins_with(&self, held: f64) -> f64 {
        match self.total {
            Some(total) if held <= total || held > total * (1.0 + 2.0 * LARGE_TOTAL_CHANGE) => total,
            _ => held,
        }
    }
}

impl Pool {
    pub(crate) fn keep_notes(&mut self) {
        (self.notes.kept, self.accounts.keeps_notes) = (true, true);
    }

    /// Marks everything as not noted, because notes may have been lost.
    pub(crate) fn note_anew(&mut self) {
        let Notes { kept, restored, restored_until, total, .. } = std::mem::take(&mut self.notes);
        self.notes = Notes { kept, anew: true, restored, restored_until, total, ..Notes::default() };
        self.accounts.note_anew(self.clock.at);
        for (slot, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member.as_deref_mut() else { continue };
            member.note = Note::default();
            if member.is_connected() {
                member.note.due = Some(self.clock.at);
                self.notes.due.insert((self.clock.at, slot as u32));
            }
        }
    }

    /// Marks the note about the costs of a member as outdated. `moved` is the change; zero if unknown. The member has
    /// been taken out.
    pub(super) fn note(&mut self, member: &mut Member, slot: u32, moved: f64) {
        if !self.notes.kept || !(member.is_connected() || member.note.is_noted) {
            return;
        }
        member.note.moved += moved;
        let is_large =
            member.is_connected() != member.note.is_noted || member.note.moved > self.cost(member) * LARGE_CHANGE;
        let due = match (is_large, moved > 0.0) {
            (true, _) => self.clock.at,
            (false, true) => self.clock.at.plus(MAX_NOTE_AGE),
            (false, false) => self.clock.at.plus(until_large_change(self.cost(member), member.granted.get())),
        };
        if member.note.due.is_some_and(|before| before <= due) {
            return;
        }
        if let Some(before) = member.note.due.replace(due) {
            self.notes.due.remove(&(before, slot));
        }
        self.notes.due.insert((due, slot));
    }

    /// Notes the removal of a member.
    pub(super) fn note_removed(&mut self, member: &mut Member, slot: u32) {
        if let Some(due) = member.note.due.take() {
            self.notes.due.remove(&(due, slot));
        }
        if std::mem::take(&mut member.note.is_noted) {
            self.notes.noted -= 1;
            self.notes.dropped.insert((member.kind, Arc::clone(&member.id)));
        }
    }

    fn speed(&self) -> f64 {
        self.settings.time_factor * self.weights().0
    }

    /// Whether notes are due; with `all`, whether anything has changed.
    pub(crate) fn has_notes(&self, now: Millis, all: bool) -> bool {
        if !self.notes.kept {
            return false;
        }
        let due = |first: Option<Millis>| first.is_some_and(|due| all || due <= now);
        let (notes, total) = (&self.notes, self.total.get());
        due(notes.due.first().map(|(due, _)| *due))
            || self.accounts.has_notes(now, all)
            || !notes.dropped.is_empty()
            || notes.last_noted.map_or(notes.anew || total > self.base.get(), |last_noted| {
                (total - last_noted.total).abs() > last_noted.total * LARGE_TOTAL_CHANGE
                    || (last_noted.speed, last_noted.time_constant) != (self.speed(), self.settings.negative_tc)
                    || last_noted.at.plus(MAX_NOTE_AGE) <= now && (notes.noted > 0 || total != last_noted.total)
                    || all && (total != last_noted.total || notes.noted > 0 && last_noted.at < now)
            })
    }

    /// The notes to write now. They may exceed the maximum number of entries and bytes by one entry. With `all`, notes
    /// that are not due are included.
    pub(crate) fn take_notes(&mut self, now: Millis, entries: usize, bytes: usize, all: bool) -> Option<PoolNotes> {
        if !self.has_notes(now, all) {
            return None;
        }
        let mut budget = NoteBudget::new(now, all, self.settings.max_remembered, entries, bytes);
        let mut notes = PoolNotes { anew: std::mem::take(&mut self.notes.anew), ..PoolNotes::default() };
        while budget.is_left()
            && let Some((kind, id)) = self.notes.dropped.pop_first()
        {
            budget.take(&id);
            notes.costs.push((kind, id, None));
        }
        self.accounts.take_notes(&self.clock, &mut budget, &mut notes.balances);
        while let Some((due, slot)) = self.notes.due.first().copied()
            && budget.takes(due)
        {
            self.notes.due.pop_first();
            notes.costs.extend(self.noted_cost(slot, &mut budget));
        }
        let (total, speed, time_constant) = (self.total, self.speed(), self.settings.negative_tc);
        self.notes.last_noted = Some(LastNoted { at: now, speed, time_constant, total: total.get() });
        (notes.total, notes.clock) = (total, self.clock.as_noted(speed, time_constant));
        Some(notes)
    }

    fn noted_cost(&mut self, slot: u32, budget: &mut NoteBudget) -> Option<(HolderKind, Arc<str>, Option<NotedCost>)> {
        let clock = self.clock;
        let member = self.members.get_mut(slot as usize)?.as_deref_mut()?;
        let was_noted = std::mem::take(&mut member.note).is_noted;
        self.notes.noted -= usize::from(was_noted);
        let account = member.account.map(|account| self.accounts.id(account));
        if member.is_connected() && self.notes.noted >= budget.max_entries {
            return was_noted.then(|| (member.kind, Arc::clone(&member.id), None));
        }
        if !member.is_connected() && !was_noted {
            return None;
        }
        budget.take(&member.id);
        let noted = member.is_connected().then(|| {
            member.accrue(clock.at);
            let capacity = member.granted;
            NotedCost {
                capacity,
                time: member.costs.time - capacity.get() * clock.lived,
                request: member.costs.request,
                account,
                counted: member.costs.reported,
            }
        });
        member.note.is_noted = noted.is_some();
        self.notes.noted += usize::from(noted.is_some());
        Some((member.kind, Arc::clone(&member.id), noted))
    }

    /// Restores the notes of earlier masters. Call it before the first request. All leases of earlier masters expire by
    /// `until`.
    pub(crate) fn restore(&mut self, now: Millis, until: Millis, notes: PoolNotes) {
        let mut costs: BTreeMap<HolderName, NotedCost> =
            notes.costs.into_iter().filter_map(|(kind, id, cost)| Some(((kind, id), cost?))).collect();
        // Members that are here already were sorted by the clock from before the restore.
        let here: Vec<u32> = (0..self.members.len() as u32).filter(|slot| self.member(*slot).is_some()).collect();
        let lifted: Vec<_> = here.iter().map(|slot| self.take_out_of_account(*slot)).collect();
        self.clock.restore(now, &notes.clock);
        self.accounts.restore(notes.balances, &self.clock);
        for (slot, (mut member, account)) in here.into_iter().zip(lifted.into_iter().flatten()) {
            let cost = costs.remove(&(member.kind, Arc::clone(&member.id)));
            let known = cost.as_ref().and_then(|cost| cost.account.clone());
            let key = known.or(account);
            if let Some(cost) = cost.filter(|_| member.is_connected()) {
                member.costs = cost.costs(&self.clock);
                member.note.is_noted = true;
                self.notes.noted += 1;
                // The lease may be larger than in the note.
                self.note(&mut member, slot, 0.0);
            }
            if let Some(key) = key.filter(|_| member.kind == HolderKind::Client && member.demand.places > 0) {
                self.join_free(&mut member, &key);
            }
            self.put_back(slot, member);
        }
        self.notes.restored = costs.iter().map(|(holder, cost)| (holder.clone(), cost.costs(&self.clock))).collect();
        (self.notes.restored_until, self.notes.total) = (until, Some(notes.total.get()));
        self.notes.last_noted = Some(LastNoted {
            at: now,
            speed: notes.clock.speed,
            time_constant: notes.clock.time_constant,
            total: notes.total.get(),
        });
    }

    fn take_out_of_account(&mut self, slot: u32) -> Option<(Box<Member>, Option<Arc<str>>)> {
        let mut member = self.take_out(slot)?;
        let account = member.account.map(|account| self.accounts.id(account));
        self.leave_free(&mut member);
        Some((member, account))
    }

    /// Restores the costs of a new client that has been connected without a break.
    pub(super) fn restore_cost(&mut self, member: &mut Member, continues: bool) {
        let holder = (member.kind, Arc::clone(&member.id));
        let Some(costs) = self.notes.restored.remove(&holder) else { return };
        if continues {
            member.costs = costs;
            (member.continues, member.note.is_noted) = (true, true);
            self.notes.noted += 1;
        } else {
            self.bill(holder, costs);
        }
    }

    /// Sends the costs of clients that have not asked before their leases expired.
    pub(super) fn bill_absent(&mut self, now: Millis, budget: usize) {
        if self.notes.restored.is_empty() || now < self.notes.restored_until {
            return;
        }
        for _ in 0..budget {
            let Some((holder, costs)) = self.notes.restored.pop_first() else { return };
            self.bill(holder, costs);
        }
    }

    /// Sends the last event about a client that has left, with its costs.
    fn bill(&mut self, (kind, id): HolderName, costs: Costs) {
        let client = PoolClient {
            kind,
            id: Arc::clone(&id),
            capacity: Amount::ZERO,
            is_priority: self.assignments.get(kind, &id).is_some(),
            time_cost: costs.time,
            request_cost: costs.request,
        };
        self.notes.dropped.insert((kind, id));
        self.emit_for(client, PoolEventKind::Disconnected, Cause::Expired);
    }

    /// Emits the costs of priority clients, because this master leaves.
    pub(crate) fn part(&mut self, now: Millis) {
        self.clock.at = self.clock.at.max(now);
        let connected = (0..self.members.len() as u32)
            .filter(|slot| self.member(*slot).is_some_and(|member| member.is_connected() && member.is_priority()));
        for slot in connected.take(MAX_LEAVE_EVENTS).collect::<Vec<_>>() {
            if let Some(mut member) = self.take_out(slot) {
                member.accrue(self.clock.at);
                self.put_back(slot, member);
                self.emit(slot, PoolEventKind::Update, Cause::Parting);
            }
        }
    }
}

impl NotedCost {
    fn costs(&self, clock: &Clock) -> Costs {
        let time = (self.time + self.capacity.get() * clock.lived).max(0.0);
        let (request, reported) = (self.request, self.counted);
        Costs { time, request, until: clock.at, announced: time + request, reported }
    }
}
