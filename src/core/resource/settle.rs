//! The end of a round: what each holder in it is due, what is safe to give now, and the answers.

use std::num::NonZeroU32;

use super::{LeftOut, PendingGrant, Resource, RoundScratch};
use crate::{
    allocation::{
        division::Terms,
        settlement::{self, Participant, without_dust},
        units::whole,
    },
    lease::{
        leases::Grant,
        ledger::{Holder, NOT_WATCHED},
    },
    planted::{self, Fault},
    policy::settings::{Reuse, SafeCapacity},
    pool::Cause,
    resource::{
        Answer, Lease,
        watch_list::{apart, waits},
    },
    types::{
        amount::{Amount, Sum},
        claim::{Claim, HolderKind, wanted},
        time::{Millis, Now, certain_end},
    },
};

/// A client that was cut is to confirm after so long, if others wait for what it gave up. Go clients wait five seconds.
const CONFIRMS_AFTER: Millis = Millis(1000);
/// A holder that waits is to ask again after so long.
const WAITS_FOR: Millis = Millis(5000);

impl Resource {
    /// Divides and settles what the sub-round has absorbed, and begins the next.
    pub(super) fn settle(&mut self, now: Now, answers: &mut [Answer], scratch: &mut RoundScratch) {
        if scratch.pending.is_empty() {
            return;
        }
        if self.awaits_supply() {
            self.put_off(&mut scratch.pending, now.at, answers);
            self.begin_sub_round();
            return;
        }
        if self.may_have_lent_more(now.at) && self.pool.is_none() {
            // What was counted twice and is no more may be what another holder has.
            self.raise_unclaimed(Amount::ZERO);
        }
        self.deal_units(now.at);
        self.balance_pool(now.at, 1 + scratch.pending.len());
        let free = self.find_participants(scratch, now.at);
        if let Some(pool) = self.pool.as_deref().filter(|_| self.is_bounded()) {
            let (learning, kinds) = (self.is_learning(now.at), |slot| self.ledger.holder(slot).kind);
            Self::settle_pool(
                pool,
                learning,
                free,
                &scratch.pending,
                &scratch.participants,
                kinds,
                &mut scratch.grants,
            );
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
            let is_left_out = match pending.left_out {
                LeftOut::Never => false,
                LeftOut::IfShort => *grant < participant.due || !self.may_give_more(now.at),
                LeftOut::Always => true,
            };
            if is_left_out {
                self.ledger.remember(pending.slot, now.at, certain_end(now.at, self.settings.lease));
                answers[pending.answer] = Answer::NotYet;
            } else {
                if self.parent_may_add(pending, participant.due, *grant, now.at) {
                    self.short.push(pending.answer);
                }
                answers[pending.answer] = self.grant(pending, *grant, now, &mut scratch.terms);
            }
        }
        scratch.clear();
        self.begin_sub_round();
    }

    /// Records an answer for hints.
    fn note(&mut self, slot: u32, due: Amount, grant: Amount) {
        self.ledger.set_waits(slot, waits(due, grant));
        self.watch_list.answered(self.ledger.holder(slot).watch);
    }

    /// Computes what each is due; returns what is free.
    fn find_participants(&self, scratch: &mut RoundScratch, now: Millis) -> Sum {
        let learning = self.is_learning(now);
        let may_give_more = self.may_give_more(now);
        let mut free = Sum::from(self.total()) - self.ledger.sums().held;
        for pending in &scratch.pending {
            let holder = self.ledger.holder(pending.slot);
            let mut current = pending.keep;
            if planted::is(Fault::KeepsWhatIsHeld) {
                current = current.max(holder.leases.held(now));
            }
            // A pool that learns places no client: all get back what they had.
            let gives_back = learning && self.pool.is_some() && !self.supply_has_ended(now);
            let due = if gives_back { pending.keep } else { self.due_now(pending.slot, now, &mut scratch.terms) };
            let due = if learning { due.max(self.restored(pending, now)) } else { due };
            let due = due.min(if may_give_more { pending.most } else { pending.keep });
            let held = holder.leases.held(now);
            let retained = match self.reuse(holder.kind) {
                Reuse::Confirmed => held,
                // A holder that is left out of the answer gives nothing up.
                Reuse::Prompt if pending.left_out != LeftOut::Never => held,
                Reuse::Prompt => due.min(current).max(holder.leases.outstanding(now)),
            };
            free += Sum::from(held) - Sum::from(retained);
            scratch.participants.push(Participant { due, current, retained });
        }
        free
    }

    /// What a holder gets back at least while the resource learns: the lease that it claims, as far as it still wants
    /// that. Divided by the wants heard so far, the answer would depend on the order in which holders are heard. Only
    /// while the claims heard so far fit, and no more is held than there is.
    fn restored(&self, pending: &PendingGrant, now: Millis) -> Amount {
        let fits = self.counters.learning_excess == 0 && self.ledger.sums().held <= Sum::from(self.total());
        if !fits || !self.settings.shares() || self.supply_has_ended(now) {
            return Amount::ZERO;
        }
        let claims = wanted(&self.ledger.holder(pending.slot).claims);
        let wants: Sum = claims.map(|claim| self.division.ruled(claim).wants).collect();
        pending.restores.min(wants.floor())
    }

    /// Whether holders may be given more than they say they have. Not where more may be out than is counted: what is
    /// outstanding below one of them, by a late report, may be what another has been given since.
    fn may_give_more(&self, now: Millis) -> bool {
        !self.may_have_lent_more(now) || planted::is(Fault::LearningGivesMore)
    }

    /// What a holder should end up with while the node has a lease; after that, nothing.
    pub(super) fn due_now(&self, slot: u32, now: Millis, known: &mut Vec<(i16, Terms)>) -> Amount {
        if self.supply_has_ended(now) {
            return Amount::ZERO;
        }
        let holder = self.ledger.holder(slot);
        let due = if self.settings.shadow { holder.wants().floor() } else { self.due(slot, known) };
        due.min(self.bound(holder))
    }

    /// What a holder should end up with: what its pool or division gives it, in whole units if that is what is given.
    pub(super) fn due(&self, slot: u32, known: &mut Vec<(i16, Terms)>) -> Amount {
        if let Some(pool) = &self.pool {
            return pool.due(slot);
        }
        let holder = self.ledger.holder(slot);
        let divided = self.divided(holder, known);
        let divided = without_dust(divided, divided, self.settings.capacity);
        if self.settings.whole_units { whole(divided, holder.extra) } else { divided }
    }

    /// The sum of what its claims are due. `known` keeps the terms of bands that have been asked about.
    pub(super) fn divided(&self, holder: &Holder, known: &mut Vec<(i16, Terms)>) -> Amount {
        let mut due = |claim: &Claim| match self.terms_of(claim.priority, known) {
            // STATIC applies to each client of the child node.
            Terms::Each(most) if holder.heeds_terms() => Terms::Level(most.get()).due(claim),
            terms => self.division.due(&terms, claim),
        };
        let due = match &holder.claims[..] {
            // Exact to the bit: a sum rounds amounts below 1 up.
            [one] => due(one),
            // Slices of wants and of minimums may not fit together to the digit.
            several => several.iter().map(due).collect::<Sum>().min(holder.wants()).floor(),
        };
        due.saturating_add(self.headroom(holder))
    }

    /// The terms for claims of this priority.
    pub(super) fn terms_of(&self, priority: i16, known: &mut Vec<(i16, Terms)>) -> Terms {
        let band = self.division.band(priority);
        if let Some((_, terms)) = known.iter().find(|(other, _)| *other == band) {
            return *terms;
        }
        let terms = self.division.terms(band);
        known.push((band, terms));
        terms
    }

    /// NO_ALGORITHM and STATIC know nothing about others. Where they share a node's own lease, and more is out than
    /// that (it was cut), settlement alone would let all keep what they have for ever: then no holder is due more than
    /// an equal part.
    fn bound(&self, holder: &Holder) -> Amount {
        let (sums, capacity) = (self.ledger.sums(), self.settings.capacity);
        if self.settings.shares() || !self.is_bounded() || sums.held <= Sum::from(capacity) {
            return Amount::MAX;
        }
        Amount::clamped(capacity.get() / sums.subclients.max(1) as f64 * holder.subclients() as f64)
    }

    /// Towards child nodes reuse is always `confirmed`.
    fn reuse(&self, kind: HolderKind) -> Reuse {
        match kind {
            HolderKind::Client => self.settings.reuse,
            HolderKind::Node => Reuse::Confirmed,
        }
    }

    fn grant(&mut self, pending: &PendingGrant, capacity: Amount, now: Now, known: &mut Vec<(i16, Terms)>) -> Answer {
        let slot = pending.slot;
        let kind = self.ledger.holder(slot).kind;
        let (length, refresh) = self.lengths(now.at);
        let refresh = self.steered(refresh, slot, now.at);
        let token = self.tokens.issue();
        let expiry_time = now.unix.saturating_add((length.0 / 1000) as i64);
        let grant = Grant { token, capacity, end: certain_end(now.at, length) };
        let priority = self.ledger.holder(slot).claims.first().map_or(0, |claim| claim.priority);
        self.ledger.grant(slot, now.at, grant, expiry_time, self.reuse(kind));
        self.note_claimed(slot, token, pending.claimed);
        let will_show = pending.claimed > Amount::ZERO && self.outlasts_inherited(expiry_time, now);
        let refresh = self.hastened(refresh, slot, will_show, now.at);
        self.cover_until(grant.end);
        let pool = self.pool_grants(slot, Cause::Asked);
        self.counters.granted += 1;
        let safe_capacity = self.safe_capacity();
        let lease = Lease { token, capacity, length, refresh, expiry_time, safe_capacity, priority, pool };
        match kind {
            HolderKind::Client => Answer::Granted(lease),
            HolderKind::Node => Answer::Supplied(Box::new(self.supplied(slot, lease, known))),
        }
    }

    /// A shorter refresh interval for a holder that others wait for, or that waits for others: Doorman's clients
    /// receive no hints. A holder that was cut asks as soon as it may, to confirm, so that what it gave up can be used;
    /// one that waits asks again when the holders that were cut may have confirmed. Only where the difference is
    /// visible, and only holders that confirm: others would be asked repeatedly until the older lease has ended.
    /// `will_show`: it is one that names no leases, but its next request confirms this one.
    fn hastened(&mut self, usual: Millis, slot: u32, will_show: bool, now: Millis) -> Millis {
        let holder = self.ledger.holder(slot);
        // A watched holder receives hints.
        if self.ledger.waiting() == 0 || holder.watch != NOT_WATCHED {
            return usual;
        }
        if !self.is_bounded() || self.is_learning(now) || self.pool.is_some() || self.rotation.is_some() {
            return usual;
        }
        let (held, current) = (holder.leases.held(now), holder.leases.current(now));
        let confirms = holder.leases.has_confirmed() || will_show;
        let awaited = holder.kind == HolderKind::Client && confirms && current < held;
        let sooner = if awaited && apart(held, current) {
            CONFIRMS_AFTER
        } else if holder.waits() {
            WAITS_FOR
        } else {
            return usual;
        };
        let refresh = sooner.min(usual);
        let interval = u32::try_from(refresh.0).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        if let Some(asked) = &mut self.ledger.holder_mut(slot).asked {
            asked.interval = interval;
        }
        refresh
    }

    /// How long a lease given now lasts, and when to ask again: never longer than the node's own, and again before it
    /// ends.
    pub(super) fn lengths(&self, now: Millis) -> (Millis, Millis) {
        let own = self.supply_until().map(|until| until.since(now)).filter(|left| left.0 > 0);
        let own = own.filter(|_| !planted::is(Fault::OutlivesParent));
        let length = own.map_or(self.settings.lease, |left| left.min(self.settings.lease));
        let usual = self.settings.refresh;
        let latest = Millis(length.0.saturating_sub(1000).max(1000));
        let refresh = if usual < length { usual } else { latest };
        (length, refresh.min(usual))
    }

    fn safe_capacity(&self) -> f64 {
        match self.settings.safe_capacity {
            SafeCapacity::Fixed(amount) => amount.get(),
            SafeCapacity::Unlimited => -1.0,
            SafeCapacity::Dynamic => {
                let clients = self.ledger.sums().subclients.max(1);
                Amount::clamped(self.settings.capacity.get() / clients as f64).get()
            }
        }
    }
}
