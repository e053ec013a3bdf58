//! A round: processes all waiting requests, divides and settles once, and answers all of them.
//!
//! For each request, *admission* applies its statement about leases and inserts its wants. Then *settlement* computes
//! the dues of all these holders, and grants each as much of its due as is free. So the order of requests within a
//! round does not matter.

mod admission;

pub(super) use self::admission::interval_of;

use crate::{
    allocation::{
        KnownTerms,
        settlement::{self, Participant, without_dust},
        units::{UnitPart, part_of},
    },
    lease::{
        NewLease,
        confirm::{Entitlement, LeftOut, NEVER},
        ledger::{Holder, NOT_WATCHED},
    },
    planted::{self, Fault},
    policy::settings::{AlgorithmKind, Reuse, SafeCapacity},
    pool::{Cause, MOVES_PER_REQUEST},
    resource::{
        Answer, Lease, Request, Resource,
        watch_list::{differs_visibly, waits},
    },
    types::{Amount, HolderKind, Millis, Now, Sum},
};

/// Maximum number of expiring records visited per request, besides those visited by ticks. Refreshes alone make about
/// this many visits necessary. The limit keeps a request from waiting while a million leases end in the same second.
const EXPIRE_PER_REQUEST: usize = 8;
/// The refresh interval of a client that was cut, if others wait for the capacity. Go clients wait at least five
/// seconds.
const CONFIRM_INTERVAL: Millis = Millis(1000);
/// The refresh interval of a holder that waits for others.
const WAIT_INTERVAL: Millis = Millis(5000);

/// Buffers of a round. They are empty between rounds, so one instance serves all resources of a thread and stays in the
/// processor's caches.
#[derive(Default)]
pub struct RoundScratch {
    /// The slots whose records were prefetched.
    slots: Vec<u32>,
    /// The requests of the sub-round.
    pending: Vec<PendingGrant>,
    participants: Vec<Participant>,
    grants: Vec<Amount>,
    terms: KnownTerms,
}

impl RoundScratch {
    fn clear(&mut self) {
        self.pending.clear();
        self.participants.clear();
        self.grants.clear();
        self.terms.clear();
    }
}

/// A request during a sub-round.
pub(super) struct PendingGrant {
    pub(super) slot: u32,
    /// The index of its answer.
    pub(super) answer: usize,
    pub(super) entitled: Entitlement,
}

impl Resource {
    /// Runs a round over `requests`, which is left empty. `answers` gets one answer for each, in the same order.
    pub fn round(
        &mut self,
        now: Now,
        requests: &mut Vec<Request>,
        answers: &mut Vec<Answer>,
        scratch: &mut RoundScratch,
    ) {
        // A round that panicked may have left data.
        scratch.clear();
        self.counters.rounds += 1;
        self.expire(now.at, EXPIRE_PER_REQUEST * (1 + requests.len()));
        self.end_inherited(now.at);
        self.expire_supply(now.at);
        self.expire_report(now.at);
        self.enter_period(now);
        self.step_pool(now.at, MOVES_PER_REQUEST * (1 + requests.len()));
        self.begin_sub_round();
        self.last_round.newcomers.clear();
        self.last_round.short.clear();
        self.prefetch(requests, &mut scratch.slots);
        for request in requests.drain(..) {
            // A placeholder until the sub-round is settled.
            let answer_index = answers.len();
            answers.push(Answer::TooSoon);
            let mut ask = match request {
                Request::Ask(ask) => ask,
                Request::Renew(ask) => match self.with_wants(ask, now) {
                    Some(ask) => ask,
                    None => {
                        answers[answer_index] = Answer::Unknown;
                        continue;
                    }
                },
                Request::Release(release) => {
                    if self.is_pending(release.kind, &release.id, scratch) {
                        self.settle(now, answers, scratch);
                    }
                    self.release(&release, now.at);
                    answers[answer_index] = Answer::Released;
                    continue;
                }
            };
            if let Err(answer) = self.prepare_spender(&mut ask, now) {
                answers[answer_index] = answer;
                continue;
            }
            if self.is_pending(ask.kind, &ask.id, scratch) {
                self.settle(now, answers, scratch);
            }
            match self.admit(ask, now) {
                Ok((slot, entitled)) => scratch.pending.push(PendingGrant { slot, answer: answer_index, entitled }),
                Err(answer) => answers[answer_index] = answer,
            }
        }
        self.settle(now, answers, scratch);
    }

    /// Prefetches the records that the round will use. Otherwise each would wait for memory several times in turn; this
    /// way the waits overlap.
    fn prefetch(&self, requests: &[Request], slots: &mut Vec<u32>) {
        let likely = requests.iter().filter_map(|request| match request {
            Request::Ask(ask) | Request::Renew(ask) => self.book.ledger().likely_slot(ask.kind, &ask.id),
            Request::Release(release) => self.book.ledger().likely_slot(release.kind, &release.id),
        });
        slots.clear();
        slots.extend(likely);
        let touch = |slot: &u32| self.book.ledger().touch(*slot) ^ self.allocation.touch(*slot);
        let touched = slots.iter().fold(0, |touched, slot| touched ^ touch(slot));
        // Keeps the compiler from removing the unused reads.
        std::hint::black_box(touched);
    }

    fn begin_sub_round(&mut self) {
        self.last_round.sub_round = self.last_round.sub_round.wrapping_add(1);
    }

    /// Whether the holder has a request in this sub-round already.
    fn is_pending(&self, kind: HolderKind, id: &str, scratch: &RoundScratch) -> bool {
        // The first request needs no lookup.
        !scratch.pending.is_empty() && {
            let ledger = self.book.ledger();
            ledger.find(kind, id).is_some_and(|slot| ledger.holder(slot).round == self.last_round.sub_round)
        }
    }
}

impl Resource {
    /// Computes dues and grants of the requests in this sub-round, answers them, and begins the next sub-round.
    pub(super) fn settle(&mut self, now: Now, answers: &mut [Answer], scratch: &mut RoundScratch) {
        if scratch.pending.is_empty() {
            return;
        }
        if self.awaits_supply() {
            self.defer_all(&mut scratch.pending, now.at, answers);
            self.begin_sub_round();
            return;
        }
        if self.may_have_lent_more(now.at) && self.pool.is_none() {
            // Two records may have counted the same amount, so a third holder may have the difference.
            self.raise_unclaimed(Amount::ZERO);
        }
        self.deal_units(now.at);
        self.step_pace(now);
        for pending in &scratch.pending {
            self.add_credit(pending.slot, now.at, &mut scratch.terms);
        }
        self.balance_pool(now.at, 1 + scratch.pending.len());
        let free = self.find_participants(scratch, now.at);
        if let Some(pool) = self.pool.as_deref().filter(|_| self.is_bounded()) {
            let (learning, kinds) = (self.is_learning(now.at), |slot| self.book.ledger().holder(slot).kind);
            Self::settle_pool(
                pool,
                learning,
                free,
                &scratch.pending,
                &scratch.participants,
                kinds,
                &mut scratch.grants,
            );
        } else if self.budget.is_some() {
            let (nothing, least) = (Sum::ZERO, |_| Amount::ZERO);
            settlement::settle_in_turn(free, &scratch.participants, |_| false, nothing, least, &mut scratch.grants);
        } else if self.is_bounded() {
            let indivisible = self.settings.whole_units;
            settlement::settle(free, &scratch.participants, indivisible, &mut scratch.grants);
        } else {
            scratch.grants.extend(scratch.participants.iter().map(|participant| participant.due));
        }
        let total = self.total();
        for (participant, grant) in scratch.participants.iter().zip(&mut scratch.grants) {
            *grant = without_dust(*grant, participant.due, total);
        }
        for ((pending, participant), grant) in scratch.pending.iter().zip(&scratch.participants).zip(&scratch.grants) {
            self.note(pending.slot, participant.due, *grant);
            let is_left_out = match pending.entitled.left_out {
                LeftOut::Never => false,
                LeftOut::IfShort => *grant < participant.due || !self.may_give_more(now.at),
                LeftOut::Always => true,
            };
            if is_left_out {
                self.book.remember(pending.slot, now.at, self.settings.lease);
                answers[pending.answer] = Answer::NotYet;
            } else {
                if self.parent_may_add(pending, participant.due, *grant, now.at) {
                    self.last_round.short.push(pending.answer);
                }
                answers[pending.answer] = self.grant(pending, *grant, now, &mut scratch.terms);
            }
        }
        scratch.clear();
        self.begin_sub_round();
    }

    /// Records an answer for later hints.
    fn note(&mut self, slot: u32, due: Amount, grant: Amount) {
        self.book.set_waits(slot, waits(due, grant));
        self.watch_list.answered(self.book.ledger().holder(slot).watch);
    }

    /// Computes the due of each pending request. Returns the free capacity.
    fn find_participants(&self, scratch: &mut RoundScratch, now: Millis) -> Sum {
        let learning = self.is_learning(now);
        let may_give_more = self.may_give_more(now);
        let mut free = Sum::from(self.total()) - self.book.ledger().sums().held;
        for pending in &scratch.pending {
            let holder = self.book.ledger().holder(pending.slot);
            let mut current = pending.entitled.keep;
            if planted::is(Fault::KeepsWhatIsHeld) {
                current = current.max(holder.leases.held(now));
            }
            // A pool in learning mode admits no client: all holders get back what they had.
            let gives_back = learning && self.pool.is_some() && !self.supply_has_ended(now);
            let due =
                if gives_back { pending.entitled.keep } else { self.due_now(pending.slot, now, &mut scratch.terms) };
            let due = if learning { due.max(self.restored(pending, now)) } else { due };
            let due = due.min(if may_give_more { pending.entitled.maximum } else { pending.entitled.keep });
            let held = holder.leases.held(now);
            let retained = match self.reuse(holder.kind) {
                Reuse::Confirmed => held,
                // A holder that is left out of the answer gives up nothing.
                Reuse::Prompt if pending.entitled.left_out != LeftOut::Never => held,
                Reuse::Prompt => due.min(current).max(holder.leases.outstanding(now)),
            };
            free += Sum::from(held) - Sum::from(retained);
            scratch.participants.push(Participant { due, current, retained });
        }
        free
    }

    /// The minimum that a holder gets back in learning mode: the lease that it claims, up to its wants. If dues
    /// applied, the answer would depend on the order in which holders ask. It is zero if a claim did not fit, or while
    /// more is held than the capacity.
    fn restored(&self, pending: &PendingGrant, now: Millis) -> Amount {
        let fits = self.counters.learning_excess == 0 && self.book.ledger().sums().held <= Sum::from(self.total());
        if !fits || !self.settings.shares() || self.budget.is_some() || self.supply_has_ended(now) {
            return Amount::ZERO;
        }
        let wants = self.allocation.ruled_wants(&self.book.ledger().holder(pending.slot).claims);
        pending.entitled.restores.min(wants.floor())
    }

    /// Whether holders may get more than they claim. They may not while more may be in use than is counted: capacity
    /// that a late report declares outstanding may have been granted to another holder since.
    fn may_give_more(&self, now: Millis) -> bool {
        !self.may_have_lent_more(now) || planted::is(Fault::LearningGivesMore)
    }

    /// The due of a holder. Zero if the supply of the node has ended.
    pub(super) fn due_now(&self, slot: u32, now: Millis, known: &mut KnownTerms) -> Amount {
        if self.supply_has_ended(now) {
            return Amount::ZERO;
        }
        let holder = self.book.ledger().holder(slot);
        let due = if self.settings.shadow { holder.wants().floor() } else { self.due(slot, known) };
        due.min(self.bound(holder))
    }

    /// The due by the pool or the allocation, rounded to whole units if configured.
    pub(super) fn due(&self, slot: u32, known: &mut KnownTerms) -> Amount {
        if let Some(pool) = &self.pool {
            return pool.due(slot);
        }
        if self.budget.is_some() {
            return self.budget_due(slot);
        }
        let holder = self.book.ledger().holder(slot);
        self.allocation.rounded(self.divided(slot, holder, known), self.settings.capacity, holder.extra)
    }

    /// The sum of the dues of a holder's claims. `known` caches the terms of bands.
    pub(super) fn divided(&self, slot: u32, holder: &Holder, known: &mut KnownTerms) -> Amount {
        let divided =
            self.allocation.divided(slot, &holder.claims, holder.understands_terms(), || holder.wants(), known);
        divided.saturating_add(self.headroom(holder))
    }

    /// Bounds a due after the parent cut the supply below what is held: an equal share. Otherwise NO_ALGORITHM and
    /// STATIC holders would never shrink.
    fn bound(&self, holder: &Holder) -> Amount {
        let (sums, capacity) = (self.book.ledger().sums(), self.settings.capacity);
        if self.settings.shares() || !self.is_bounded() || sums.held <= Sum::from(capacity) {
            return Amount::MAX;
        }
        Amount::clamped(capacity.get() / sums.subclients.max(1) as f64 * holder.subclients() as f64)
    }

    /// When capacity that this holder gives up may be reused. Child nodes must always confirm first.
    fn reuse(&self, kind: HolderKind) -> Reuse {
        match kind {
            HolderKind::Client => self.settings.reuse,
            HolderKind::Node => Reuse::Confirmed,
        }
    }

    fn grant(&mut self, pending: &PendingGrant, capacity: Amount, now: Now, known: &mut KnownTerms) -> Answer {
        let slot = pending.slot;
        let kind = self.book.ledger().holder(slot).kind;
        let (length, refresh) = self.lengths(now);
        let refresh = self.align_to_rotation(refresh, slot, now.at);
        let expiry_time = now.unix.saturating_add((length.0 / 1000) as i64);
        let priority = self.book.ledger().holder(slot).claims.first().map_or(0, |claim| claim.priority);
        let counts = self.budget_horizon().map(|horizon| (NEVER, horizon));
        let lease = NewLease { capacity, length, expiry_time, claimed: pending.entitled.claimed, counts };
        self.use_credit(slot, capacity);
        let token = self.book.grant(slot, now.at, lease, self.reuse(kind));
        let will_show = pending.entitled.claimed > Amount::ZERO && self.book.outlasts_inherited(expiry_time, now);
        let refresh = self.shorten_interval(refresh, slot, will_show, now.at);
        let pool = self.pool_grants(slot, Cause::Asked);
        self.counters.granted += 1;
        let safe_capacity = self.safe_capacity();
        let is_unlimited = self.settings.kind == AlgorithmKind::NoAlgorithm;
        let budget = self.budget_lease(false);
        let lease = Lease {
            token,
            capacity,
            length,
            refresh,
            expiry_time,
            safe_capacity,
            priority,
            is_unlimited,
            pool,
            budget,
        };
        match kind {
            HolderKind::Client => Answer::Granted(lease),
            HolderKind::Node => Answer::Supplied(Box::new(self.supplied(slot, lease, known))),
        }
    }

    /// Shortens the refresh interval of a holder that others wait for, or that waits for others, because Doorman's
    /// clients receive no hints. A holder that was cut asks as soon as allowed, so that its capacity can be used. A
    /// waiting holder asks again when holders that were cut may have confirmed. This applies only to visible
    /// differences, and only to holders that confirm: others would be asked repeatedly until their older leases end.
    /// `will_show`: the holder echoes no tokens, but its next request confirms this lease.
    fn shorten_interval(&mut self, usual: Millis, slot: u32, will_show: bool, now: Millis) -> Millis {
        let holder = self.book.ledger().holder(slot);
        // A watched holder receives hints.
        if self.book.ledger().waiting() == 0 || holder.watch != NOT_WATCHED {
            return usual;
        }
        if !self.is_bounded()
            || self.is_learning(now)
            || self.pool.is_some()
            || self.budget.is_some()
            || self.allocation.rotation_ends().is_some()
        {
            return usual;
        }
        let (held, current) = (holder.leases.held(now), holder.leases.current(now));
        let confirms = holder.leases.has_confirmed() || will_show;
        let awaited = holder.kind == HolderKind::Client && confirms && current < held;
        let sooner = if awaited && differs_visibly(held, current) {
            CONFIRM_INTERVAL
        } else if holder.waits() {
            WAIT_INTERVAL
        } else {
            return usual;
        };
        let refresh = sooner.min(usual);
        self.book.set_interval(slot, interval_of(refresh));
        refresh
    }

    /// The length of a lease granted now, and its refresh interval. It ends no later than the supply of the node, and
    /// is refreshed before it ends.
    pub(super) fn lengths(&self, now: Now) -> (Millis, Millis) {
        let own = self.supply_until().map(|until| until.since(now.at)).filter(|left| left.0 > 0);
        let own = own.filter(|_| !planted::is(Fault::OutlivesParent));
        let length = own.map_or(self.settings.lease, |left| left.min(self.settings.lease));
        let length = self.left_of_period(now).map_or(length, |left| left.min(length));
        (length, self.settings.refresh_within(length))
    }

    fn safe_capacity(&self) -> f64 {
        if self.budget.is_some() {
            // Whatever is not in a live lease may be spent by another holder.
            return 0.0;
        }
        match self.settings.safe_capacity {
            SafeCapacity::Fixed(amount) => amount.get(),
            SafeCapacity::Unlimited => -1.0,
            SafeCapacity::Dynamic => {
                let clients = self.book.ledger().sums().subclients.max(1);
                Amount::clamped(self.settings.capacity.get() / clients as f64).get()
            }
        }
    }

    // Whole units.

    fn parts(&self) -> Vec<UnitPart> {
        let mut terms = Vec::new();
        let parts = self.book.ledger().iter_from(0).map(|(slot, holder)| {
            let part = part_of(self.divided(slot, holder, &mut terms));
            UnitPart { slot, id: holder.id.clone(), part }
        });
        parts.filter(|part| part.part > 0).collect()
    }

    /// Deals the left-over units if a deal is due. Visits every holder, once per rotation and after changes of demand.
    pub(super) fn deal_units(&mut self, now: Millis) {
        let version = self.book.ledger().claims_changes().wrapping_add(self.settings_version);
        if !self.allocation.must_deal(now, version) {
            return;
        }
        let parts = self.parts();
        let winners = self.allocation.deal(now, self.settings.rotation(), version, &parts);
        if self.book.set_extra_units(&winners) {
            // The new version starts another visit of watched holders.
            self.allocation.note_rotation();
        }
    }

    /// Limits a refresh interval to the end of the rotation, if units are whole.
    pub(super) fn align_to_rotation(&self, refresh: Millis, slot: u32, now: Millis) -> Millis {
        if self.allocation.rotation_ends().is_none() || !self.is_bounded() {
            return refresh;
        }
        self.allocation.until_rotation(refresh, self.book.ledger().holder(slot).extra, now)
    }
}
