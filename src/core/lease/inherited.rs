//! Inherited leases: what earlier masters promised and the holders of those leases have not claimed yet.
//!
//! A new master knows the total of the leases that its predecessors gave, not who has them. Until a holder asks, its
//! lease is *unclaimed*: it counts as held, but no record holds it. Capacity is set aside for it by the wants that were
//! inherited with the total, as if the unclaimed leases were one more child node. With its next request a holder
//! *claims* its lease: that amount leaves the unclaimed rest and counts in the holder's record (rule E4). What nobody
//! claims is free when the last lease of earlier masters has ended (rule E2).
//!
//! A master that starts in learning mode does the same. It knows nothing of earlier leases but that they were no more
//! than the capacity, so the whole capacity is unclaimed at first.

mod parts;

use std::collections::HashMap;

use parts::Parts;

use crate::{
    lease::{
        LeaseBook,
        confirm::LeaseStatement,
        promises::{Inherited, Part},
    },
    planted::{self, Fault},
    types::{Amount, Claim, Claims, Millis, Now, Sum, Token},
};

#[derive(Debug)]
pub(super) struct InheritedLeases {
    /// The anonymous record in the ledger that stands for them.
    slot: u32,
    /// The end of the last of them.
    until: Millis,
    unclaimed: Sum,
    /// Leases from this token on are included even if they have ended (rule E12).
    high_water_mark: Option<Token>,
    /// Parts of the unclaimed amount that end before `until` (rule E13).
    parts: Parts,
    /// Claims by holders that do not echo tokens, by slot: the newest lease of the holder, and the amount it claimed in
    /// the request that this lease answered. Removed when the holder shows that lease (rule E10).
    unproven: HashMap<u32, (Token, Amount)>,
}

/// How a step changed the unclaimed leases.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InheritedChange {
    None,
    /// The unclaimed amount was set.
    Amount,
    /// Inherited leases have begun. Their record is in this slot.
    Begun(u32),
}

/// A claim of the inherited wants that was replaced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantsChange {
    pub(crate) slot: u32,
    pub(crate) ordinal: usize,
    pub(crate) old: Claim,
    pub(crate) new: Claim,
}

impl InheritedLeases {
    /// The slot of their record, and the amount that the ledger counts as held.
    pub(super) fn in_ledger(&self) -> (u32, Sum) {
        (self.slot, if planted::is(Fault::UnclaimedIsFree) { Sum::ZERO } else { self.unclaimed })
    }
}

impl LeaseBook {
    /// Takes over the promises of earlier masters. [`end_parts`](Self::end_parts) removes the parts that have already
    /// ended.
    pub(crate) fn inherit(&mut self, inherited: Inherited) -> InheritedChange {
        let Inherited { total, wants, until, high_water_mark, parts, clock, .. } = inherited;
        if total == Amount::ZERO {
            return InheritedChange::None;
        }
        let change = self.begin_inherited(total.into(), until, wants);
        if let Some(inherited) = &mut self.inherited {
            inherited.high_water_mark = high_water_mark;
            inherited.parts = Parts::new(clock, parts, until);
        }
        change
    }

    /// Assumes that earlier masters lent all of `capacity` until `until`, except the amount that records hold.
    pub(crate) fn assume_lent(&mut self, capacity: Amount, until: Millis) -> InheritedChange {
        let records = self.ledger.sums().held - self.unclaimed_sum();
        let unknown = (Sum::from(capacity) - records).max(self.unclaimed_sum());
        if unknown <= Sum::ZERO {
            return InheritedChange::None;
        }
        let Some(inherited) = &mut self.inherited else { return self.begin_inherited(unknown, until, Claims::new()) };
        inherited.until = inherited.until.max(until);
        inherited.parts.forget();
        self.set_unclaimed(unknown)
    }

    /// The capacity has risen above `before` in learning mode. Earlier masters may have lent the difference, too, so it
    /// becomes unclaimed, except the amount that records hold already.
    pub(crate) fn raise_unclaimed(&mut self, capacity: Amount, before: Amount) -> InheritedChange {
        let more = Sum::from(capacity) - self.ledger.sums().held.max(before.into());
        if more <= Sum::ZERO {
            return InheritedChange::None;
        }
        let mut unclaimed = self.unclaimed_sum();
        unclaimed += more;
        match self.inherited {
            Some(_) => self.set_unclaimed(unclaimed),
            // There was nothing to inherit if the first supply was zero.
            None => self.begin_inherited(unclaimed, self.learning_until, Claims::new()),
        }
    }

    /// Adds an amount that stays unclaimed until `until`.
    pub(crate) fn consume(&mut self, amount: Amount, until: Millis) -> InheritedChange {
        if amount == Amount::ZERO {
            return InheritedChange::None;
        }
        let mut unclaimed = self.unclaimed_sum();
        unclaimed += amount;
        match self.inherited {
            Some(_) => self.set_unclaimed(unclaimed),
            None => self.begin_inherited(unclaimed, until, Claims::new()),
        }
    }

    /// Makes the inherited leases count until `until`, without parts that end earlier.
    pub(crate) fn inherit_until(&mut self, until: Millis) {
        if let Some(inherited) = &mut self.inherited {
            inherited.until = until;
            inherited.parts.forget();
        }
    }

    /// Drops the inherited leases. Returns the slot of their record, and the wants that are left in it.
    pub(crate) fn drop_inherited(&mut self) -> Option<(u32, Claims)> {
        let inherited = self.inherited.take()?;
        Some((inherited.slot, self.ledger.remove_inherited()))
    }

    /// The effect of [`Fault::CutLowersUnclaimed`].
    pub(crate) fn cap_unclaimed(&mut self, capacity: Amount) -> InheritedChange {
        self.set_unclaimed(self.unclaimed_sum().min(capacity.into()))
    }

    fn begin_inherited(&mut self, total: Sum, until: Millis, wants: Claims) -> InheritedChange {
        let slot = self.ledger.insert_inherited(wants);
        let (parts, unproven) = (Parts::default(), HashMap::new());
        let (unclaimed, high_water_mark) = (Sum::ZERO, None);
        self.inherited = Some(Box::new(InheritedLeases { slot, until, unclaimed, high_water_mark, parts, unproven }));
        let _ = self.set_unclaimed(total);
        InheritedChange::Begun(slot)
    }

    fn set_unclaimed(&mut self, unclaimed: Sum) -> InheritedChange {
        let Some(inherited) = &mut self.inherited else { return InheritedChange::None };
        inherited.unclaimed = unclaimed;
        let (_, counted) = inherited.in_ledger();
        self.ledger.set_unclaimed(counted);
        InheritedChange::Amount
    }

    /// Removes the parts that have ended (rule E13). Returns the changes of the inherited wants; `None` if no part has
    /// ended.
    pub(crate) fn end_parts(&mut self, now: Millis) -> Option<Vec<WantsChange>> {
        let inherited = self.inherited.as_mut()?;
        let (before, ended, slot) = (inherited.unclaimed, inherited.parts.end(now), inherited.slot);
        if ended == Sum::ZERO {
            return None;
        }
        let (left, over) = ((before - ended).max(Sum::ZERO), inherited.parts.over());
        inherited.high_water_mark = inherited.high_water_mark.map(|from| over.map_or(from, |over| from.max(over)));
        let _ = self.set_unclaimed(left);
        self.ledger.lapse(over.and_then(|over| Token::new(over.get() - 1)));
        Some(self.scale_inherited_wants(slot, left.get() / before.get()))
    }

    /// Removes the inherited leases if the last of them has ended (rule E2). Returns the slot of their record, and the
    /// wants that are left in it.
    pub(crate) fn end_inherited(&mut self, now: Millis, lease: Millis) -> Option<(u32, Claims)> {
        let early = if planted::is(Fault::UnclaimedEndsEarly) { lease } else { Millis(0) };
        let inherited = self.inherited.take_if(|inherited| inherited.until <= now.plus(early))?;
        let wants = self.ledger.remove_inherited();
        self.ledger.lapse(Token::last_before(self.tokens.epoch()));
        Some((inherited.slot, wants))
    }

    /// Claims an inherited lease for the holder in `slot`, or gives part of one back, until its record has `amount` or
    /// nothing is left unclaimed (rule E4). `token`: the claimed lease, if the holder names it.
    pub(crate) fn claim(&mut self, slot: u32, amount: Amount, token: Option<Token>) -> InheritedChange {
        let claimed = self.ledger.holder(slot).leases.claimed();
        let (amount, change) = self.exchange(claimed, amount, token);
        let until = self.inherited_until().unwrap_or_default();
        self.ledger.holder_mut(slot).leases.set_claimed(amount, until);
        change
    }

    fn exchange(&mut self, claimed: Amount, amount: Amount, token: Option<Token>) -> (Amount, InheritedChange) {
        let is_over = |inherited: &InheritedLeases| token.is_some_and(|token| inherited.parts.is_over(token));
        let amount = if self.inherited.as_deref().is_some_and(is_over) { amount.min(claimed) } else { amount };
        let mut both = self.unclaimed_sum();
        both += claimed;
        let beyond = planted::is(Fault::ClaimsBeyondUnclaimed) && self.has_inherited();
        let amount = if Sum::from(amount) <= both || beyond { amount } else { both.floor() };
        let Some(inherited) = &mut self.inherited else { return (amount, InheritedChange::None) };
        inherited.parts.take(inherited.unclaimed, amount.saturating_sub(claimed), token);
        (amount, self.set_unclaimed((both - amount.into()).max(Sum::ZERO)))
    }

    /// Returns an amount that was claimed by mistake to the unclaimed leases (rules E4 and E7), because it may belong
    /// to another holder.
    pub(crate) fn give_back(&mut self, claimed: impl Into<Sum>) -> InheritedChange {
        let claimed = claimed.into();
        if claimed <= Sum::ZERO || planted::is(Fault::MistakenClaimIsFree) {
            return InheritedChange::None;
        }
        let mut unclaimed = self.unclaimed_sum();
        unclaimed += claimed;
        self.set_unclaimed(unclaimed)
    }

    /// A holder of earlier masters now states its own wants, so its claim leaves the inherited wants: it is subtracted
    /// from the slice of its band with the most similar wants. `band` returns the band of a priority.
    pub(crate) fn lower_inherited_wants(&mut self, claim: &Claim, band: impl Fn(i16) -> i16) -> Option<WantsChange> {
        let slot = self.inherited_slot()?;
        let mean = |claim: &Claim| claim.wants.get() / f64::from(claim.subclients.max(1));
        let (own_band, wanted) = (band(claim.priority), mean(claim));
        let slices = self.ledger.holder(slot).claims.iter().enumerate();
        let of_band = slices.filter(|(_, slice)| slice.subclients > 0 && band(slice.priority) == own_band);
        let apart = of_band.map(|(ordinal, slice)| (ordinal, slice, (mean(slice) - wanted).abs()));
        let (ordinal, slice, _) = apart.min_by(|(.., one), (.., other)| one.total_cmp(other))?;
        let old = *slice;
        let subclients = old.subclients.saturating_sub(claim.subclients);
        let wants = if subclients == 0 { Amount::ZERO } else { old.wants.saturating_sub(claim.wants) };
        let new = Claim { wants, subclients, ..old };
        self.ledger.replace_inherited_claim(ordinal, new);
        Some(WantsChange { slot, ordinal, old, new })
    }

    fn scale_inherited_wants(&mut self, slot: u32, part: f64) -> Vec<WantsChange> {
        let mut changes = Vec::new();
        for ordinal in 0..self.ledger.holder(slot).claims.len() {
            let old = self.ledger.holder(slot).claims[ordinal];
            let subclients = (f64::from(old.subclients) * part).ceil() as u32;
            let new = Claim { wants: Amount::clamped(old.wants.get() * part), subclients, ..old };
            self.ledger.replace_inherited_claim(ordinal, new);
            changes.push(WantsChange { slot, ordinal, old, new });
        }
        changes
    }

    /// The parts for the quorum to store, in the order of their ends. The last one is the rest: leases of earlier
    /// masters that are in no other part.
    pub(super) fn inherited_parts(&self, now: Millis) -> Vec<Part> {
        let first = Token::first(self.tokens.epoch());
        let for_log =
            |inherited: &InheritedLeases| inherited.parts.for_log(inherited.unclaimed, inherited.until, first, now);
        self.inherited.as_deref().map_or_else(Vec::new, for_log)
    }

    /// When the next part ends, or, without parts, the last inherited lease.
    pub(crate) fn next_end_of_inherited(&self) -> Option<Millis> {
        self.inherited
            .as_ref()
            .map(|inherited| inherited.parts.next_end().unwrap_or(inherited.until).min(inherited.until))
    }

    /// Whether leases of earlier masters may still be in use.
    pub(crate) fn has_inherited(&self) -> bool {
        self.inherited.is_some()
    }

    /// The record that stands for the unclaimed leases.
    pub(crate) fn inherited_slot(&self) -> Option<u32> {
        self.inherited.as_ref().map(|inherited| inherited.slot)
    }

    /// When the last lease of earlier masters ends.
    pub(crate) fn inherited_until(&self) -> Option<Millis> {
        self.inherited.as_ref().map(|inherited| inherited.until)
    }

    /// The moment by which `amount` of the unclaimed leases has ended.
    pub(crate) fn inherited_over_by(&self, amount: Amount) -> Option<Millis> {
        let inherited = self.inherited.as_ref()?;
        Some(inherited.parts.over_by(amount).unwrap_or(inherited.until).min(inherited.until))
    }

    /// The record that stands for the unclaimed leases, and their amount, rounded down.
    pub(crate) fn unclaimed_record(&self) -> Option<(u32, Amount)> {
        self.inherited.as_ref().map(|inherited| (inherited.slot, inherited.unclaimed.floor()))
    }

    /// The unclaimed amount, rounded up.
    pub(crate) fn unclaimed(&self) -> Amount {
        self.unclaimed_sum().ceil()
    }

    fn unclaimed_sum(&self) -> Sum {
        self.inherited.as_ref().map_or(Sum::ZERO, |inherited| inherited.unclaimed)
    }

    /// The token and amount of an ended lease that the request may still claim (rule E12).
    pub(crate) fn lapsed_claim(&self, stated: &LeaseStatement) -> Option<(Token, Amount)> {
        let from = self.inherited.as_ref()?.high_water_mark?;
        let had = stated.had.filter(|_| stated.has.is_none() && stated.drops_late)?;
        let token = had.token.filter(|token| self.tokens.is_former(*token))?;
        (from <= token || planted::is(Fault::IgnoresHighWaterMark)).then_some((token, had.capacity))
    }

    /// Whether some holders of earlier masters have not asked this one yet.
    pub(crate) fn awaits_former_holders(&self) -> bool {
        self.inherited_slot().is_some_and(|slot| self.ledger.holder(slot).subclients() > 0)
    }

    /// Whether a lease with this expiry time, in Unix seconds, ends later than any lease of an earlier master (rule
    /// E10).
    pub(crate) fn outlasts_inherited(&self, expiry_time: i64, now: Now) -> bool {
        self.inherited_until().is_none_or(|until| {
            let left = i64::try_from(until.since(now.at).0.div_ceil(1000)).unwrap_or(i64::MAX);
            expiry_time >= now.unix.saturating_add(left)
        })
    }

    /// Notes that the lease `token` answers a request that claimed `amount` without a token.
    pub(super) fn note_claimed(&mut self, slot: u32, token: Token, amount: Amount) {
        if let Some(inherited) = self.inherited.as_mut().filter(|_| amount > Amount::ZERO) {
            inherited.unproven.insert(slot, (token, amount));
        }
    }

    /// Whether the newest lease of a holder answers a request that claimed something without a token.
    pub(crate) fn has_unproven_claim(&self, slot: u32) -> bool {
        let unproven = self.inherited.as_ref().and_then(|inherited| inherited.unproven.get(&slot));
        unproven.is_some_and(|(token, _)| self.ledger.holder(slot).leases.newest() == Some(*token))
    }

    /// Takes the amount claimed in the request that the lease `token` answered.
    pub(crate) fn take_unproven(&mut self, slot: u32, token: Option<Token>) -> Amount {
        let unproven = self.inherited.as_mut().and_then(|inherited| inherited.unproven.remove(&slot));
        unproven.filter(|(newest, _)| Some(*newest) == token).map_or(Amount::ZERO, |(_, amount)| amount)
    }
}
