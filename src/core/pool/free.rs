//! Free clients: places of the minimum capacity, in the capacity that priority clients leave.
//!
//! A place goes to the client with the smallest balance. A connected client keeps its place until its balance exceeds
//! that of a waiting client by more than the bias. New ids have small balances, so a principal could gain places by
//! using many ids. To prevent that, a principal that has its share of the places gets more only while no client of
//! others waits, and gives them back when one does. A child node gets a number of places, and decides which of its
//! clients get one, because only the node knows their balances.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Pool,
    accounts::Clock,
    events::Cause,
    member::sorted::{ByPrincipal, PrincipalFilter},
    member::{Free, Member, QueueKey},
};
use crate::types::{Amount, Principal, PrincipalShare, Sum};

#[derive(Debug, Default)]
pub(super) struct FreeClients {
    waiting: ByPrincipal<QueueKey>,
    revoking: ByPrincipal<QueueKey>,
    /// Clients with a place, the next to lose it first. `pending`: without capacity yet. `busy`: using their capacity.
    /// `idle`: not using any.
    pending: ByPrincipal<Reverse<QueueKey>>,
    busy: ByPrincipal<Reverse<QueueKey>>,
    idle: ByPrincipal<Reverse<QueueKey>>,
    places: PlacesByPrincipal,
    /// Victims of an overload that have not asked since. They lose their capacity even if places are free. Otherwise
    /// they would reopen the places that the overload has closed.
    victims: u64,
    /// Places that child nodes ask for.
    node_places: u64,
    /// Sums over child nodes: granted capacity, the part that assignments cover, and usage.
    node_granted: Sum,
    node_targets: Sum,
    node_used: Sum,
}

/// The number of places of each known principal.
#[derive(Debug, Default)]
struct PlacesByPrincipal {
    counts: BTreeMap<Principal, u64>,
    largest: BTreeSet<(u64, Principal)>,
}

impl PlacesByPrincipal {
    fn set(&mut self, principal: Principal, change: impl FnOnce(u64) -> u64) {
        if principal == Principal::NONE {
            return;
        }
        let before = self.counts.remove(&principal).unwrap_or_default();
        self.largest.remove(&(before, principal));
        let count = change(before);
        if count > 0 {
            self.counts.insert(principal, count);
            self.largest.insert((count, principal));
        }
    }
}

impl FreeClients {
    pub(super) fn insert(&mut self, member: &Member, slot: u32) {
        let of = member.principal;
        match member.free {
            Free::No => {}
            Free::Waiting(key) => self.waiting.insert(of, member.place(key, slot)),
            Free::Pending(key) => self.pending.insert(of, Reverse(member.place(key, slot))),
            Free::Served(tab) if member.used > Amount::ZERO => {
                self.busy.insert(of, Reverse(member.place(tab.key, slot)));
            }
            Free::Served(tab) => self.idle.insert(of, Reverse(member.place(tab.key, slot))),
            Free::Revoking(_) if member.is_victim() => self.victims += 1,
            Free::Revoking(tab) => self.revoking.insert(of, member.place(tab.key, slot)),
        }
        if member.is_placed() {
            self.places.set(of, |places| places + 1);
        }
        if member.node_places() > 0 {
            self.node_places += member.node_places();
            self.node_granted += member.granted;
            self.node_targets += member.target;
            self.node_used += member.used;
        }
    }

    pub(super) fn remove(&mut self, member: &Member, slot: u32) {
        let of = member.principal;
        match member.free {
            Free::No => {}
            Free::Waiting(key) => {
                self.waiting.remove(of, member.place(key, slot));
            }
            Free::Pending(key) => {
                self.pending.remove(of, Reverse(member.place(key, slot)));
            }
            Free::Served(tab) => {
                let place = Reverse(member.place(tab.key, slot));
                let _ = self.busy.remove(of, place) || self.idle.remove(of, place);
            }
            Free::Revoking(_) if member.is_victim() => self.victims -= 1,
            Free::Revoking(tab) => {
                self.revoking.remove(of, member.place(tab.key, slot));
            }
        }
        if member.is_placed() {
            self.places.set(of, |places| places.saturating_sub(1));
        }
        if member.node_places() > 0 {
            self.node_places -= member.node_places();
            self.node_granted -= member.granted;
            self.node_targets -= member.target;
            self.node_used -= member.used;
        }
    }

    /// Clients that ask this node directly.
    fn direct(&self) -> u64 {
        (self.waiting.len() + self.revoking.len()) as u64 + self.placed() + self.victims
    }

    fn placed(&self) -> u64 {
        (self.pending.len() + self.busy.len() + self.idle.len()) as u64
    }

    /// The principal with the most places, and that number, if the principal has reached its share.
    fn with_its_share(&self, places: u64, share: PrincipalShare) -> Option<(Principal, u64)> {
        let (count, principal) = self.places.largest.last()?;
        (share != PrincipalShare::ALL && *count >= share.of_slots(places)).then_some((*principal, *count))
    }

    /// The connected client that would lose its place next.
    fn last_served(&self, filter: PrincipalFilter) -> Option<QueueKey> {
        // Keys are reversed, so the minimum is the client with the largest balance.
        [self.busy.first(filter), self.idle.first(filter)].into_iter().flatten().min().map(|Reverse(place)| place)
    }

    /// The client to be placed next, and its key for comparison.
    fn best(&self, clock: &Clock, bias: f64, filter: PrincipalFilter) -> Option<(f64, u32)> {
        let waiting = self.waiting.first(filter).map(|(key, _, slot)| (clock.of_away(key), slot));
        let revoking = self.revoking.first(filter).map(|(key, _, slot)| (clock.of_connected(key) - bias, slot));
        match (waiting, revoking) {
            // A client that is still connected has the advantage of the bias.
            (Some(waiting), Some(revoking)) => Some(if waiting.0 < revoking.0 { waiting } else { revoking }),
            (waiting, revoking) => waiting.or(revoking),
        }
    }

    /// The client to lose its place next, and its key for comparison.
    fn worst(&self, clock: &Clock, bias: f64, filter: PrincipalFilter) -> Option<(f64, u32)> {
        let pending = self.pending.first(filter).map(|Reverse((key, _, slot))| (clock.of_away(key), slot));
        let served = self.last_served(filter).map(|(key, _, slot)| (clock.of_connected(key) - bias, slot));
        match (pending, served) {
            (Some(pending), Some(served)) => Some(if served.0 > pending.0 { served } else { pending }),
            (pending, served) => pending.or(served),
        }
    }

    /// Direct clients without a place.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn counts(&self) -> (usize, usize) {
        (self.waiting.len(), self.revoking.len() + self.victims as usize)
    }

    #[cfg(test)]
    pub(super) fn sums_of_nodes(&self) -> [Sum; 3] {
        [self.node_granted, self.node_targets, self.node_used]
    }

    pub(super) fn bytes(&self) -> usize {
        self.direct() as usize * size_of::<(Principal, Option<QueueKey>)>()
    }
}

/// A client that gets a place, and one that loses its place.
struct PlaceStep {
    goes: Option<u32>,
    comes: Option<u32>,
}

/// The division of free places between direct clients and child nodes.
struct PlaceSplit {
    direct: u64,
    /// The fraction of their requested places that child nodes get.
    level: f64,
}

impl Pool {
    fn split_places(&self) -> PlaceSplit {
        let room = (Sum::from(self.total) - self.priority.placed()).get().max(0.0);
        let minimum = self.settings.min_capacity.get();
        let places = (room / minimum * (1.0 + 1e-9)) as u64;
        let (direct, nodes) = (self.free.direct(), self.free.node_places);
        if direct + nodes <= places {
            return PlaceSplit { direct, level: 1.0 };
        }
        let mine = u128::from(places) * u128::from(direct) / u128::from(direct + nodes).max(1);
        let direct = if nodes == 0 { places } else { mine as u64 };
        let level = (room - direct as f64 * minimum) / (nodes.max(1) as f64 * minimum);
        PlaceSplit { direct, level: level.clamp(0.0, 1.0) }
    }

    /// The due of a child node with this number of free clients.
    pub(super) fn due_to_node(&self, places: u64) -> Amount {
        Amount::clamped(self.settings.min_capacity.get() * places as f64 * self.split_places().level)
    }

    /// Capacity that child nodes keep. They use the rest until their next request, but no other client has to be
    /// disconnected for that.
    fn kept_by_nodes(&self) -> f64 {
        let places = self.settings.min_capacity.get() * self.free.node_places as f64 * self.split_places().level;
        self.free.node_granted.get().min(self.free.node_targets.get() + places)
    }

    /// Usage within [`kept_by_nodes`](Self::kept_by_nodes).
    fn used_by_nodes(&self) -> Sum {
        let (used, granted) = (self.free.node_used, self.free.node_granted.get());
        if used == Sum::ZERO {
            return used;
        }
        let kept = self.kept_by_nodes();
        if kept >= granted { used } else { Amount::clamped(used.get() * kept / granted).into() }
    }

    /// Capacity of the places that free clients wait for, here and below child nodes.
    pub(super) fn wanted_places(&self) -> f64 {
        let of_nodes = self.free.node_places as f64 * (1.0 - self.split_places().level);
        self.settings.min_capacity.get() * (self.free.waiting() as f64 + of_nodes)
    }

    /// Usage by clients that keep their capacity.
    pub(super) fn used(&self) -> Sum {
        let mut used = self.used - self.free.node_used;
        used += self.used_by_nodes();
        used
    }

    /// Closes places of child nodes until their usage falls by the fraction `part` of the excess. The nodes choose the
    /// clients to disconnect. Direct clients share the same total of places, so some of theirs close, too.
    pub(super) fn close_places_of_nodes(&mut self, part: f64) {
        let used = self.used_by_nodes().get();
        let excess = (self.used() - Sum::from(self.base)).get() * part;
        if used <= 0.0 || excess <= 0.0 {
            return;
        }
        // Without the margin, rounding could leave an excess.
        let kept = self.kept_by_nodes() * (1.0 - excess / used - 1e-9).max(0.0);
        let places = (kept - self.free.node_targets.get()).max(0.0);
        let (direct, nodes) = (self.free.direct() as f64, self.free.node_places as f64);
        let room = places * (direct + nodes) / nodes;
        self.set_total(self.total.get().min(self.priority.placed().get() + room));
    }

    /// The fraction of all usage that child nodes with places cause.
    pub(super) fn part_of_nodes(&self) -> f64 {
        let used = self.used().get();
        if used > 0.0 { self.used_by_nodes().get() / used } else { 0.0 }
    }

    /// Gives places to the first waiting clients and takes them from the last placed ones.
    pub(super) fn place_free(&mut self, budget: &mut usize) {
        let places = self.split_places().direct;
        while *budget > 0 {
            *budget -= 1;
            let Some(step) = self.next_step(places) else { return };
            let cause = if step.comes.is_none() { Cause::Crowded } else { Cause::Displaced };
            if let Some(goes) = step.goes {
                self.displace(goes, cause);
            }
            if let Some(comes) = step.comes {
                self.place(comes);
            }
        }
    }

    /// The next clients to get and to lose a place, if direct clients have this number of places.
    fn next_step(&self, places: u64) -> Option<PlaceStep> {
        let (free, bias) = (&self.free, self.settings.connected_bias);
        let best = |filter| free.best(&self.clock, bias, filter);
        let worst = |filter| free.worst(&self.clock, bias, filter);
        let swap = |comes: Option<(f64, u32)>, goes: Option<(f64, u32)>| {
            let ((less, comes), (more, goes)) = (comes?, goes?);
            (less < more).then_some(PlaceStep { goes: Some(goes), comes: Some(comes) })
        };
        let slot = |found: Option<(f64, u32)>| found.map(|(_, slot)| slot);
        let placed = free.placed();
        let Some((principal, count)) = free.with_its_share(places, self.share) else {
            return match placed {
                _ if placed > places => Some(PlaceStep { goes: Some(slot(worst(PrincipalFilter::Any))?), comes: None }),
                _ if placed < places => Some(PlaceStep { goes: None, comes: Some(slot(best(PrincipalFilter::Any))?) }),
                _ => swap(best(PrincipalFilter::Any), worst(PrincipalFilter::Any)),
            };
        };
        let (own, others) = (PrincipalFilter::Only(principal), PrincipalFilter::Except(principal));
        let is_beyond = count > self.share.of_slots(places);
        if placed > places {
            let goes = if is_beyond { worst(own) } else { worst(PrincipalFilter::Any) };
            return Some(PlaceStep { goes: Some(slot(goes)?), comes: None });
        }
        if placed < places {
            return Some(PlaceStep { goes: None, comes: Some(slot(best(others).or_else(|| best(own)))?) });
        }
        match slot(best(others)) {
            Some(comes) if is_beyond => Some(PlaceStep { goes: Some(slot(worst(own))?), comes: Some(comes) }),
            _ => swap(best(others), worst(PrincipalFilter::Any)).or_else(|| swap(best(own), worst(own))),
        }
    }

    fn place(&mut self, slot: u32) {
        self.change(slot, |_, member| {
            member.free = match member.free {
                Free::Waiting(key) => Free::Pending(key),
                Free::Revoking(tab) => Free::Served(tab),
                other => other,
            };
        });
    }

    /// Kicks a client out. It keeps its lease until its next request.
    fn displace(&mut self, slot: u32, cause: Cause) {
        self.change(slot, |_, member| {
            member.cause = cause;
            member.free = match member.free {
                Free::Pending(key) => Free::Waiting(key),
                Free::Served(tab) => Free::Revoking(tab),
                other => other,
            };
        });
    }

    /// Disconnects the free client with the largest balance among those that use capacity. Returns its capacity. From
    /// now on the client comes after all others, regardless of its balance.
    pub(super) fn cut_free_client(&mut self) -> Option<Amount> {
        let Reverse((_, _, slot)) = self.free.busy.first(PrincipalFilter::Any)?;
        let largest =
            self.free.last_served(PrincipalFilter::Any).map_or(0.0, |(key, _, _)| self.clock.of_connected(key));
        self.change(slot, |pool, member| {
            if let (Free::Served(tab), Some(account)) = (&mut member.free, member.account) {
                let more = (largest - pool.clock.of_connected(tab.key)).max(0.0);
                pool.accounts.charge(account, tab, more, &pool.clock);
            }
        });
        self.displace(slot, Cause::Overload);
        Some(self.expect_member(slot).granted)
    }

    /// Updates the state of a member that has received capacity.
    pub(super) fn take_place(&mut self, member: &mut Member) {
        let Some(account) = member.account else { return };
        member.free = match member.free {
            Free::Waiting(_) | Free::Pending(_) => Free::Served(self.accounts.connect(account, &self.clock)),
            // In learning mode no client is kicked out.
            Free::Revoking(tab) if self.learning => Free::Served(tab),
            other => other,
        };
    }

    /// Updates the state of a member that has lost its capacity.
    pub(super) fn leave_place(&mut self, member: &mut Member) {
        let Some(account) = member.account else { return };
        match member.free {
            Free::Served(tab) => {
                self.accounts.disconnect(account, &tab, &self.clock);
                member.free = Free::Pending(self.away_key(account));
            }
            Free::Revoking(tab) => {
                self.accounts.disconnect(account, &tab, &self.clock);
                member.free = Free::Waiting(self.away_key(account));
            }
            _ => {}
        }
    }

    pub(super) fn join_free(&mut self, member: &mut Member, id: &Arc<str>) {
        let account = self.accounts.join(id);
        member.account = Some(account);
        member.free = Free::Waiting(self.away_key(account));
        if member.is_connected() {
            self.take_place(member);
        }
    }

    pub(super) fn leave_free(&mut self, member: &mut Member) {
        self.leave_place(member);
        member.free = Free::No;
        if let Some(account) = member.account.take() {
            self.accounts.leave(account, self.settings.max_remembered);
        }
    }
}
