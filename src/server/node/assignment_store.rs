//! Stores what operators set for resources: assignments in pools, and the load of protected resources.
//!
//! These settings outlive the resources, which are retired and created again. With peers they are stored in the Raft
//! log; otherwise they last as long as the process, which is reported to the operator. The notes of pools, which only
//! peers store, are read here as well.
//!
//! The resource validates a setting before it is stored. Load reports with an expiry are not stored, because they
//! expire before a new master would need them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};

use leaseway_core::{
    policy::overrides::Load,
    pool::{Assigned, PoolNotes},
    types::{HolderKind, Millis},
};
use leaseway_raft::{Command, MasterLease, ProposeError, RaftHandle};

/// Where assignments and loads are stored.
#[derive(Clone)]
pub(crate) enum AssignmentStore {
    Peers(RaftHandle),
    /// In the memory of this process.
    Process(Arc<Mutex<HashMap<Arc<str>, Override>>>),
}

/// A client or a child node, by name.
pub(crate) type HolderName = (HolderKind, Arc<str>);

/// The settings of operators for one resource.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Override {
    assignments: BTreeMap<HolderName, Assigned>,
    load: Option<Load>,
}

impl AssignmentStore {
    pub(crate) fn new(raft: Option<&RaftHandle>) -> AssignmentStore {
        raft.map_or_else(|| AssignmentStore::Process(Arc::default()), |raft| AssignmentStore::Peers(raft.clone()))
    }

    /// Whether the settings outlive this process.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self, AssignmentStore::Peers(_))
    }

    /// The assignments of a pool.
    pub(crate) fn assignments(&self, resource: &str) -> Vec<(HolderKind, Arc<str>, Assigned)> {
        match self {
            AssignmentStore::Peers(raft) => raft.read(|state| {
                let assignments = state.assignments(resource);
                assignments.map(|(kind, holder, assigned)| (kind, Arc::clone(holder), assigned)).collect()
            }),
            AssignmentStore::Process(overrides) => {
                let overrides = lock(overrides);
                let assignments = overrides.get(resource).into_iter().flat_map(|overrides| &overrides.assignments);
                assignments.map(|((kind, holder), assigned)| (*kind, Arc::clone(holder), *assigned)).collect()
            }
        }
    }

    /// The assignment of a holder.
    pub(crate) fn assigned(&self, resource: &str, (kind, holder): &HolderName) -> Option<Assigned> {
        match self {
            AssignmentStore::Peers(raft) => raft.read(|state| state.assigned(resource, *kind, holder)),
            AssignmentStore::Process(overrides) => {
                lock(overrides).get(resource)?.assignments.get(&(*kind, Arc::clone(holder))).copied()
            }
        }
    }

    /// The notes of a pool from earlier masters or incarnations. Only peers store them.
    pub(crate) fn pool(&self, resource: &str, now: Millis) -> Option<PoolNotes> {
        match self {
            AssignmentStore::Peers(raft) => raft.read(|state| state.pool(resource).map(|pool| pool.notes(now))),
            AssignmentStore::Process(_) => None,
        }
    }

    /// The load of a resource, if it was set.
    pub(crate) fn load_of(&self, resource: &str) -> Option<Load> {
        match self {
            AssignmentStore::Peers(raft) => raft.read(|state| state.load(resource)),
            AssignmentStore::Process(overrides) => lock(overrides).get(resource)?.load,
        }
    }

    /// Stores an assignment; `None` removes it.
    pub(crate) async fn assign(
        &self,
        master_lease: Option<&MasterLease>,
        resource: &Arc<str>,
        holder: HolderName,
        assigned: Option<Assigned>,
    ) -> Result<(), ProposeError> {
        if self.assigned(resource, &holder) == assigned {
            return Ok(());
        }
        match self {
            AssignmentStore::Peers(raft) => {
                let (kind, id) = holder;
                let command = Command::Assignment { resource: Arc::clone(resource), kind, holder: id, assigned };
                propose(raft, master_lease, command).await?;
            }
            AssignmentStore::Process(overrides) => change(overrides, resource, |overrides| match assigned {
                Some(assigned) => drop(overrides.assignments.insert(holder, assigned)),
                None => drop(overrides.assignments.remove(&holder)),
            }),
        }
        Ok(())
    }

    /// Stores the load of a resource. `None` removes it.
    pub(crate) async fn load(
        &self,
        master_lease: Option<&MasterLease>,
        resource: &Arc<str>,
        load: Option<Load>,
    ) -> Result<(), ProposeError> {
        if self.load_of(resource) == load {
            return Ok(());
        }
        match self {
            AssignmentStore::Peers(raft) => {
                propose(raft, master_lease, Command::Load { resource: Arc::clone(resource), load }).await?;
            }
            AssignmentStore::Process(overrides) => change(overrides, resource, |overrides| overrides.load = load),
        }
        Ok(())
    }
}

async fn propose(raft: &RaftHandle, master_lease: Option<&MasterLease>, command: Command) -> Result<(), ProposeError> {
    let master_lease = master_lease.expect("a master with peers has a lease");
    raft.propose(master_lease, vec![command]).await
}

fn lock(overrides: &Mutex<HashMap<Arc<str>, Override>>) -> MutexGuard<'_, HashMap<Arc<str>, Override>> {
    overrides.lock().expect("no panic while the overrides are locked")
}

fn change(all: &Mutex<HashMap<Arc<str>, Override>>, resource: &Arc<str>, change: impl FnOnce(&mut Override)) {
    let mut all = lock(all);
    let overrides = all.entry(Arc::clone(resource)).or_default();
    change(overrides);
    if *overrides == Override::default() {
        all.remove(resource);
    }
}

#[cfg(test)]
mod tests {
    use leaseway_core::types::Amount;

    use super::*;

    #[tokio::test]
    async fn an_assignment_and_a_load_last_until_they_are_removed() {
        let store = AssignmentStore::new(None);
        let (pool, ada): (Arc<str>, Arc<str>) = ("pool".into(), "ada".into());
        let ten = Assigned::Capacity(Amount::clamped(10.0));
        for (kind, assigned) in [(HolderKind::Client, ten), (HolderKind::Node, Assigned::Share(0.5))] {
            store.assign(None, &pool, (kind, Arc::clone(&ada)), Some(assigned)).await.expect("no quorum to lose it");
        }
        store.load(None, &pool, Some(Load::Factor(0.5))).await.expect("no quorum to lose it");
        assert!(!store.is_kept());
        assert_eq!((store.assignments("other"), store.load_of("other")), (vec![], None));
        let half = Assigned::Share(0.5);
        let all = [(HolderKind::Client, Arc::clone(&ada), ten), (HolderKind::Node, Arc::clone(&ada), half)];
        assert_eq!(store.assignments("pool"), all);
        assert_eq!(store.assigned("pool", &(HolderKind::Node, Arc::clone(&ada))), Some(half));
        assert_eq!(store.load_of("pool"), Some(Load::Factor(0.5)));
        for kind in [HolderKind::Client, HolderKind::Node] {
            store.assign(None, &pool, (kind, Arc::clone(&ada)), None).await.expect("no quorum to lose it");
        }
        store.load(None, &pool, None).await.expect("no quorum to lose it");
        let AssignmentStore::Process(all) = &store else { panic!("there are no peers") };
        assert!(lock(all).is_empty(), "empty entries are removed");
    }
}
