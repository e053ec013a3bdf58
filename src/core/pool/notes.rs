//! What a living pool has still to say to those who remember it, and how it begins with what they remember.
//!
//! Whatever has moved much is due at once, the rest after a while; in that order it is said, as much at a time as the
//! shell allows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Pool,
    accounts::Clock,
    events::{Cause, PoolClient, PoolEventKind},
    member::{Costs, Member, Note},
    memory::{NotedCost, PoolNotes},
};
use crate::{Amount, HolderKind, Millis};

/// What has changed by less than a sixteenth is said after so long.
pub(super) const AGE: Millis = Millis::from_secs(30);
/// What has changed by more than this part of it is said as soon as possible.
pub(super) const MUCH: f64 = 1.0 / 16.0;
/// The same for the total.
const MUCH_OF_TOTAL: f64 = 0.01;
/// What an entry takes besides its names.
const ENTRY_BYTES: usize = 48;
/// Priority clients that are told of one by one when the pool is left.
const PARTING: usize = 1000;

/// In what time something that moves away from what was said by so much a second has done so by much; no later than
/// anything is said.
pub(super) fn until_much(value: f64, speed: f64) -> Millis {
    Millis((value * MUCH / speed * 1000.0) as u64).min(AGE)
}

/// A client or a child node, by name.
type Whom = (HolderKind, Arc<str>);

/// Room in what is to be said.
pub(super) struct Room {
    pub(super) now: Millis,
    /// Everything, whether it is due or not.
    pub(super) all: bool,
    /// So many may be remembered of each kind.
    pub(super) most: usize,
    entries: usize,
    bytes: usize,
}

impl Room {
    /// Whether something that is due then is to be said now.
    pub(super) fn takes(&self, due: Millis) -> bool {
        (self.all || due <= self.now) && self.entries > 0 && self.bytes > 0
    }

    pub(super) fn is_left(&self) -> bool {
        self.entries > 0 && self.bytes > 0
    }

    pub(super) fn take(&mut self, id: &str) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(id.len() + ENTRY_BYTES);
    }
}

/// What is to be said of members, and what has been said of the pool.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Whether anybody listens.
    pub(super) kept: bool,
    anew: bool,
    due: BTreeSet<(Millis, u32)>,
    gone: BTreeSet<Whom>,
    /// Members that something has been said of.
    noted: usize,
    said: Option<Said>,
    /// What the master before knew of clients that have not come yet.
    recalled: BTreeMap<Whom, Costs>,
    /// When their leases are over.
    recalled_until: Millis,
    /// What the total was.
    pub(super) total: Option<f64>,
}

/// What has been said last.
#[derive(Debug, Clone, Copy)]
struct Said {
    at: Millis,
    speed: f64,
    time_constant: Millis,
    total: f64,
}

impl Notes {
    /// How large the total is to begin with, if so much is held. Nobody is sent away for what was not said of the last
    /// hundredth.
    pub(super) fn begins_with(&self, held: f64) -> f64 {
        match self.total {
            Some(total) if held <= total || held > total * (1.0 + 2.0 * MUCH_OF_TOTAL) => total,
            _ => held,
        }
    }
}

impl Pool {
    /// From now on what changes is to be said.
    pub(crate) fn keep_notes(&mut self) {
        (self.notes.kept, self.accounts.keeps_notes) = (true, true);
    }

    /// What was said may be lost: all is to be said again.
    pub(crate) fn note_anew(&mut self) {
        let Notes { kept, recalled, recalled_until, total, .. } = std::mem::take(&mut self.notes);
        self.notes = Notes { kept, anew: true, recalled, recalled_until, total, ..Notes::default() };
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

    /// What a member has cost is not what was said, by so much or in a way that cannot be told. The member has been
    /// lifted out.
    pub(super) fn note(&mut self, member: &mut Member, slot: u32, moved: f64) {
        if !self.notes.kept || !(member.is_connected() || member.note.is_noted) {
            return;
        }
        member.note.moved += moved;
        let is_much = member.is_connected() != member.note.is_noted || member.note.moved > self.cost(member) * MUCH;
        let due = match (is_much, moved > 0.0) {
            (true, _) => self.clock.at,
            (false, true) => self.clock.at.plus(AGE),
            (false, false) => self.clock.at.plus(until_much(self.cost(member), member.granted.get())),
        };
        if member.note.due.is_some_and(|before| before <= due) {
            return;
        }
        if let Some(before) = member.note.due.replace(due) {
            self.notes.due.remove(&(before, slot));
        }
        self.notes.due.insert((due, slot));
    }

    /// A member is not here any more.
    pub(super) fn note_gone(&mut self, member: &mut Member, slot: u32) {
        if let Some(due) = member.note.due.take() {
            self.notes.due.remove(&(due, slot));
        }
        if std::mem::take(&mut member.note.is_noted) {
            self.notes.noted -= 1;
            self.notes.gone.insert((member.kind, Arc::clone(&member.id)));
        }
    }

    fn speed(&self) -> f64 {
        self.settings.time_factor * self.weights().0
    }

    /// Whether there is anything to say by now; of everything, whether it is due or not.
    pub(crate) fn has_notes(&self, now: Millis, all: bool) -> bool {
        if !self.notes.kept {
            return false;
        }
        let due = |first: Option<Millis>| first.is_some_and(|due| all || due <= now);
        let (notes, total) = (&self.notes, self.total.get());
        due(notes.due.first().map(|(due, _)| *due))
            || self.accounts.has_notes(now, all)
            || !notes.gone.is_empty()
            || notes.said.map_or(notes.anew || total > self.base.get(), |said| {
                (total - said.total).abs() > said.total * MUCH_OF_TOTAL
                    || (said.speed, said.time_constant) != (self.speed(), self.settings.negative_tc)
                    || said.at.plus(AGE) <= now && (notes.noted > 0 || total != said.total)
                    || all && (total != said.total || notes.noted > 0 && said.at < now)
            })
    }

    /// What is to be said now: at most so many entries, of so many bytes together or one more; what is not due only if
    /// `all`.
    pub(crate) fn take_notes(&mut self, now: Millis, entries: usize, bytes: usize, all: bool) -> Option<PoolNotes> {
        if !self.has_notes(now, all) {
            return None;
        }
        let mut room = Room { now, all, most: self.settings.max_remembered, entries, bytes };
        let mut notes = PoolNotes { anew: std::mem::take(&mut self.notes.anew), ..PoolNotes::default() };
        while room.is_left()
            && let Some((kind, id)) = self.notes.gone.pop_first()
        {
            room.take(&id);
            notes.costs.push((kind, id, None));
        }
        self.accounts.take_notes(&self.clock, &mut room, &mut notes.balances);
        while let Some((due, slot)) = self.notes.due.first().copied()
            && room.takes(due)
        {
            self.notes.due.pop_first();
            notes.costs.extend(self.noted_cost(slot, &mut room));
        }
        let (total, speed, time_constant) = (self.total, self.speed(), self.settings.negative_tc);
        self.notes.said = Some(Said { at: now, speed, time_constant, total: total.get() });
        (notes.total, notes.clock) = (total, self.clock.as_noted(speed, time_constant));
        Some(notes)
    }

    fn noted_cost(&mut self, slot: u32, room: &mut Room) -> Option<(HolderKind, Arc<str>, Option<NotedCost>)> {
        let clock = self.clock;
        let member = self.members.get_mut(slot as usize)?.as_deref_mut()?;
        let was_noted = std::mem::take(&mut member.note).is_noted;
        self.notes.noted -= usize::from(was_noted);
        let account = member.account.map(|account| self.accounts.id(account));
        if member.is_connected() && self.notes.noted >= room.most {
            return was_noted.then(|| (member.kind, Arc::clone(&member.id), None));
        }
        if !member.is_connected() && !was_noted {
            return None;
        }
        room.take(&member.id);
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

    /// Begins with what is remembered of the master before. To be called before anything is asked; `until`: all leases
    /// that it has given are over by then.
    pub(crate) fn recall(&mut self, now: Millis, until: Millis, notes: PoolNotes) {
        let mut costs: BTreeMap<Whom, NotedCost> =
            notes.costs.into_iter().filter_map(|(kind, id, cost)| Some(((kind, id), cost?))).collect();
        // Whoever is here already stands where the clock was before.
        let here: Vec<u32> = (0..self.members.len() as u32).filter(|slot| self.member(*slot).is_some()).collect();
        let lifted: Vec<_> = here.iter().map(|slot| self.lift_out(*slot)).collect();
        self.clock.recall(now, &notes.clock);
        self.accounts.recall(notes.balances, &self.clock);
        for (slot, (mut member, account)) in here.into_iter().zip(lifted.into_iter().flatten()) {
            let cost = costs.remove(&(member.kind, Arc::clone(&member.id)));
            let known = cost.as_ref().and_then(|cost| cost.account.clone());
            if known.is_some() && member.inherited {
                // Whatever was promised to it: a promise may be a little more than a place.
                member.take_for_stranger(self.settings.min_capacity);
            }
            let key = known.or(account);
            if let Some(cost) = cost.filter(|_| member.is_connected()) {
                member.costs = cost.costs(&self.clock);
                member.note.is_noted = true;
                self.notes.noted += 1;
                // What was promised to it may be more than what was noted.
                self.note(&mut member, slot, 0.0);
            }
            if let Some(key) = key.filter(|_| member.kind == HolderKind::Client && member.demand.seats > 0) {
                self.join_free(&mut member, &key);
            }
            self.put(slot, member);
        }
        self.notes.recalled = costs.iter().map(|(whom, cost)| (whom.clone(), cost.costs(&self.clock))).collect();
        (self.notes.recalled_until, self.notes.total) = (until, Some(notes.total.get()));
        self.notes.said = Some(Said {
            at: now,
            speed: notes.clock.speed,
            time_constant: notes.clock.time_constant,
            total: notes.total.get(),
        });
    }

    fn lift_out(&mut self, slot: u32) -> Option<(Box<Member>, Option<Arc<str>>)> {
        let mut member = self.lift(slot)?;
        let account = member.account.map(|account| self.accounts.id(account));
        self.no_free_client(&mut member);
        Some((member, account))
    }

    /// One comes that was not here: it goes on with what it has cost if it has had capacity all the time.
    pub(super) fn recall_cost(&mut self, member: &mut Member, goes_on: bool) {
        let whom = (member.kind, Arc::clone(&member.id));
        let Some(costs) = self.notes.recalled.remove(&whom) else { return };
        if goes_on {
            member.costs = costs;
            (member.goes_on, member.note.is_noted) = (true, true);
            self.notes.noted += 1;
        } else {
            self.bill(whom, costs);
        }
    }

    /// Those who have not come while their leases could have lasted will not any more.
    pub(super) fn bill_the_absent(&mut self, now: Millis, budget: usize) {
        if self.notes.recalled.is_empty() || now < self.notes.recalled_until {
            return;
        }
        for _ in 0..budget {
            let Some((whom, costs)) = self.notes.recalled.pop_first() else { return };
            self.bill(whom, costs);
        }
    }

    /// The last that is told of one who is gone: what it has cost.
    fn bill(&mut self, (kind, id): Whom, costs: Costs) {
        let client = PoolClient {
            kind,
            id: Arc::clone(&id),
            capacity: Amount::ZERO,
            is_priority: self.assignments.get(kind, &id).is_some(),
            time_cost: costs.time,
            request_cost: costs.request,
        };
        self.notes.gone.insert((kind, id));
        self.tell_of(client, PoolEventKind::Disconnected, Cause::Expired);
    }

    /// This master goes: what priority clients have cost so far.
    pub(crate) fn part(&mut self, now: Millis) {
        self.clock.at = self.clock.at.max(now);
        let connected = (0..self.members.len() as u32)
            .filter(|slot| self.member(*slot).is_some_and(|member| member.is_connected() && member.is_priority()));
        for slot in connected.take(PARTING).collect::<Vec<_>>() {
            if let Some(mut member) = self.lift(slot) {
                member.accrue(self.clock.at);
                self.put(slot, member);
                self.tell(slot, PoolEventKind::Update, Cause::Parting);
            }
        }
    }
}

impl NotedCost {
    fn costs(&self, clock: &Clock) -> Costs {
        let time = (self.time + self.capacity.get() * clock.lived).max(0.0);
        let (request, reported) = (self.request, self.counted);
        Costs { time, request, until: clock.at, told: time + request, reported }
    }
}
