//! What is safe: which leases may still be in use, and how much may therefore be given.
//!
//! # The problem
//! A lease is a promise: its holder may use an amount of capacity until the lease ends. The sum of all leases that
//! holders may believe in must never exceed the capacity. That would be simple if the server knew what each holder
//! believes. It does not: answers get lost, repeated and delayed, holders crash and restart, and masters change.
//!
//! # The protocol
//! Every lease has a [`Token`](crate::types::Token), a number that only rises. A request says which lease its
//! holder has: the token, the amount and the expiry time ([`holder::ShownLease`]). The server concludes from that, and
//! from nothing else, which older leases the holder has stopped using.
//!
//! For each holder the server keeps all leases it may be acting on, from the newest that it has confirmed to the newest
//! that was given. The largest of them is *held*. Held capacity is not free, whatever the holder was given since.
//!
//! # An example
//! The capacity is 100. Client `a` wants 80 and has a lease of 80 (token 5). Client `b` comes and wants 80, too. Both
//! are due 50.
//!
//! | | message | held for a | held for b | free |
//! |---|---|---|---|---|
//! | 1 | | 80 | 0 | 20 |
//! | 2 | `b` → server: wants 80 | 80 | 0 | 20 |
//! | 3 | server → `b`: token 6, 20 | 80 | 20 | 0 |
//! | 4 | `a` → server: wants 80, has token 5, 80 | 80 | 20 | 0 |
//! | 5 | server → `a`: token 7, 50. The answer gets lost | 80 | 20 | 0 |
//! | 6 | `b` → server: wants 80, has token 6, 20 | 80 | 20 | 0 |
//! | 7 | server → `b`: token 8, 20 | 80 | 20 | 0 |
//! | 8 | `a` → server: wants 80, has token 5, 80 | 80 | 20 | 0 |
//! | 9 | server → `a`: token 9, 50 | 80 | 20 | 0 |
//! | 10 | `a` → server: wants 80, has token 9, 50 | 50 | 20 | 30 |
//! | 11 | `b` → server: wants 80, has token 8, 20 | 50 | 20 | 30 |
//! | 12 | server → `b`: token 11, 50 | 50 | 50 | 0 |
//!
//! In step 3 `b` gets what is free, not what it is due: `a` still uses 80. In step 5 the server decides that `a` may
//! have 50, but 80 stay held, because the server cannot know whether the answer arrives. It did not: in step 8 `a`
//! still names token 5. Had the server given the difference to `b` in step 7, both together would have used 130. Only
//! step 10 proves that `a` knows its smaller lease (rule 1), and 30 come free. If `a` had never come back, its 80 would
//! have come free when the lease with token 5 ended.
//!
//! # A change of master
//! Before an answer leaves, a quorum of peers stores a bound on all leases that are in use: a *total* and a *horizon*
//! ([`promises`]). The [`proposer`] decides when that bound has to change. The next master starts with the bound and
//! without any record ([`inherited`]). Continuing the example, the master fails after step 12:
//!
//! | | message | unclaimed | held for a | held for b | free |
//! |---|---|---|---|---|---|
//! | 13 | a new master begins; the stored total is 100 | 100 | 0 | 0 | 0 |
//! | 14 | `a` → server: wants 80, has token 9, 50 | 50 | 50 | 0 | 0 |
//! | 15 | server → `a`: token 1000, 50 | 50 | 50 | 0 | 0 |
//! | 16 | `c` → server: wants 40 | 50 | 50 | 0 | 0 |
//! | 17 | server → `c`: token 1001, 0 | 50 | 50 | 0 | 0 |
//! | 18 | `b` never comes back; its lease ends, and with it the horizon | 0 | 50 | 0 | 50 |
//!
//! In step 14 `a` *claims* its lease: 50 leave the unclaimed amount and count in the record of `a` (rule E4). In step
//! 17 `c` gets nothing, because the unclaimed 50 may be in use by `b`.
//!
//! # The rules
//! src/core/lease/protocol.md has all rules with the reasons for them. Comments cite them by number.
//!
//! | rule | says | kept in |
//! |---|---|---|
//! | 1 | a confirmation drops older leases only; a stale request is ignored | [`holder`] |
//! | 2 | an outstanding amount may lower what is held only if its sender proves that it knows a recent lease | [`holder`] |
//! | 3 | a holder may keep its newest live lease, not what is held for it | [`holder`] |
//! | 4 | a grant drops older leases that it covers, and no others | [`holder`] |
//! | 5 | without a supply of its own a node gives nothing | [`crate::resource`] |
//! | 6 | a client has one request in flight, and only the answer to the latest counts | the session |
//! | 7 | a new master uses only what a quorum has stored | [`promises`], the uplink |
//! | 8 | a child node in learning mode confirms nothing | [`holder`], [`crate::resource`] |
//! | 9, 10 | who is hinted; who asks early | [`crate::resource`] |
//! | E1 | an answer leaves when the stored total covers everything that is held | [`proposer`] |
//! | E2 | inherited leases count until the last of them has ended | [`inherited`] |
//! | E3 | a request that claims an older lease than the last one is stale | [`holder`] |
//! | E4 | a claim takes from the unclaimed amount, and a smaller claim gives back | [`inherited`] |
//! | E5 | nothing is claimed in addition to a fresh lease | [`holder`] |
//! | E6 | a holder may keep what it has claimed until it has a lease of this master | [`holder`] |
//! | E7 | the echo of a lease that answers the last claim frees what was claimed | [`holder`] |
//! | E8 | a release of a lease of this master frees it and older ones, and nothing else | [`holder`] |
//! | E9 | rule 6, for a client of several masters | the session |
//! | E10 | a holder without tokens gets back what it claims, and grows after it has shown a lease of this master | [`crate::resource`] |
//! | E11 | a holder that may have an unknown lease is left out of the answer rather than given less | [`crate::resource`] |
//! | E12 | leases that ended while there was no master can be claimed, too | [`inherited`], [`proposer`] |
//! | E13 | parts of the unclaimed amount end on their own | [`inherited`], [`proposer`] |
//!
//! [`confirm`] applies what a request says about leases.

pub(crate) mod confirm;
pub mod holder;
pub mod inherited;
pub mod ledger;
pub mod promises;
pub mod proposer;

use std::{num::NonZeroU32, sync::Arc};

use crate::{
    lease::{
        holder::{Grant, Leases},
        inherited::InheritedLeases,
        ledger::{
            Asked, Holder, HolderMode, Ledger, NOT_WATCHED,
            packed::{Echo, PackedLedger},
        },
        promises::{Inherited, StoredPeriod},
        proposer::{PromiseReport, Proposal, Proposer, RoundState, begin_epoch},
    },
    planted::{self, Fault},
    policy::settings::{Reuse, Settings},
    types::{Amount, Claims, Epoch, HolderKind, Millis, Principal, SlotDelta, Token, Tokens, certain_end},
};

impl PackedBook {
    /// Moves the end of the echoed lease, if nothing else changes and the stored promises cover the new end.
    pub(crate) fn renew(&mut self, echo: &Echo<'_>, lease: Millis) -> bool {
        let Echo { token, end, now, .. } = *echo;
        let covers = |proposer: &Proposer| proposer.covers_renewal(token, end, lease, self.ledger.lapsed(), now);
        self.inherited.is_none()
            && now >= self.learning_until
            && self.proposer.as_deref().is_none_or(covers)
            && self.ledger.renew(echo)
    }

    pub(crate) fn next_expiry(&self) -> Option<Millis> {
        self.ledger.next_expiry()
    }
}

/// The leases of one incarnation of a resource: those that it granted, those that it inherited, and the bounds on both
/// that peers store.
pub(crate) struct LeaseBook<L = Ledger> {
    ledger: L,
    tokens: Tokens,
    /// Unclaimed leases of earlier masters, until the last of them ends.
    inherited: Option<Box<InheritedLeases>>,
    /// Absent if no promises are kept: then the next master knows nothing of these leases.
    proposer: Option<Box<Proposer>>,
    /// When this master began. Leases that it cannot account for are older.
    since: Millis,
    /// The end of learning mode. Before it this master may not know all leases.
    learning_until: Millis,
}

pub(crate) type PackedBook = LeaseBook<PackedLedger>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct NewLease {
    pub(crate) capacity: Amount,
    pub(crate) length: Millis,
    /// In Unix seconds, as sent to the holder.
    pub(crate) expiry_time: i64,
    /// The amount that the holder claimed without a token in the request that this lease answers.
    pub(crate) claimed: Amount,
    /// Of a budget: when it certainly counts no more, and the horizon of the period. Absent: as long as it lasts.
    pub(crate) counts: Option<(Millis, Millis)>,
}

impl LeaseBook {
    /// A book without leases. [`inherit`](Self::inherit) adds the inherited ones.
    pub(crate) fn new(
        epoch: Epoch,
        since: Millis,
        learning_until: Millis,
        inherited: Option<&Inherited>,
        seed: u64,
    ) -> LeaseBook {
        let epoch = begin_epoch(epoch, inherited);
        LeaseBook {
            ledger: Ledger::new(seed),
            tokens: Tokens::new(epoch),
            inherited: None,
            proposer: inherited.map(|inherited| Box::new(Proposer::new(epoch, inherited))),
            since,
            learning_until,
        }
    }

    pub(crate) fn can_pack(&self) -> bool {
        self.ledger.can_pack()
    }

    /// Whether nothing is inherited, and no promise is due because of changes since the last horizon.
    pub(crate) fn is_quiet(&self) -> bool {
        let wants = self.ledger.sums().wants;
        self.inherited.is_none() && self.proposer.as_ref().is_none_or(|proposer| proposer.is_quiet(wants))
    }

    pub(crate) fn pack(self) -> PackedBook {
        let LeaseBook { ledger, tokens, inherited, proposer, since, learning_until } = self;
        LeaseBook { ledger: ledger.pack(), tokens, inherited, proposer, since, learning_until }
    }

    /// The reverse of [`pack`](Self::pack).
    pub(crate) fn unpack(packed: PackedBook, seed: u64) -> LeaseBook {
        let LeaseBook { ledger, tokens, inherited, proposer, since, learning_until } = packed;
        let ledger = Ledger::unpack(ledger, inherited.as_ref().map(|inherited| inherited.in_ledger()), seed);
        LeaseBook { ledger, tokens, inherited, proposer, since, learning_until }
    }

    /// The records of the holders.
    #[inline]
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.tokens.epoch()
    }

    /// Whether this master gave the lease with this token.
    pub(crate) fn issued(&self, token: Token) -> bool {
        self.tokens.issued(token)
    }

    /// Whether an earlier master gave the lease with this token.
    pub(crate) fn is_former(&self, token: Token) -> bool {
        self.tokens.is_former(token)
    }

    /// A token for an empty lease that no record has.
    pub(crate) fn issue_token(&mut self) -> Token {
        self.tokens.issue()
    }

    /// A holder of a budget has spent at least this much.
    pub(crate) fn raise_spent(&mut self, slot: u32, spent: Amount, now: Millis, until: Millis) {
        self.ledger.holder_mut(slot).leases.raise_spent(spent, now, until);
        self.ledger.recount(slot, now);
    }

    pub(crate) fn since(&self) -> Millis {
        self.since
    }

    pub(crate) fn learning_until(&self) -> Millis {
        self.learning_until
    }

    pub(crate) fn learn_until(&mut self, until: Millis) {
        self.learning_until = until;
    }

    /// Whether peers store what this master promises.
    pub(crate) fn keeps_promises(&self) -> bool {
        self.proposer.is_some()
    }

    /// Adds a holder without claims and leases. Returns its slot.
    pub(crate) fn add_holder(&mut self, kind: HolderKind, id: Arc<str>, principal: Principal) -> u32 {
        self.ledger.insert(kind, id, principal)
    }

    pub(crate) fn remove_holder(&mut self, slot: u32) -> Holder {
        self.ledger.remove(slot)
    }

    /// Gives a holder another id, which no other holder has.
    pub(crate) fn rename(&mut self, slot: u32, id: Arc<str>) {
        self.ledger.rename(slot, id);
    }

    /// Removes the claims of a holder and its position in the watch list; its leases stay. Returns both.
    pub(crate) fn detach(&mut self, slot: u32) -> (Claims, u32) {
        let claims = self.ledger.holder(slot).claims.clone();
        self.ledger.set_claims(slot, Claims::new());
        self.ledger.set_waits(slot, false);
        (claims, self.set_watch(slot, NOT_WATCHED))
    }

    /// Clears the record of a holder that has released all leases. The record stays until `until`, because a delayed
    /// request would otherwise be taken for one of a new holder (rule E2).
    pub(crate) fn leave_tombstone(&mut self, slot: u32, now: Millis, until: Millis) {
        let holder = self.ledger.holder_mut(slot);
        holder.asked = None;
        holder.leases.leave_tombstone();
        self.ledger.remember(slot, now, until);
    }

    pub(crate) fn set_claims(&mut self, slot: u32, claims: Claims) {
        self.ledger.set_claims(slot, claims);
    }

    /// Notes in all claims which client rule applies to them.
    pub(crate) fn put_rules(&mut self, settings: &Settings) {
        let slots: Vec<u32> = self.ledger.iter_from(0).map(|(slot, _)| slot).collect();
        for slot in slots {
            let holder = self.ledger.holder_mut(slot);
            settings.put_rule(holder.kind, &holder.id, &mut holder.claims);
        }
    }

    pub(crate) fn set_mode(&mut self, slot: u32, mode: HolderMode) {
        self.ledger.set_mode(slot, mode);
    }

    /// Counts what a holder holds under this label from now on.
    pub(crate) fn set_label(&mut self, slot: u32, label: u32) {
        self.ledger.set_label(slot, label);
    }

    pub(crate) fn set_labels(&mut self, labels: Vec<(u32, u32)>) {
        self.ledger.clear_labels();
        labels.into_iter().for_each(|(slot, label)| self.ledger.set_label(slot, label));
    }

    /// Notes the request of a holder. `round`: the sub-round that it takes part in.
    pub(crate) fn note_request(&mut self, slot: u32, asked: Asked, round: u32) {
        let holder = self.ledger.holder_mut(slot);
        (holder.asked, holder.round) = (Some(asked), round);
    }

    /// Notes the refresh interval in the answer to the last request of a holder.
    pub(crate) fn set_interval(&mut self, slot: u32, interval: NonZeroU32) {
        if let Some(asked) = &mut self.ledger.holder_mut(slot).asked {
            asked.interval = interval;
        }
    }

    /// Notes whether a holder was given visibly less than it is due.
    pub(crate) fn set_waits(&mut self, slot: u32, waits: bool) {
        self.ledger.set_waits(slot, waits);
    }

    /// Sets the position of a holder in the watch list. Returns the position before.
    pub(crate) fn set_watch(&mut self, slot: u32, position: u32) -> u32 {
        std::mem::replace(&mut self.ledger.holder_mut(slot).watch, position)
    }

    /// Notes which holders have one of the left-over units. Returns whether that has changed. `winners` are in
    /// ascending order.
    pub(crate) fn set_extra_units(&mut self, winners: &[u32]) -> bool {
        let holders = self.ledger.iter_from(0);
        let had: Vec<u32> = holders.filter(|(_, holder)| holder.extra).map(|(slot, _)| slot).collect();
        had.iter().for_each(|slot| self.ledger.holder_mut(*slot).extra = false);
        winners.iter().for_each(|slot| self.ledger.holder_mut(*slot).extra = true);
        had != winners
    }

    /// Keeps the record of a holder for one lease length, although the answer leaves its request out.
    pub(crate) fn remember(&mut self, slot: u32, now: Millis, lease: Millis) {
        self.ledger.remember(slot, now, certain_end(now, lease));
    }

    /// Updates the sums after statements about leases were applied to a record.
    pub(crate) fn recount(&mut self, slot: u32, now: Millis) {
        self.ledger.recount(slot, now);
    }

    /// Makes the horizon cover the leases of a holder with an outstanding amount, because that counts until their end.
    pub(crate) fn cover_outstanding(&mut self, slot: u32) {
        let leases = &self.ledger.holder(slot).leases;
        if leases.reports_outstanding() {
            self.cover_until(leases.last_end());
        }
    }

    /// Puts copied leases into a record that has none.
    pub(crate) fn put_leases(&mut self, slot: u32, leases: Leases, now: Millis) {
        self.ledger.holder_mut(slot).leases = leases;
        self.ledger.recount(slot, now);
    }

    /// See [`Ledger::expire`].
    pub(crate) fn expire(&mut self, now: Millis, budget: usize, visited: impl FnMut(u32, Option<Holder>)) {
        self.ledger.expire(now, budget, visited);
    }

    /// Takes the changes in the number of slots of each principal since the last call.
    pub(crate) fn drain_slot_deltas(&mut self) -> impl Iterator<Item = SlotDelta> {
        self.ledger.drain_slot_deltas()
    }

    /// Gives the holder in `slot` a lease. Returns its token.
    pub(crate) fn grant(&mut self, slot: u32, now: Millis, lease: NewLease, reuse: Reuse) -> Token {
        let NewLease { capacity, length, expiry_time, claimed, counts } = lease;
        let token = self.tokens.issue();
        let end = certain_end(now, length);
        let (end, horizon) = counts.unwrap_or((end, end));
        let grant = Grant { token, capacity, end };
        self.ledger.grant(slot, now, grant, expiry_time, reuse);
        self.note_claimed(slot, token, claimed);
        self.cover_until(horizon);
        token
    }

    /// Releases leases of the holder in `slot`: the lease `token` and all before it, or all if there is no token (rule
    /// E8). Returns whether the holder has none left, and the amount that goes back to the unclaimed leases.
    pub(crate) fn release(&mut self, slot: u32, kind: HolderKind, token: Option<Token>, now: Millis) -> (bool, Amount) {
        let leases = &mut self.ledger.holder_mut(slot).leases;
        leases.end_claimed(kind, now);
        match token {
            Some(token) if self.tokens.issued(token) => leases.release(token),
            Some(_) if planted::is(Fault::OldReleaseFrees) => (true, Amount::ZERO),
            // The release was meant for an earlier master, or may have been.
            Some(_) => (false, Amount::ZERO),
            None => (!self.has_inherited(), Amount::ZERO),
        }
    }

    /// Makes the horizon cover a lease that ends at `end`.
    pub(crate) fn cover_until(&mut self, end: Millis) {
        if let Some(proposer) = &mut self.proposer {
            proposer.cover_until(end);
        }
    }

    /// Returns the changes to propose to the quorum now, and the number of the change that the answers since the last
    /// call must wait for. Call it after every round and every tick. Without promises, the proposal is always empty.
    ///
    /// `lease` is the current lease length. `capacity` is absent if holders do not share it. `period` is that of a
    /// budget. `wants` computes the wants of all holders.
    ///
    /// The caller must propose the returned changes: peers must apply them before all later changes of this
    /// incarnation, or else apply no later change.
    pub(crate) fn take_changes(
        &mut self,
        now: Millis,
        lease: Millis,
        capacity: Option<Amount>,
        period: Option<StoredPeriod>,
        wants: impl FnOnce(&LeaseBook) -> Claims,
    ) -> Proposal {
        let Some(mut proposer) = self.proposer.take() else { return Proposal::default() };
        let sums = self.ledger.sums();
        let round = RoundState {
            held: sums.held,
            unclaimed: self.unclaimed(),
            wants: sums.wants,
            capacity,
            lease,
            period,
            next: self.tokens.next(),
            lapsed: self.ledger.lapsed(),
            // All leases of a budget end with its period.
            parts: if period.is_some() { Vec::new() } else { self.inherited_parts(now) },
            now,
        };
        let proposal = proposer.take(round, || wants(self));
        self.proposer = Some(proposer);
        proposal
    }

    /// A quorum has stored all changes up to this number, and will not lose them.
    pub(crate) fn acknowledge(&mut self, number: u64) {
        if let Some(proposer) = &mut self.proposer {
            proposer.acknowledge(number);
        }
    }

    /// A report on promises, if they are kept. `room`: the headroom that masters leave in a total. No holder ever
    /// claims it.
    pub(crate) fn promise_report(&self, room: Amount) -> Option<PromiseReport> {
        let until = self.inherited_over_by(self.unclaimed().saturating_sub(room));
        self.proposer.as_ref().map(|proposer| proposer.report(self.unclaimed(), until))
    }
}
