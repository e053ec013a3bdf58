//! The environment of a resource's engine: time, mastership, limits, watchers, and stored state.

use std::{
    cmp,
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use leaseway_core::engine::{Environment, Moment};
use leaseway_core::{
    policy::overrides::Load,
    pool::{Assigned, PoolNotes},
    types::{HolderKind, Millis, Principal, SlotDelta},
};
use leaseway_raft::MasterLease;

use crate::{
    config::limits::Limits,
    listen::accounts::{Account, Accounts},
    node::{assignment_store::AssignmentStore, streams::hints::Watchers},
    runtime::clock::Clock,
};

pub(crate) struct ResourceEnvironment {
    pub(crate) id: Arc<str>,
    pub(crate) clock: Clock,
    /// The master lease under which the resource decides. `None` for a server without peers.
    pub(crate) master_lease: Option<MasterLease>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) assignment_store: AssignmentStore,
    pub(crate) holders: HoldersShare,
}

/// A resource's contribution to the number of holders of all resources, and of each principal.
pub(crate) struct HoldersShare {
    all: Arc<AtomicUsize>,
    own: usize,
    accounts: Arc<Accounts>,
    by_principal: HashMap<Principal, (Arc<Account>, usize)>,
}

impl HoldersShare {
    pub(crate) fn new(all: Arc<AtomicUsize>, accounts: Arc<Accounts>) -> HoldersShare {
        HoldersShare { all, own: 0, accounts, by_principal: HashMap::new() }
    }

    /// Charges a change to its principal.
    pub(super) fn charge(&mut self, delta: SlotDelta) {
        let (account, own) = match self.by_principal.entry(delta.principal) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                // The account was already dropped: charge nobody.
                let Some(account) = self.accounts.of(delta.principal) else { return };
                new.insert((account, 0))
            }
        };
        let before = std::mem::replace(own, own.saturating_add_signed(delta.places));
        if *own >= before {
            account.holders.fetch_add(*own - before, Ordering::Relaxed);
        } else {
            account.holders.fetch_sub(before - *own, Ordering::Relaxed);
        }
        if *own == 0 {
            self.by_principal.remove(&delta.principal);
        }
    }

    /// Sets the number of holders of this resource. Most rounds do not change it, and then do not write the shared
    /// number.
    pub(super) fn set(&mut self, own: usize) {
        match own.cmp(&self.own) {
            cmp::Ordering::Equal => return,
            cmp::Ordering::Greater => self.all.fetch_add(own - self.own, Ordering::Relaxed),
            cmp::Ordering::Less => self.all.fetch_sub(self.own - own, Ordering::Relaxed),
        };
        self.own = own;
    }
}

impl Drop for HoldersShare {
    fn drop(&mut self) {
        self.set(0);
        for (account, own) in self.by_principal.values() {
            account.holders.fetch_sub(*own, Ordering::Relaxed);
        }
    }
}

impl ResourceEnvironment {
    pub(super) fn moment(&self) -> Moment<'_> {
        let now = self.clock.now();
        Moment {
            now,
            may_decide: self.master_lease.as_ref().is_none_or(|master_lease| master_lease.holds(now.at)),
            max_holders: self.max_holders(),
            environment: self,
        }
    }

    /// Whether a principal has used up its share of the holders of all resources.
    pub(super) fn is_at_share(&self, principal: Principal) -> bool {
        let (most, used) = (self.limits.clients, self.holders.all.load(Ordering::Relaxed));
        let own = self.holders.accounts.of(principal).map(|account| account.holders.load(Ordering::Relaxed));
        own.is_some_and(|own| !self.limits.share().allows(own, 1, used, most))
    }

    /// Whether any principal can have used up its share; if not, [`is_at_share`](Self::is_at_share) need not be called.
    pub(super) fn shares_bind(&self) -> bool {
        !self.limits.share().cannot_bind(self.holders.all.load(Ordering::Relaxed), self.limits.clients)
    }

    /// The maximum number of holders: the limit per resource, or less if the limit of all resources is nearly used up.
    fn max_holders(&self) -> usize {
        let left = self.limits.clients.saturating_sub(self.holders.all.load(Ordering::Relaxed));
        self.limits.clients_per_resource.min(self.holders.own + left)
    }
}

impl Environment for ResourceEnvironment {
    fn is_watched(&self, kind: HolderKind, id: &str) -> bool {
        self.watchers.is_watched(kind, id)
    }

    fn assignments(&self) -> Vec<(HolderKind, Arc<str>, Assigned)> {
        self.assignment_store.assignments(&self.id)
    }

    fn notes(&self, now: Millis) -> Option<PoolNotes> {
        self.assignment_store.pool(&self.id, now)
    }

    fn reported_load(&self) -> Option<Load> {
        self.assignment_store.load_of(&self.id)
    }
}
