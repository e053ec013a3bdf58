//! Applies what a request says about the leases that its holder has: rules 1, 2 and E3 to E12 of
//! src/core/lease-protocol.md. It counts even if the request is ignored afterwards.
//!
//! A request shows one of these:
//!
//! - A token of this master: it *confirms* that lease, and older ones are dropped (rules 1 and E7).
//! - A token of an earlier master: it *claims* that lease from the inherited ones (rules E3 to E6). This also works for
//!   a lease that ended while there was no master (rule E12).
//! - A lease without a token, from a holder that drops unknown fields. Leases of this master and of earlier ones look
//!   alike then, so the holder may claim what it says it has, but it confirms nothing until it shows a lease that can
//!   only be of this master (rule E10).
//! - Nothing. If the holder has claimed something before, the rest of what it may have is unknown, and it is left out
//!   of the answer (rules E5 and E11).

use super::{
    Resource,
    round::{LeftOut, PendingGrant},
};
use crate::{
    lease::holder::{Confirmation, Has},
    planted::{self, Fault},
    policy::settings::Reuse,
    resource::{Answer, Ask},
    types::{
        amount::{Amount, Sum},
        claim::{Claims, HolderKind, wanted},
        time::{Millis, Now, certain_end},
        token::Token,
    },
};

/// The first leases of a master can look like the last ones of its predecessor. After this time they cannot.
const LOOKALIKE_TIME: Millis = Millis(3_000);

impl Resource {
    /// Applies what `ask` says about leases to the holder in `slot`. Returns what the holder may keep and have, or the
    /// answer if the request goes no further.
    pub(super) fn apply_has(&mut self, slot: u32, is_new: bool, ask: &Ask, now: Now) -> Result<PendingGrant, Answer> {
        let applied = self.apply_lease(slot, ask, now);
        if applied.is_err() {
            // Its outstanding amount counts nevertheless.
            self.book.ledger.recount(slot, now.at);
        }
        let mut pending = applied?;
        let knows_nothing = !self.book.has_inherited();
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
            let mut claims = self.counted(ask.kind, ask.understands_terms(), ask.claims.clone());
            self.settings.put_rule(ask.kind, &ask.id, &mut claims);
            self.take_over_wants(claims, amount.unwrap_or_default());
        }
        self.book.ledger.recount(slot, now.at);
        let leases = &self.book.ledger.holder(slot).leases;
        if leases.reports_outstanding() {
            self.book.cover_until(leases.last_end());
        }
        Ok(pending)
    }

    fn apply_lease(&mut self, slot: u32, ask: &Ask, now: Now) -> Result<PendingGrant, Answer> {
        self.book.ledger.holder_mut(slot).leases.end_claimed(ask.kind, now.at);
        let Some(has) = ask.has else {
            return match self.lapsed_claim(ask) {
                Some((token, had)) => self.apply_lapsed_claim(slot, token, had, ask.outstanding, now.at),
                None => self.apply_echo(slot, ask, now.at),
            };
        };
        match has.token {
            Some(token) if self.book.tokens.is_former(token) && self.may_claim(ask, &has, now) => {
                self.apply_claim(slot, token, has.capacity, ask.outstanding, now.at)
            }
            Some(token) if ask.drops_late || self.echoes(ask, token) => self.apply_echo(slot, ask, now.at),
            _ if self.book.has_inherited() && has.expiry_time < now.unix => self.apply_silence(slot, now.at),
            _ if self.book.has_inherited() => self.apply_plain(slot, &has, ask, now),
            _ => self.apply_echo(slot, ask, now.at),
        }
    }

    /// Whether a request may claim this lease of an earlier master (rules E3 to E6). A client that takes answers after
    /// the end of the lease that its request named may do so only while that lease is live by the clock of this master
    /// (rule E10).
    fn may_claim(&self, ask: &Ask, has: &Has, now: Now) -> bool {
        let is_live = has.expiry_time >= now.unix;
        ask.drops_late || ask.kind == HolderKind::Client && self.book.has_inherited() && is_live
    }

    /// Whether a client echoes a token of this master without knowing what tokens are.
    fn echoes(&self, ask: &Ask, token: Token) -> bool {
        ask.kind == HolderKind::Client && self.book.tokens.issued(token)
    }

    /// The holder claims a lease of an earlier master (rules E3 to E6). What is outstanding beyond it stays unclaimed.
    fn apply_claim(
        &mut self,
        slot: u32,
        token: Token,
        amount: Amount,
        outstanding: Option<Amount>,
        now: Millis,
    ) -> Result<PendingGrant, Answer> {
        let leases = &mut self.book.ledger.holder_mut(slot).leases;
        let Some(is_another) = leases.claim_former(token, now) else {
            self.counters.stale += 1;
            return Err(Answer::Stale);
        };
        let is_fresh = leases.is_fresh(now) && !planted::is(Fault::ClaimsOntoFresh);
        if !is_fresh && (amount > leases.claimed() || is_another) {
            self.claim_inherited(slot, amount, Some(token));
        }
        let leases = &mut self.book.ledger.holder_mut(slot).leases;
        if planted::is(Fault::FirstClaimFrees) {
            leases.set_claimed(Amount::ZERO, now);
        }
        let keep = leases.kept(amount, now);
        let is_beyond = self.book.has_inherited() && outstanding.is_some_and(|outstanding| outstanding > amount);
        let most = if is_beyond { amount } else { Amount::MAX };
        Ok(PendingGrant { keep, most, restores: keep.min(amount), ..PendingGrant::of(slot) })
    }

    /// The holder claims a lease of an earlier master that has ended (rule E12). Below a parent that may be another's
    /// by now, so the holder gets only what is free of it.
    fn apply_lapsed_claim(
        &mut self,
        slot: u32,
        token: Token,
        had: Amount,
        outstanding: Option<Amount>,
        now: Millis,
    ) -> Result<PendingGrant, Answer> {
        let pending = self.apply_claim(slot, token, had, outstanding, now)?;
        let keeps = !self.has_parent() || planted::is(Fault::KeepsLapsed);
        let keep = if keeps { pending.keep } else { self.book.ledger.holder(slot).leases.current(now) };
        Ok(PendingGrant { keep, restores: keep.min(pending.restores), ..pending })
    }

    /// The request carries no token, so leases of this master and of earlier ones look alike (rule E10). Until the
    /// holder shows a lease that can only be the newest of this master, it gets back what it says it has, up to the
    /// amount that it has claimed, and confirms nothing.
    fn apply_plain(&mut self, slot: u32, has: &Has, ask: &Ask, now: Now) -> Result<PendingGrant, Answer> {
        if self.shows_newest(slot, has, ask, now) {
            return self.apply_proof(slot, ask, now.at);
        }
        let leases = &self.book.ledger.holder(slot).leases;
        if leases.is_fresh(now.at) && !planted::is(Fault::ClaimsOntoFresh) {
            return Ok(PendingGrant { keep: leases.current(now.at), ..PendingGrant::of(slot) });
        }
        if has.capacity > leases.claimed() {
            self.claim_inherited(slot, has.capacity, None);
        }
        let keep = has.capacity.min(self.book.ledger.holder(slot).leases.claimed());
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

    /// Whether the holder is better off waiting: a lease given now would look like one of an earlier master, a lease
    /// given in [`LOOKALIKE_TIME`] would not, and the lease that the holder has lasts long enough.
    fn is_early(&self, has: &Has, now: Now) -> bool {
        let length = self.lengths(now.at).0;
        let can_wait = has.expiry_time.saturating_sub(now.unix) > (length.0 / 2000) as i64;
        let outlasts = |at: Millis| self.book.outlasts_inherited(now.unix + (at.0 / 1000) as i64, now);
        can_wait && self.is_bounded() && !outlasts(length) && outlasts(length.plus(LOOKALIKE_TIME))
    }

    /// Whether the request shows the newest lease of this record, and that ends later than any lease of an earlier
    /// master.
    fn shows_newest(&self, slot: u32, has: &Has, ask: &Ask, now: Now) -> bool {
        let is_newest = has.token.is_none() && self.book.ledger.holder(slot).leases.shows_newest(has);
        let is_ours = self.book.outlasts_inherited(has.expiry_time, now) || planted::is(Fault::TakesLookalikes);
        ask.kind == HolderKind::Client && is_newest && is_ours
    }

    /// The holder shows a lease of this master, so it uses nothing of earlier masters any more. Of the claimed amount
    /// as much comes free as was claimed in the request that this lease answers. The rest may be another holder's (rule
    /// E10).
    fn apply_proof(&mut self, slot: u32, ask: &Ask, now: Millis) -> Result<PendingGrant, Answer> {
        let leases = &self.book.ledger.holder(slot).leases;
        let (claimed, newest) = (leases.claimed(), leases.newest());
        let proven = self.book.take_unproven(slot, newest);
        let freed = if planted::is(Fault::ShownFreesAll) { claimed } else { proven.min(claimed) };
        let pending = self.apply_echo(slot, ask, now)?;
        // Not rounded up, because more would count than before.
        self.give_back(Sum::from(claimed) - freed.into());
        Ok(pending)
    }

    /// The request says nothing about leases. If the holder has claimed something, the rest of what it may have is
    /// unknown (rule E5): it is left out of the answer until it claims something, or until the inherited leases end.
    fn apply_silence(&mut self, slot: u32, now: Millis) -> Result<PendingGrant, Answer> {
        let leases = &self.book.ledger.holder(slot).leases;
        let is_claimed = self.book.has_inherited() && self.is_bounded() && leases.claimed() > Amount::ZERO;
        if is_claimed && !planted::is(Fault::FreshWhileClaimed) {
            return Err(Answer::NotYet);
        }
        Ok(PendingGrant { keep: leases.current(now), ..PendingGrant::of(slot) })
    }

    /// The request echoes a lease of this master, or says nothing, or shows something unknown.
    fn apply_echo(&mut self, slot: u32, ask: &Ask, now: Millis) -> Result<PendingGrant, Answer> {
        let reported = ask.outstanding.unwrap_or_default();
        let tokens = &self.book.tokens;
        let leases = &mut self.book.ledger.holder_mut(slot).leases;
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
            // This master does not know the leases that earlier masters of the node gave.
            (HolderKind::Node, _) => reported,
            // The client does not know what is in use, except that it is no more than was held for it.
            (HolderKind::Client, Reuse::Prompt) if reported == Amount::MAX => held,
            // Older leases are forgotten then.
            (HolderKind::Client, Reuse::Prompt) => reported.min(self.settings.capacity),
            // It has what it was given, which is held until it has confirmed a smaller lease.
            (HolderKind::Client, Reuse::Confirmed) if trusted => reported.min(held),
            // A claimed amount may go back, and would count twice.
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

    /// Claims what the holder says of inherited leases, or gives part of it back.
    fn claim_inherited(&mut self, slot: u32, amount: Amount, token: Option<Token>) {
        let change = self.book.claim(slot, amount, token);
        self.after(change);
    }

    /// Whether a new holder has a lease that this master did not give and no earlier one promised.
    fn is_unaccounted(&mut self, slot: u32, ask: &Ask, now: Now) -> bool {
        let Some(has) = ask.has.filter(|has| has.expiry_time >= now.unix) else { return false };
        let is_ours = has.token.is_some_and(|token| self.book.tokens.issued(token));
        if is_ours || has.capacity <= self.book.ledger.holder(slot).leases.claimed() {
            return false;
        }
        if self.is_learning(now.at) {
            self.counters.learning_excess += 1;
            return false;
        }
        self.counters.unaccounted += 1;
        true
    }

    /// Enters learning mode once more: a holder has a lease that this master did not give and no earlier one promised,
    /// so promises were lost, and others may have such leases, too. The resource learns until all of them have ended.
    /// That moment is the same for every such report, so false reports can delay decisions once in the life of a
    /// master, not repeatedly.
    fn listens_once_more(&mut self, now: Millis) -> bool {
        let until = self.settings.last_lease_over(self.book.since());
        let listens = self.book.keeps_promises() && now < until;
        if listens {
            self.book.learn_until(self.book.learning_until().max(until));
            self.assume_lent(until);
        }
        listens
    }

    /// The lease that a holder had when its request was sent, and that had ended then. It is inherited all the same
    /// (rule E12).
    fn lapsed_claim(&self, ask: &Ask) -> Option<(Token, Amount)> {
        let had = ask.had.filter(|_| ask.has.is_none() && ask.drops_late);
        self.book.lapsed_claim(had)
    }

    /// A holder of earlier masters states its own wants: its part of the inherited wants is over. It wanted no less than
    /// it was given.
    fn take_over_wants(&mut self, mut claims: Claims, amount: Amount) {
        if let [only] = &mut claims[..] {
            only.wants = only.wants.max(amount);
        }
        for claim in wanted(&claims) {
            let ruled = self.allocation.division.ruled(claim);
            let change = self.book.lower_inherited_wants(&ruled, |priority| self.allocation.division.band(priority));
            if let Some(change) = change {
                self.replace_inherited_wants(&change);
            }
        }
    }

    /// Whether this may be a holder of earlier masters that does not say what it has (rule E11): a child node, or a
    /// client that came while some of those were still missing. Our own clients would have claimed their lease.
    fn may_have_more(&self, slot: u32, is_new: bool, ask: &Ask, now: Millis) -> bool {
        let says_nothing = ask.has.is_none() && ask.had.is_none();
        if !says_nothing || !self.book.has_inherited() || !self.is_bounded() {
            return false;
        }
        let leases = &self.book.ledger.holder(slot).leases;
        match ask.kind {
            HolderKind::Node => !leases.is_live(now),
            HolderKind::Client => {
                let is_known = ask.drops_late || leases.has_given() || self.pool.is_some();
                !is_known && (!is_new || self.book.awaits_former_holders())
            }
        }
    }
}
