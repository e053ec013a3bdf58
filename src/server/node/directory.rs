//! What every request looks up: the role of this peer, and which resources are alive.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use leaseway_core::Millis;
use leaseway_raft::MasterLease;

use super::resource_actor::ResourceHandle;
use crate::node::peer_endpoints::PeerEndpoints;

/// Another peer answers for this node, or none does at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotMaster {
    /// Where to ask instead, if that is known.
    pub(crate) master: Option<PeerEndpoints>,
}

/// The role of this peer among those of its node.
#[derive(Debug, Clone)]
pub(super) enum Role {
    /// It answers: always if it is alone, among peers while its reign holds.
    Master(Option<MasterLease>),
    /// Another peer does, if any is known.
    Elsewhere(Option<PeerEndpoints>),
}

impl Role {
    /// Whether it may decide at `now`.
    pub(super) fn check(&self, now: Millis) -> Result<(), NotMaster> {
        match self {
            Role::Master(None) => Ok(()),
            Role::Master(Some(reign)) if reign.holds(now) => Ok(()),
            Role::Master(Some(_)) | Role::Elsewhere(None) => Err(NotMaster { master: None }),
            Role::Elsewhere(Some(services)) => Err(NotMaster { master: Some(services.clone()) }),
        }
    }
}

/// Shared by the node, which writes it, and all handles of the node.
#[derive(Debug, Clone)]
pub(super) struct Directory(Arc<RwLock<Entries>>);

#[derive(Debug)]
struct Entries {
    role: Role,
    resources: HashMap<Arc<str>, ResourceHandle>,
}

impl Directory {
    pub(super) fn new(role: Role) -> Directory {
        Directory(Arc::new(RwLock::new(Entries { role, resources: HashMap::new() })))
    }

    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.0.read().expect("nothing panics while the directory is held")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.0.write().expect("nothing panics while the directory is held")
    }

    pub(super) fn role(&self) -> Role {
        self.read().role.clone()
    }

    pub(super) fn get(&self, id: &str) -> Option<ResourceHandle> {
        self.read().resources.get(id).cloned()
    }

    /// As [`get`](Self::get), unless another peer is known to answer.
    pub(super) fn look_up(&self, id: &str) -> Result<Option<ResourceHandle>, NotMaster> {
        let entries = self.read();
        match &entries.role {
            // Whether its reign holds the resource itself checks, at the moment at which it decides.
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

    /// What was alive under another role is gone: its last handles are with the requests that are under way to it.
    pub(super) fn set_role(&self, role: Role) {
        let before = {
            let mut entries = self.write();
            entries.role = role;
            std::mem::take(&mut entries.resources)
        };
        // Outside the lock: this ends actors.
        drop(before);
    }

    pub(super) fn len(&self) -> usize {
        self.read().resources.len()
    }

    pub(super) fn resources(&self) -> Vec<ResourceHandle> {
        self.read().resources.values().cloned().collect()
    }

    /// In no order.
    pub(super) fn ids(&self) -> Vec<Arc<str>> {
        self.read().resources.keys().cloned().collect()
    }

    /// The ids that come after `after`, in order.
    pub(super) fn ids_after(&self, after: &str) -> Vec<Arc<str>> {
        let mut ids: Vec<Arc<str>> =
            self.read().resources.keys().filter(|id| after.is_empty() || id.as_ref() > after).cloned().collect();
        ids.sort_unstable();
        ids
    }
}
