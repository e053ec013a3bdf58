//! PRIORITY_POOL: a capacity shared between *priority clients*, whose capacity is assigned by a manager, and *free
//! clients*. The algorithm follows the server capacity proposal for light Ethereum servers (LES).
//!
//! A priority client has an *assignment*, and gets it if it fits. The remaining capacity is divided into places of the
//! minimum capacity, which free clients share; the client that was served least recently comes first. The *total* is
//! the maximum capacity of connected clients. It can exceed the *base*, which is the load that can be served at the
//! same time, because most clients use only part of their capacity most of the time. In an overload, some clients are
//! disconnected and the total falls by their capacity. It rises again slowly.
//!
//! Like a division, a pool computes dues, and settlement grants them when capacity is free. A *kicked-out* client has a
//! due of zero. It keeps its lease until its next request, and the lease counts as held until the client confirms the
//! loss. Unlike a division, a pool has a memory: a client's due depends on earlier clients.
//!
//! No step visits all holders. They are sorted by keys that do not change with time (see [`accounts`]), and each
//! request moves a bounded number of them. A sudden change for a million clients is carried out over the following
//! requests, and settlement keeps every intermediate state safe.
//!
//! The pool's manager handles payment, based on the cost of each client. The server authenticates the manager and
//! stores assignments.

mod accounts;
mod assignments;
#[cfg(test)]
mod audit;
mod demand;
mod events;
mod free;
mod member;
mod notes;
mod priority;
mod report;
mod total;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use accounts::memory::{NotedBalance, NotedCost, PoolClock, PoolMemory, PoolNotes};
pub use assignments::{AssignError, Assigned};
pub(crate) use demand::PoolRequest;
pub use demand::{PoolFields, Usage, UsageBelow};
pub use events::{Cause, PoolClient, PoolEvent, PoolEventFilter, PoolEventKind};
pub use report::{PoolCursor, PoolFilter, PoolMember, PoolPage, PoolReport, PoolStanding, PoolState};

use self::{
    accounts::{Accounts, BalanceKey, Clock},
    assignments::Assignments,
    events::Events,
    free::FreeClients,
    member::{Free, Member},
    notes::Notes,
    priority::PriorityClients,
};
use crate::{
    policy::settings::{PoolSettings, Settings},
    types::{Amount, Claim, Claims, HolderKind, MAX_SLICES, Millis, PrincipalShare, Sum, certain_end},
};

/// The maximum number of holders that one request moves.
pub(crate) const MOVES_PER_REQUEST: usize = 32;
/// The maximum number of holders that one tick moves.
pub(crate) const MOVES_PER_TICK: usize = 4096;

#[derive(Debug)]
pub(crate) struct Pool {
    settings: PoolSettings,
    /// The share of the places that one principal keeps while clients of others wait.
    share: PrincipalShare,
    refresh: Millis,
    lease: Millis,
    /// Whether the capacity is lent by a parent. Then it is never overbooked.
    is_lent: bool,
    base: Amount,
    total: Amount,
    /// In learning mode no client is kicked out, and the total is at its maximum.
    learning: bool,
    has_begun: bool,
    clock: Clock,
    calm_since: Option<Millis>,
    /// Indexed by ledger slot.
    members: Vec<Option<Box<Member>>>,
    next_seq: u64,
    free: FreeClients,
    priority: PriorityClients,
    accounts: Accounts,
    notes: Notes,
    assignments: Assignments,
    /// Usage that counts against the base.
    used: Sum,
    /// All usage, including that of clients about to lose their capacity.
    uses: Sum,
    /// Capacity that members report as unused.
    idle: Sum,
    /// Units that members have reported as used.
    spent: f64,
    /// Possible additional usage by clients with expired reports. It keeps the total from rising, but disconnects no
    /// client: a late message is not an overload.
    possible_use: Sum,
    /// The number of holders with capacity that have not asked this master yet.
    unseen: usize,
    /// Inherited leases that nobody has claimed yet.
    unclaimed: Amount,
    /// Capacity held by connected clients.
    connected: Sum,
    /// Reports of use, by the time when they expire.
    reports: BTreeSet<(Millis, u32)>,
    is_overloaded: bool,
    overloads: u64,
    /// During an overload by priority clients: the total to fall to, regardless of which clients give way.
    surge_total: Option<f64>,
    underrun: Option<Underrun>,
    /// An underrun has ended, but members still have more than the total. [`PoolEventKind::Relieved`] follows later.
    awaits_relief: bool,
    events: Events,
    reported_total: Amount,
    /// The claims to a parent, by priority.
    bands: BTreeMap<i16, (u64, Sum)>,
    moves: u64,
}

/// Priority clients have more than the total.
#[derive(Debug, Clone, Copy)]
struct Underrun {
    deadline: Millis,
    reported: Amount,
}

impl Pool {
    pub(crate) fn new(settings: &Settings, is_lent: bool, seed: u64) -> Pool {
        Pool {
            settings: settings.pool,
            share: PrincipalShare::default(),
            refresh: settings.refresh,
            lease: settings.lease,
            is_lent,
            base: settings.capacity,
            total: settings.capacity,
            learning: false,
            has_begun: false,
            clock: Clock::default(),
            calm_since: None,
            members: Vec::new(),
            next_seq: 0,
            free: FreeClients::default(),
            priority: PriorityClients::default(),
            accounts: Accounts::new(seed),
            notes: Notes::default(),
            assignments: Assignments::default(),
            used: Sum::ZERO,
            uses: Sum::ZERO,
            idle: Sum::ZERO,
            spent: 0.0,
            possible_use: Sum::ZERO,
            unseen: 0,
            unclaimed: Amount::ZERO,
            connected: Sum::ZERO,
            reports: BTreeSet::new(),
            is_overloaded: false,
            overloads: 0,
            surge_total: None,
            underrun: None,
            awaits_relief: false,
            events: Events::default(),
            reported_total: settings.capacity,
            bands: BTreeMap::new(),
            moves: 0,
        }
    }

    /// Sets the share of the places that one principal keeps while clients of others wait.
    pub(crate) fn set_share(&mut self, share: PrincipalShare) {
        self.share = share;
    }

    /// The maximum total of grants.
    pub(crate) fn limit(&self) -> Amount {
        if self.learning { self.max_total() } else { self.total }
    }

    /// Incremented whenever a due may have changed.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// The smallest useful grant. The tolerance covers rounding in sums of fractions.
    pub(crate) fn min_grant(&self) -> Amount {
        Amount::clamped(self.settings.min_capacity.get() * (1.0 - 1e-9))
    }

    pub(crate) fn due(&self, slot: u32) -> Amount {
        let Some(member) = self.member(slot) else { return Amount::ZERO };
        let places = match member.free {
            Free::Pending(_) | Free::Served(_) => self.settings.min_capacity,
            _ if member.node_places() > 0 => self.due_to_node(member.node_places()),
            _ => Amount::ZERO,
        };
        member.target.saturating_add(places)
    }

    /// Capacity that priority clients are due and do not have yet.
    pub(crate) fn owed(&self) -> Sum {
        self.priority.owed()
    }

    /// The part of [`owed`](Self::owed) for one holder.
    pub(crate) fn owed_to(&self, slot: u32) -> Amount {
        self.member(slot).map_or(Amount::ZERO, Member::owed)
    }

    pub(crate) fn is_priority(&self, slot: u32) -> bool {
        self.member(slot).is_some_and(Member::is_priority)
    }

    /// Whether this holder has asked.
    pub(crate) fn has_member(&self, slot: u32) -> bool {
        self.member(slot).is_some()
    }

    fn member(&self, slot: u32) -> Option<&Member> {
        self.members.get(slot as usize)?.as_deref()
    }

    fn expect_member(&self, slot: u32) -> &Member {
        self.member(slot).expect("every slot in an order is a member")
    }

    /// Advances time: updates the total and gives places to waiting clients. `held` is the total held since the last
    /// call.
    pub(crate) fn step(&mut self, now: Millis, held: Sum, learning: bool, budget: usize) {
        self.connected = held;
        if !self.has_begun {
            self.has_begun = true;
            self.clock.at = now;
            for member in self.members.iter_mut().flatten() {
                member.costs.until = now;
            }
        }
        if self.learning && !learning {
            self.begin_with(held);
            self.notes.total = None;
        } else if !learning {
            self.notes.total = None;
            self.forget_reports(now, budget);
            self.move_total(now.since(self.clock.at));
        }
        self.learning = learning;
        self.calm_since = if self.is_calm() { self.calm_since.or(Some(now)) } else { None };
        let speed = self.settings.time_factor * self.weights().0;
        self.clock.advance(now, speed, self.settings.negative_tc);
        self.bill_absent(now, budget);
        self.balance(now, budget);
    }

    /// Moves holders between waiting and placed, at most `budget` of them.
    pub(crate) fn balance(&mut self, now: Millis, mut budget: usize) {
        if self.learning {
            return;
        }
        self.cut_overload(&mut budget);
        self.emit_total();
        self.update_shares(&mut budget);
        self.place_priority(&mut budget);
        self.watch_underrun(now, &mut budget);
        self.place_free(&mut budget);
    }

    /// When the pool needs a tick even without requests.
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        self.underrun.map(|underrun| underrun.deadline)
    }

    /// Records that the holder was granted `capacity`, or lost its lease. `held` is the total held now.
    pub(crate) fn granted(&mut self, slot: u32, capacity: Amount, held: Sum, cause: Cause) {
        self.connected = held;
        let Some(mut member) = self.take_out(slot) else { return };
        member.accrue(self.clock.at);
        let before = std::mem::replace(&mut member.granted, capacity);
        let continues = std::mem::take(&mut member.continues);
        let had = before > Amount::ZERO || continues;
        if capacity == Amount::ZERO {
            self.leave_place(&mut member);
            member.fraction = 1.0;
            self.drop_report(&mut member, slot);
        } else {
            if !had {
                member.costs = member::Costs { until: self.clock.at, ..member.costs };
                (member.costs.time, member.costs.request, member.costs.announced) = (0.0, 0.0, 0.0);
            }
            self.take_place(&mut member);
            if self.learning && member.is_priority() {
                member.target = member.demand.wanted.min(capacity);
            }
        }
        if before != capacity {
            self.note(&mut member, slot, 0.0);
        }
        let (id, kind) = (Arc::clone(&member.id), member.kind);
        let cost = self.cost(&member);
        self.put_back(slot, member);
        match (had, capacity > Amount::ZERO) {
            (false, true) => self.emit(slot, PoolEventKind::Connected, cause),
            (true, false) => {
                let cause = if cause == Cause::Asked { self.expect_member(slot).cause } else { cause };
                self.emit(slot, PoolEventKind::Disconnected, cause);
            }
            (true, true) if before != capacity => self.emit(slot, PoolEventKind::Update, cause),
            _ => {}
        }
        if self.assignments.passes_mark(kind, &id, cost) {
            self.emit(slot, PoolEventKind::Alarm, Cause::Used);
        }
        self.emit_relief();
    }

    pub(crate) fn remove_member(&mut self, slot: u32, held: Sum, cause: Cause) {
        if self.member(slot).is_some_and(Member::is_connected) {
            self.granted(slot, Amount::ZERO, held, cause);
        }
        if let Some(mut member) = self.take_out(slot) {
            self.leave_free(&mut member);
            self.drop_report(&mut member, slot);
            self.note_removed(&mut member, slot);
            self.moves += 1;
        }
    }

    /// A new holder has claimed an inherited lease. It keeps the lease until its kind of client is known.
    pub(crate) fn inherit(&mut self, slot: u32, kind: HolderKind, id: &Arc<str>, moved: Amount) {
        let mut member = self.newcomer(kind, id);
        self.restore_cost(&mut member, true);
        member.inherited = true;
        member.granted = moved;
        if kind == HolderKind::Client && moved <= self.settings.min_capacity {
            member.assume_free(self.settings.min_capacity);
            self.join_free(&mut member, id);
        } else {
            member.keep(moved);
        }
        self.put_back(slot, member);
    }

    /// Unclaimed inherited leases count as a member of their own.
    pub(crate) fn set_unclaimed(&mut self, slot: u32, left: Amount) {
        let mut member = self.take_out(slot).unwrap_or_else(|| self.newcomer(HolderKind::Node, &"".into()));
        member.inherited = true;
        member.granted = left;
        member.keep(left);
        self.unclaimed = left;
        self.put_back(slot, member);
    }

    pub(crate) fn remove_inherited(&mut self, slot: u32, held: Sum) {
        self.take_out(slot);
        self.unclaimed = Amount::ZERO;
        self.connected = held;
        self.moves += 1;
    }

    fn newcomer(&mut self, kind: HolderKind, id: &Arc<str>) -> Box<Member> {
        self.next_seq += 1;
        Box::new(Member::new(kind, Arc::clone(id), self.next_seq, self.clock.at))
    }

    /// Removes a member from all orders and sums before a change.
    fn take_out(&mut self, slot: u32) -> Option<Box<Member>> {
        let member = self.members.get_mut(slot as usize)?.take()?;
        self.free.remove(&member, slot);
        self.priority.remove(&member, slot);
        self.used -= member.used;
        self.uses -= member.uses;
        self.idle -= member.idle;
        self.possible_use -= member.possible_use;
        self.unseen -= usize::from(member.is_unseen());
        for claim in &member.demand.reported_claims {
            if let Some((subclients, wants)) = self.bands.get_mut(&claim.priority) {
                *subclients -= u64::from(claim.subclients);
                *wants -= claim.wants;
                if *subclients == 0 {
                    self.bands.remove(&claim.priority);
                }
            }
        }
        Some(member)
    }

    /// Inserts a changed member at its new position.
    fn put_back(&mut self, slot: u32, mut member: Box<Member>) {
        member.used = if member.counts() { member.used_of_kept() } else { Amount::ZERO };
        self.used += member.used;
        member.uses = if member.inherited { Amount::ZERO } else { member.in_use() };
        self.uses += member.uses;
        let is_known = !member.inherited && !member.is_silent;
        member.idle = if is_known { member.granted.saturating_sub(member.in_use()) } else { Amount::ZERO };
        self.idle += member.idle;
        let silent = member.is_silent && member.counts();
        member.possible_use = if silent { member.kept().saturating_sub(member.used) } else { Amount::ZERO };
        self.possible_use += member.possible_use;
        self.unseen += usize::from(member.is_unseen());
        self.free.insert(&member, slot);
        self.priority.insert(&member, slot);
        for claim in &member.demand.reported_claims {
            let (subclients, wants) = self.bands.entry(claim.priority).or_default();
            *subclients += u64::from(claim.subclients);
            *wants += claim.wants;
        }
        let at = slot as usize;
        if at >= self.members.len() {
            self.members.resize_with(at + 1, || None);
        }
        self.members[at] = Some(member);
    }

    /// Applies a change to a member and updates all orders and sums.
    fn change(&mut self, slot: u32, change: impl FnOnce(&mut Pool, &mut Member)) {
        if let Some(mut member) = self.take_out(slot) {
            change(self, &mut member);
            self.put_back(slot, member);
            self.moves += 1;
        }
    }

    pub(crate) fn configure(&mut self, settings: &Settings) {
        (self.settings, self.refresh, self.lease) = (settings.pool, settings.refresh, settings.lease);
        self.set_base(settings.capacity);
        self.moves += 1;
    }

    /// The claims to a parent: one for each priority, up to the maximum that a parent accepts. If there are more, the
    /// lowest priorities are merged into the lowest of them, except that of free clients, which the parent counts.
    pub(crate) fn summarize(&self) -> Claims {
        let claim = |(priority, (subclients, wants)): (i16, (u64, Sum))| {
            Claim::new(wants.ceil(), subclients.min(Claim::MAX_SUBCLIENTS.into()) as u32, priority)
        };
        let too_many = self.bands.len().saturating_sub(MAX_SLICES);
        let mut bands = self.bands.iter().map(|(priority, band)| (*priority, *band)).peekable();
        let mut claims: Claims = bands.next_if(|(priority, _)| *priority == 0).map(claim).into_iter().collect();
        let lowest = bands.next().map(|(priority, mut merged)| {
            for (_, (subclients, wants)) in bands.by_ref().take(too_many) {
                merged.0 += subclients;
                merged.1 += wants;
            }
            (priority, merged)
        });
        claims.extend(lowest.into_iter().chain(bands).map(claim));
        claims
    }

    /// The usage to report to a parent: all held capacity except what clients report as unused.
    pub(crate) fn usage_below(&self, held: Sum) -> UsageBelow {
        UsageBelow { used: (held - self.idle).ceil(), spent: self.spent }
    }

    pub(crate) fn bytes(&self) -> usize {
        let members = self.members.iter().flatten().count() * size_of::<Member>();
        let list = self.members.capacity() * size_of::<Option<Box<Member>>>();
        members + list + self.free.bytes() + self.priority.bytes() + self.accounts.bytes() + self.assignments.bytes()
    }

    fn window(&self) -> Millis {
        self.settings.reduction_window.unwrap_or(self.refresh)
    }

    /// When a usage report received now expires.
    fn report_until(&self) -> Millis {
        let interval = self.settings.eval_interval.unwrap_or(self.refresh);
        certain_end(self.clock.at, Millis(interval.0.saturating_mul(2)))
    }

    fn away_key(&self, account: u32) -> BalanceKey {
        self.accounts.waiting_key(account, &self.clock)
    }
}
