//! The state machine of a master for one resource, without clock, I/O, tasks, locks or channels: it takes inputs and
//! returns effects.
//!
//! [`Resource`] decides what is fair and safe. The engine carries decisions out: it holds answers back until a quorum
//! has stored their promises, lets requests wait for the first supply of a parent, paces hints, and requests wake-ups.
//! The actors of the server, the simulator and tests run the same engine, so the simulated code is the code that ships.
//!
//! An input is a call with a [`Moment`] and [`Effects`]. After each call the caller carries out the effects. Inputs may
//! come at any time: a slow commit delays only the answers that need it.

mod commits;
mod effects;
mod note_writer;
mod packed;
pub mod stream;
#[cfg(test)]
mod tests;
mod waiting_for_parent;

use std::{collections::VecDeque, sync::Arc};

use crate::{
    planted::{self, Fault},
    policy::settings::{AlgorithmKind, Settings},
    resource::{
        Answer, LoadReport, Outcome, Request, Resource, ResourceOptions,
        supply::{DemandSummary, Source, Supply},
    },
    types::{Amount, HolderKind, Millis, PrincipalShare, SlotDelta},
};

use self::{
    commits::Commits,
    note_writer::{NoteScope, NoteWriter},
    waiting_for_parent::{MAX_WAIT, WaitingForSupply, WaitingRequest},
};
pub use self::{
    effects::{Batch, Effects, Ended, Environment, LostMastership, Moment},
    packed::PackedEngine,
    waiting_for_parent::Predecessor,
};

#[derive(Debug)]
pub struct Setup {
    /// If the options contain inherited promises, promises are kept and answers wait for commits.
    pub options: ResourceOptions,
    /// Whether the quorum stores notes.
    pub keeps_notes: bool,
    /// With a parent: the predecessor, if not all earlier promises are known. It determines the end of learning mode.
    pub predecessor: Option<Predecessor>,
    /// The resource retires after this time without holders.
    pub idle_after: Millis,
}

/// `T` is a ticket that identifies the request of an answer.
pub struct ResourceEngine<T> {
    resource: Resource,
    /// Present if promises are kept.
    commits: Option<Commits<T>>,
    /// Present if there is a parent.
    waiting: Option<WaitingForSupply<T>>,
    pacing: Pacing,
    /// Present if the quorum stores notes.
    note_writer: Option<NoteWriter>,
    /// Whether it is a pool, whose notes have been restored.
    is_pool: bool,
    idle_after: Millis,
    idle_since: Option<Millis>,
    /// The earliest requested wake-up.
    woken_at: Option<Millis>,
    #[cfg(feature = "planted")]
    twin: Option<fn(&T) -> T>,
}

/// The minimum time between two visits of the watched holders of a resource. A visit decides which of them to hint.
pub const MIN_VISIT_INTERVAL: Millis = Millis(50);

/// Paces visits of watched holders: soon after a change, but at most once per [`MIN_VISIT_INTERVAL`], regardless of the
/// number of rounds. A resource without changes costs nothing.
#[derive(Default)]
struct Pacing {
    last_visit: Option<Millis>,
}

impl Pacing {
    /// Whether watched holders may be visited.
    fn may_visit(&self, now: Millis) -> bool {
        self.last_visit.is_none_or(|visited| now.since(visited) >= MIN_VISIT_INTERVAL) || planted::is(Fault::HintStorm)
    }

    /// Notes the outcome of a visit. Returns when the next is due.
    fn note(&mut self, outcome: &Outcome, now: Millis) -> Option<Millis> {
        if outcome.visited {
            self.last_visit = Some(now);
        }
        let earliest = self.last_visit.map_or(now, |visited| visited.plus(MIN_VISIT_INTERVAL));
        outcome.next_visit.map(|next| next.max(earliest))
    }
}

impl<T> ResourceEngine<T> {
    pub fn new(setup: Setup, moment: Moment<'_>, effects: &mut Effects<T>) -> ResourceEngine<T> {
        let Setup { options, keeps_notes, predecessor, idle_after } = setup;
        let mut engine = ResourceEngine {
            commits: options.inherited.is_some().then(Commits::default),
            waiting: (options.source == Source::Parent).then(|| WaitingForSupply::new(predecessor, options.since)),
            resource: Resource::new(options),
            pacing: Pacing::default(),
            note_writer: keeps_notes.then(NoteWriter::default),
            is_pool: false,
            idle_after,
            idle_since: None,
            woken_at: None,
            #[cfg(feature = "planted")]
            twin: None,
        };
        engine.follow_settings(moment, effects);
        engine
    }

    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Takes the changes in the number of slots of each principal since the last call.
    pub fn drain_slot_deltas(&mut self) -> impl Iterator<Item = SlotDelta> {
        self.resource.drain_slot_deltas()
    }

    /// Sets the share of a pool's places that one principal keeps while clients of other principals wait.
    pub fn set_place_share(&mut self, share: PrincipalShare) {
        self.resource.set_place_share(share);
    }

    pub fn is_pool(&self) -> bool {
        self.is_pool
    }

    /// Whether it may have notes for the next master.
    pub fn keeps_notes(&self) -> bool {
        self.is_pool || self.resource.settings().is_budget()
    }

    /// Runs a round over a batch, and leaves it empty. Answers without new promises are sent immediately, the others
    /// after their commit.
    pub fn run_round(&mut self, moment: Moment<'_>, batch: &mut Batch<T>, effects: &mut Effects<T>) {
        let copies = self.copies(&batch.requests);
        self.decide(moment, batch, copies, effects);
    }

    /// Runs a round. `copies`: the requests that may have to wait for a supply, by position; empty if there are none.
    fn decide(
        &mut self,
        moment: Moment<'_>,
        batch: &mut Batch<T>,
        copies: Vec<Option<Request>>,
        effects: &mut Effects<T>,
    ) {
        if batch.requests.is_empty() {
            return;
        }
        if !moment.may_decide {
            batch.requests.clear();
            effects.replies.extend(batch.tickets.drain(..).map(|ticket| (ticket, Err(LostMastership))));
            self.refuse_waiting(effects);
            return;
        }
        self.resource.set_max_holders(moment.max_holders);
        self.resource.round(moment.now, &mut batch.requests, &mut batch.answers, &mut batch.scratch);
        let awaits = self.settle(moment, effects);
        if !copies.is_empty() {
            self.hold_for_supply(copies, moment.now.at, batch, effects);
        }
        if let Some(number) = awaits {
            self.hold_back(number, batch);
        }
        let answered = batch.tickets.drain(..).zip(batch.answers.drain(..));
        effects.replies.extend(answered.map(|(ticket, answer)| (ticket, Ok(answer))));
    }

    /// Advances time: leases expire, pools write notes, an idle resource retires. Call it at
    /// [`next_tick`](Self::next_tick) if the engine is packed, and otherwise about once a second. `may_note`: whether
    /// this resource may write notes now.
    pub fn tick(&mut self, moment: Moment<'_>, may_note: bool, effects: &mut Effects<T>) {
        let now = moment.now.at;
        if !moment.may_decide {
            self.refuse_waiting(effects);
            return;
        }
        self.woken_at = self.woken_at.filter(|at| *at > now);
        self.resource.enter_period(moment.now);
        let is_empty = self.resource.tick(now);
        self.settle(moment, effects);
        let is_idle = is_empty && !self.resource.is_learning(now);
        // The next incarnation starts from these notes.
        let is_noted = self.note(now, may_note, if is_idle { NoteScope::All } else { NoteScope::Due }, effects);
        if !is_idle {
            self.idle_since = None;
        } else if is_noted && now.since(*self.idle_since.get_or_insert(now)) >= self.idle_after {
            effects.ended = Some(Ended::Retired);
        }
    }

    /// Handles a wake-up that was requested by [`Effects::wake_at`].
    pub fn wake(&mut self, moment: Moment<'_>, effects: &mut Effects<T>) {
        self.woken_at = None;
        if !moment.may_decide {
            self.refuse_waiting(effects);
            return;
        }
        let mut batch = Batch::default();
        self.end_patience(moment, &mut batch, effects);
        if batch.is_empty() {
            self.settle(moment, effects);
        } else {
            self.decide(moment, &mut batch, Vec::new(), effects);
        }
    }

    /// A quorum has stored all changes up to this number, and will not lose them.
    pub fn committed(&mut self, number: u64, effects: &mut Effects<T>) {
        let Some(commits) = &mut self.commits else { return };
        if commits.store(number) {
            self.resource.acknowledge(number);
            effects.replies.extend(commits.release().map(|(ticket, answer)| (ticket, Ok(answer))));
        }
    }

    /// Changes were lost, or may have been.
    pub fn commit_lost(&mut self, effects: &mut Effects<T>) {
        effects.ended = Some(Ended::CommitLost);
    }

    /// The notes of this number are stored.
    pub fn notes_stored(&mut self, number: u64) {
        if let Some(note_writer) = &mut self.note_writer {
            note_writer.stored(number);
            if note_writer.is_stored() {
                self.resource.usage_stored();
            }
        }
    }

    /// Notes may have been lost.
    pub fn notes_lost(&mut self) {
        if let Some(note_writer) = &mut self.note_writer {
            note_writer.lost();
        }
    }

    pub fn configure(&mut self, moment: Moment<'_>, settings: impl Into<Arc<Settings>>, effects: &mut Effects<T>) {
        self.resource.configure(settings);
        self.follow_settings(moment, effects);
    }

    /// Applies a supply of the parent, to be divided under `settings`, and answers waiting requests.
    pub fn supply(
        &mut self,
        moment: Moment<'_>,
        supply: Supply,
        settings: impl Into<Arc<Settings>>,
        batch: &mut Batch<T>,
        effects: &mut Effects<T>,
    ) {
        let settings = settings.into();
        let Some(waiting) = self.waiting.as_mut().filter(|_| moment.may_decide) else { return };
        let is_first = self.resource.awaits_supply();
        if is_first {
            let has_met_strangers = self.resource.counters().unaccounted > 0;
            self.resource.learn_until(waiting.learning_until(&settings, has_met_strangers));
        }
        waiting.gave_up = false;
        for WaitingRequest { request, ticket, .. } in waiting.answered_by_supply(is_first) {
            batch.push(request, ticket);
        }
        self.resource.configure(settings);
        self.resource.enter_supplied_period(supply.period, moment.now);
        self.resource.supply(moment.now.at, supply);
        self.follow_settings(moment, effects);
        if batch.is_empty() {
            self.settle(moment, effects);
        } else {
            self.decide(moment, batch, Vec::new(), effects);
        }
    }

    /// The report to the parent. `None` if this node may not decide, because another peer may be asking in the node's
    /// name.
    pub fn summarize(&mut self, moment: Moment<'_>) -> Option<DemandSummary> {
        if !moment.may_decide {
            return None;
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.has_asked = false;
            waiting.reports += 1;
        }
        Some(self.resource.summarize(moment.now.at))
    }

    /// Runs an operation of an operator on the resource. Returns `None` without effect if this node may not decide.
    pub fn operate<R>(
        &mut self,
        moment: Moment<'_>,
        work: impl FnOnce(&mut Resource, Millis) -> R,
        effects: &mut Effects<T>,
    ) -> Option<R> {
        if !moment.may_decide {
            return None;
        }
        let done = work(&mut self.resource, moment.now.at);
        self.settle(moment, effects);
        Some(done)
    }

    /// Prepares to step down: reports the costs of clients, and writes the notes that the quorum does not have yet.
    pub fn part(&mut self, moment: Moment<'_>, effects: &mut Effects<T>) {
        if !moment.may_decide || !(self.is_pool || self.resource.has_notes(moment.now.at, true)) {
            return;
        }
        self.resource.part(moment.now.at);
        self.settle(moment, effects);
        self.note(moment.now.at, true, NoteScope::Last, effects);
    }

    /// A holder has opened a stream of hints.
    pub fn watch(&mut self, kind: HolderKind, id: &str) {
        self.resource.watch(kind, id);
    }

    /// Like [`watch`](Self::watch), for all holders that `is_watched`. Returns false, without effect, if there are more
    /// than a few holders.
    pub fn watch_few(&mut self, is_watched: impl Fn(HolderKind, &str) -> bool) -> bool {
        self.resource.watch_few(is_watched)
    }

    /// A holder has closed its stream of hints.
    pub fn unwatch(&mut self, kind: HolderKind, id: &str) {
        self.resource.unwatch(kind, id);
    }

    /// Restores the notes of a pool and the reported load after a change of settings.
    fn follow_settings(&mut self, moment: Moment<'_>, effects: &mut Effects<T>) {
        let (now, environment) = (moment.now.at, moment.environment);
        let was_pool =
            std::mem::replace(&mut self.is_pool, self.resource.settings().kind == AlgorithmKind::PriorityPool);
        if self.is_pool && !was_pool {
            self.resource.remember_assignments(environment.assignments());
            if self.note_writer.is_some() {
                self.resource.keep_notes();
            }
            if let Some(notes) = environment.notes(now) {
                self.resource.restore_pool(now, notes);
            }
        }
        if let Some(load) = environment.reported_load() {
            // It was valid when it was reported; the settings have changed since.
            effects.bad_load = self.resource.report_load(now, LoadReport { load, until: None }).err();
        }
    }

    /// Collects the effects of a step. Returns the number of the change whose commit the leases of this round must wait
    /// for.
    fn settle(&mut self, moment: Moment<'_>, effects: &mut Effects<T>) -> Option<u64> {
        let now = moment.now.at;
        let is_watched = |kind, id: &str| moment.environment.is_watched(kind, id);
        let outcome = self.resource.outcome(now, self.pacing.may_visit(now), is_watched);
        let next_visit = self.pacing.note(&outcome, now);
        if let Some(changes) = outcome.changes.filter(|_| self.commits.is_some()) {
            debug_assert!(effects.changes.is_none(), "effects are carried out after every input");
            effects.changes = Some(changes);
        }
        effects.hints.extend(outcome.hints);
        effects.pool_events.extend(outcome.pool_events);
        effects.budget_events.extend(outcome.budget_events);
        if let Some(waiting) = &mut self.waiting
            && outcome.asks_parent
        {
            effects.asks_parent |= !std::mem::replace(&mut waiting.has_asked, true);
        }
        if let Some(at) = next_visit {
            self.wake_at(at, effects);
        }
        outcome.awaits
    }

    fn wake_at(&mut self, at: Millis, effects: &mut Effects<T>) {
        if self.woken_at.is_none_or(|known| at < known) {
            self.woken_at = Some(at);
            effects.wake_at = Some(at);
        }
    }

    /// Holds back the answers with leases until a commit. Other answers stay in the batch. Their order does not matter,
    /// because each has its own ticket.
    fn hold_back(&mut self, number: u64, batch: &mut Batch<T>) {
        #[cfg(feature = "planted")]
        if planted::is(Fault::AnswersBeforeCommit) {
            return;
        }
        let Some(commits) = &mut self.commits else { return };
        // In reverse, so that removals do not move the remaining positions.
        for index in (0..batch.answers.len()).rev() {
            if batch.answers[index].lease().is_some() {
                commits.hold(number, batch.tickets.swap_remove(index), batch.answers.swap_remove(index));
            }
        }
    }

    fn awaits_supply(&self) -> bool {
        self.waiting.is_some() && self.resource.awaits_supply()
    }

    /// Copies of the requests that may have to wait for a supply. Before the first supply these are all requests,
    /// because nothing can be granted yet. Later these are the requests that may be short.
    fn copies(&self, requests: &[Request]) -> Vec<Option<Request>> {
        let awaits_supply = self.awaits_supply();
        if !awaits_supply && self.waiting.as_ref().is_none_or(|waiting| waiting.gave_up) {
            return Vec::new();
        }
        let may_be_short = |request: &Request| match request {
            Request::Ask(ask) | Request::Renew(ask) => {
                ask.kind == HolderKind::Node || ask.has.is_none_or(|has| has.capacity == Amount::ZERO)
            }
            Request::Release(_) => false,
        };
        if !awaits_supply && !requests.iter().any(may_be_short) {
            return Vec::new();
        }
        let copy = |request: &Request| (awaits_supply || may_be_short(request)).then(|| request.clone());
        requests.iter().map(copy).collect()
    }

    /// Takes the requests that wait for a supply, and their answers, out of the round: before the first supply those
    /// answered "not yet", later those that are short. A lease in such an answer counts as if the answer had been lost.
    fn hold_for_supply(
        &mut self,
        copies: Vec<Option<Request>>,
        now: Millis,
        batch: &mut Batch<T>,
        effects: &mut Effects<T>,
    ) {
        let awaits_supply = self.awaits_supply();
        let Some(waiting) = &mut self.waiting else { return };
        let short = self.resource.short();
        let after = waiting.reports;
        let mut held = VecDeque::new();
        // In reverse, so that removals do not move the remaining positions.
        for (index, copy) in copies.into_iter().enumerate().rev() {
            let waits = if awaits_supply {
                batch.answers[index] == Answer::NotYet
            } else {
                short.binary_search(&index).is_ok()
            };
            if let Some(request) = copy.filter(|_| waits) {
                batch.answers.swap_remove(index);
                let ticket = batch.tickets.swap_remove(index);
                held.push_front(WaitingRequest { until: now.plus(MAX_WAIT), after, request, ticket });
            }
        }
        if !awaits_supply && !held.is_empty() {
            effects.asks_parent |= !std::mem::replace(&mut waiting.has_asked, true);
        }
        waiting.requests.append(&mut held);
        self.await_patience(effects);
    }

    /// Answers requests that have waited long enough: before the first supply with "not yet", later from the current
    /// supply.
    fn end_patience(&mut self, moment: Moment<'_>, batch: &mut Batch<T>, effects: &mut Effects<T>) {
        let awaits_supply = self.awaits_supply();
        let Some(waiting) = &mut self.waiting else { return };
        #[cfg(feature = "planted")]
        if let (true, Some(twin)) = (planted::is(Fault::AnswersParkedTwice), self.twin) {
            let kept = waiting.requests.iter().take_while(|waiting| waiting.until <= moment.now.at);
            effects.replies.extend(kept.map(|waiting| (twin(&waiting.ticket), Ok(Answer::NotYet))));
            return;
        }
        let overdue = waiting.overdue(moment.now.at);
        if awaits_supply {
            effects.replies.extend(overdue.into_iter().map(|waiting| (waiting.ticket, Ok(Answer::NotYet))));
        } else {
            waiting.gave_up |= !overdue.is_empty();
            overdue.into_iter().for_each(|waiting| batch.push(waiting.request, waiting.ticket));
        }
        self.await_patience(effects);
    }

    fn refuse_waiting(&mut self, effects: &mut Effects<T>) {
        let Some(waiting) = &mut self.waiting else { return };
        effects.replies.extend(waiting.requests.drain(..).map(|waiting| (waiting.ticket, Err(LostMastership))));
    }

    fn await_patience(&mut self, effects: &mut Effects<T>) {
        if let Some(until) = self.waiting.as_ref().and_then(|waiting| Some(waiting.requests.front()?.until)) {
            self.wake_at(until, effects);
        }
    }

    /// Writes the notes that are due, if allowed. Returns whether all notes are stored.
    fn note(&mut self, now: Millis, may_note: bool, scope: NoteScope, effects: &mut Effects<T>) -> bool {
        let Some(note_writer) = &mut self.note_writer else { return true };
        if !note_writer.is_due(&mut self.resource, now, scope) {
            return note_writer.is_stored();
        }
        if may_note {
            effects.notes = note_writer.take(&mut self.resource, now, scope);
        } else {
            effects.wants_note_turn = true;
        }
        false
    }

    /// Lets a planted fault answer twice with one ticket.
    #[cfg(feature = "planted")]
    pub fn plant_twin(&mut self, twin: fn(&T) -> T) {
        self.twin = Some(twin);
    }
}
