//! The leases of one holder, and which of them it may still be using.
//!
//! Answers get lost, repeated and reordered, so a holder may be using any lease since the newest one that it has
//! *confirmed* by echoing its token. All of those count until they end. The largest of them is *held*. The rules,
//! numbered as in src/core/lease/protocol.md:
//!
//! 1. A confirmation drops older leases only, and may only lower the lease that it names. If it names an older lease
//!    than was confirmed before, the request was delayed, and all of it is ignored.
//! 2. The outstanding amount in a request is believed if the request proves that its holder knows a lease at least as
//!    new as the confirmed one. Otherwise it may only raise what is held. It counts until the latest end that was ever
//!    given.
//! 3. A holder may keep its newest live lease, never `held`: the amount that it may be using is no entitlement. A
//!    holder whose leases only an earlier master knew may keep the amount that it shows, up to the amount that it
//!    claimed ([`crate::lease::inherited`]).

#[cfg(test)]
mod tests;

use smallvec::SmallVec;

use crate::{
    planted::{self, Fault},
    policy::settings::Reuse,
    types::{Amount, HolderKind, Millis, Token},
};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grant {
    pub token: Token,
    pub capacity: Amount,
    /// When it has certainly ended at its holder.
    pub end: Millis,
}

/// The lease that a request says its holder has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShownLease {
    /// Absent if the holder drops unknown fields, as the clients of Doorman do.
    pub token: Option<Token>,
    pub capacity: Amount,
    /// Seconds since the epoch, as the lease said.
    pub expiry_time: i64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Confirmation {
    /// It names a lease of this record, at least as new as the confirmed one.
    Known,
    /// It names an older lease than the holder confirmed before: the request was delayed.
    Stale,
    /// It names a lease of this master that answered an earlier claim than the holder's last one. This part of the
    /// inherited leases goes back to the unclaimed amount.
    Older(Amount),
    /// It is absent, or names a lease that this record does not know.
    Nothing,
}

/// A holder that confirms has at most two leases that count at the same time. One that never confirms gets one more
/// with each refresh that shrinks it. Beyond this many the two oldest are merged into one that covers both.
const MAX_GRANTS: usize = 16;

#[derive(Debug, Clone, Default)]
pub(crate) struct Leases {
    /// Oldest first. Each newer one is smaller or ends earlier, otherwise it would have replaced the older one. An
    /// inherited lease that the holder has claimed comes first, as [`Token::INHERITED`]. While there is one, the others
    /// are *covered* by it: they answer a holder that has it, so they do not count in addition. Otherwise they are
    /// *fresh*.
    grants: SmallVec<[Grant; 2]>,
    /// The first lease of this record, or the first since its holder claimed another lease of an earlier master.
    first: Option<Token>,
    /// The oldest lease that a request may name without being stale, perhaps one of an earlier master. Absent until the
    /// holder has named a lease.
    confirmed: Option<Token>,
    /// The expiry time of the newest lease as written on the wire. Holders that do not echo tokens are recognized by
    /// it.
    expiry_time: i64,
    /// The latest expiry time of the leases before it. If it is not earlier, the newest cannot be told from an old
    /// lease.
    expiry_before: i64,
    outstanding: Amount,
    max_end: Millis,
}

impl Leases {
    /// The largest amount that the holder may be using.
    pub(crate) fn held(&self, now: Millis) -> Amount {
        self.live(now).fold(self.outstanding(now), |held, grant| held.max(grant.capacity))
    }

    /// The amount that the holder may keep: its newest lease of this master, if that has not ended.
    pub(crate) fn current(&self, now: Millis) -> Amount {
        let given = self.grants.last().filter(|grant| now < grant.end && grant.token != Token::INHERITED);
        given.map_or(Amount::ZERO, |grant| grant.capacity)
    }

    /// What the holder may keep if it claims `amount` of an inherited lease: the claimed amount counts until there is a
    /// lease of this master (rule E6).
    pub(crate) fn kept(&self, amount: Amount, now: Millis) -> Amount {
        match self.grants.last() {
            Some(last) if last.token == Token::INHERITED && planted::is(Fault::KeepsFailedClaims) => amount,
            Some(last) if last.token == Token::INHERITED && now < last.end => amount.min(last.capacity),
            _ => self.current(now),
        }
    }

    /// The amount of inherited leases that the holder has claimed.
    pub(crate) fn claimed(&self) -> Amount {
        self.grants.first().filter(|first| first.token == Token::INHERITED).map_or(Amount::ZERO, |first| first.capacity)
    }

    /// Drops the claimed amount when the last lease of earlier masters has ended. If a child node was cut and has not
    /// reported since, the amount stays outstanding, because the child may have lent it
    /// ([`await_report`](Self::await_report)).
    pub(crate) fn end_claimed(&mut self, kind: HolderKind, now: Millis) {
        let Some(claimed) = self.grants.first().filter(|first| first.token == Token::INHERITED && first.end <= now)
        else {
            return;
        };
        if kind == HolderKind::Node && self.has_confirmed() {
            self.outstanding = self.outstanding.max(claimed.capacity);
        }
        self.grants.remove(0);
    }

    /// Sets the claimed amount, which counts until `end`.
    pub(crate) fn set_claimed(&mut self, claimed: Amount, end: Millis) {
        let before = self.claimed();
        self.grants.retain(|grant| grant.token != Token::INHERITED);
        if claimed > Amount::ZERO {
            if before == Amount::ZERO && !planted::is(Fault::ClaimsOntoFresh) {
                // These leases are empty, because there was no fresh lease. Leases granted from now on are covered.
                self.forget_given();
            }
            self.grants.insert(0, Grant { token: Token::INHERITED, capacity: claimed, end });
        }
    }

    /// Whether it has a fresh lease. Then no claim is allowed (rule E5).
    pub(crate) fn is_fresh(&self, now: Millis) -> bool {
        self.claimed() == Amount::ZERO && self.live(now).any(|grant| grant.capacity > Amount::ZERO)
    }

    /// Whether it has a lease of this master.
    pub(crate) fn is_live(&self, now: Millis) -> bool {
        self.live(now).any(|grant| grant.token != Token::INHERITED)
    }

    /// Keeps the record until `until` even without leases.
    pub(crate) fn remember(&mut self, until: Millis) {
        self.max_end = self.max_end.max(until);
    }

    /// Clears a record whose holder has given back all leases.
    pub(crate) fn leave_tombstone(&mut self) {
        self.grants.clear();
        self.outstanding = Amount::ZERO;
    }

    /// The latest end of all leases that were given.
    pub(crate) fn last_end(&self) -> Millis {
        self.max_end
    }

    /// Reads its first and its last field, see [`Ledger::touch`](crate::lease::ledger::Ledger::touch).
    pub(crate) fn touch(&self) -> u64 {
        self.grants.last().map_or(0, |grant| grant.end.0) ^ self.max_end.0
    }

    /// The newest ended lease that is still recorded.
    pub(crate) fn newest_ended(&self, now: Millis) -> Option<Token> {
        self.grants.iter().filter(|grant| grant.end <= now).map(|grant| grant.token).max()
    }

    /// The outstanding amount, while it counts.
    pub(crate) fn outstanding(&self, now: Millis) -> Amount {
        if now < self.max_end { self.outstanding } else { Amount::ZERO }
    }

    /// The last reported outstanding amount. Of a budget's holder: what it has spent.
    pub(crate) fn reported(&self) -> Amount {
        self.outstanding
    }

    /// A holder of a budget has spent at least this much.
    pub(crate) fn raise_spent(&mut self, spent: Amount, now: Millis, until: Millis) {
        let spent = spent.min(self.held(now)).max(self.outstanding(now));
        self.report_outstanding(spent, true, now, until);
    }

    /// Whether it reports that something is outstanding.
    pub(crate) fn reports_outstanding(&self) -> bool {
        self.outstanding > Amount::ZERO
    }

    /// The newest lease that the holder has confirmed or claimed by its token.
    pub(crate) fn last_confirmed(&self) -> Option<Token> {
        self.confirmed
    }

    /// Whether the holder has ever confirmed or claimed a lease by its token.
    pub(crate) fn has_confirmed(&self) -> bool {
        self.confirmed.is_some()
    }

    fn live(&self, now: Millis) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(move |grant| now < grant.end)
    }

    pub(crate) fn newest_end(&self) -> Millis {
        self.grants.last().map_or(Millis::default(), |grant| grant.end)
    }

    /// The moment from which at most `amount` is held, even if the holder confirms nothing.
    pub(crate) fn last_above(&self, amount: Amount, now: Millis) -> Millis {
        let reported = (self.outstanding(now) > amount).then_some(self.max_end);
        let given = self.live(now).filter(|grant| grant.capacity > amount).map(|grant| grant.end);
        given.chain(reported).max().unwrap_or(now)
    }

    /// The next moment at which `held` may fall by itself; `None` if everything has ended.
    pub(crate) fn next_change(&self, now: Millis) -> Option<Millis> {
        let first = self.live(now).map(|grant| grant.end).min();
        first.or_else(|| (now < self.max_end).then_some(self.max_end))
    }

    /// Applies a lease that the holder shows (rules 1 and E7). `issued` tells whether this epoch issued a token.
    ///
    /// If the lease answers the last claim of the holder, the holder uses nothing of earlier masters any more: the
    /// claimed amount comes free with the older leases. If it answers an earlier claim, it is uncertain whose the
    /// claimed amount is, and it goes back. `learning`: the holder is a child node in learning mode, which confirms
    /// nothing (rule 8).
    pub(crate) fn confirm(&mut self, has: &ShownLease, learning: bool, issued: impl Fn(Token) -> bool) -> Confirmation {
        let ignored = learning && planted::is(Fault::LearningKeepsClaims);
        let Some(token) = self.identify(has).filter(|token| issued(*token) && !ignored) else {
            return Confirmation::Nothing;
        };
        if self.is_stale(token) {
            return Confirmation::Stale;
        }
        let is_newest = self.first.is_some_and(|first| first <= token);
        if is_newest && self.grants.last().is_none_or(|newest| token > newest.token) {
            return Confirmation::Nothing;
        }
        if !is_newest && self.claimed() == Amount::ZERO {
            // The lease is older than this record: the holder was away for long, and the first answer since was lost.
            return Confirmation::Nothing;
        }
        if learning && is_newest {
            return Confirmation::Nothing;
        }
        self.confirmed = Some(token);
        if !is_newest {
            return Confirmation::Older(self.unclaim());
        }
        self.grants.retain(|grant| grant.token >= token);
        self.lower(token, has.capacity);
        if planted::is(Fault::HasReplaces) {
            self.grants.truncate(1);
            self.grants.iter_mut().for_each(|all| all.capacity = has.capacity);
        }
        Confirmation::Known
    }

    /// Whether a request that names this lease is older than one that was processed already.
    pub(crate) fn is_stale(&self, token: Token) -> bool {
        self.confirmed.is_some_and(|confirmed| token < confirmed) && !planted::is(Fault::AppliesStaleClaims)
    }

    /// Drops the claimed amount and the leases that it covers. Returns the amount.
    fn unclaim(&mut self) -> Amount {
        let claimed = self.claimed();
        let keeps_covered = planted::is(Fault::EchoKeepsCovered);
        self.grants.retain(|grant| keeps_covered && grant.token != Token::INHERITED);
        claimed
    }

    /// The holder claims a lease of an earlier master, which confirms nothing. A holder never goes back to an older
    /// lease, so a request that names one was delayed: returns `None` (rule E3). If the holder names a newer lease, it
    /// does not use the answers to its earlier claims, so they are dropped (rule E4). Returns whether this claim
    /// differs from the last.
    pub(crate) fn claim_former(&mut self, token: Token, now: Millis) -> Option<bool> {
        if self.is_stale(token) {
            return None;
        }
        let is_another = self.confirmed != Some(token);
        if is_another && !self.is_fresh(now) && !planted::is(Fault::KeepsOlderAnswers) {
            self.forget_given();
        }
        self.confirmed = Some(token);
        Some(is_another)
    }

    /// Lowers the capacity of a lease to `capacity` if that is less.
    fn lower(&mut self, token: Token, capacity: Amount) {
        if let Some(grant) = self.grants.first_mut().filter(|grant| grant.token == token) {
            grant.capacity = grant.capacity.min(capacity);
        }
    }

    /// Forgets the leases of this master.
    pub(crate) fn forget_given(&mut self) {
        self.grants.retain(|grant| grant.token == Token::INHERITED);
        self.first = None;
    }

    /// Whether `has` is the newest lease or looks like it. If so, another answer would tell the holder nothing new.
    pub(crate) fn echoes_newest(&self, has: &ShownLease) -> bool {
        self.grants
            .last()
            .is_some_and(|newest| has.token.map_or_else(|| self.looks_like(newest, has), |token| token == newest.token))
    }

    /// Whether `has` can only be the newest lease of this master. It may lack a token.
    pub(crate) fn shows_newest(&self, has: &ShownLease) -> bool {
        self.newest().is_some() && self.identify(has) == self.newest()
    }

    pub(crate) fn newest(&self) -> Option<Token> {
        self.grants.last().map(|newest| newest.token).filter(|token| *token != Token::INHERITED)
    }

    /// Whether it was given a lease, even if that has ended.
    pub(crate) fn has_given(&self) -> bool {
        self.first.is_some()
    }

    /// The lease that `has` shows. Without a token only the newest lease can be identified, by expiry and capacity, if
    /// it expires later than all before.
    fn identify(&self, has: &ShownLease) -> Option<Token> {
        has.token.or_else(|| {
            let newest = self.grants.last().filter(|_| self.expiry_before < self.expiry_time)?;
            self.looks_like(newest, has).then_some(newest.token)
        })
    }

    fn looks_like(&self, newest: &Grant, has: &ShownLease) -> bool {
        (self.expiry_time, newest.capacity) == (has.expiry_time, has.capacity)
    }

    /// Applies a reported outstanding amount (rule 2). A new holder may report leases of earlier masters; these count
    /// until `until`.
    pub(crate) fn report_outstanding(&mut self, reported: Amount, trusted: bool, now: Millis, until: Millis) {
        self.outstanding = if trusted { reported } else { self.outstanding(now).max(reported) };
        if self.outstanding > Amount::ZERO && self.max_end <= now {
            self.max_end = until;
        }
    }

    /// A child node that was cut may have lent more than its newest lease, for as long as its older leases last. Until
    /// it has received the newest lease, the amount that it may have lent counts as outstanding. Then it reports the
    /// amount itself. Nodes that confirm nothing are excluded, because for them the wait would never end. Claimed
    /// amounts are excluded, because they may go back and would count twice; they become outstanding when the inherited
    /// leases end.
    pub(crate) fn await_report(&mut self, now: Millis) {
        if self.has_confirmed() && self.claimed() == Amount::ZERO {
            self.outstanding = self.held(now);
        }
    }

    /// Adds a lease. With [`Reuse::Prompt`] it replaces the others.
    pub(crate) fn grant(&mut self, grant: Grant, expiry_time: i64, reuse: Reuse) {
        match reuse {
            Reuse::Prompt => self.grants.clear(),
            Reuse::Confirmed if planted::is(Fault::FreesUnconfirmed) => self.grants.clear(),
            Reuse::Confirmed => {
                // A lease that is no larger and ends no later than a newer one can never be the largest again (rule 4).
                let claimed = usize::from(self.claimed() > Amount::ZERO);
                let outlasts = |old: &Grant| old.capacity > grant.capacity || old.end > grant.end;
                while self.grants.len() > claimed && self.grants.last().is_some_and(|old| !outlasts(old)) {
                    self.grants.pop();
                }
                if self.grants.len() == MAX_GRANTS {
                    let oldest = self.grants.remove(claimed);
                    let next = &mut self.grants[claimed];
                    next.capacity = next.capacity.max(oldest.capacity);
                    next.end = next.end.max(oldest.end);
                }
            }
        }
        self.grants.push(grant);
        self.first.get_or_insert(grant.token);
        self.expiry_before = self.expiry_before.max(self.expiry_time);
        self.expiry_time = expiry_time;
        self.max_end = self.max_end.max(grant.end);
        if planted::is(Fault::ReplacesEnd) {
            self.grants.iter_mut().for_each(|older| older.end = grant.end);
            self.max_end = grant.end;
        }
    }

    /// Drops leases that have ended. If they were merged with a newer lease, they would count again.
    pub(crate) fn forget_ended(&mut self, now: Millis) {
        self.grants.retain(|grant| now < grant.end);
    }

    /// Moves the end of a lease that its holder echoes, if that is all there is in the record: no older lease to
    /// confirm, nothing claimed and nothing outstanding. An ordinary answer would then give the same amount under
    /// another token. Returns whether it was moved.
    pub(crate) fn renew(&mut self, token: Token, now: Millis, end: Millis, expiry_time: i64) -> bool {
        let [only] = &mut self.grants[..] else { return false };
        let is_echo = only.token == token && now < only.end && only.end <= end;
        if !is_echo || self.outstanding > Amount::ZERO || self.confirmed.is_some_and(|confirmed| confirmed > token) {
            return false;
        }
        only.end = end;
        self.confirmed = Some(token);
        self.expiry_before = self.expiry_before.max(self.expiry_time);
        self.expiry_time = expiry_time;
        self.max_end = self.max_end.max(end);
        true
    }

    /// The capacity of the only lease in the record. `None` if there is more in it, as described at
    /// [`renew`](Self::renew).
    pub(crate) fn only(&self) -> Option<Amount> {
        let [only] = &self.grants[..] else { return None };
        (only.token != Token::INHERITED && self.outstanding == Amount::ZERO).then_some(only.capacity)
    }

    /// The holder gives back the lease `token` of this master and all before it (rule E8). Returns whether it has none
    /// left, and the amount that goes back to the unclaimed leases.
    pub(crate) fn release(&mut self, token: Token) -> (bool, Amount) {
        let is_newest = self.first.is_some_and(|first| first <= token);
        // The lease is older than this record, whose predecessor was released. So this release is a repeat.
        let is_unknown = !is_newest && self.claimed() == Amount::ZERO;
        let is_late = is_unknown || self.confirmed.is_none_or(|confirmed| token < confirmed);
        let mut returned = Amount::ZERO;
        if !is_late && !is_newest {
            returned = self.unclaim();
        }
        let keeps_claimed = is_late && self.claimed() > Amount::ZERO;
        self.grants.retain(|grant| grant.token > token || keeps_claimed && grant.token == Token::INHERITED);
        if !is_late || self.confirmed.is_none() && !keeps_claimed {
            // A request that still names it was sent before the release.
            self.confirmed = Some(token.next());
            self.outstanding = Amount::ZERO;
        }
        (self.grants.is_empty(), returned)
    }
}
