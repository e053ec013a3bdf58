//! Entries by id. Requests for different resources share no lock but by chance, and one that is open is found without
//! writing anything that threads share, besides the count of those that look.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use hashbrown::HashTable;

use super::LeaseEntry;

/// Parts with a lock each.
const SHARDS: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Shards {
    shards: Box<[Shard]>,
    /// Keyed by chance: callers choose the ids.
    hashes: RandomState,
}

/// On a cache line of its own.
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
        // The table beneath takes the lowest and the highest bits.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<LeaseEntry>> {
        let hash = self.hashes.hash_one(id);
        self.shard(hash).read().find(hash, |entry| entry.id() == id).cloned()
    }

    /// Adds a slot, unless there is one for its resource; the one that is there then.
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

    /// Those for which `chosen` says so.
    pub(super) fn select(&self, mut chosen: impl FnMut(&LeaseEntry) -> bool) -> Vec<Arc<LeaseEntry>> {
        self.shards
            .iter()
            .flat_map(|shard| shard.read().iter().filter(|entry| chosen(entry)).cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Removes those for which `goes` says so. They are given back when the result is dropped: not under a lock.
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
