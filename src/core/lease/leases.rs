//! The leases of one holder, and which of them it may still believe in.
//!
//! Answers get lost, repeated and reordered, so a holder may be acting on any lease since the newest one it has
//! *confirmed* (by echoing its token). All of those count until they end; *held* is the largest. The rules, numbered as
//! in docs/internals/lease-protocol.md:
//!
//! 1. A confirmation drops older leases only, and may only lower the one it names. One that names an older lease than
//!    was confirmed before is a delayed request, and is dropped whole.
//! 2. What a holder reports as outstanding is believed if it proves that it knows a lease at least as new as the
//!    confirmed one; otherwise the report may only raise what is held. It counts until the latest end ever given.
//! 3. What a holder is entitled to keep is its newest live lease, never `held`: what may be believed is not an
//!    entitlement. A holder whose leases only a former master knew may keep what it says it has, as far as that was
//!    moved out of the estate ([`crate::resource`]).

#[cfg(test)]
mod tests;

use smallvec::SmallVec;

use crate::{
    planted::{self, Fault},
    policy::settings::Reuse,
    types::{amount::Amount, claim::HolderKind, time::Millis, token::Token},
};

/// A lease as the server remembers it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grant {
    pub token: Token,
    pub capacity: Amount,
    /// When it is certainly over at its holder.
    pub end: Millis,
}

/// What a request says its holder has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Has {
    /// Which lease; holders that drop unknown fields do not say.
    pub token: Option<Token>,
    pub capacity: Amount,
    /// Seconds since the epoch, as the lease said.
    pub expiry_time: i64,
}

/// The effect of a `has`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Confirmation {
    /// It names a lease of this record, at least as new as the confirmed one.
    Known,
    /// It names an older lease than the holder has confirmed before: a request that was long under way.
    Stale,
    /// It names a lease of this master that was given for something that the holder has named before its last: so much
    /// goes back to the estate.
    Older(Amount),
    /// Absent, or not a lease that this record knows: confirms nothing.
    Nothing,
}

/// Leases that may be believed at the same time are few: a holder that confirms has two. One that never does gets one
/// more with each refresh that shrinks it; beyond this many the two oldest are counted as one, which only errs upwards.
const MAX_GRANTS: usize = 16;

/// The leases of one holder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leases {
    /// Oldest first; the last is the newest given. Each newer one is smaller or ends earlier, else it would have
    /// replaced the older. Before them all, as [`Token::INHERITED`], what was moved here out of the estate: while there
    /// is any, the others are *covered* by it (they answer a holder that has that), else they are *fresh*.
    grants: SmallVec<[Grant; 2]>,
    /// The first lease of this record, or since its holder has named another lease of an earlier master.
    first: Option<Token>,
    /// The oldest lease that a request may still name, once one has been named; perhaps one of a former master.
    confirmed: Option<Token>,
    /// The expiry of the newest as it was written on the wire, by which holders that do not echo tokens are recognised.
    expiry_time: i64,
    /// The latest expiry of those before it. One that is not later may look just like a lease of long ago.
    expiry_before: i64,
    outstanding: Amount,
    max_end: Millis,
}

impl Leases {
    /// The most that may still be believed.
    pub(crate) fn held(&self, now: Millis) -> Amount {
        self.live(now).fold(self.outstanding(now), |held, grant| held.max(grant.capacity))
    }

    /// What the holder may keep: its newest lease, if that is still live.
    pub(crate) fn current(&self, now: Millis) -> Amount {
        let given = self.grants.last().filter(|grant| now < grant.end && grant.token != Token::INHERITED);
        given.map_or(Amount::ZERO, |grant| grant.capacity)
    }

    /// What the holder may keep, given that it names so much of an earlier master: that counts as far as it was moved,
    /// until there is a lease of this one (rule 3).
    pub(crate) fn kept(&self, amount: Amount, now: Millis) -> Amount {
        match self.grants.last() {
            Some(last) if last.token == Token::INHERITED && planted::is(Fault::KeepsWhatIsNamed) => amount,
            Some(last) if last.token == Token::INHERITED && now < last.end => amount.min(last.capacity),
            _ => self.current(now),
        }
    }

    /// What was moved here out of the estate.
    pub(crate) fn claimed(&self) -> Amount {
        self.grants.first().filter(|first| first.token == Token::INHERITED).map_or(Amount::ZERO, |first| first.capacity)
    }

    /// Forgets it once the last lease of earlier masters has ended: every lease of this one is fresh then. But a child
    /// node that was cut since, and has not said so, may have lent on as much of its newest lease
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

    /// Sets that; it counts until `end`.
    pub(crate) fn set_claimed(&mut self, claimed: Amount, end: Millis) {
        let before = self.claimed();
        self.grants.retain(|grant| grant.token != Token::INHERITED);
        if claimed > Amount::ZERO {
            if before == Amount::ZERO && !planted::is(Fault::MovesOntoFresh) {
                // Leases of nothing: what is given from now on is covered.
                self.forget_given();
            }
            self.grants.insert(0, Grant { token: Token::INHERITED, capacity: claimed, end });
        }
    }

    /// Whether it has a lease that was given while nothing was moved: nothing moves onto that (rule E5).
    pub(crate) fn is_fresh(&self, now: Millis) -> bool {
        self.claimed() == Amount::ZERO && self.live(now).any(|grant| grant.capacity > Amount::ZERO)
    }

    /// Whether it has a lease of this master.
    pub(crate) fn is_live(&self, now: Millis) -> bool {
        self.live(now).any(|grant| grant.token != Token::INHERITED)
    }

    /// Keeps the record until then, even without leases.
    pub(crate) fn remember(&mut self, until: Millis) {
        self.max_end = self.max_end.max(until);
    }

    /// All leases were given back.
    pub(crate) fn bury(&mut self) {
        self.grants.clear();
        self.outstanding = Amount::ZERO;
    }

    /// When all that it was ever given here is certainly over.
    pub(crate) fn last_end(&self) -> Millis {
        self.max_end
    }

    /// Reads its first and its last field, see [`Ledger::touch`](crate::lease::ledger::Ledger::touch).
    pub(crate) fn touch(&self) -> u64 {
        self.grants.last().map_or(0, |grant| grant.end.0) ^ self.max_end.0
    }

    /// The newest lease of this master that has ended here, of those that are not forgotten yet.
    pub(crate) fn newest_ended(&self, now: Millis) -> Option<Token> {
        self.grants.iter().filter(|grant| grant.end <= now).map(|grant| grant.token).max()
    }

    /// What would be held if everything but `outstanding` were given back.
    pub(crate) fn outstanding(&self, now: Millis) -> Amount {
        if now < self.max_end { self.outstanding } else { Amount::ZERO }
    }

    /// Whether it reports that something is outstanding.
    pub(crate) fn reports_outstanding(&self) -> bool {
        self.outstanding > Amount::ZERO
    }

    /// Whether it has ever said which lease it has.
    pub(crate) fn has_confirmed(&self) -> bool {
        self.confirmed.is_some()
    }

    fn live(&self, now: Millis) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(move |grant| now < grant.end)
    }

    /// When the newest lease ends; for display.
    pub(crate) fn newest_end(&self) -> Millis {
        self.grants.last().map_or(Millis::default(), |grant| grant.end)
    }

    /// When all that is held beyond `amount` is over, unless its holder confirms it away before.
    pub(crate) fn last_above(&self, amount: Amount, now: Millis) -> Millis {
        let reported = (self.outstanding(now) > amount).then_some(self.max_end);
        let given = self.live(now).filter(|grant| grant.capacity > amount).map(|grant| grant.end);
        given.chain(reported).max().unwrap_or(now)
    }

    /// The next moment at which `held` may fall by itself; `None` when nothing is live any more.
    pub(crate) fn next_change(&self, now: Millis) -> Option<Millis> {
        let first = self.live(now).map(|grant| grant.end).min();
        first.or_else(|| (now < self.max_end).then_some(self.max_end))
    }

    /// Rule 1, and E7 of what was moved: the holder knows a lease that was given for what it named last, so it uses
    /// nothing of earlier masters any more, and that comes free; or one that was given for something older, and then it
    /// is not certain whose the rest is. `issued` tells whether this epoch gave the token out. `learning`: it is a
    /// child node that confirms nothing (rule 8). But what was moved since, its former master has named late.
    pub(crate) fn confirm(&mut self, has: &Has, learning: bool, issued: impl Fn(Token) -> bool) -> Confirmation {
        let ignored = learning && planted::is(Fault::LearningKeepsMoved);
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
            // Older than this record: the holder was away too long, and the first answer since was lost.
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

    /// Whether a request that names this lease, in force or ended, is older than one that was processed already.
    pub(crate) fn is_stale(&self, token: Token) -> bool {
        self.confirmed.is_some_and(|confirmed| token < confirmed) && !planted::is(Fault::TakesStaleNames)
    }

    /// Gives up what was moved here, with the leases that it covers; returns how much that was.
    fn unclaim(&mut self) -> Amount {
        let claimed = self.claimed();
        let keeps_covered = planted::is(Fault::EchoKeepsCovered);
        self.grants.retain(|grant| keeps_covered && grant.token != Token::INHERITED);
        claimed
    }

    /// The holder names a lease of an earlier master, which confirms nothing. But a holder never goes back to an older
    /// lease, so a request that does is a delayed one (rule E3); and one that goes on to a newer one will not use the
    /// answers to what it named before (rule E4). Returns whether the name is another than before.
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

    /// Lowers a lease; never raises it.
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

    /// Whether `has` is the newest lease, or looks just like it: another answer would tell the holder nothing new.
    pub(crate) fn echoes_newest(&self, has: &Has) -> bool {
        self.grants
            .last()
            .is_some_and(|newest| has.token.map_or_else(|| self.looks_like(newest, has), |token| token == newest.token))
    }

    /// Whether `has` can only be the newest lease of this master, though it carries no token.
    pub(crate) fn shows_newest(&self, has: &Has) -> bool {
        self.newest().is_some() && self.identify(has) == self.newest()
    }

    /// The newest lease of this master.
    pub(crate) fn newest(&self) -> Option<Token> {
        self.grants.last().map(|newest| newest.token).filter(|token| *token != Token::INHERITED)
    }

    /// Whether it was given a lease, also if that has ended.
    pub(crate) fn has_given(&self) -> bool {
        self.first.is_some()
    }

    /// The lease meant by `has`: by its token, else only the newest can be recognised, by exact expiry and capacity. If
    /// an older one may have looked the same, with a larger one between them, nothing is known.
    fn identify(&self, has: &Has) -> Option<Token> {
        has.token.or_else(|| {
            let newest = self.grants.last().filter(|_| self.expiry_before < self.expiry_time)?;
            self.looks_like(newest, has).then_some(newest.token)
        })
    }

    fn looks_like(&self, newest: &Grant, has: &Has) -> bool {
        (self.expiry_time, newest.capacity) == (has.expiry_time, has.capacity)
    }

    /// Rule 2.
    ///
    /// A holder unknown so far may report what it was given by others: that counts for one lease length, `until`.
    pub(crate) fn report_outstanding(&mut self, reported: Amount, trusted: bool, now: Millis, until: Millis) {
        self.outstanding = if trusted { reported } else { self.outstanding(now).max(reported) };
        if self.outstanding > Amount::ZERO && self.max_end <= now {
            self.max_end = until;
        }
    }

    /// A child node that was cut may have lent on more than its newest lease, and for as long: what it may lend on
    /// until it hears of that lease counts as outstanding until it says, under that one, what is. Not of one that names
    /// no leases: that would never be over. What is moved here may go back to the estate, and would count twice: it
    /// does so once the estate has ended.
    pub(crate) fn await_report(&mut self, now: Millis) {
        if self.has_confirmed() && self.claimed() == Amount::ZERO {
            self.outstanding = self.held(now);
        }
    }

    /// Adds a lease; under [`Reuse::Prompt`] it replaces the others.
    pub(crate) fn grant(&mut self, grant: Grant, expiry_time: i64, reuse: Reuse) {
        match reuse {
            Reuse::Prompt => self.grants.clear(),
            Reuse::Confirmed if planted::is(Fault::FreesUnconfirmed) => self.grants.clear(),
            Reuse::Confirmed => {
                // A lease that is no larger and ends no later than a newer one can never again be the largest.
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

    /// Drops leases that have ended: merged with a newer lease they would be believed again.
    pub(crate) fn forget_ended(&mut self, now: Millis) {
        self.grants.retain(|grant| now < grant.end);
    }

    /// The holder gives back the lease `token` of this master and all before it (rule E8). Returns whether that was
    /// everything, and what of it goes back to the estate.
    pub(crate) fn release(&mut self, token: Token) -> (bool, Amount) {
        let is_newest = self.first.is_some_and(|first| first <= token);
        // A lease from before this record, which was released before: this is a repeat.
        let is_unknown = !is_newest && self.claimed() == Amount::ZERO;
        let is_late = is_unknown || self.confirmed.is_none_or(|confirmed| token < confirmed);
        let mut returned = Amount::ZERO;
        if !is_late && !is_newest {
            returned = self.unclaim();
        }
        let keeps_claimed = is_late && self.claimed() > Amount::ZERO;
        self.grants.retain(|grant| grant.token > token || keeps_claimed && grant.token == Token::INHERITED);
        if !is_late || self.confirmed.is_none() && !keeps_claimed {
            // What still names it was sent before.
            self.confirmed = Some(token.next());
            self.outstanding = Amount::ZERO;
        }
        (self.grants.is_empty(), returned)
    }
}
