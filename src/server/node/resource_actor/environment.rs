//! What a resource's engine asks its surroundings: time, mastership, limits, watchers, and stored facts.

use std::{
    cmp,
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use leaseway_core::engine::{Environment, Moment};
use leaseway_core::{Assigned, HolderKind, Load, Millis, PoolNotes, Principal, SlotDelta};
use leaseway_raft::MasterLease;

use crate::{
    config::limits::Limits,
    listen::accounts::{Account, Accounts},
    node::{assignment_store::AssignmentStore, watchers::Watchers},
    runtime::clock::Clock,
};

pub(in super::super) struct ResourceEnvironment {
    pub(in super::super) id: Arc<str>,
    pub(in super::super) clock: Clock,
    /// Among peers: the reign under which it decides.
    pub(in super::super) reign: Option<MasterLease>,
    pub(in super::super) limits: Arc<Limits>,
    pub(in super::super) watchers: Arc<Watchers>,
    pub(in super::super) assignment_store: AssignmentStore,
    pub(in super::super) holders: HoldersShare,
}

/// A resource's part of the holders of all resources, and of those of each principal.
pub(in super::super) struct HoldersShare {
    all: Arc<AtomicUsize>,
    own: usize,
    accounts: Arc<Accounts>,
    by_principal: HashMap<Principal, (Arc<Account>, usize)>,
}

impl HoldersShare {
    pub(in super::super) fn new(all: Arc<AtomicUsize>, accounts: Arc<Accounts>) -> HoldersShare {
        HoldersShare { all, own: 0, accounts, by_principal: HashMap::new() }
    }

    /// What a principal has more or fewer.
    pub(super) fn pass(&mut self, delta: SlotDelta) {
        let (account, own) = match self.by_principal.entry(delta.principal) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                // A request of which the account is gone already is counted to none.
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

    /// Most rounds change nothing, and then the number that all threads read is not written.
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
            may_decide: self.reign.as_ref().is_none_or(|reign| reign.holds(now.at)),
            max_holders: self.max_holders(),
            environment: self,
        }
    }

    /// Whether a principal has its share of the holders of all resources.
    pub(super) fn has_its_share(&self, principal: Principal) -> bool {
        let (most, used) = (self.limits.clients, self.holders.all.load(Ordering::Relaxed));
        let own = self.holders.accounts.of(principal).map(|account| account.holders.load(Ordering::Relaxed));
        own.is_some_and(|own| !self.limits.share().allows(own, 1, used, most))
    }

    /// Whether there may be a principal that has.
    pub(super) fn shares_bind(&self) -> bool {
        !self.limits.share().cannot_bind(self.holders.all.load(Ordering::Relaxed), self.limits.clients)
    }

    /// Its own limit, and what all resources together leave.
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
