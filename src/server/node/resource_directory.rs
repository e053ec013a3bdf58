//! The role of this peer, and its active resources. Every request looks them up.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use leaseway_core::types::Millis;
use leaseway_raft::MasterLease;

use super::{addresses::PeerEndpoints, request_error::NotMaster, resource_actor::ResourceHandle};

/// The role of this peer in its node.
#[derive(Debug, Clone)]
pub(super) enum Role {
    /// May decide while its master lease is valid. A server without peers has no lease and may always decide.
    Master(Option<MasterLease>),
    /// This peer is not the master. The master, if it is known.
    Elsewhere(Option<PeerEndpoints>),
}

impl Role {
    /// Whether it may decide at `now`.
    pub(super) fn check(&self, now: Millis) -> Result<(), NotMaster> {
        match self {
            Role::Master(None) => Ok(()),
            Role::Master(Some(master_lease)) if master_lease.holds(now) => Ok(()),
            Role::Master(Some(_)) | Role::Elsewhere(None) => Err(NotMaster { master: None }),
            Role::Elsewhere(Some(master)) => Err(NotMaster { master: Some(master.clone()) }),
        }
    }
}

/// Written by the node actor, and shared with all handles of the node.
#[derive(Clone)]
pub(super) struct Directory(Arc<RwLock<Entries>>);

struct Entries {
    role: Role,
    resources: HashMap<Arc<str>, ResourceHandle>,
}

impl Directory {
    pub(super) fn new(role: Role) -> Directory {
        Directory(Arc::new(RwLock::new(Entries { role, resources: HashMap::new() })))
    }

    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.0.read().expect("no panic while the directory is locked")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.0.write().expect("no panic while the directory is locked")
    }

    pub(super) fn role(&self) -> Role {
        self.read().role.clone()
    }

    pub(super) fn get(&self, id: &str) -> Option<ResourceHandle> {
        self.read().resources.get(id).cloned()
    }

    /// Like [`get`](Self::get), but fails if this peer is not the master.
    pub(super) fn look_up(&self, id: &str) -> Result<Option<ResourceHandle>, NotMaster> {
        let entries = self.read();
        match &entries.role {
            // The resource checks the lease when it decides.
            Role::Master(_) => Ok(entries.resources.get(id).cloned()),
            Role::Elsewhere(master) => Err(NotMaster { master: master.clone() }),
        }
    }

    pub(super) fn put(&self, id: Arc<str>, handle: ResourceHandle) {
        self.write().resources.insert(id, handle);
    }

    pub(super) fn remove(&self, id: &str) {
        self.write().resources.remove(id);
    }

    /// Changes the role and removes all resources. Requests under way hold the last handles.
    pub(super) fn set_role(&self, role: Role) {
        let before = {
            let mut entries = self.write();
            entries.role = role;
            std::mem::take(&mut entries.resources)
        };
        // Dropped outside the lock, because this ends actors.
        drop(before);
    }

    pub(super) fn len(&self) -> usize {
        self.read().resources.len()
    }

    pub(super) fn resources(&self) -> Vec<ResourceHandle> {
        self.read().resources.values().cloned().collect()
    }

    /// The ids of all active resources, in no order.
    pub(super) fn ids(&self) -> Vec<Arc<str>> {
        self.read().resources.keys().cloned().collect()
    }

    /// The sorted ids after `after`.
    pub(super) fn ids_after(&self, after: &str) -> Vec<Arc<str>> {
        let mut ids: Vec<Arc<str>> =
            self.read().resources.keys().filter(|id| after.is_empty() || id.as_ref() > after).cloned().collect();
        ids.sort_unstable();
        ids
    }
}
