//! One resource on its master: requests in, a round, answers out.
//!
//! A round absorbs every request that is waiting, then divides and settles once. Its steps follow the design document:
//! clean-up (leases that have ended), insertion (what the request confirms, then what it wants), the new capacity, and
//! the answer. Decisions depend on the arguments alone; the caller provides the time and sends the answers.

mod confirm;
mod explain;
mod forecast;
mod hints;
mod inherited;
mod insertion;
pub mod invariant;
mod messages;
pub(crate) mod names;
mod outcome;
mod overridden;
mod pool;
mod promises;
mod report;
mod settle;
pub(crate) mod supply;
mod units;
pub(crate) mod watch_list;

use inherited::InheritedLeases;
use names::NameOwners;
use pool::CapacityInputs;
use promises::Proposer;
use supply::SupplyState;

use crate::{
    allocation::{
        division::{Division, Terms},
        settlement::Participant,
        units::Rotation,
    },
    lease::{
        ledger::{Ledger, NOT_WATCHED, Sums},
        promises::Inherited,
    },
    planted::{self, Fault},
    policy::settings::Settings,
    pool::{Cause, MOVES_PER_REQUEST, Pool},
    resource::{supply::Source, watch_list::WatchList},
    types::{
        amount::Amount,
        claim::{Claims, HolderKind},
        principal::{PrincipalShare, SlotDelta},
        time::{Millis, Now},
        token::{Epoch, Tokens},
    },
};

pub use explain::{Block, DueRule, Explanation, Others};
pub use forecast::{DueChange, Forecast, Foreseen, HolderCopy, Moved};
pub use messages::{Answer, Ask, Counters, Lease, Release, Request, Supplied};
pub use outcome::Outcome;
pub use overridden::Overridden;
pub use pool::{LoadError, LoadReport};
pub use promises::PromiseReport;
#[cfg(test)]
pub(crate) use promises::Proposal;
pub use report::{HolderReport, ResourceReport, SupplyReport};

/// The arguments of [`Resource::new`].
#[derive(Debug, Clone)]
pub struct Birth {
    /// How it is run.
    pub settings: Settings,
    /// Where its capacity comes from.
    pub source: Source,
    /// Where its tokens start, unless it inherits later ones.
    pub epoch: Epoch,
    /// When this master began: a lease that it cannot account for is older.
    pub since: Millis,
    /// Until then it is learning: what is there counts as lent until holders have named it.
    pub learning_until: Millis,
    /// The promises of earlier masters; empty if there were none. `None`: no promises are kept, and what this master
    /// gives is forgotten with it.
    pub inherited: Option<Inherited>,
    /// How many holders it may have; every band of a child node beyond its first counts as one.
    pub max_holders: usize,
    /// Makes hash collisions unpredictable; nothing that can be observed depends on it.
    pub seed: u64,
}

/// Ends of leases looked at per request, besides those looked at by ticks: about what refreshes make necessary, so
/// that no request has to wait for a million leases that end in the same second.
const EXPIRE_PER_REQUEST: usize = 8;
/// Ends of leases looked at per tick.
const EXPIRE_PER_TICK: usize = 4096;

pub struct Resource {
    settings: Settings,
    /// Where `settings.capacity` comes from.
    supply_state: SupplyState,
    since: Millis,
    learning_until: Millis,
    /// What earlier masters promised, until the last of their leases has ended.
    inherited: Option<Box<InheritedLeases>>,
    max_holders: usize,
    place_share: PrincipalShare,
    tokens: Tokens,
    ledger: Ledger,
    division: Division,
    counters: Counters,
    sub_round: u32,
    watch_list: WatchList,
    proposer: Option<Box<Proposer>>,
    pool: Option<Box<Pool>>,
    capacity_inputs: CapacityInputs,
    seed: u64,
    rotation: Option<Box<Rotation>>,
    /// Rises when left-over units pass to other holders.
    turns: u64,
    /// Rises when settings or capacity change.
    reforms: u64,
    /// Holders that have come with the last round.
    newcomers: Vec<u32>,
    /// Answers of the last round that the parent may raise, in ascending order.
    short: Vec<usize>,
    /// Where there is a pool: holders whose leases have ended, and whether they are gone.
    lapsed: Vec<(u32, bool)>,
    names: NameOwners,
}

/// Buffers of a round. They are empty between two rounds, so one workspace serves all resources of a thread: it stays
/// in the processor's caches, where buffers of each resource would be as cold as a resource that was not asked for a
/// while.
#[derive(Default)]
pub struct RoundScratch {
    /// Records that were touched ahead.
    slots: Vec<u32>,
    /// The requests of a sub-round.
    pending: Vec<PendingGrant>,
    participants: Vec<Participant>,
    grants: Vec<Amount>,
    terms: Vec<(i16, Terms)>,
}

impl RoundScratch {
    fn clear(&mut self) {
        self.pending.clear();
        self.participants.clear();
        self.grants.clear();
        self.terms.clear();
    }
}

/// A request of a sub-round.
struct PendingGrant {
    slot: u32,
    /// Where its answer goes.
    answer: usize,
    /// What its holder may keep even if nothing is free.
    keep: Amount,
    /// What it may have at most.
    most: Amount,
    /// The lease of an earlier master that it claims: at most what it may keep.
    restores: Amount,
    /// What of earlier masters its holder has named, without a token.
    claimed: Amount,
    left_out: LeftOut,
}

/// Whether a request is left out of the answer, so that its holder keeps the lease that it has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeftOut {
    Never,
    /// If the grant is less than its holder wants, which may have more (rule E11).
    IfShort,
    /// A lease given a little later will be a better one (rule E10).
    Always,
}

impl PendingGrant {
    fn of(slot: u32) -> PendingGrant {
        PendingGrant {
            slot,
            answer: 0,
            keep: Amount::ZERO,
            most: Amount::MAX,
            restores: Amount::ZERO,
            claimed: Amount::ZERO,
            left_out: LeftOut::Never,
        }
    }
}

impl Resource {
    /// A resource without holders, except for inherited ones.
    pub fn new(birth: Birth) -> Resource {
        let Birth { mut settings, source, epoch, since, learning_until, inherited, max_holders, seed } = birth;
        let epoch = promises::begin_epoch(epoch, inherited.as_ref());
        if source == Source::Parent {
            // Regardless of the template: nothing has been lent yet.
            settings.capacity = Amount::ZERO;
        }
        let mut resource = Resource {
            division: supply::division(&settings, source),
            capacity_inputs: CapacityInputs::new(settings.capacity),
            settings,
            supply_state: source.into(),
            since,
            learning_until,
            inherited: None,
            max_holders,
            place_share: PrincipalShare::default(),
            tokens: Tokens::new(epoch),
            ledger: Ledger::new(seed),
            counters: Counters::default(),
            sub_round: 0,
            watch_list: WatchList::default(),
            proposer: None,
            pool: None,
            seed,
            rotation: None,
            turns: 0,
            reforms: 0,
            newcomers: Vec::new(),
            short: Vec::new(),
            lapsed: Vec::new(),
            names: NameOwners::default(),
        };
        resource.count_in_units();
        resource.renew_pool(seed);
        if let Some(inherited) = inherited {
            resource.proposer = Some(Box::new(Proposer::new(resource.tokens.epoch(), &inherited)));
            resource.inherit(inherited);
        }
        if learning_until > since && source == Source::Own {
            resource.assume_lent(learning_until);
        }
        resource
    }

    /// Runs a round over `requests`; `answers` gets one for each, in the same order.
    /// `requests` is left empty.
    pub fn round(
        &mut self,
        now: Now,
        requests: &mut Vec<Request>,
        answers: &mut Vec<Answer>,
        scratch: &mut RoundScratch,
    ) {
        // A round that panicked may have left data in it.
        scratch.clear();
        self.counters.rounds += 1;
        self.expire(now.at, EXPIRE_PER_REQUEST * (1 + requests.len()));
        self.end_inherited(now.at);
        self.end_of_supply(now.at);
        self.end_of_report(now.at);
        self.step_pool(now.at, MOVES_PER_REQUEST * (1 + requests.len()));
        self.begin_sub_round();
        self.newcomers.clear();
        self.short.clear();
        self.look_ahead(requests, &mut scratch.slots);
        for request in requests.drain(..) {
            // Kept until it is settled; then it is the answer.
            let place = answers.len();
            answers.push(Answer::TooSoon);
            let ask = match request {
                Request::Ask(ask) => ask,
                Request::Renew(ask) => match self.with_wants(ask, now) {
                    Some(ask) => ask,
                    None => {
                        answers[place] = Answer::Unknown;
                        continue;
                    }
                },
                Request::Release(release) => {
                    if self.is_pending(release.kind, &release.id, scratch) {
                        self.settle(now, answers, scratch);
                    }
                    self.release(&release, now.at);
                    answers[place] = Answer::Released;
                    continue;
                }
            };
            if self.is_pending(ask.kind, &ask.id, scratch) {
                self.settle(now, answers, scratch);
            }
            match self.admit(ask, now) {
                Ok(pending) => scratch.pending.push(PendingGrant { answer: place, ..pending }),
                Err(answer) => answers[place] = answer,
            }
        }
        self.settle(now, answers, scratch);
    }

    /// Prefetches the records that the round will work on. Visited one after the other, field by field, each would wait
    /// for memory several times; touched in one go, the waits overlap.
    fn look_ahead(&self, requests: &[Request], slots: &mut Vec<u32>) {
        let likely = requests.iter().filter_map(|request| match request {
            Request::Ask(ask) | Request::Renew(ask) => self.ledger.likely_slot(ask.kind, &ask.id),
            Request::Release(release) => self.ledger.likely_slot(release.kind, &release.id),
        });
        slots.clear();
        slots.extend(likely);
        let touched = slots.iter().fold(0, |touched, slot| touched ^ self.ledger.touch(*slot));
        // Without this the compiler would remove the unused reads.
        std::hint::black_box(touched);
    }

    /// Forgets what has ended. Returns whether nothing is held any more.
    pub fn tick(&mut self, now: Millis) -> bool {
        self.expire(now, EXPIRE_PER_TICK);
        self.end_inherited(now);
        self.end_of_supply(now);
        self.end_of_report(now);
        self.tick_pool(now);
        self.deal_units(now);
        self.forget_names(now);
        self.ledger.len() == 0 && !self.has_inherited()
    }

    /// Puts new settings in force. Leases stay; capacity and terms change with the next round. A change of algorithm or
    /// of what priorities mean looks at every holder once.
    ///
    /// The capacity of a node with a parent stays what the parent lends.
    pub fn configure(&mut self, mut settings: Settings) {
        if self.has_parent() {
            settings.capacity = self.settings.capacity;
        } else {
            self.template_says(&mut settings);
        }
        if settings == self.settings {
            return;
        }
        if self.division.same_order(&settings) {
            self.division.reconfigure(&settings);
        } else {
            if settings.clients != self.settings.clients {
                self.put_rules(&settings);
            }
            self.division.reset(&settings);
            self.forget_told();
            for (slot, holder) in self.ledger.iter_from(0) {
                self.division.insert(slot, &holder.claims);
            }
        }
        self.division.set_capacity(settings.capacity);
        let before = std::mem::replace(&mut self.settings, settings).capacity;
        if self.has_inherited() && self.learning_until > self.since {
            // It may have been cut just before this master began: holders may have more than it knows of.
            self.raise_unclaimed(before);
        }
        self.renew_pool(self.seed);
        self.reforms += 1;
        self.count_in_units();
    }

    fn set_capacity(&mut self, capacity: Amount) {
        self.reforms += u64::from(capacity != self.settings.capacity);
        self.settings.capacity = capacity;
        self.division.set_capacity(capacity);
        if let Some(pool) = &mut self.pool {
            pool.set_base(capacity);
        }
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

    /// What principals have more or fewer places since this was last asked. What was noted when this incarnation is
    /// dropped is the caller's to give back.
    pub fn drain_slot_deltas(&mut self) -> impl Iterator<Item = SlotDelta> {
        self.ledger.drain_slot_deltas()
    }

    /// The places of those answers of the last round that may be larger once the parent knows what is wanted here now, in
    /// ascending order.
    pub fn short(&self) -> &[usize] {
        &self.short
    }

    /// How many holders it has.
    pub fn holders(&self) -> usize {
        self.ledger.len()
    }

    /// Counters of what has happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When [`tick`](Self::tick) next has something to do.
    pub fn next_expiry(&self) -> Option<Millis> {
        let of_pool = self.pool.as_ref().and_then(|pool| pool.next_deadline());
        let others = self.next_end_of_inherited().into_iter().chain(of_pool).chain(self.load_reported_until());
        self.ledger.next_expiry().into_iter().chain(others).min()
    }

    /// Bytes in use, for the benchmarks.
    pub fn bytes(&self) -> usize {
        let pool = self.pool.as_ref().map_or(0, |pool| pool.bytes());
        size_of::<Self>() + pool + self.ledger.bytes() + self.division.bytes() + self.watch_list.bytes()
    }

    /// Whether what is granted comes out of one sum: dividing algorithms, and everything that is cut from a parent's
    /// lease, unless that says what each client may have.
    pub fn is_bounded(&self) -> bool {
        self.settings.shares() || self.has_parent() && !self.is_supplied_per_client()
    }

    fn begin_sub_round(&mut self) {
        self.sub_round = self.sub_round.wrapping_add(1);
    }

    /// Whether the holder already has a request in this sub-round.
    fn is_pending(&self, kind: HolderKind, id: &str, scratch: &RoundScratch) -> bool {
        // A single request needs no lookup to know that it is the only one.
        !scratch.pending.is_empty()
            && self.ledger.find(kind, id).is_some_and(|slot| self.ledger.holder(slot).round == self.sub_round)
    }

    fn expire(&mut self, now: Millis, budget: usize) {
        let (division, counters, watch_list) = (&mut self.division, &mut self.counters, &mut self.watch_list);
        let rotation = &mut self.rotation;
        let mut lapsed = self.pool.is_some().then_some(&mut self.lapsed);
        self.ledger.expire(now, budget, |slot, forgotten| {
            if let Some(holder) = &forgotten {
                division.remove(slot, &holder.claims);
                watch_list.remove(holder.watch);
                if let Some(rotation) = rotation {
                    rotation.forget(slot);
                }
                counters.expired += 1;
            }
            if let Some(lapsed) = &mut lapsed {
                lapsed.push((slot, forgotten.is_some()));
            }
        });
        self.pool_looks_at();
    }

    fn release(&mut self, release: &Release, now: Millis) {
        let Some(slot) = self.released_by(release) else { return };
        let leases = &mut self.ledger.holder_mut(slot).leases;
        leases.end_claimed(release.kind, now);
        let (everything, returned) = match release.token {
            Some(token) if self.tokens.issued(token) => leases.release(token),
            Some(_) if planted::is(Fault::OldReleaseFrees) => (true, Amount::ZERO),
            // It was sent to an earlier master, or may have been.
            Some(_) => (false, Amount::ZERO),
            None => (!self.has_inherited(), Amount::ZERO),
        };
        self.give_back(returned);
        if !everything && !planted::is(Fault::ReleasesEverything) {
            self.ledger.recount(slot, now);
            self.pool_grants(slot, Cause::Released);
        } else if let Some(until) = self.inherited_until() {
            self.bury(slot, now, until);
        } else {
            let holder = self.ledger.remove(slot);
            self.forget(slot, &holder.claims, holder.watch);
        }
    }

    /// A holder has gone.
    fn forget(&mut self, slot: u32, claims: &Claims, watch: u32) {
        self.division.remove(slot, claims);
        self.watch_list.remove(watch);
        if let Some(rotation) = &mut self.rotation {
            rotation.forget(slot);
        }
        self.pool_loses(slot, Cause::Released);
    }

    /// The same, but its record stays until then: a delayed request would be taken for a new one (rule E2).
    fn bury(&mut self, slot: u32, now: Millis, until: Millis) {
        let holder = self.ledger.holder_mut(slot);
        let watch = std::mem::replace(&mut holder.watch, NOT_WATCHED);
        holder.asked = None;
        holder.leases.bury();
        let claims = self.ledger.holder(slot).claims.clone();
        self.forget(slot, &claims, watch);
        self.ledger.set_claims(slot, Claims::new());
        self.ledger.set_waits(slot, false);
        self.ledger.remember(slot, now, until);
    }
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
