//! What every request looks up: where this peer stands, and which resources are alive.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use leaseway_core::Millis;
use leaseway_quorum::Reign;

use super::{super::resource::ResourceHandle, NotMaster};
use crate::services::Services;

/// Where this peer stands among those of its node.
#[derive(Debug, Clone)]
pub(super) enum Standing {
    /// It answers: always if it is alone, among peers while its reign holds.
    Master(Option<Reign>),
    /// Another does, if any is known.
    Elsewhere(Option<Services>),
}

impl Standing {
    /// Whether it may decide at `now`.
    pub(super) fn check(&self, now: Millis) -> Result<(), NotMaster> {
        match self {
            Standing::Master(None) => Ok(()),
            Standing::Master(Some(reign)) if reign.holds(now) => Ok(()),
            Standing::Master(Some(_)) | Standing::Elsewhere(None) => Err(NotMaster { master: None }),
            Standing::Elsewhere(Some(services)) => Err(NotMaster { master: Some(services.clone()) }),
        }
    }
}

/// Shared by the node, which writes it, and everybody who asks.
#[derive(Debug, Clone)]
pub(in super::super) struct Directory(Arc<RwLock<Entries>>);

#[derive(Debug)]
struct Entries {
    standing: Standing,
    living: HashMap<Arc<str>, ResourceHandle>,
}

impl Directory {
    pub(super) fn new(standing: Standing) -> Directory {
        Directory(Arc::new(RwLock::new(Entries { standing, living: HashMap::new() })))
    }

    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.0.read().expect("nobody panics while holding the directory")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.0.write().expect("nobody panics while holding the directory")
    }

    pub(super) fn standing(&self) -> Standing {
        self.read().standing.clone()
    }

    pub(in super::super) fn get(&self, id: &str) -> Option<ResourceHandle> {
        self.read().living.get(id).cloned()
    }

    /// As [`get`](Self::get), unless somebody else is known to answer.
    pub(super) fn look_up(&self, id: &str) -> Result<Option<ResourceHandle>, NotMaster> {
        let entries = self.read();
        match &entries.standing {
            // Whether its reign holds the resource itself checks, at the moment at which it decides.
            Standing::Master(_) => Ok(entries.living.get(id).cloned()),
            Standing::Elsewhere(master) => Err(NotMaster { master: master.clone() }),
        }
    }

    pub(super) fn put(&self, id: Arc<str>, handle: ResourceHandle) {
        self.write().living.insert(id, handle);
    }

    pub(super) fn remove(&self, id: &str) {
        self.write().living.remove(id);
    }

    /// What was alive under another standing is gone: its last handles are with those who ask it at this moment.
    pub(super) fn stand(&self, standing: Standing) {
        let before = {
            let mut entries = self.write();
            entries.standing = standing;
            std::mem::take(&mut entries.living)
        };
        // Outside the lock: this ends actors.
        drop(before);
    }

    pub(super) fn len(&self) -> usize {
        self.read().living.len()
    }

    pub(super) fn living(&self) -> Vec<ResourceHandle> {
        self.read().living.values().cloned().collect()
    }

    /// The ids that come after `after`, in order.
    pub(in super::super) fn ids_after(&self, after: &str) -> Vec<Arc<str>> {
        let mut ids: Vec<Arc<str>> =
            self.read().living.keys().filter(|id| after.is_empty() || id.as_ref() > after).cloned().collect();
        ids.sort_unstable();
        ids
    }
}
