//! What a resource may ask of the world around it: time, mastership, limits, who listens, and facts that outlive it.

use std::{
    cmp,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use leaseway_core::{Assigned, HolderKind, Load, Millis, PoolNotes};
use leaseway_engine::{Environment, Moment};
use leaseway_quorum::Reign;

use crate::{assignment_store::AssignmentStore, clock::Clock, limits::Limits, watchers::Watchers};

pub(in super::super) struct World {
    pub(in super::super) id: Arc<str>,
    pub(in super::super) clock: Clock,
    /// Among peers: the reign under which it decides.
    pub(in super::super) reign: Option<Reign>,
    pub(in super::super) limits: Arc<Limits>,
    pub(in super::super) watchers: Arc<Watchers>,
    pub(in super::super) assignment_store: AssignmentStore,
    pub(in super::super) holders: HoldersShare,
}

/// A resource's part of the holders of all resources.
pub(in super::super) struct HoldersShare {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl HoldersShare {
    pub(in super::super) fn new(all: Arc<AtomicUsize>) -> HoldersShare {
        HoldersShare { all, own: 0 }
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
    }
}

impl World {
    pub(super) fn moment(&self) -> Moment<'_> {
        let now = self.clock.now();
        Moment {
            now,
            may_decide: self.reign.as_ref().is_none_or(|reign| reign.holds(now.at)),
            max_holders: self.max_holders(),
            environment: self,
        }
    }

    /// Its own limit, and what all resources together leave.
    fn max_holders(&self) -> usize {
        let left = self.limits.clients.saturating_sub(self.holders.all.load(Ordering::Relaxed));
        self.limits.clients_per_resource.min(self.holders.own + left)
    }
}

impl Environment for World {
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
