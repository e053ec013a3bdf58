//! The estate: what earlier masters promised, until its holders name it.
//!
//! A holder names its lease with its next request, and that much is *moved* out of the estate into the holder's record,
//! where it counts as held. What is left of the estate is held by no record: it is not free, and it is divided for by
//! the wants that it came with, as if it were one more child node. It ends when the last lease of earlier masters has.
//!
//! A master that learns does the same: it knows nothing of earlier leases but that they were no more than there is, so
//! its estate is the whole capacity.
//!
//! The rules, numbered as in docs/internals/lease-protocol.md, are kept here, in [`super::confirm`] and in
//! [`crate::lease::leases`].

mod parts;

use std::collections::HashMap;

use super::Resource;
use parts::Parts;

use crate::{
    lease::promises::{Inherited, Part},
    planted::{self, Fault},
    resource::Ask,
    types::{
        amount::{Amount, Sum},
        claim::{Claim, Claims, HolderKind, wanted},
        time::{Millis, Now},
        token::Token,
    },
};

/// The estate of one incarnation of a resource.
#[derive(Debug)]
pub(super) struct InheritedLeases {
    /// The anonymous record that stands for it in the ledger.
    slot: u32,
    until: Millis,
    left: Sum,
    /// Earlier leases from this one on are in it also if they have ended.
    counted_from: Option<Token>,
    /// Parts of what is left that end sooner.
    parts: Parts,
    /// By slot, of holders that have shown no lease of this master yet: their newest lease, and what was named in the
    /// request that it answers (rule E10).
    unproven: HashMap<u32, (Token, Amount)>,
}

impl Resource {
    /// Begins with the promises of earlier masters.
    pub(super) fn inherit(&mut self, inherited: Inherited) {
        let Inherited { total, wants, until, counted_from, parts, clock, .. } = inherited;
        if total > Amount::ZERO {
            self.begin_inherited(total.into(), until, wants);
        }
        if let Some(inherited) = &mut self.inherited {
            inherited.counted_from = counted_from;
            inherited.parts = Parts::new(clock, parts, until);
        }
        self.end_of_parts(self.since);
    }

    /// A master that knows nothing of earlier leases assumes that all there is was lent, until then.
    pub(super) fn assume_lent(&mut self, until: Millis) {
        let whole = self.pool.as_ref().map_or(self.settings.capacity, |pool| pool.most());
        let records = self.ledger.sums().held - self.left();
        let unknown = (Sum::from(whole) - records).max(self.left());
        if !self.is_bounded() || unknown <= Sum::ZERO {
            return;
        }
        match &mut self.inherited {
            Some(inherited) => {
                inherited.until = inherited.until.max(until);
                inherited.parts.forget();
            }
            None => self.begin_inherited(unknown, until, Claims::new()),
        }
        self.leave(unknown);
    }

    fn begin_inherited(&mut self, total: Sum, until: Millis, wants: Claims) {
        let slot = self.ledger.insert_inherited(wants);
        self.division.insert(slot, &self.ledger.holder(slot).claims);
        let (parts, unproven) = (Parts::default(), HashMap::new());
        self.inherited =
            Some(Box::new(InheritedLeases { slot, until, left: Sum::ZERO, counted_from: None, parts, unproven }));
        self.leave(total);
        if let Some(pool) = &mut self.pool {
            pool.begin_with(self.ledger.sums().held);
        }
    }

    /// Ends the estate if the last lease of earlier masters has ended.
    pub(super) fn end_inherited(&mut self, now: Millis) {
        self.end_of_parts(now);
        let early = if planted::is(Fault::EstateEndsEarly) { Millis(self.settings.lease.0) } else { Millis(0) };
        let Some(inherited) = self.inherited.take_if(|inherited| inherited.until <= now.plus(early)) else { return };
        self.division.remove(inherited.slot, &self.ledger.holder(inherited.slot).claims);
        self.ledger.remove_inherited();
        self.ledger.lapse(Token::last_before(self.tokens.epoch()));
        if let Some(pool) = &mut self.pool {
            pool.remove_inherited(inherited.slot, self.ledger.sums().held);
        }
    }

    /// Ends the parts of the estate whose time has come (rule E13): nothing moves out of them any more.
    fn end_of_parts(&mut self, now: Millis) {
        let Some(inherited) = &mut self.inherited else { return };
        let (before, ended, slot) = (inherited.left, inherited.parts.end(now), inherited.slot);
        if ended == Sum::ZERO {
            return;
        }
        let (left, over) = ((before - ended).max(Sum::ZERO), inherited.parts.over());
        inherited.counted_from =
            inherited.counted_from.map(|counted_from| over.map_or(counted_from, |over| counted_from.max(over)));
        self.leave(left);
        self.ledger.lapse(over.and_then(|over| Token::new(over.get() - 1)));
        self.scale_inherited_wants(slot, left.get() / before.get());
    }

    /// The parts of the estate, in the order of their ends; the last is what earlier masters gave and is in no other.
    pub(super) fn inherited_parts(&self, now: Millis) -> Vec<Part> {
        let first = Token::first(self.tokens.epoch());
        self.inherited
            .as_ref()
            .map_or_else(Vec::new, |inherited| inherited.parts.told(inherited.left, inherited.until, first, now))
    }

    /// When the next part of the estate ends, or all of it.
    pub(super) fn next_end_of_inherited(&self) -> Option<Millis> {
        self.inherited
            .as_ref()
            .map(|inherited| inherited.parts.next_end().unwrap_or(inherited.until).min(inherited.until))
    }

    /// Whether it still learns. Where capacity is not shared there is nothing to learn.
    pub fn is_learning(&self, now: Millis) -> bool {
        now < self.learning_until && self.is_bounded()
    }

    /// Whether earlier masters may have lent more than the estate has: below a parent it is what is lent now, and that
    /// may be less than what they had.
    pub(super) fn may_have_lent_more(&self, now: Millis) -> bool {
        self.has_parent() && self.proposer.is_none() && self.is_learning(now)
    }

    /// Whether leases of earlier masters may still be in use.
    pub(super) fn has_inherited(&self) -> bool {
        self.inherited.is_some()
    }

    /// The lease of an earlier master that a holder had when there was none: it has ended, and is in the estate all the
    /// same (rule E12).
    pub(super) fn lapsed_claim(&self, ask: &Ask) -> Option<(Token, Amount)> {
        let counted_from = self.inherited.as_ref()?.counted_from?;
        let had = ask.had.filter(|_| ask.has.is_none() && ask.drops_late)?;
        let token = had.token.filter(|token| self.tokens.is_former(*token))?;
        (counted_from <= token || planted::is(Fault::FloorIsNothing)).then_some((token, had.capacity))
    }

    /// The record that stands for it.
    pub(super) fn inherited_slot(&self) -> Option<u32> {
        self.inherited.as_ref().map(|inherited| inherited.slot)
    }

    /// When that ends.
    pub(super) fn inherited_until(&self) -> Option<Millis> {
        self.inherited.as_ref().map(|inherited| inherited.until)
    }

    /// When so much of what is left has ended at the latest.
    pub(super) fn inherited_over_by(&self, amount: Amount) -> Option<Millis> {
        let inherited = self.inherited.as_ref()?;
        Some(inherited.parts.over_by(amount).unwrap_or(inherited.until).min(inherited.until))
    }

    fn left(&self) -> Sum {
        self.inherited.as_ref().map_or(Sum::ZERO, |inherited| inherited.left)
    }

    /// What no holder has named yet.
    pub(super) fn unclaimed(&self) -> Amount {
        self.left().ceil()
    }

    fn leave(&mut self, left: Sum) {
        let Some(inherited) = &mut self.inherited else { return };
        inherited.left = left;
        self.ledger.set_unclaimed(if planted::is(Fault::EstateIsFree) { Sum::ZERO } else { left });
        if let Some(pool) = &mut self.pool {
            pool.set_unclaimed(inherited.slot, left.floor());
        }
    }

    /// What [`Fault::CutLowersEstate`] does.
    pub(super) fn cap_unclaimed(&mut self) {
        self.leave(self.left().min(self.settings.capacity.into()));
    }

    /// Moves between the estate and a record that has `moved` of it, until the record has `target`, or the estate
    /// nothing (rule E4). Returns what the record has then. `token`: the lease that is named, if that is known.
    pub(super) fn exchange(&mut self, claimed: Amount, target: Amount, token: Option<Token>) -> Amount {
        let is_over = |inherited: &InheritedLeases| token.is_some_and(|token| inherited.parts.is_over(token));
        let target = if self.inherited.as_deref().is_some_and(is_over) { target.min(claimed) } else { target };
        let mut both = self.left();
        both += claimed;
        let beyond = planted::is(Fault::MovesBeyondEstate) && self.has_inherited();
        let target = if Sum::from(target) <= both || beyond { target } else { both.floor() };
        if let Some(inherited) = &mut self.inherited {
            inherited.parts.take(inherited.left, target.saturating_sub(claimed), token);
            self.leave((both - target.into()).max(Sum::ZERO));
        }
        target
    }

    /// Something that was moved by mistake goes back (rules E4 and E7): it may be another holder's.
    pub(super) fn give_back(&mut self, claimed: impl Into<Sum>) {
        let claimed = claimed.into();
        if claimed > Sum::ZERO && !planted::is(Fault::ReturnsToFree) {
            let mut left = self.left();
            left += claimed;
            self.leave(left);
        }
    }

    /// There is more while the resource learns: holders may have that, too. But not what they were counted for
    /// already, beyond what was lent before.
    pub(super) fn raise_unclaimed(&mut self, before: Amount) {
        let more = Sum::from(self.settings.capacity) - self.ledger.sums().held.max(before.into());
        if !self.is_bounded() || more <= Sum::ZERO {
            return;
        }
        let mut left = self.left();
        left += more;
        match self.inherited {
            Some(_) => self.leave(left),
            // The first supply may have been nothing.
            None => self.begin_inherited(left, self.learning_until, Claims::new()),
        }
    }

    /// A holder of earlier masters says itself what it wants: its part of the inherited wants is over. It wanted no
    /// less than it was given.
    pub(super) fn take_over_wants(&mut self, mut claims: Claims, amount: Amount) {
        let Some(slot) = self.inherited_slot() else { return };
        if let [only] = &mut claims[..] {
            only.wants = only.wants.max(amount);
        }
        for claim in wanted(&claims) {
            self.lower_inherited_wants(slot, &self.division.ruled(claim));
        }
    }

    /// Takes a claim out of the slice of its band that it is most like.
    fn lower_inherited_wants(&mut self, slot: u32, claim: &Claim) {
        let mean = |claim: &Claim| claim.wants.get() / f64::from(claim.subclients.max(1));
        let (band, wanted) = (self.division.band(claim.priority), mean(claim));
        let slices = self.ledger.holder(slot).claims.iter().enumerate();
        let of_band = slices.filter(|(_, slice)| slice.subclients > 0 && self.division.band(slice.priority) == band);
        let apart = of_band.map(|(ordinal, slice)| (ordinal, slice, (mean(slice) - wanted).abs()));
        let nearest = apart.min_by(|(.., one), (.., other)| one.total_cmp(other));
        let Some((ordinal, slice)) = nearest.map(|(ordinal, slice, _)| (ordinal, *slice)) else { return };
        let subclients = slice.subclients.saturating_sub(claim.subclients);
        let wants = if subclients == 0 { Amount::ZERO } else { slice.wants.saturating_sub(claim.wants) };
        let rest = Claim { wants, subclients, ..slice };
        self.division.replace(slot, ordinal, &slice, &rest);
        self.ledger.replace_inherited_claim(ordinal, rest);
    }

    /// So much of the inherited wants is left.
    fn scale_inherited_wants(&mut self, slot: u32, part: f64) {
        for ordinal in 0..self.ledger.holder(slot).claims.len() {
            let slice = self.ledger.holder(slot).claims[ordinal];
            let subclients = (f64::from(slice.subclients) * part).ceil() as u32;
            let rest = Claim { wants: Amount::clamped(slice.wants.get() * part), subclients, ..slice };
            self.division.replace(slot, ordinal, &slice, &rest);
            self.ledger.replace_inherited_claim(ordinal, rest);
        }
    }

    /// Whether it may be a holder of earlier masters that does not say what it has (rule E11): a child node, or a client
    /// that has come while some of those were still missing. A client of ours would have named its lease.
    pub(super) fn may_have_more(&self, slot: u32, is_new: bool, ask: &Ask, now: Millis) -> bool {
        let says_nothing = ask.has.is_none() && ask.had.is_none();
        if !says_nothing || !self.has_inherited() || !self.is_bounded() {
            return false;
        }
        let leases = &self.ledger.holder(slot).leases;
        match ask.kind {
            HolderKind::Node => !leases.is_live(now),
            HolderKind::Client => {
                let is_known = ask.drops_late || leases.has_given() || self.pool.is_some();
                !is_known && (!is_new || self.awaits_former())
            }
        }
    }

    /// Whether some of those that wanted something from earlier masters have not asked this one.
    fn awaits_former(&self) -> bool {
        self.inherited_slot().is_some_and(|slot| self.ledger.holder(slot).subclients() > 0)
    }

    /// Whether a lease that expires then, in Unix seconds, ends later than any of an earlier master may (rule E10).
    pub(super) fn outlasts_inherited(&self, expiry_time: i64, now: Now) -> bool {
        self.inherited_until().is_none_or(|until| {
            let left = i64::try_from(until.since(now.at).0.div_ceil(1000)).unwrap_or(i64::MAX);
            expiry_time >= now.unix.saturating_add(left)
        })
    }

    /// A lease was given to a holder that had named so much.
    pub(super) fn note_claimed(&mut self, slot: u32, token: Token, amount: Amount) {
        if let Some(inherited) = self.inherited.as_mut().filter(|_| amount > Amount::ZERO) {
            inherited.unproven.insert(slot, (token, amount));
        }
    }

    /// Whether the newest lease of a holder answers a request that named something without a token.
    pub(super) fn has_unproven_claim(&self, slot: u32) -> bool {
        let unproven = self.inherited.as_ref().and_then(|inherited| inherited.unproven.get(&slot));
        unproven.is_some_and(|(token, _)| self.ledger.holder(slot).leases.newest() == Some(*token))
    }

    /// What was named for the lease; it can be freed once.
    pub(super) fn take_claimed(&mut self, slot: u32, token: Option<Token>) -> Amount {
        let unproven = self.inherited.as_mut().and_then(|inherited| inherited.unproven.remove(&slot));
        unproven.filter(|(newest, _)| Some(*newest) == token).map_or(Amount::ZERO, |(_, unproven)| unproven)
    }
}
