//! A resource on its master: a round takes requests and returns answers.
//!
//! A [`Resource`] has two parts. The [`Allocation`] computes the due of each holder and knows nothing about leases. The
//! [`LeaseBook`] tracks which leases may be in use and knows nothing about fairness. A [round](Resource::round) uses
//! both. It applies the statements of requests about leases ([`crate::lease::confirm`]), inserts their wants, computes
//! the dues of their holders, and grants each as much of its due as is safe. Each step ends with an [`Outcome`], its
//! effects besides answers.
//!
//! Decisions depend on the arguments alone. The caller provides the time and sends the answers.

pub mod budget;
pub mod invariant;
mod messages;
mod names;
mod notes;
mod overrides;
mod packed;
mod pool;
pub mod report;
mod round;
pub mod supply;
pub mod watch_list;

use std::sync::Arc;

use crate::{
    allocation::Allocation,
    lease::{
        LeaseBook,
        confirm::LeaseKind,
        inherited::{InheritedChange, WantsChange},
        ledger::{Holder, NOT_WATCHED, Sums},
        promises::{Changes, Inherited},
        proposer::{PromiseReport, Proposal},
    },
    planted::{self, Fault},
    policy::settings::Settings,
    pool::{Cause, Pool, PoolEvent},
    resource::{
        budget::{Budget, holder_of_record, thresholds::BudgetEvent},
        names::NameOwners,
        overrides::GroupOverrides,
        supply::{CapacityInputs, Source, SupplyState, summarized_claims},
        watch_list::{Hint, HintCandidate, HintContext, Version, WatchList},
    },
    types::{Amount, Claims, Epoch, HolderKind, Millis, PrincipalShare, SlotDelta, Sum},
};

pub use messages::{Answer, Ask, BudgetLease, Counters, Lease, NodeInstance, Release, Request, Spent, Supplied};
pub use notes::Notes;
pub use overrides::{Overridden, OverriddenGroup};
pub use packed::{PackedContext, PackedResource, Renewal, Renewed};
pub use report::{HolderReport, ResourceReport};
pub use round::RoundScratch;
pub use supply::{LoadError, LoadReport, SupplyReport};

/// The arguments of [`Resource::new`].
#[derive(Debug, Clone)]
pub struct ResourceOptions {
    pub settings: Arc<Settings>,
    pub source: Source,
    /// The first epoch of its tokens, unless it inherits later ones.
    pub epoch: Epoch,
    /// When this master began. Unknown leases were granted before.
    pub since: Millis,
    /// The end of learning mode. Until then, capacity that no holder has claimed counts as lent.
    pub learning_until: Millis,
    /// The promises of earlier masters; empty if there were none. `None`: no promises are kept, and the leases of this
    /// master are forgotten with it.
    pub inherited: Option<Inherited>,
    /// Maximum number of charged slots: holders, and each band of a child node beyond its first.
    pub max_holders: usize,
    /// Makes hash collisions unpredictable. Results do not depend on it.
    pub seed: u64,
}

/// Maximum number of expiring records visited per tick.
const EXPIRE_PER_TICK: usize = 4096;

pub struct Resource {
    /// Shared by the resources of a template, unless the capacity differs.
    settings: Arc<Settings>,
    /// Decides what is fair.
    allocation: Allocation,
    /// Decides what is safe.
    pub(crate) book: LeaseBook,
    /// PRIORITY_POOL: computes dues instead of the allocation.
    pool: Option<Box<Pool>>,
    /// BUDGET: its period.
    budget: Option<Box<Budget>>,
    /// The source of `settings.capacity`.
    supply_state: SupplyState,
    capacity_inputs: CapacityInputs,
    /// Absent if there are none, or no groups.
    group_overrides: Option<Box<GroupOverrides>>,
    names: NameOwners,
    watch_list: WatchList,
    limits: Limits,
    counters: Counters,
    last_round: LastRound,
    /// Incremented when settings or capacity change.
    settings_version: u64,
    seed: u64,
}

/// The limits of charged slots.
#[derive(Debug, Clone, Copy)]
struct Limits {
    max_holders: usize,
    place_share: PrincipalShare,
}

/// The results of the last round.
#[derive(Default)]
struct LastRound {
    /// Incremented with each sub-round.
    sub_round: u32,
    /// New holders of the last round.
    newcomers: Vec<u32>,
    /// The indices of the answers that the parent may raise, in ascending order.
    short: Vec<usize>,
    /// In a pool: holders whose leases have expired, and whether their records were removed.
    lapsed: Vec<(u32, bool)>,
}

impl Resource {
    /// A resource without holders, except for inherited ones.
    pub fn new(options: ResourceOptions) -> Resource {
        let ResourceOptions { mut settings, source, epoch, since, learning_until, inherited, max_holders, seed } =
            options;
        if source == Source::Parent {
            // Nothing has been lent yet, regardless of the template.
            Arc::make_mut(&mut settings).capacity = Amount::ZERO;
        }
        let mut resource = Resource {
            allocation: Allocation::new(&settings, source == Source::Parent),
            book: LeaseBook::new(epoch, since, learning_until, inherited.as_ref(), seed),
            pool: None,
            budget: None,
            supply_state: source.into(),
            capacity_inputs: CapacityInputs::new(settings.capacity),
            group_overrides: None,
            settings,
            names: NameOwners::default(),
            watch_list: WatchList::default(),
            limits: Limits { max_holders, place_share: PrincipalShare::default() },
            counters: Counters::default(),
            last_round: LastRound::default(),
            settings_version: 0,
            seed,
        };
        resource.renew_pool(seed);
        resource.renew_budget();
        if let Some(inherited) = inherited {
            resource.inherit_period(inherited.period);
            let change = resource.book.inherit(inherited);
            resource.apply_change(change);
            resource.end_parts(since);
        }
        if learning_until > since && source == Source::Own {
            resource.assume_lent(learning_until);
        }
        resource
    }

    /// Expires leases and reports. Returns whether nothing is held any more.
    pub fn tick(&mut self, now: Millis) -> bool {
        self.expire(now, EXPIRE_PER_TICK);
        self.end_inherited(now);
        self.expire_supply(now);
        self.expire_report(now);
        self.tick_pool(now);
        self.consume_silent(now);
        self.check_thresholds(now);
        self.deal_units(now);
        self.names.forget_unused(&self.book, self.settings.lease, now);
        self.book.ledger().len() == 0 && !self.book.has_inherited()
    }

    /// Applies new settings. Leases stay; capacity and terms change with the next round. A change of the algorithm or
    /// of the priority mode visits every holder once.
    ///
    /// Below a parent, the capacity remains that of the parent's lease.
    pub fn configure(&mut self, settings: impl Into<Arc<Settings>>) {
        let mut settings = settings.into();
        if !self.has_parent() {
            let carry_over = if settings.is_budget() { settings.budget.carry_over } else { Amount::ZERO };
            self.capacity_inputs.carried = self.capacity_inputs.carried.min(carry_over);
            self.capacity_inputs.template = settings.capacity;
        }
        let capacity =
            if self.has_parent() { self.settings.capacity } else { self.capacity_inputs.capacity(&settings) };
        if capacity != settings.capacity {
            Arc::make_mut(&mut settings).capacity = capacity;
        }
        if let Some(overrides) = self.group_overrides.take() {
            self.group_overrides = overrides.reapply(&mut settings);
        }
        if settings == self.settings {
            // Shared with the resources of the new template.
            self.settings = settings;
            return;
        }
        self.put_in_force(settings);
    }

    fn put_in_force(&mut self, settings: Arc<Settings>) {
        let has_new_rules = settings.clients != self.settings.clients;
        if self.allocation.configure(&settings) {
            if has_new_rules {
                self.book.put_rules(&settings);
            }
            self.forget_last_report();
            self.insert_all();
        }
        let before = std::mem::replace(&mut self.settings, settings).capacity;
        if self.book.has_inherited() && self.book.learning_until() > self.book.since() {
            // The capacity may have been cut just before this master began, so holders may have more than it knows of.
            self.raise_unclaimed(before);
        }
        self.renew_pool(self.seed);
        self.renew_budget();
        self.settings_version += 1;
    }

    /// Makes all holders join their groups, and inserts their claims.
    fn insert_all(&mut self) {
        let mut labels = Vec::new();
        for (slot, holder) in self.book.ledger().iter_from(0).filter(|(_, holder)| !holder.claims.is_empty()) {
            // The record that stands for inherited leases belongs to no group.
            if !self.book.ledger().is_inherited(slot) {
                let id = self.id_of(holder);
                labels.extend(self.allocation.join(slot, holder.kind, id).map(|label| (slot, label)));
            }
            self.allocation.insert(slot, &holder.claims);
        }
        self.book.set_labels(labels);
    }

    /// The id of a holder. A record of a budget has the id of one incarnation.
    fn id_of<'a>(&self, holder: &'a Holder) -> &'a str {
        if self.budget.is_some() { holder_of_record(&holder.id) } else { &holder.id }
    }

    /// Makes a holder that has no claims in the allocation a member of its group, if there are groups.
    fn join_group(&mut self, slot: u32) {
        let holder = self.book.ledger().holder(slot);
        let id = self.id_of(holder);
        if let Some(label) = self.allocation.join(slot, holder.kind, id) {
            self.book.set_label(slot, label);
        }
    }

    fn set_capacity(&mut self, capacity: Amount) {
        if capacity != self.settings.capacity {
            self.settings_version += 1;
            Arc::make_mut(&mut self.settings).capacity = capacity;
        }
        self.allocation.set_capacity(capacity);
        if let Some(pool) = &mut self.pool {
            pool.set_base(capacity);
        }
    }

    /// Sets the maximum number of [`charged_slots`](Self::charged_slots). Occupied slots beyond it stay occupied.
    pub fn set_max_holders(&mut self, maximum: usize) {
        self.limits.max_holders = maximum;
    }

    /// The epoch of its tokens.
    pub fn epoch(&self) -> Epoch {
        self.book.epoch()
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn sums(&self) -> Sums {
        self.book.ledger().sums()
    }

    /// Charged slots: holders, and each band of a child node beyond its first.
    pub fn charged_slots(&self) -> usize {
        self.book.ledger().charged_slots()
    }

    /// Takes the changes in the number of slots of each principal since the last call. When this incarnation is
    /// dropped, the caller subtracts their sum.
    pub fn drain_slot_deltas(&mut self) -> impl Iterator<Item = SlotDelta> {
        self.book.drain_slot_deltas()
    }

    /// The indices of the answers of the last round that may grow once the parent knows the current wants, in ascending
    /// order.
    pub fn short(&self) -> &[usize] {
        &self.last_round.short
    }

    pub fn holders(&self) -> usize {
        self.book.ledger().len()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When the next [`tick`](Self::tick) is due.
    pub fn next_expiry(&self) -> Option<Millis> {
        let of_pool = self.pool.as_ref().and_then(|pool| pool.next_deadline());
        let others = self.book.next_end_of_inherited().into_iter().chain(of_pool).chain(self.load_reported_until());
        self.book.ledger().next_expiry().into_iter().chain(others).min()
    }

    pub fn bytes(&self) -> usize {
        let pool = self.pool.as_ref().map_or(0, |pool| pool.bytes());
        size_of::<Self>() + pool + self.book.ledger().bytes() + self.allocation.bytes() + self.watch_list.bytes()
    }

    /// Whether holders share one capacity. This is so for dividing algorithms, and below a parent, unless its lease is
    /// a maximum per client.
    pub fn is_bounded(&self) -> bool {
        self.settings.shares() || self.has_parent() && !self.is_supplied_per_client()
    }

    /// Whether it is in learning mode. Unshared capacity needs none.
    pub fn is_learning(&self, now: Millis) -> bool {
        now < self.book.learning_until() && self.is_bounded()
    }

    /// Whether earlier masters may have lent more than is unclaimed. Below a parent, the unclaimed amount is bounded by
    /// the current supply, which may be smaller than earlier ones.
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
        if self.budget.is_some() {
            return self.release_spender(release, now);
        }
        let Some(slot) = self.names.released_by(release, &self.book) else { return };
        let (everything, returned) = self.book.release(slot, release.kind, release.token, now);
        self.give_back(returned);
        if !everything && !planted::is(Fault::ReleasesEverything) {
            self.book.recount(slot, now);
            self.pool_grants(slot, Cause::Released);
        } else if let Some(until) = self.book.inherited_until() {
            self.leave_tombstone(slot, now, until);
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

    /// Like `forget`, but the record stays until `until`.
    fn leave_tombstone(&mut self, slot: u32, now: Millis, until: Millis) {
        let (claims, watch) = self.book.detach(slot);
        self.forget(slot, &claims, watch);
        self.book.leave_tombstone(slot, now, until);
    }

    /// Assumes that earlier masters lent the whole capacity until `until`, because their leases are unknown.
    fn assume_lent(&mut self, until: Millis) {
        if !self.is_bounded() {
            return;
        }
        let whole = self.pool.as_ref().map_or(self.settings.capacity, |pool| pool.max_total());
        let change = self.book.assume_lent(whole, until);
        self.apply_change(change);
    }

    /// Handles a rise of the capacity from `before` while some leases of earlier masters are unknown.
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

    /// Removes parts of the inherited leases that have ended, and all inherited leases after the last end.
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

/// Number of holders that are looked up one by one.
const FEW: usize = 8;
/// Maximum number of watched holders per visit: well below a millisecond of work.
const VISIT_BUDGET: usize = 2048;

/// The effects of rounds, ticks and other changes since the last [`Resource::outcome`].
#[derive(Debug, Default)]
pub struct Outcome {
    /// Changes to propose. If they are lost, no later change of this incarnation may be applied.
    pub changes: Option<Changes>,
    /// The leases of the last round must wait for the changes of this number.
    pub awaits: Option<u64>,
    pub pool_events: Vec<PoolEvent>,
    pub budget_events: Vec<BudgetEvent>,
    /// Whether the parent should get a report before the next refresh.
    pub asks_parent: bool,
    /// Hints for watched holders that should ask again now; empty unless a visit was allowed.
    pub hints: Vec<Hint>,
    /// Whether watched holders were visited.
    pub visited: bool,
    /// When to visit watched holders next. `Some(now)`: immediately. `None`: not before the next change.
    pub next_visit: Option<Millis>,
}

impl Resource {
    /// What its leases are for.
    pub(crate) fn lease_kind(&self) -> LeaseKind {
        match (&self.budget, &self.pool) {
            (Some(_), _) => LeaseKind::Budget,
            (None, Some(_)) => LeaseKind::Pool,
            (None, None) => LeaseKind::Shared,
        }
    }

    /// The changes to propose to the quorum, see [`LeaseBook::take_changes`](crate::lease::LeaseBook::take_changes).
    pub(crate) fn take_changes(&mut self, now: Millis) -> Proposal {
        let capacity = self.is_bounded().then_some(self.total());
        let (allocation, pool) = (&self.allocation, self.pool.as_deref());
        let wants = |book: &LeaseBook| summarized_claims(allocation, pool, book.ledger().sums().wants);
        // A stored length must not end the total of a budget before its period does.
        let lease = self.lease_kind().counts_for(self.settings.lease);
        self.book.take_changes(now, lease, capacity, self.stored_period(), wants)
    }

    /// Takes all effects since the last call. Call it after every step, before any answer is sent. `may_visit`: whether
    /// watched holders may be visited; the caller paces visits. A new holder is watched from now on if it `is_watched`.
    pub fn outcome(&mut self, now: Millis, may_visit: bool, is_watched: impl Fn(HolderKind, &str) -> bool) -> Outcome {
        let Proposal { changes, awaits } = self.take_changes(now);
        let newcomers: Vec<_> =
            self.newcomers().filter(|(kind, id)| is_watched(*kind, id)).map(|(kind, id)| (kind, id.clone())).collect();
        self.last_round.newcomers.clear();
        for (kind, id) in newcomers {
            self.watch(kind, &id);
        }
        let mut hints = Vec::new();
        let visited = may_visit && self.next_hints(now).is_some_and(|next| next <= now);
        if visited {
            self.hints(now, VISIT_BUDGET, &mut hints);
        }
        Outcome {
            changes,
            awaits,
            pool_events: self.take_pool_events(),
            budget_events: self.take_budget_events(),
            asks_parent: self.asks_early(),
            hints,
            visited,
            next_visit: self.next_hints(now),
        }
    }

    // Hints.

    /// Watches a holder until [`unwatch`](Self::unwatch) or until its record is removed. Returns false if the holder is
    /// unknown; then call it again for [`newcomers`](Self::newcomers).
    pub fn watch(&mut self, kind: HolderKind, id: &str) -> bool {
        let Some(slot) = self.book.ledger().find(kind, id) else { return false };
        match self.book.ledger().holder(slot).watch {
            NOT_WATCHED => {
                let position = self.watch_list.insert(slot);
                self.book.set_watch(slot, position);
            }
            position => self.watch_list.reset(position),
        }
        true
    }

    /// Watches all holders that `is_watched`. Returns false, without effect, if there are more than a few holders.
    pub fn watch_few(&mut self, is_watched: impl Fn(HolderKind, &str) -> bool) -> bool {
        if self.book.ledger().len() > FEW {
            return false;
        }
        let holders = self.book.ledger().iter_from(0).filter(|(_, holder)| is_watched(holder.kind, &holder.id));
        let watched: Vec<_> = holders.map(|(_, holder)| (holder.kind, Arc::clone(&holder.id))).collect();
        watched.iter().all(|(kind, id)| self.watch(*kind, id))
    }

    /// Whether a holder waits for more capacity.
    pub fn has_waiting(&self) -> bool {
        self.book.ledger().waiting() > 0
    }

    pub fn unwatch(&mut self, kind: HolderKind, id: &str) {
        if let Some(slot) = self.book.ledger().find(kind, id) {
            self.watch_list.remove(self.book.set_watch(slot, NOT_WATCHED));
        }
    }

    /// The new holders of the last round that still have records. They are not watched yet.
    pub(crate) fn newcomers(&self) -> impl Iterator<Item = (HolderKind, &Arc<str>)> {
        let unwatched = |slot: &u32| self.book.ledger().get(*slot).filter(|holder| holder.watch == NOT_WATCHED);
        self.last_round.newcomers.iter().filter_map(unwatched).map(|holder| (holder.kind, &holder.id))
    }

    /// When to call [`hints`](Self::hints) next. `Some(now)`: immediately. `None`: not before the next change.
    pub(crate) fn next_hints(&self, now: Millis) -> Option<Millis> {
        if self.is_learning(now) {
            return Some(self.book.learning_until()).filter(|_| !self.watch_list.is_empty());
        }
        if self.awaits_supply() {
            return None;
        }
        self.watch_list.next_visit(self.version(), now)
    }

    /// Visits up to `budget` watched holders, starting where the last call stopped, and adds hints for those that
    /// should ask now: first those that must shrink, then those that must confirm, then those that wait. Does nothing
    /// if nothing has changed since all were visited.
    pub(crate) fn hints(&mut self, now: Millis, budget: usize, hints: &mut Vec<Hint>) {
        if self.is_learning(now) || self.awaits_supply() {
            return;
        }
        let mut visits = Vec::new();
        self.watch_list.next_part(self.version(), now, budget, &mut visits);
        let mut terms = Vec::new();
        let mut candidates = Vec::with_capacity(visits.len());
        for visit in &visits {
            let holder = self.book.ledger().holder(visit.slot);
            let due = self.due_now(visit.slot, now, &mut terms);
            let candidate = HintCandidate { due, current: holder.leases.current(now), held: holder.leases.held(now) };
            // All `waits` flags must be current before candidates are judged, because dues may have changed since the
            // last requests.
            self.book.set_waits(visit.slot, candidate.waits());
            candidates.push(candidate);
        }
        let first = hints.len();
        let mut context = self.hint_context();
        for (visit, candidate) in visits.iter().zip(&candidates) {
            if let Some(reason) = self.watch_list.judge(visit.position, candidate, &mut context, now) {
                let holder = self.book.ledger().holder(visit.slot);
                hints.push(Hint { kind: holder.kind, id: Arc::clone(&holder.id), reason });
            }
        }
        self.watch_list.end_part();
        hints[first..].sort_by_key(|hint| hint.reason);
    }

    fn hint_context(&self) -> HintContext {
        let capacity = self.total();
        HintContext {
            bounded: self.is_bounded(),
            decided: self.pool.is_some(),
            any_waits: self.book.ledger().waiting() > 0,
            capacity,
            free: Sum::from(capacity) - self.book.ledger().sums().held,
            reserved: Sum::ZERO,
        }
    }

    /// If the capacity is not shared, requests do not change the dues of others, so changes of the ledger are
    /// irrelevant.
    fn version(&self) -> Version {
        let elsewhere = self.allocation.rotations() + self.pool.as_ref().map_or(0, |pool| pool.moves());
        (self.settings_version + elsewhere, if self.is_bounded() { self.book.ledger().changes() } else { 0 })
    }
}
