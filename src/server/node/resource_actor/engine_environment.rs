//! The environment of a resource's engine: time, mastership, limits, watchers, and stored state.

use std::{
    cmp,
    sync::{Arc, atomic::Ordering},
};

use leaseway_core::engine::{Environment, Moment};
use leaseway_core::{
    policy::overrides::Load,
    pool::{Assigned, PoolNotes},
    types::{HolderKind, Millis, Principal},
};

use super::{combiner::Incarnation, context::ResourceContext};

/// The environment of the actor, see [`Moment`].
impl Incarnation {
    /// Sets the number of holders of this resource. Most rounds do not change it, and then do not write the shared
    /// number. Call it only while the actor is locked.
    pub(super) fn set_holders(&self, own: usize) {
        let before = self.holders.swap(own as u32, Ordering::Relaxed) as usize;
        match own.cmp(&before) {
            cmp::Ordering::Equal => {}
            cmp::Ordering::Greater => drop(self.context.holders.fetch_add(own - before, Ordering::Relaxed)),
            cmp::Ordering::Less => drop(self.context.holders.fetch_sub(before - own, Ordering::Relaxed)),
        }
    }

    pub(super) fn moment(&self) -> Moment<'_> {
        let now = self.context.clock.now();
        Moment {
            now,
            may_decide: self.context.master_lease.as_ref().is_none_or(|master_lease| master_lease.holds(now.at)),
            max_holders: self.max_holders(),
            environment: self,
        }
    }

    /// Whether a principal has used up its share of the holders of all resources.
    pub(super) fn is_at_share(&self, principal: Principal) -> bool {
        let ResourceContext { limits, accounts, holders, .. } = &*self.context;
        let (most, used) = (limits.clients, holders.load(Ordering::Relaxed));
        let own = accounts.of(principal).map(|account| account.holders.load(Ordering::Relaxed));
        own.is_some_and(|own| !limits.share().allows(own, 1, used, most))
    }

    /// Whether any principal can have used up its share; if not, [`is_at_share`](Self::is_at_share) need not be called.
    pub(super) fn shares_bind(&self) -> bool {
        let ResourceContext { limits, holders, .. } = &*self.context;
        !limits.share().cannot_bind(holders.load(Ordering::Relaxed), limits.clients)
    }

    /// The maximum number of holders: the limit per resource, or less if the limit of all resources is nearly used up.
    fn max_holders(&self) -> usize {
        let ResourceContext { limits, holders, .. } = &*self.context;
        let left = limits.clients.saturating_sub(holders.load(Ordering::Relaxed));
        limits.clients_per_resource.min(self.holders.load(Ordering::Relaxed) as usize + left)
    }
}

impl Environment for Incarnation {
    fn is_watched(&self, kind: HolderKind, id: &str) -> bool {
        self.context.watchers.is_watched(kind, id)
    }

    fn assignments(&self) -> Vec<(HolderKind, Arc<str>, Assigned)> {
        self.context.assignment_store.assignments(&self.id)
    }

    fn notes(&self, now: Millis) -> Option<PoolNotes> {
        self.context.assignment_store.pool(&self.id, now)
    }

    fn reported_load(&self) -> Option<Load> {
        self.context.assignment_store.load_of(&self.id)
    }
}
