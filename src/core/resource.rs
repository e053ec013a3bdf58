//! One resource on its master: requests in, a round, answers out.
//!
//! A [`Resource`] is made of two parts. The [`Allocation`] knows what each holder is due and nothing about leases. The
//! [`LeaseBook`] knows which leases may be in use and nothing about fairness. A [round](Resource::round) uses both: it
//! applies what the waiting requests say about leases ([`crate::lease::confirm`]), inserts what they want, computes what their holders
//! are due, and gives each as much of it as is safe.
//!
//! Decisions depend on the arguments alone. The caller provides the time and sends the answers.

mod capacity;
pub mod invariant;
mod messages;
mod names;
mod outcome;
mod pool;
pub mod report;
mod round;
pub mod supply;
pub mod watch_list;

use crate::{
    allocation::Allocation,
    lease::{
        LeaseBook,
        inherited::{InheritedChange, WantsChange},
        ledger::Sums,
        promises::Inherited,
        proposer::PromiseReport,
    },
    planted::{self, Fault},
    policy::settings::Settings,
    pool::{Cause, Pool},
    resource::{
        capacity::CapacityInputs,
        names::NameOwners,
        supply::{Source, SupplyState},
        watch_list::WatchList,
    },
    types::{Amount, Claims, Epoch, Millis, PrincipalShare, SlotDelta, Sum},
};

pub use capacity::{LoadError, LoadReport, Overridden};
pub use messages::{Answer, Ask, Counters, Lease, NodeInstance, Release, Request, Supplied};
pub use outcome::Outcome;
pub use report::{HolderReport, ResourceReport};
pub use round::RoundScratch;
pub use supply::SupplyReport;

/// The arguments of [`Resource::new`].
#[derive(Debug, Clone)]
pub struct ResourceOptions {
    pub settings: Settings,
    pub source: Source,
    /// Where its tokens start, unless it inherits later ones.
    pub epoch: Epoch,
    /// When this master began. Leases that it cannot account for are older.
    pub since: Millis,
    /// The end of learning mode, in which the capacity counts as lent until holders have claimed it.
    pub learning_until: Millis,
    /// The promises of earlier masters; empty if there were none. `None`: no promises are kept, and what this master
    /// gives is forgotten with it.
    pub inherited: Option<Inherited>,
    /// How many holders it may have; every band of a child node beyond its first counts as one.
    pub max_holders: usize,
    /// Makes hash collisions unpredictable; nothing that can be observed depends on it.
    pub seed: u64,
}

/// Ends of leases looked at per tick.
const EXPIRE_PER_TICK: usize = 4096;

pub struct Resource {
    settings: Settings,
    /// Decides what is fair.
    allocation: Allocation,
    /// Decides what is safe.
    book: LeaseBook,
    /// PRIORITY_POOL: decides what is due in place of the allocation.
    pool: Option<Box<Pool>>,
    /// Where `settings.capacity` comes from.
    supply_state: SupplyState,
    capacity_inputs: CapacityInputs,
    names: NameOwners,
    watch_list: WatchList,
    limits: Limits,
    counters: Counters,
    last_round: LastRound,
    /// Rises when settings or capacity change.
    reforms: u64,
    seed: u64,
}

/// The limits of places.
#[derive(Debug, Clone, Copy)]
struct Limits {
    max_holders: usize,
    place_share: PrincipalShare,
}

/// The results of the last round.
#[derive(Default)]
struct LastRound {
    /// Rises with each sub-round.
    sub_round: u32,
    /// Holders that came with it.
    newcomers: Vec<u32>,
    /// Answers that the parent may raise, in ascending order.
    short: Vec<usize>,
    /// In a pool: holders whose leases have ended, and whether they are gone.
    lapsed: Vec<(u32, bool)>,
}

impl Resource {
    /// A resource without holders, except for inherited ones.
    pub fn new(options: ResourceOptions) -> Resource {
        let ResourceOptions { mut settings, source, epoch, since, learning_until, inherited, max_holders, seed } =
            options;
        if source == Source::Parent {
            // Regardless of the template: nothing has been lent yet.
            settings.capacity = Amount::ZERO;
        }
        let mut resource = Resource {
            allocation: Allocation::new(&settings, source == Source::Parent),
            book: LeaseBook::new(epoch, since, learning_until, inherited.as_ref(), seed),
            pool: None,
            supply_state: source.into(),
            capacity_inputs: CapacityInputs::new(settings.capacity),
            settings,
            names: NameOwners::default(),
            watch_list: WatchList::default(),
            limits: Limits { max_holders, place_share: PrincipalShare::default() },
            counters: Counters::default(),
            last_round: LastRound::default(),
            reforms: 0,
            seed,
        };
        resource.renew_pool(seed);
        if let Some(inherited) = inherited {
            let change = resource.book.inherit(inherited);
            resource.apply_change(change);
            resource.end_parts(since);
        }
        if learning_until > since && source == Source::Own {
            resource.assume_lent(learning_until);
        }
        resource
    }

    /// Forgets what has ended. Returns whether nothing is held any more.
    pub fn tick(&mut self, now: Millis) -> bool {
        self.expire(now, EXPIRE_PER_TICK);
        self.end_inherited(now);
        self.expire_supply(now);
        self.expire_report(now);
        self.tick_pool(now);
        self.deal_units(now);
        self.names.forget_unused(&self.book, self.settings.lease, now);
        self.book.ledger().len() == 0 && !self.book.has_inherited()
    }

    /// Puts new settings in force. Leases stay; capacity and terms change with the next round. A change of algorithm or
    /// of what priorities mean visits every holder once.
    ///
    /// The capacity of a node with a parent stays what the parent lends.
    pub fn configure(&mut self, mut settings: Settings) {
        if self.has_parent() {
            settings.capacity = self.settings.capacity;
        } else {
            self.apply_template(&mut settings);
        }
        if settings == self.settings {
            return;
        }
        let has_new_rules = settings.clients != self.settings.clients;
        if self.allocation.configure(&settings) {
            if has_new_rules {
                self.book.put_rules(&settings);
            }
            self.forget_last_report();
            for (slot, holder) in self.book.ledger().iter_from(0) {
                self.allocation.insert(slot, &holder.claims);
            }
        }
        let before = std::mem::replace(&mut self.settings, settings).capacity;
        if self.book.has_inherited() && self.book.learning_until() > self.book.since() {
            // It may have been cut just before this master began: holders may have more than it knows of.
            self.raise_unclaimed(before);
        }
        self.renew_pool(self.seed);
        self.reforms += 1;
    }

    fn set_capacity(&mut self, capacity: Amount) {
        self.reforms += u64::from(capacity != self.settings.capacity);
        self.settings.capacity = capacity;
        self.allocation.set_capacity(capacity);
        if let Some(pool) = &mut self.pool {
            pool.set_base(capacity);
        }
    }

    /// Sets the maximum number of [`places`](Self::places). Places beyond it stay taken.
    pub fn set_max_holders(&mut self, most: usize) {
        self.limits.max_holders = most;
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn sums(&self) -> Sums {
        self.book.ledger().sums()
    }

    /// Entries that count against the limit: holders, and each band of a child node beyond its first.
    pub fn places(&self) -> usize {
        self.book.ledger().places()
    }

    /// How the places of each principal have changed since the last call. The caller subtracts what was noted when this
    /// incarnation is dropped.
    pub fn drain_slot_deltas(&mut self) -> impl Iterator<Item = SlotDelta> {
        self.book.drain_slot_deltas()
    }

    /// The places of those answers of the last round that may be larger once the parent knows what is wanted here now, in
    /// ascending order.
    pub fn short(&self) -> &[usize] {
        &self.last_round.short
    }

    pub fn holders(&self) -> usize {
        self.book.ledger().len()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When [`tick`](Self::tick) next has something to do.
    pub fn next_expiry(&self) -> Option<Millis> {
        let of_pool = self.pool.as_ref().and_then(|pool| pool.next_deadline());
        let others = self.book.next_end_of_inherited().into_iter().chain(of_pool).chain(self.load_reported_until());
        self.book.ledger().next_expiry().into_iter().chain(others).min()
    }

    pub fn bytes(&self) -> usize {
        let pool = self.pool.as_ref().map_or(0, |pool| pool.bytes());
        size_of::<Self>()
            + pool
            + self.book.ledger().bytes()
            + self.allocation.division().bytes()
            + self.watch_list.bytes()
    }

    /// Whether holders share one capacity: dividing algorithms, and everything that is cut from a parent's lease unless
    /// that lease says what each client may have.
    pub fn is_bounded(&self) -> bool {
        self.settings.shares() || self.has_parent() && !self.is_supplied_per_client()
    }

    /// Whether it is in learning mode. Without a shared capacity there is nothing to learn.
    pub fn is_learning(&self, now: Millis) -> bool {
        now < self.book.learning_until() && self.is_bounded()
    }

    /// Whether earlier masters may have lent more than is unclaimed: below a parent that is what is lent now, which may
    /// be less than they had.
    fn may_have_lent_more(&self, now: Millis) -> bool {
        self.has_parent() && !self.book.keeps_promises() && self.is_learning(now)
    }

    /// A quorum has stored all changes up to this number, and will not lose them.
    pub fn acknowledge(&mut self, number: u64) {
        self.book.acknowledge(number);
    }

    /// A report on promises, if they are kept here.
    pub fn promises(&self) -> Option<PromiseReport> {
        self.book.promise_report(Amount::clamped(self.settings.capacity.get() / 32.0))
    }

    fn expire(&mut self, now: Millis, budget: usize) {
        let (allocation, counters, watch_list) = (&mut self.allocation, &mut self.counters, &mut self.watch_list);
        let mut lapsed = self.pool.is_some().then_some(&mut self.last_round.lapsed);
        self.book.expire(now, budget, |slot, forgotten| {
            if let Some(holder) = &forgotten {
                allocation.forget(slot, &holder.claims);
                watch_list.remove(holder.watch);
                counters.expired += 1;
            }
            if let Some(lapsed) = &mut lapsed {
                lapsed.push((slot, forgotten.is_some()));
            }
        });
        self.notify_pool_of_expiry();
    }

    fn release(&mut self, release: &Release, now: Millis) {
        let Some(slot) = self.names.released_by(release, &self.book) else { return };
        let (everything, returned) = self.book.release(slot, release.kind, release.token, now);
        self.give_back(returned);
        if !everything && !planted::is(Fault::ReleasesEverything) {
            self.book.recount(slot, now);
            self.pool_grants(slot, Cause::Released);
        } else if let Some(until) = self.book.inherited_until() {
            self.bury(slot, now, until);
        } else {
            let holder = self.book.remove_holder(slot);
            self.forget(slot, &holder.claims, holder.watch);
        }
    }

    #[cfg(test)]
    pub(crate) fn knows_no_names(&self) -> bool {
        self.names.is_empty()
    }

    fn forget(&mut self, slot: u32, claims: &Claims, watch: u32) {
        self.allocation.forget(slot, claims);
        self.watch_list.remove(watch);
        self.pool_removes(slot, Cause::Released);
    }

    /// The same, but the record stays until `until`.
    fn bury(&mut self, slot: u32, now: Millis, until: Millis) {
        let (claims, watch) = self.book.detach(slot);
        self.forget(slot, &claims, watch);
        self.book.bury(slot, now, until);
    }

    /// A master without knowledge of earlier leases assumes that the whole capacity was lent until then.
    fn assume_lent(&mut self, until: Millis) {
        if !self.is_bounded() {
            return;
        }
        let whole = self.pool.as_ref().map_or(self.settings.capacity, |pool| pool.most());
        let change = self.book.assume_lent(whole, until);
        self.apply_change(change);
    }

    /// The capacity has risen from `before` while leases of earlier masters are not all known.
    fn raise_unclaimed(&mut self, before: Amount) {
        if self.is_bounded() {
            let change = self.book.raise_unclaimed(self.settings.capacity, before);
            self.apply_change(change);
        }
    }

    fn give_back(&mut self, claimed: impl Into<Sum>) {
        let change = self.book.give_back(claimed);
        self.apply_change(change);
    }

    fn end_parts(&mut self, now: Millis) {
        if let Some(changes) = self.book.end_parts(now) {
            self.apply_change(InheritedChange::Amount);
            changes.iter().for_each(|change| self.replace_inherited_wants(change));
        }
    }

    /// Ends what is left of inherited leases if its time has come.
    fn end_inherited(&mut self, now: Millis) {
        self.end_parts(now);
        let Some((slot, wants)) = self.book.end_inherited(now, self.settings.lease) else { return };
        self.allocation.remove(slot, &wants);
        if let Some(pool) = &mut self.pool {
            pool.remove_inherited(slot, self.book.ledger().sums().held);
        }
    }

    /// Passes a change of the unclaimed leases to the allocation and the pool.
    fn apply_change(&mut self, change: InheritedChange) {
        if let InheritedChange::Begun(slot) = change {
            self.allocation.insert(slot, &self.book.ledger().holder(slot).claims);
        }
        let Some(pool) = self.pool.as_mut().filter(|_| change != InheritedChange::None) else { return };
        if let Some((slot, unclaimed)) = self.book.unclaimed_record() {
            pool.set_unclaimed(slot, unclaimed);
        }
        if matches!(change, InheritedChange::Begun(_)) {
            pool.begin_with(self.book.ledger().sums().held);
        }
    }

    fn replace_inherited_wants(&mut self, change: &WantsChange) {
        self.allocation.replace(change.slot, change.ordinal, &change.old, &change.new);
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
