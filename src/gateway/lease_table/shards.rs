//! Entries by id, in shards with a lock each. Requests for different resources rarely share a lock. A lookup writes no
//! shared memory except the lock's reader count.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use hashbrown::HashTable;

use super::LeaseEntry;

const SHARDS: usize = 256;

#[derive(Debug)]
pub(super) struct Shards {
    shards: Box<[Shard]>,
    /// Randomly seeded, because callers choose the ids.
    hashes: RandomState,
}

/// Aligned to a cache line to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(RwLock<HashTable<Arc<LeaseEntry>>>);

impl Shard {
    fn read(&self) -> RwLockReadGuard<'_, HashTable<Arc<LeaseEntry>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashTable<Arc<LeaseEntry>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shards {
    pub(super) fn new() -> Shards {
        let shards = std::iter::repeat_with(Shard::default).take(SHARDS).collect();
        Shards { shards, hashes: RandomState::new() }
    }

    fn shard(&self, hash: u64) -> &Shard {
        // The hash table uses the lowest and the highest bits.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<LeaseEntry>> {
        let hash = self.hashes.hash_one(id);
        self.shard(hash).read().find(hash, |entry| entry.id() == id).cloned()
    }

    /// Adds an entry, unless there is one for its resource. Returns the entry that is in the table.
    pub(super) fn insert(&self, entry: Arc<LeaseEntry>) -> Arc<LeaseEntry> {
        let hash = self.hashes.hash_one(entry.id());
        let mut shard = self.shard(hash).write();
        if let Some(other) = shard.find(hash, |other| other.id() == entry.id()).cloned() {
            drop(shard);
            return other;
        }
        shard.insert_unique(hash, Arc::clone(&entry), |entry| self.hashes.hash_one(entry.id()));
        entry
    }

    pub(super) fn select(&self, mut chosen: impl FnMut(&LeaseEntry) -> bool) -> Vec<Arc<LeaseEntry>> {
        self.shards
            .iter()
            .flat_map(|shard| shard.read().iter().filter(|entry| chosen(entry)).cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Removes entries and returns them, so that their leases are released outside of the lock.
    pub(super) fn remove_where(&self, mut goes: impl FnMut(&LeaseEntry) -> bool) -> Vec<Arc<LeaseEntry>> {
        let mut removed = Vec::new();
        for shard in &self.shards {
            if shard.read().iter().any(|entry| goes(entry)) {
                removed.extend(shard.write().extract_if(|entry| goes(entry)));
            }
        }
        removed
    }

    pub(super) fn clear(&self) {
        drop(self.remove_where(|_| true));
    }
}
