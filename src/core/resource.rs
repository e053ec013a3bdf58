//! One resource on its master: requests in, a round, answers out.
//!
//! A round absorbs every request that is waiting, then divides and settles once. Its steps follow the design document:
//! clean-up (leases that have ended), insertion (what the request confirms, then what it wants), the new capacity, and the
//! answer. What may be decided here is decided from the arguments alone; the caller brings the time and carries answers away.

mod hints;
mod messages;
mod report;

use std::{num::NonZeroU32, sync::Arc};

use crate::{
    Amount, Claim, Claims, HolderKind, Millis, Now, Reuse, SafeCapacity, Settings, Sum, Sums, Terms,
    division::Division,
    hints::{Look, WatchList, waits},
    leases::{Confirmation, Grant},
    ledger::{Asked, Holder, Ledger, further},
    settlement::{self, Party},
    time::certain_end,
    token::{Term, Tokens},
};

pub use messages::{Answer, Ask, Counters, Lease, Release, Request};
pub use report::{HolderReport, ResourceReport};

/// What a resource needs to come to life.
#[derive(Debug, Clone)]
pub struct Birth {
    /// How it is run.
    pub settings: Settings,
    /// Its tokens start here.
    pub term: Term,
    /// Until then it listens and only gives back what holders have.
    pub learning_until: Millis,
    /// How many holders it may have; every band of a child node beyond its first counts as one.
    pub max_holders: usize,
    /// Makes hash collisions unpredictable; nothing that can be observed depends on it.
    pub seed: u64,
    /// Stub
    pub inherited: Option<crate::Inherited>,
}

/// Ends of leases looked at per request, besides those looked at by ticks: about what refreshes make necessary, so
/// that no request has to wait for a million leases that end in the same second.
const EXPIRE_PER_REQUEST: usize = 8;
/// Ends of leases looked at per tick.
const EXPIRE_PER_TICK: usize = 4096;
/// A request that changes wants by more than this part of them is never too soon.
const WANTS_CHANGED: f64 = 0.1;

/// The state machine.
pub struct Resource {
    settings: Settings,
    /// The end of the lease that `settings.capacity` was cut from; none at the root.
    supply_until: Option<Millis>,
    learning_until: Millis,
    max_holders: usize,
    tokens: Tokens,
    ledger: Ledger,
    division: Division,
    counters: Counters,
    sub_round: u32,
    watch_list: WatchList,
    /// Rises when settings or capacity change.
    reforms: u64,
    batch: Batch,
}

/// The requests of a sub-round, and room for working on them that is kept from round to round.
#[derive(Default)]
struct Batch {
    /// Records that were touched ahead.
    slots: Vec<u32>,
    /// Holders that have come with this round.
    newcomers: Vec<u32>,
    seats: Vec<Seat>,
    parties: Vec<Party>,
    grants: Vec<Amount>,
    terms: Vec<(i16, Terms)>,
    /// Watched holders that are looked at now.
    looks: Vec<Look>,
}

struct Seat {
    slot: u32,
    /// Where its answer goes.
    answer: usize,
    /// What it says it has, as far as learning mode honours it.
    claimed: Amount,
}

impl Resource {
    /// A resource without holders.
    pub fn new(birth: Birth) -> Resource {
        let Birth { settings, term, learning_until, max_holders, seed, inherited: _ } = birth;
        Resource {
            division: Division::new(settings.kind, settings.priority, settings.capacity),
            settings,
            supply_until: None,
            learning_until,
            max_holders,
            tokens: Tokens::new(term),
            ledger: Ledger::new(seed),
            counters: Counters::default(),
            sub_round: 0,
            watch_list: WatchList::default(),
            reforms: 0,
            batch: Batch::default(),
        }
    }

    /// stub
    pub fn take_changes(&mut self, _now: Millis) -> Pending {
        Pending { changes: None, awaits: None }
    }
    /// stub
    pub fn acknowledge(&mut self, _n: u64) {}
    /// stub
    pub fn promises(&self) -> Option<PromiseReport> {
        None
    }
    /// Runs a round over `requests`; `answers` gets one for each, in the same order.
    /// `requests` is left empty.
    pub fn round(&mut self, now: Now, requests: &mut Vec<Request>, answers: &mut Vec<Answer>) {
        self.counters.rounds += 1;
        self.expire(now.at, EXPIRE_PER_REQUEST * (1 + requests.len()));
        self.end_of_supply(now.at);
        self.begin_sub_round();
        self.batch.newcomers.clear();
        self.look_ahead(requests);
        for request in requests.drain(..) {
            // Kept until it is settled; then it is the answer.
            let place = answers.len();
            answers.push(Answer::TooSoon);
            match request {
                Request::Ask(ask) => {
                    if self.is_seated(ask.kind, &ask.id) {
                        self.settle(now, answers);
                    }
                    match self.admit(ask, now) {
                        Ok((slot, claimed)) => self.batch.seats.push(Seat { slot, answer: place, claimed }),
                        Err(answer) => answers[place] = answer,
                    }
                }
                Request::Release(release) => {
                    if self.is_seated(release.kind, &release.id) {
                        self.settle(now, answers);
                    }
                    self.release(&release, now.at);
                    answers[place] = Answer::Released;
                }
            }
        }
        self.settle(now, answers);
    }

    /// Touches the records that the round will work on. One after the other, field by field, each would wait for memory
    /// several times; touched in one go, the waits overlap. With a million clients a request in a round of 64 costs little
    /// more than half of what it costs alone.
    fn look_ahead(&mut self, requests: &[Request]) {
        let slots = requests.iter().filter_map(|request| match request {
            Request::Ask(ask) => self.ledger.likely_slot(ask.kind, &ask.id),
            Request::Release(release) => self.ledger.likely_slot(release.kind, &release.id),
        });
        self.batch.slots.clear();
        self.batch.slots.extend(slots);
        let touched = self.batch.slots.iter().fold(0, |touched, slot| touched ^ self.ledger.touch(*slot));
        // Nobody needs the result; without this the compiler would notice.
        std::hint::black_box(touched);
    }

    /// Forgets what has ended. Returns whether nobody holds anything any more.
    pub fn tick(&mut self, now: Millis) -> bool {
        self.expire(now, EXPIRE_PER_TICK);
        self.end_of_supply(now);
        self.ledger.len() == 0
    }

    /// Puts new settings in force. Leases stay; capacity and terms change with the next round. A change of algorithm or
    /// of what priorities mean looks at every holder once.
    ///
    /// The capacity of a node with a parent stays what the parent said.
    pub fn configure(&mut self, mut settings: Settings) {
        if self.supply_until.is_some() {
            settings.capacity = self.settings.capacity;
        }
        if self.division.same_order(settings.kind, settings.priority) {
            self.division.set_kind(settings.kind);
        } else {
            self.division = Division::new(settings.kind, settings.priority, settings.capacity);
            for (slot, holder) in self.ledger.iter_from(0) {
                self.division.insert(slot, &holder.claims);
            }
        }
        self.division.set_capacity(settings.capacity);
        self.settings = settings;
        self.reforms += 1;
    }

    /// The capacity comes from a parent, and ends when the parent's lease does.
    pub fn supply(&mut self, capacity: Amount, until: Millis) {
        self.supply_until = Some(until);
        self.set_capacity(capacity);
    }

    fn set_capacity(&mut self, capacity: Amount) {
        self.reforms += u64::from(capacity != self.settings.capacity);
        self.settings.capacity = capacity;
        self.division.set_capacity(capacity);
    }

    /// How many [`places`](Self::places) may be taken from now on; those that are may stay taken.
    pub fn set_max_holders(&mut self, most: usize) {
        self.max_holders = most;
    }

    /// How it is run now.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sums over all holders.
    pub fn sums(&self) -> Sums {
        self.ledger.sums()
    }

    /// What counts against the limit: holders, and every band of a child node beyond its first.
    pub fn places(&self) -> usize {
        self.ledger.places()
    }

    /// How many holders it has.
    pub fn holders(&self) -> usize {
        self.ledger.len()
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When [`tick`](Self::tick) next has something to do.
    pub fn next_expiry(&self) -> Option<Millis> {
        self.ledger.next_expiry()
    }

    /// Bytes in use, for the benchmarks.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.ledger.bytes() + self.division.bytes() + self.watch_list.bytes()
    }

    /// Whether it still listens instead of dividing. Where capacity is not shared there is nothing to learn.
    pub fn is_learning(&self, now: Millis) -> bool {
        now < self.learning_until && self.is_bounded()
    }

    /// Whether what is granted comes out of one sum: dividing algorithms, and everything that is cut from a parent's lease.
    pub fn is_bounded(&self) -> bool {
        self.settings.kind.divides() || self.supply_until.is_some()
    }

    fn begin_sub_round(&mut self) {
        self.sub_round = self.sub_round.wrapping_add(1);
    }

    /// Whether the holder already has a request in this sub-round.
    fn is_seated(&self, kind: HolderKind, id: &str) -> bool {
        // One request needs no look-up to know that it is the only one.
        !self.batch.seats.is_empty()
            && self.ledger.find(kind, id).is_some_and(|slot| self.ledger.holder(slot).round == self.sub_round)
    }

    fn expire(&mut self, now: Millis, budget: usize) {
        let (division, counters, watch_list) = (&mut self.division, &mut self.counters, &mut self.watch_list);
        self.ledger.expire(now, budget, |slot, holder| {
            division.remove(slot, &holder.claims);
            watch_list.remove(holder.watch);
            counters.expired += 1;
        });
    }

    fn end_of_supply(&mut self, now: Millis) {
        if self.supply_has_ended(now) {
            self.set_capacity(Amount::ZERO);
        }
    }

    fn supply_has_ended(&self, now: Millis) -> bool {
        self.supply_until.is_some_and(|until| until <= now)
    }

    /// The insertion step: what the request tells about leases, then what it wants.
    fn admit(&mut self, ask: Ask, now: Now) -> Result<(u32, Amount), Answer> {
        let known = self.ledger.find(ask.kind, &ask.id);
        if !self.has_place(known, &ask.claims) {
            self.counters.full += 1;
            return Err(Answer::Full);
        }
        let slot = known.unwrap_or_else(|| self.newcomer(&ask));
        let confirmation = self.hear(slot, &ask, now.at)?;
        if known.is_some() && self.is_too_soon(self.ledger.holder(slot), &ask, now.at) {
            self.counters.too_soon += 1;
            return Err(Answer::TooSoon);
        }
        // What ended long ago is nothing; the rounding of the wire is forgiven.
        let claimed = ask.has.filter(|has| has.expiry_time >= now.unix).map_or(Amount::ZERO, |has| has.capacity);
        if known.is_none() && confirmation == Confirmation::Nothing && claimed > Amount::ZERO {
            self.count_unaccounted(&ask, now.at);
        }
        self.put_claims(slot, ask);
        let (_, refresh) = self.lengths(now.at);
        let holder = self.ledger.holder_mut(slot);
        let interval = u32::try_from(refresh.0).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        holder.asked = Some(Asked { at: now.at, interval });
        holder.round = self.sub_round;
        Ok((slot, claimed))
    }

    fn newcomer(&mut self, ask: &Ask) -> u32 {
        let slot = self.ledger.insert(ask.kind, Arc::clone(&ask.id));
        self.batch.newcomers.push(slot);
        slot
    }

    /// Whoever is known may always ask for what takes no more room.
    fn has_place(&self, known: Option<u32>, claims: &Claims) -> bool {
        let taken = known.map_or(0, |slot| 1 + further(&self.ledger.holder(slot).claims));
        let needed = 1 + further(claims);
        needed <= taken || self.ledger.places() - taken + needed <= self.max_holders
    }

    /// What a request proves about leases is heard even if the request is then ignored.
    fn hear(&mut self, slot: u32, ask: &Ask, now: Millis) -> Result<Confirmation, Answer> {
        let tokens = &self.tokens;
        let leases = &mut self.ledger.holder_mut(slot).leases;
        let confirmation = match &ask.has {
            Some(has) if !ask.learning => leases.confirm(has, |token| tokens.issued(token)),
            _ => Confirmation::Nothing,
        };
        if confirmation == Confirmation::Stale {
            self.counters.stale += 1;
            return Err(Answer::Stale);
        }
        let until = certain_end(now, self.settings.lease);
        leases.report_outstanding(ask.outstanding, confirmation == Confirmation::Known, now, until);
        self.ledger.recount(slot, now);
        Ok(confirmation)
    }

    fn is_too_soon(&self, holder: &Holder, ask: &Ask, now: Millis) -> bool {
        let Some(asked) = holder.asked else { return false };
        let least = self.settings.min_request_interval.min(Millis(u64::from(asked.interval.get()) / 2));
        now.since(asked.at) < least
            && !self.watch_list.is_hinted(holder.watch)
            && ask.has.is_some_and(|has| holder.leases.echoes_newest(&has))
            && !changed(&holder.claims, &self.capped(ask.kind, ask.claims.clone()))
    }

    fn count_unaccounted(&mut self, ask: &Ask, now: Millis) {
        let ours = ask.has.and_then(|has| has.token).is_some_and(|token| self.tokens.issued(token));
        if !ours && !self.is_learning(now) {
            self.counters.unaccounted += 1;
        }
    }

    fn put_claims(&mut self, slot: u32, ask: Ask) {
        let claims = self.capped(ask.kind, ask.claims);
        let old = &self.ledger.holder(slot).claims;
        if *old != claims {
            self.division.remove(slot, old);
            self.division.insert(slot, &claims);
            self.ledger.set_claims(slot, claims);
        }
    }

    /// A client may not claim more priority than the template allows; what child nodes report was capped below.
    fn capped(&self, kind: HolderKind, mut claims: Claims) -> Claims {
        if let (HolderKind::Client, Some(most)) = (kind, self.settings.max_priority) {
            for claim in &mut claims {
                claim.priority = claim.priority.min(most);
            }
        }
        claims
    }

    fn release(&mut self, release: &Release, now: Millis) {
        let Some(slot) = self.ledger.find(release.kind, &release.id) else {
            return;
        };
        let everything = match release.token {
            Some(token) => self.tokens.issued(token) && self.ledger.holder_mut(slot).leases.release(token),
            None => true,
        };
        if everything {
            let holder = self.ledger.remove(slot);
            self.division.remove(slot, &holder.claims);
            self.watch_list.remove(holder.watch);
        } else {
            self.ledger.recount(slot, now);
        }
    }

    /// Divides and settles what the sub-round has absorbed, and begins the next.
    fn settle(&mut self, now: Now, answers: &mut [Answer]) {
        if self.batch.seats.is_empty() {
            return;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let free = self.seat_parties(&mut batch, now.at);
        if self.is_bounded() {
            settlement::settle(free, &batch.parties, &mut batch.grants);
        } else {
            batch.grants.extend(batch.parties.iter().map(|party| party.due));
        }
        if self.is_learning(now.at) {
            let short = batch.parties.iter().zip(&batch.grants).filter(|(party, grant)| **grant < party.due);
            self.counters.learning_excess += short.count() as u64;
        }
        for ((seat, party), grant) in batch.seats.iter().zip(&batch.parties).zip(&batch.grants) {
            self.note(seat.slot, party.due, *grant);
            answers[seat.answer] = Answer::Granted(self.grant(seat.slot, *grant, now));
        }
        batch.seats.clear();
        batch.parties.clear();
        batch.grants.clear();
        batch.terms.clear();
        self.batch = batch;
        self.begin_sub_round();
    }

    /// What hints have to know of an answer.
    fn note(&mut self, slot: u32, due: Amount, grant: Amount) {
        self.ledger.set_waits(slot, waits(due, grant));
        self.watch_list.answered(self.ledger.holder(slot).watch);
    }

    /// Works out what each is due; returns what is free.
    fn seat_parties(&self, batch: &mut Batch, now: Millis) -> Sum {
        let learning = self.is_learning(now);
        let mut free = Sum::from(self.settings.capacity) - self.ledger.sums().held;
        for seat in &batch.seats {
            let holder = self.ledger.holder(seat.slot);
            let current = holder.leases.current(now);
            let due = if learning && !self.supply_has_ended(now) {
                current.max(seat.claimed)
            } else {
                self.due_now(holder, now, &mut batch.terms)
            };
            let held = holder.leases.held(now);
            let floor = match self.reuse(holder.kind) {
                Reuse::Confirmed => held,
                Reuse::Prompt => due.min(current).max(holder.leases.outstanding(now)),
            };
            free += Sum::from(held) - Sum::from(floor);
            batch.parties.push(Party { due, current, floor });
        }
        free
    }

    /// What a holder should end up with while the node has a lease; after that, nothing.
    fn due_now(&self, holder: &Holder, now: Millis, known: &mut Vec<(i16, Terms)>) -> Amount {
        if self.supply_has_ended(now) { Amount::ZERO } else { self.due(holder, known).min(self.bound(holder)) }
    }

    /// The sum of what its claims are due. `known` keeps the terms of bands that have been asked about.
    fn due(&self, holder: &Holder, known: &mut Vec<(i16, Terms)>) -> Amount {
        let mut due = |claim: &Claim| {
            let band = self.division.band(claim.priority);
            if let Some((_, terms)) = known.iter().find(|(other, _)| *other == band) {
                return terms.due(claim);
            }
            let terms = self.division.terms(band);
            known.push((band, terms));
            terms.due(claim)
        };
        match &holder.claims[..] {
            // To the bit: a sum counts amounts below 1 a little upwards.
            [one] => due(one),
            several => several.iter().map(due).collect::<Sum>().floor(),
        }
    }

    /// NO_ALGORITHM and STATIC know nothing about others. Where they share a node's own lease, and more is out than that
    /// (it was cut), settlement alone would let all keep what they have for ever: then nobody is due more than an equal part.
    fn bound(&self, holder: &Holder) -> Amount {
        let (sums, capacity) = (self.ledger.sums(), self.settings.capacity);
        if self.settings.kind.divides() || !self.is_bounded() || sums.held <= Sum::from(capacity) {
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

    fn grant(&mut self, slot: u32, capacity: Amount, now: Now) -> Lease {
        let (length, refresh) = self.lengths(now.at);
        let token = self.tokens.issue();
        let expiry_time = now.unix.saturating_add((length.0 / 1000) as i64);
        let grant = Grant { token, capacity, end: certain_end(now.at, length) };
        let (kind, priority) = {
            let holder = self.ledger.holder(slot);
            (holder.kind, holder.claims.first().map_or(0, |claim| claim.priority))
        };
        self.ledger.grant(slot, now.at, grant, expiry_time, self.reuse(kind));
        self.counters.granted += 1;
        Lease { token, capacity, length, refresh, expiry_time, safe_capacity: self.safe_capacity(), priority }
    }

    /// How long a lease given now lasts, and when to ask again: never longer than the node's own, and again before it ends.
    fn lengths(&self, now: Millis) -> (Millis, Millis) {
        let own = self.supply_until.map(|until| until.since(now)).filter(|left| left.0 > 0);
        let length = own.map_or(self.settings.lease, |left| left.min(self.settings.lease));
        let latest = Millis(length.0.saturating_sub(1000).max(1000));
        let refresh = if self.settings.refresh < length { self.settings.refresh } else { latest };
        (length, refresh.min(self.settings.refresh))
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

/// Whether a holder wants so different a thing that it should not have to wait.
fn changed(old: &[Claim], new: &[Claim]) -> bool {
    let wants = |claims: &[Claim]| claims.iter().map(|claim| claim.wants).collect::<Sum>().get();
    let shape = |claims: &[Claim]| claims.iter().map(|claim| (claim.priority, claim.subclients)).collect::<Vec<_>>();
    let (was, is) = (wants(old), wants(new));
    (is - was).abs() > was * WANTS_CHANGED || (old != new && shape(old) != shape(new))
}

impl std::fmt::Debug for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resource")
            .field("kind", &self.settings.kind)
            .field("capacity", &self.settings.capacity)
            .field("sums", &self.sums())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// stub
pub struct Pending {
    /// stub
    pub changes: Option<crate::Changes>,
    /// stub
    pub awaits: Option<u64>,
}
/// stub
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromiseReport {
    /// stub
    pub promised: crate::Sum,
    /// stub
    pub unheard: usize,
}
