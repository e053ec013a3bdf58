//! Applies a request's statement about the leases of its holder: rules 1, 2 and E3 to E12 of
//! src/core/lease/protocol.md. The statement counts even if the request is then ignored.
//!
//! A request shows one of these:
//!
//! - A token of this master. It *confirms* that lease and drops older ones (rules 1 and E7).
//! - A token of an earlier master. It *claims* that lease from the inherited ones (rules E3 to E6), even if the lease
//!   ended while there was no master (rule E12).
//! - A lease without a token, from a holder that drops unknown fields. Leases of this master and of earlier ones then
//!   look alike. The holder may claim the amount that it shows, but confirms nothing until it shows a lease that only
//!   this master can have granted (rule E10).
//! - No lease. If the holder has claimed an amount before, its other leases are unknown, and it is left out of the
//!   answer (rules E5 and E11).

use crate::{
    lease::{
        LeaseBook,
        holder::{Confirmation, ShownLease},
    },
    planted::{self, Fault},
    policy::settings::Reuse,
    types::{Amount, HolderKind, Millis, Now, Sum, Token, certain_end},
};

/// Without tokens, the first leases of a new master can look like the last ones of its predecessor. A holder waits up
/// to this time for a lease that cannot.
const LOOKALIKE_TIME: Millis = Millis(3_000);

/// The end of leases that count until a period ends. Periods end by their own rule, so this is never reached.
pub(crate) const NEVER: Millis = Millis(1 << 52);

/// What the leases of a resource are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    /// Capacity that an algorithm grants.
    Shared,
    /// Capacity of a PRIORITY_POOL.
    Pool,
    /// An amount of a BUDGET.
    Budget,
}

impl LeaseKind {
    /// How long a lease counts at most, given the configured lease length. What is granted of a budget counts until its
    /// period ends.
    pub(crate) fn counts_for(self, configured: Millis) -> Millis {
        match self {
            LeaseKind::Shared | LeaseKind::Pool => configured,
            LeaseKind::Budget => NEVER,
        }
    }
}

/// The part of a request that is about leases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseStatement {
    pub(crate) kind: HolderKind,
    /// The newest lease that the holder knows.
    pub(crate) has: Option<ShownLease>,
    /// The lease that it had, if that has ended.
    pub(crate) had: Option<ShownLease>,
    pub(crate) outstanding: Option<Amount>,
    /// The sender is a child node in learning mode.
    pub(crate) learning: bool,
    /// The holder ignores late answers (rule 6).
    pub(crate) drops_late: bool,
}

/// The state of a resource that decides how a statement is applied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseConditions {
    /// Holders share one capacity.
    pub(crate) is_bounded: bool,
    pub(crate) has_parent: bool,
    pub(crate) kind: LeaseKind,
    pub(crate) capacity: Amount,
    pub(crate) reuse: Reuse,
    /// The configured lease length.
    pub(crate) configured: Millis,
    /// The length of a lease given now.
    pub(crate) length: Millis,
}

/// The bounds that a holder's leases set on its next grant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entitlement {
    /// The amount that the holder may keep even if nothing is free.
    pub(crate) keep: Amount,
    pub(crate) maximum: Amount,
    /// The inherited lease that the holder claims, at most `keep`. Learning mode restores it.
    pub(crate) restores: Amount,
    /// The inherited amount that the holder claims without a token.
    pub(crate) claimed: Amount,
    pub(crate) left_out: LeftOut,
}

impl Entitlement {
    fn keeping(keep: Amount) -> Entitlement {
        let (restores, claimed) = (Amount::ZERO, Amount::ZERO);
        Entitlement { keep, maximum: Amount::MAX, restores, claimed, left_out: LeftOut::Never }
    }
}

/// Whether a request is left out of the answer, so that its holder keeps its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftOut {
    Never,
    /// If the grant is less than the due amount, because the holder may have more (rule E11).
    IfShort,
    /// A lease granted a little later cannot be mistaken for one of an earlier master, so it is better (rule E10).
    Always,
}

/// Why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// It is older than a request that was applied already.
    Stale,
    /// The holder may have leases that it does not show.
    NotYet,
    /// BUDGET: its record was consumed, and a delayed request began another one. All that the holder had is consumed.
    StartsOver,
}

impl LeaseBook {
    /// Applies a statement to the record in `slot`. Returns the bounds of the grant, or why the request is rejected.
    /// Call [`recount`](Self::recount) afterwards.
    pub(crate) fn apply_statement(
        &mut self,
        slot: u32,
        stated: &LeaseStatement,
        conditions: &LeaseConditions,
        now: Now,
    ) -> Result<Entitlement, Rejection> {
        self.ledger.holder_mut(slot).leases.end_claimed(stated.kind, now.at);
        let Some(has) = stated.has else {
            return match self.lapsed_claim(stated) {
                Some((token, had)) => self.apply_lapsed_claim(slot, token, had, stated.outstanding, conditions, now.at),
                None => self.apply_echo(slot, stated, conditions, now.at),
            };
        };
        match has.token {
            Some(token) if self.tokens.is_former(token) && self.may_claim(stated, &has, now) => {
                self.apply_claim(slot, token, has.capacity, stated.outstanding, now.at)
            }
            Some(token) if stated.drops_late || self.echoes(stated, token) => {
                self.apply_echo(slot, stated, conditions, now.at)
            }
            _ if self.has_inherited() && has.expiry_time < now.unix => self.apply_silence(slot, conditions, now.at),
            _ if self.has_inherited() => self.apply_plain(slot, &has, stated, conditions, now),
            _ => self.apply_echo(slot, stated, conditions, now.at),
        }
    }

    /// Whether a request may claim this lease of an earlier master (rules E3 to E6). A client that takes answers after
    /// the end of the lease that its request named may do so only while that lease is live by the clock of this master
    /// (rule E10).
    fn may_claim(&self, stated: &LeaseStatement, has: &ShownLease, now: Now) -> bool {
        let is_live = has.expiry_time >= now.unix;
        stated.drops_late || stated.kind == HolderKind::Client && self.has_inherited() && is_live
    }

    /// Whether a client returns a token of this master. It may do so without understanding tokens.
    fn echoes(&self, stated: &LeaseStatement, token: Token) -> bool {
        stated.kind == HolderKind::Client && self.tokens.issued(token)
    }

    /// The holder claims a lease of an earlier master (rules E3 to E6). What is outstanding beyond it stays unclaimed.
    fn apply_claim(
        &mut self,
        slot: u32,
        token: Token,
        amount: Amount,
        outstanding: Option<Amount>,
        now: Millis,
    ) -> Result<Entitlement, Rejection> {
        let leases = &mut self.ledger.holder_mut(slot).leases;
        let Some(is_another) = leases.claim_former(token, now) else {
            return Err(Rejection::Stale);
        };
        let is_fresh = leases.is_fresh(now) && !planted::is(Fault::ClaimsOntoFresh);
        if !is_fresh && (amount > leases.claimed() || is_another) {
            let _ = self.claim(slot, amount, Some(token));
        }
        let leases = &mut self.ledger.holder_mut(slot).leases;
        if planted::is(Fault::FirstClaimFrees) {
            leases.set_claimed(Amount::ZERO, now);
        }
        let keep = leases.kept(amount, now);
        let is_beyond = self.has_inherited() && outstanding.is_some_and(|outstanding| outstanding > amount);
        let maximum = if is_beyond { amount } else { Amount::MAX };
        Ok(Entitlement { maximum, restores: keep.min(amount), ..Entitlement::keeping(keep) })
    }

    /// The holder claims a lease of an earlier master that has ended (rule E12). The parent, if any, may have lent that
    /// capacity to others since, so the holder gets only what is free.
    fn apply_lapsed_claim(
        &mut self,
        slot: u32,
        token: Token,
        had: Amount,
        outstanding: Option<Amount>,
        conditions: &LeaseConditions,
        now: Millis,
    ) -> Result<Entitlement, Rejection> {
        let entitled = self.apply_claim(slot, token, had, outstanding, now)?;
        let keeps = !conditions.has_parent || planted::is(Fault::KeepsLapsed);
        let keep = if keeps { entitled.keep } else { self.ledger.holder(slot).leases.current(now) };
        Ok(Entitlement { keep, restores: keep.min(entitled.restores), ..entitled })
    }

    /// The request carries no token, so leases of this master and of earlier ones look alike (rule E10). Until the
    /// holder shows a lease that can only be the newest of this master, it gets back the amount that it shows, up to
    /// the amount that it has claimed, and confirms nothing.
    fn apply_plain(
        &mut self,
        slot: u32,
        has: &ShownLease,
        stated: &LeaseStatement,
        conditions: &LeaseConditions,
        now: Now,
    ) -> Result<Entitlement, Rejection> {
        if self.shows_newest(slot, has, stated, now) {
            return self.apply_proof(slot, stated, conditions, now.at);
        }
        let leases = &self.ledger.holder(slot).leases;
        if leases.is_fresh(now.at) && !planted::is(Fault::ClaimsOntoFresh) {
            return Ok(Entitlement::keeping(leases.current(now.at)));
        }
        if has.capacity > leases.claimed() {
            let _ = self.claim(slot, has.capacity, None);
        }
        let keep = has.capacity.min(self.ledger.holder(slot).leases.claimed());
        let grows = planted::is(Fault::PlainGrows) || !conditions.is_bounded;
        Ok(Entitlement {
            maximum: if grows { Amount::MAX } else { keep },
            restores: keep,
            claimed: keep,
            left_out: if self.is_early(has, conditions, now) { LeftOut::Always } else { LeftOut::Never },
            ..Entitlement::keeping(keep)
        })
    }

    /// Whether the holder should wait: a lease granted now could be mistaken for one of an earlier master, a lease
    /// granted [`LOOKALIKE_TIME`] later could not, and the holder's lease lasts long enough.
    fn is_early(&self, has: &ShownLease, conditions: &LeaseConditions, now: Now) -> bool {
        let length = conditions.length;
        let can_wait = has.expiry_time.saturating_sub(now.unix) > (length.0 / 2000) as i64;
        let outlasts = |at: Millis| self.outlasts_inherited(now.unix + (at.0 / 1000) as i64, now);
        can_wait && conditions.is_bounded && !outlasts(length) && outlasts(length.plus(LOOKALIKE_TIME))
    }

    /// Whether the request shows the newest lease of this record, and this lease ends later than any lease of an
    /// earlier master.
    fn shows_newest(&self, slot: u32, has: &ShownLease, stated: &LeaseStatement, now: Now) -> bool {
        let is_newest = has.token.is_none() && self.ledger.holder(slot).leases.shows_newest(has);
        let is_ours = self.outlasts_inherited(has.expiry_time, now) || planted::is(Fault::TakesLookalikes);
        stated.kind == HolderKind::Client && is_newest && is_ours
    }

    /// The holder shows a lease of this master, so it has stopped using leases of earlier masters. The amount that it
    /// claimed in the request answered by this lease comes free. The rest of its claimed amount may belong to another
    /// holder, and goes back to the unclaimed leases (rule E10).
    fn apply_proof(
        &mut self,
        slot: u32,
        stated: &LeaseStatement,
        conditions: &LeaseConditions,
        now: Millis,
    ) -> Result<Entitlement, Rejection> {
        let leases = &self.ledger.holder(slot).leases;
        let (claimed, newest) = (leases.claimed(), leases.newest());
        let proven = self.take_unproven(slot, newest);
        let freed = if planted::is(Fault::ShownFreesAll) { claimed } else { proven.min(claimed) };
        let entitled = self.apply_echo(slot, stated, conditions, now)?;
        // Exact, because a rounded amount would count more than before.
        let _ = self.give_back(Sum::from(claimed) - freed.into());
        Ok(entitled)
    }

    /// The request names no live lease. If the holder has claimed an amount before, its other leases are unknown (rule
    /// E5). Then it is left out of the answer until it claims a lease or the inherited leases end.
    fn apply_silence(
        &mut self,
        slot: u32,
        conditions: &LeaseConditions,
        now: Millis,
    ) -> Result<Entitlement, Rejection> {
        let leases = &self.ledger.holder(slot).leases;
        let is_claimed = self.has_inherited() && conditions.is_bounded && leases.claimed() > Amount::ZERO;
        if is_claimed && !planted::is(Fault::FreshWhileClaimed) {
            return Err(Rejection::NotYet);
        }
        Ok(Entitlement::keeping(leases.current(now)))
    }

    /// The request echoes a lease of this master, names no lease, or names an unknown one.
    fn apply_echo(
        &mut self,
        slot: u32,
        stated: &LeaseStatement,
        conditions: &LeaseConditions,
        now: Millis,
    ) -> Result<Entitlement, Rejection> {
        let reported = stated.outstanding.unwrap_or_default();
        let tokens = &self.tokens;
        let leases = &mut self.ledger.holder_mut(slot).leases;
        let (held, confirmed_before) = (leases.held(now), leases.last_confirmed());
        let learning = stated.learning && !planted::is(Fault::LearningConfirms);
        let confirmation = match &stated.has {
            Some(has) => leases.confirm(has, learning, |token| tokens.issued(token)),
            None if planted::is(Fault::AbsentHasClears) => {
                leases.forget_given();
                Confirmation::Nothing
            }
            None => match stated.had.and_then(|had| had.token).filter(|_| stated.drops_late) {
                Some(had) if leases.is_stale(had) => Confirmation::Stale,
                _ => Confirmation::Nothing,
            },
        };
        let spends = conditions.kind == LeaseKind::Budget && stated.kind == HolderKind::Client;
        if matches!(confirmation, Confirmation::Older(_)) && spends {
            leases.leave_tombstone();
            let _ = self.give_back(held);
            return Err(Rejection::StartsOver);
        }
        let trusted = confirmation == Confirmation::Known || planted::is(Fault::LateReportLowers);
        if confirmation == Confirmation::Stale && !trusted {
            return Err(Rejection::Stale);
        }
        let until = certain_end(now, conditions.kind.counts_for(conditions.configured));
        let outstanding = match (stated.kind, conditions.reuse) {
            _ if planted::is(Fault::BelievesClients) => reported,
            // Earlier masters of the child node may have granted leases that this master does not know.
            (HolderKind::Node, _) => reported,
            // A request that confirms a newer lease is newer than all reports so far. Of others the order is unknown.
            (HolderKind::Client, _) if spends => {
                let is_newer = trusted && leases.last_confirmed() > confirmed_before;
                let before = if is_newer { Amount::ZERO } else { leases.outstanding(now) };
                before.max(reported.min(held))
            }
            // The client cannot tell what is in use, but it is at most what was held for it.
            (HolderKind::Client, Reuse::Prompt) if reported == Amount::MAX => held,
            // The new lease replaces the older ones, so only the reported amount counts.
            (HolderKind::Client, Reuse::Prompt) => reported.min(conditions.capacity),
            // The client uses at most what it was granted, which is held until it confirms a smaller lease.
            (HolderKind::Client, Reuse::Confirmed) if trusted => reported.min(held),
            // A claimed amount may go back to the unclaimed leases. If it were outstanding as well, it would count
            // twice.
            (HolderKind::Client, Reuse::Confirmed) if leases.claimed() > Amount::ZERO => Amount::ZERO,
            (HolderKind::Client, Reuse::Confirmed) => reported.min(leases.held(now)),
        };
        leases.report_outstanding(outstanding, trusted, now, until);
        let keep = leases.current(now);
        if let Confirmation::Older(returned) = confirmation
            && !planted::is(Fault::EchoFreesAll)
        {
            let _ = self.give_back(returned);
        }
        if stated.has.is_none() {
            return self.apply_silence(slot, conditions, now);
        }
        Ok(Entitlement::keeping(keep))
    }

    /// Whether the holder may have a lease of an earlier master that its request does not show (rule E11): a child
    /// node, or a client that arrives while holders of earlier masters are still missing. A client with `drops_late`
    /// would have claimed its lease.
    pub(crate) fn may_have_more(
        &self,
        slot: u32,
        is_new: bool,
        stated: &LeaseStatement,
        conditions: &LeaseConditions,
        now: Millis,
    ) -> bool {
        let says_nothing = stated.has.is_none() && stated.had.is_none();
        if !says_nothing || !self.has_inherited() || !conditions.is_bounded {
            return false;
        }
        let leases = &self.ledger.holder(slot).leases;
        match stated.kind {
            HolderKind::Node => !leases.is_live(now),
            HolderKind::Client => {
                let is_known = stated.drops_late || leases.has_given() || conditions.kind == LeaseKind::Pool;
                !is_known && (!is_new || self.awaits_former_holders())
            }
        }
    }
}
