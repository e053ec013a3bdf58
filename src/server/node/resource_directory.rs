//! The role of this peer, and its active resources. Every request looks them up.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use hashbrown::HashTable;
use leaseway_core::types::Millis;
use leaseway_raft::MasterLease;

use super::{addresses::PeerEndpoints, request_error::NotMaster, resource_actor::ResourceHandle};

/// Number of parts of the directory, each with a lock of its own. A pass over a million resources locks one at a time.
const SHARDS: usize = 256;

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
pub(super) struct Directory(Arc<Inner>);

struct Inner {
    role: RwLock<Role>,
    /// Whether the role is that of a master. Read by every request.
    is_master: AtomicBool,
    shards: Vec<RwLock<HashTable<ResourceHandle>>>,
    len: AtomicUsize,
    /// Seeded at random, so that clients cannot cause hash collisions on purpose.
    hasher: RandomState,
}

type Shard = HashTable<ResourceHandle>;

impl Directory {
    pub(super) fn new(role: Role) -> Directory {
        Directory(Arc::new(Inner {
            is_master: AtomicBool::new(matches!(role, Role::Master(_))),
            role: RwLock::new(role),
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            len: AtomicUsize::new(0),
            hasher: RandomState::new(),
        }))
    }

    pub(super) fn role(&self) -> Role {
        self.0.role.read().expect("no panic while the role is locked").clone()
    }

    fn hash(&self, id: &str) -> u64 {
        self.0.hasher.hash_one(id)
    }

    /// The part for a hash. Chosen by bits from the middle, because the table uses the lowest and the highest bits.
    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        &self.0.shards[(hash >> 40) as usize % SHARDS]
    }

    pub(super) fn get(&self, id: &str) -> Option<ResourceHandle> {
        let hash = self.hash(id);
        read(self.shard(hash)).find(hash, |handle| **handle.id() == *id).cloned()
    }

    /// Like [`get`](Self::get), but fails if this peer is not the master.
    pub(super) fn look_up(&self, id: &str) -> Result<Option<ResourceHandle>, NotMaster> {
        if self.0.is_master.load(Ordering::Acquire) {
            // The resource checks the lease when it decides.
            return Ok(self.get(id));
        }
        match self.role() {
            Role::Master(_) => Ok(self.get(id)),
            Role::Elsewhere(master) => Err(NotMaster { master }),
        }
    }

    pub(super) fn put(&self, handle: ResourceHandle) {
        let hash = self.hash(handle.id());
        let mut shard = write(self.shard(hash));
        let before = match shard.find_entry(hash, |known| known.id() == handle.id()) {
            Ok(mut known) => Some(std::mem::replace(known.get_mut(), handle)),
            Err(_) => {
                shard.insert_unique(hash, handle, |handle| self.hash(handle.id()));
                self.0.len.fetch_add(1, Ordering::Relaxed);
                None
            }
        };
        drop(shard);
        // Dropped outside the lock, because this may end an actor.
        drop(before);
    }

    pub(super) fn remove(&self, id: &str) {
        let hash = self.hash(id);
        if let Ok(known) = write(self.shard(hash)).find_entry(hash, |handle| **handle.id() == *id) {
            known.remove();
            self.0.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Changes the role and removes all resources. Requests under way hold the last handles.
    pub(super) fn set_role(&self, role: Role) {
        let is_master = matches!(role, Role::Master(_));
        if !is_master {
            self.0.is_master.store(false, Ordering::Release);
        }
        *self.0.role.write().expect("no panic while the role is locked") = role;
        for shard in &self.0.shards {
            let before = std::mem::take(&mut *write(shard));
            self.0.len.fetch_sub(before.len(), Ordering::Relaxed);
            // Dropped outside the lock, because this ends actors.
            drop(before);
        }
        self.0.is_master.store(is_master, Ordering::Release);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len.load(Ordering::Relaxed)
    }

    /// Visits all resources, in no order. Locks one part at a time.
    pub(super) fn for_each(&self, mut look: impl FnMut(&ResourceHandle)) {
        self.0.shards.iter().for_each(|shard| read(shard).iter().for_each(&mut look));
    }

    /// The resources in parts of moderate size, in no order.
    pub(super) fn parts(&self) -> impl Iterator<Item = Vec<ResourceHandle>> + '_ {
        self.0.shards.iter().map(|shard| read(shard).iter().cloned().collect())
    }

    /// The ids of all active resources, in no order.
    pub(super) fn ids(&self) -> Vec<Arc<str>> {
        let mut ids = Vec::with_capacity(self.len());
        for shard in &self.0.shards {
            ids.extend(read(shard).iter().map(|handle| Arc::clone(handle.id())));
        }
        ids
    }

    /// The sorted ids after `after`.
    pub(super) fn ids_after(&self, after: &str) -> Vec<Arc<str>> {
        let mut ids = self.ids();
        ids.retain(|id| after.is_empty() || id.as_ref() > after);
        ids.sort_unstable();
        ids
    }
}

fn read(shard: &RwLock<Shard>) -> RwLockReadGuard<'_, Shard> {
    shard.read().expect("no panic while the directory is locked")
}

fn write(shard: &RwLock<Shard>) -> RwLockWriteGuard<'_, Shard> {
    shard.write().expect("no panic while the directory is locked")
}
