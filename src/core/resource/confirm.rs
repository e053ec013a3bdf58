//! What a request says of the leases that its holder has: the rules 1, 2 and E3 to E12 of
//! docs/internals/lease-protocol.md. It counts even if the request is then ignored.

use super::{LeftOut, PendingGrant, Resource};
use crate::{
    lease::leases::{Confirmation, Has},
    planted::{self, Fault},
    policy::settings::Reuse,
    resource::{Answer, Ask},
    types::{
        amount::{Amount, Sum},
        claim::HolderKind,
        time::{Millis, Now, certain_end},
        token::Token,
    },
};

/// The first leases of a master can look like the last ones of its predecessor. After this time none of them does.
const SOON_TOLD_APART: Millis = Millis(3_000);

impl Resource {
    /// Hears it, and returns its place in the round.
    pub(super) fn apply_has(&mut self, slot: u32, is_new: bool, ask: &Ask, now: Now) -> Result<PendingGrant, Answer> {
        let applied = self.apply_lease(slot, ask, now);
        if applied.is_err() {
            // What it reports as outstanding counts all the same.
            self.ledger.recount(slot, now.at);
        }
        let mut pending = applied?;
        let knows_nothing = !self.has_inherited();
        if is_new && self.is_unaccounted(slot, ask, now) && knows_nothing && self.listens_once_more(now.at) {
            pending = self.apply_lease(slot, ask, now)?;
        }
        let may_have_more = self.may_have_more(slot, is_new, ask, now.at);
        if may_have_more {
            pending.left_out = LeftOut::IfShort;
        }
        let has = ask.has.filter(|has| ask.drops_late || has.expiry_time >= now.unix).map(|has| has.capacity);
        let amount = has.or(self.lapsed_claim(ask).map(|(_, had)| had));
        if is_new && (amount.is_some() || may_have_more) {
            let mut claims = self.counted(ask.kind, ask.heeds_terms(), ask.claims.clone());
            self.settings.put_rule(ask.kind, &ask.id, &mut claims);
            self.take_over_wants(claims, amount.unwrap_or_default());
        }
        self.ledger.recount(slot, now.at);
        let leases = &self.ledger.holder(slot).leases;
        if leases.reports_outstanding() {
            self.cover_until(leases.last_end());
        }
        Ok(pending)
    }

    fn apply_lease(&mut self, slot: u32, ask: &Ask, now: Now) -> Result<PendingGrant, Answer> {
        self.ledger.holder_mut(slot).leases.end_claimed(ask.kind, now.at);
        let Some(has) = ask.has else {
            return match self.lapsed_claim(ask) {
                Some((token, had)) => self.apply_lapsed_claim(slot, token, had, ask.outstanding, now.at),
                None => self.apply_echo(slot, ask, now.at),
            };
        };
        match has.token {
            Some(token) if self.tokens.is_former(token) && self.may_claim(ask, &has, now) => {
                self.apply_claim(slot, token, has.capacity, ask.outstanding, now.at)
            }
            Some(token) if ask.drops_late || self.echoes(ask, token) => self.apply_echo(slot, ask, now.at),
            _ if self.has_inherited() && has.expiry_time < now.unix => self.apply_silence(slot, now.at),
            _ if self.has_inherited() => self.apply_plain(slot, &has, ask, now),
            _ => self.apply_echo(slot, ask, now.at),
        }
    }

    /// Whether a request may name this lease of an earlier master (rules E3 to E6). A client that takes answers after
    /// the end of what its request named may do so only while that has not ended by the clock of this master (E10).
    fn may_claim(&self, ask: &Ask, has: &Has, now: Now) -> bool {
        let is_live = has.expiry_time >= now.unix;
        ask.drops_late || ask.kind == HolderKind::Client && self.has_inherited() && is_live
    }

    /// Whether it is a client that echoes tokens without knowing what they are, and this is one of this master.
    fn echoes(&self, ask: &Ask, token: Token) -> bool {
        ask.kind == HolderKind::Client && self.tokens.issued(token)
    }

    /// It names a lease of an earlier master (rules E3 to E6). What is outstanding beyond that stays in the estate.
    fn apply_claim(
        &mut self,
        slot: u32,
        token: Token,
        amount: Amount,
        outstanding: Option<Amount>,
        now: Millis,
    ) -> Result<PendingGrant, Answer> {
        let leases = &mut self.ledger.holder_mut(slot).leases;
        let Some(is_another) = leases.claim_former(token, now) else {
            self.counters.stale += 1;
            return Err(Answer::Stale);
        };
        let is_fresh = leases.is_fresh(now) && !planted::is(Fault::MovesOntoFresh);
        if !is_fresh && (amount > leases.claimed() || is_another) {
            self.claim_inherited(slot, amount, Some(token));
        }
        let leases = &mut self.ledger.holder_mut(slot).leases;
        if planted::is(Fault::FirstNameFrees) {
            leases.set_claimed(Amount::ZERO, now);
        }
        let keep = leases.kept(amount, now);
        let is_beyond = self.has_inherited() && outstanding.is_some_and(|outstanding| outstanding > amount);
        let most = if is_beyond { amount } else { Amount::MAX };
        Ok(PendingGrant { keep, most, restores: keep.min(amount), ..PendingGrant::of(slot) })
    }

    /// It names a lease of an earlier master that has ended (rule E12). Below a parent that may be another's by now, so
    /// it gets of it only what is free.
    fn apply_lapsed_claim(
        &mut self,
        slot: u32,
        token: Token,
        had: Amount,
        outstanding: Option<Amount>,
        now: Millis,
    ) -> Result<PendingGrant, Answer> {
        let pending = self.apply_claim(slot, token, had, outstanding, now)?;
        let keeps = !self.has_parent() || planted::is(Fault::KeepsWhatLapsed);
        let keep = if keeps { pending.keep } else { self.ledger.holder(slot).leases.current(now) };
        Ok(PendingGrant { keep, restores: keep.min(pending.restores), ..pending })
    }

    /// A holder whose request carries no token, so that leases of this master and of earlier ones look alike (rule
    /// E10). Until it shows a lease that can only be the newest of this master, it gets back what it says it has, as far
    /// as that was moved, and what it says confirms nothing.
    fn apply_plain(&mut self, slot: u32, has: &Has, ask: &Ask, now: Now) -> Result<PendingGrant, Answer> {
        if self.shows_newest(slot, has, ask, now) {
            return self.apply_proof(slot, ask, now.at);
        }
        let leases = &self.ledger.holder(slot).leases;
        if leases.is_fresh(now.at) && !planted::is(Fault::MovesOntoFresh) {
            return Ok(PendingGrant { keep: leases.current(now.at), ..PendingGrant::of(slot) });
        }
        if has.capacity > leases.claimed() {
            self.claim_without_token(slot, has.capacity);
        }
        let keep = has.capacity.min(self.ledger.holder(slot).leases.claimed());
        let grows = planted::is(Fault::PlainGrows) || !self.is_bounded();
        Ok(PendingGrant {
            keep,
            most: if grows { Amount::MAX } else { keep },
            restores: keep,
            claimed: keep,
            left_out: if self.is_early(has, now) { LeftOut::Always } else { LeftOut::Never },
            ..PendingGrant::of(slot)
        })
    }

    /// Whether the holder is better served by waiting: a lease given now could not be told from those of earlier masters,
    /// one given in [`SOON_TOLD_APART`] could, and the lease that the holder has lasts long enough.
    fn is_early(&self, has: &Has, now: Now) -> bool {
        let length = self.lengths(now.at).0;
        let can_wait = has.expiry_time.saturating_sub(now.unix) > (length.0 / 2000) as i64;
        let outlasts = |at: Millis| self.outlasts_inherited(now.unix + (at.0 / 1000) as i64, now);
        can_wait && self.is_bounded() && !outlasts(length) && outlasts(length.plus(SOON_TOLD_APART))
    }

    /// Whether it shows the newest lease of this record, and one that ends later than any of an earlier master may.
    fn shows_newest(&self, slot: u32, has: &Has, ask: &Ask, now: Now) -> bool {
        let is_newest = has.token.is_none() && self.ledger.holder(slot).leases.shows_newest(has);
        let is_ours = self.outlasts_inherited(has.expiry_time, now) || planted::is(Fault::TakesLookalikes);
        ask.kind == HolderKind::Client && is_newest && is_ours
    }

    /// It shows a lease of this master, so it uses nothing of earlier ones any more. Of what was moved, as much comes
    /// free as was named for that lease; the rest may be another holder's (rule E10).
    fn apply_proof(&mut self, slot: u32, ask: &Ask, now: Millis) -> Result<PendingGrant, Answer> {
        let leases = &self.ledger.holder(slot).leases;
        let (claimed, newest) = (leases.claimed(), leases.newest());
        let proven = self.take_claimed(slot, newest);
        let freed = if planted::is(Fault::ShownFreesAll) { claimed } else { proven.min(claimed) };
        let pending = self.apply_echo(slot, ask, now)?;
        // Exact: rounded up, more might count than before.
        self.give_back(Sum::from(claimed) - freed.into());
        Ok(pending)
    }

    /// It says nothing about what it has. If something was moved here, the rest of what it may have is not known
    /// (rule E5): it is left out of the answer until it names something, or until the estate is over.
    fn apply_silence(&mut self, slot: u32, now: Millis) -> Result<PendingGrant, Answer> {
        let leases = &self.ledger.holder(slot).leases;
        let is_claimed = self.has_inherited() && self.is_bounded() && leases.claimed() > Amount::ZERO;
        if is_claimed && !planted::is(Fault::FreshWhileMoved) {
            return Err(Answer::NotYet);
        }
        Ok(PendingGrant { keep: leases.current(now), ..PendingGrant::of(slot) })
    }

    /// It echoes a lease of this master, or says nothing, or something that is unknown here.
    fn apply_echo(&mut self, slot: u32, ask: &Ask, now: Millis) -> Result<PendingGrant, Answer> {
        let reported = ask.outstanding.unwrap_or_default();
        let tokens = &self.tokens;
        let leases = &mut self.ledger.holder_mut(slot).leases;
        let held = leases.held(now);
        let learning = ask.learning && !planted::is(Fault::LearningConfirms);
        let confirmation = match &ask.has {
            Some(has) => leases.confirm(has, learning, |token| tokens.issued(token)),
            None if planted::is(Fault::AbsentHasClears) => {
                leases.forget_given();
                Confirmation::Nothing
            }
            None => match ask.had.and_then(|had| had.token).filter(|_| ask.drops_late) {
                Some(had) if leases.is_stale(had) => Confirmation::Stale,
                _ => Confirmation::Nothing,
            },
        };
        let trusted = confirmation == Confirmation::Known || planted::is(Fault::LateReportLowers);
        if confirmation == Confirmation::Stale && !trusted {
            self.counters.stale += 1;
            return Err(Answer::Stale);
        }
        let until = certain_end(now, self.settings.lease);
        let outstanding = match (ask.kind, self.settings.reuse) {
            _ if planted::is(Fault::BelievesClients) => reported,
            // What former masters of it have given below it is not known here.
            (HolderKind::Node, _) => reported,
            // It does not know what is in use, but for that it is no more than was held for it.
            (HolderKind::Client, Reuse::Prompt) if reported == Amount::MAX => held,
            // Older leases are forgotten then.
            (HolderKind::Client, Reuse::Prompt) => reported.min(self.settings.capacity),
            // It has what it was given, and that is held for it until it has confirmed a smaller lease.
            (HolderKind::Client, Reuse::Confirmed) if trusted => reported.min(held),
            // It may go back to the estate, and would count twice.
            (HolderKind::Client, Reuse::Confirmed) if leases.claimed() > Amount::ZERO => Amount::ZERO,
            (HolderKind::Client, Reuse::Confirmed) => reported.min(leases.held(now)),
        };
        leases.report_outstanding(outstanding, trusted, now, until);
        let keep = leases.current(now);
        if let Confirmation::Older(returned) = confirmation
            && !planted::is(Fault::EchoFreesAll)
        {
            self.give_back(returned);
        }
        if ask.has.is_none() {
            return self.apply_silence(slot, now);
        }
        Ok(PendingGrant { keep, ..PendingGrant::of(slot) })
    }

    /// Moves what the holder names from the estate into its record, or back; it is counted when all has been heard.
    fn claim_without_token(&mut self, slot: u32, amount: Amount) {
        self.claim_inherited(slot, amount, None);
    }

    /// The same, under the name of a lease.
    fn claim_inherited(&mut self, slot: u32, amount: Amount, token: Option<Token>) {
        let target = self.exchange(self.ledger.holder(slot).leases.claimed(), amount, token);
        let until = self.inherited_until().unwrap_or_default();
        self.ledger.holder_mut(slot).leases.set_claimed(target, until);
    }

    /// Whether a new holder has a lease that is neither of this master nor covered by what earlier ones have promised.
    fn is_unaccounted(&mut self, slot: u32, ask: &Ask, now: Now) -> bool {
        let Some(has) = ask.has.filter(|has| has.expiry_time >= now.unix) else { return false };
        let is_ours = has.token.is_some_and(|token| self.tokens.issued(token));
        if is_ours || has.capacity <= self.ledger.holder(slot).leases.claimed() {
            return false;
        }
        if self.is_learning(now.at) {
            self.counters.learning_excess += 1;
            return false;
        }
        self.counters.unaccounted += 1;
        true
    }

    /// A holder has a lease that this master has not given and no earlier one has promised: promises were lost. Others
    /// may have such leases too, so the resource learns until all of them have ended. That moment is the same for every
    /// such report, so that false ones can delay decisions once in the life of a master, not repeatedly.
    fn listens_once_more(&mut self, now: Millis) -> bool {
        let until = self.settings.last_lease_over(self.since);
        let listens = self.proposer.is_some() && now < until;
        if listens {
            self.learning_until = self.learning_until.max(until);
            self.assume_lent(until);
        }
        listens
    }
}
