//! How far the log has come, kept apart from it, so that a log that was lost is missed.
//!
//! The floor names the newest entry that was on disk when it was written: what the log ends with now is never older. A
//! log that ends before its floor has lost entries that this peer has acknowledged. It would vote for a peer that lacks
//! them, and alone it would grant once more what it has promised; so its directory is refused.
//!
//! A commit waits for one flush, that of the log. The floor is written after it and before the entries are
//! acknowledged, without a flush: that survives the process, however it ends, so that a killed one leaves a floor that
//! is exact. A machine that loses power may keep an older floor, by a second or so ([`Flusher`]), and an older floor is
//! a lower bound too. Only these writes are flushed at once, and they are rare:
//! - the first one: a log that was ever acknowledged has a floor;
//! - one before each truncation, which alone moves the end of the log back: a floor that outlived it would refuse a log
//!   that is whole.
//!
//! There are two slots, each within a sector, written in turn. A write that power loss tears leaves the other one,
//! which is the older.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use super::{
    StoreError,
    directory::{self, Directory},
    frame::{self, Found, Kind},
};
use crate::{codec, raft::LogId};

const NAME: &str = "floor";
/// No disk writes less than that at once.
const SLOT: usize = 512;

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredFloor {
    /// Counts the writes: the higher of the two slots is in force.
    pub(crate) number: u64,
    /// What the log ended with.
    pub(crate) last: Option<LogId>,
}

/// The floor, as the thread that writes the log keeps it.
#[derive(Debug)]
pub(crate) struct Floor {
    file: Arc<File>,
    path: PathBuf,
    stored: StoredFloor,
    unflushed: Arc<AtomicBool>,
}

impl Floor {
    /// What the directory holds; `None` if it is of a version before there were floors, or new.
    pub(crate) fn read(directory: &Directory) -> Result<Option<StoredFloor>, StoreError> {
        let Some(bytes) = directory.bytes(NAME)? else { return Ok(None) };
        let damaged = |what: &str| StoreError::Damaged { path: directory.path(NAME), offset: 0, what: what.into() };
        let slots = [slot(&bytes, 0), slot(&bytes, SLOT)];
        let newest = slots.into_iter().flatten().max_by_key(|stored| stored.number);
        newest.map(Some).ok_or_else(|| damaged("neither of its two records is as it was written"))
    }

    /// Goes on from what was read, or begins with what the log ends with.
    pub(crate) fn open(
        directory: &Directory,
        read: Option<StoredFloor>,
        last: Option<LogId>,
    ) -> Result<Floor, StoreError> {
        let path = directory.path(NAME);
        let stored = match read {
            Some(stored) => stored,
            None => {
                let first = StoredFloor { number: 0, last };
                let mut bytes = vec![0; 2 * SLOT];
                for at in [0, SLOT] {
                    let record = record(first);
                    bytes[at..at + record.len()].copy_from_slice(&record);
                }
                directory::replace_bytes(directory.root(), NAME, &bytes)?;
                first
            }
        };
        let file = File::options().write(true).open(&path).map_err(StoreError::io("open", &path))?;
        Ok(Floor { file: Arc::new(file), path, stored, unflushed: Arc::default() })
    }

    /// The log has come so far. Called when that is on disk.
    pub(crate) fn raise(&mut self, last: LogId) -> Result<(), StoreError> {
        let is_first = self.stored.last.is_none();
        self.write(self.stored.last.max(Some(last)))?;
        if is_first { self.flusher().flush() } else { Ok(()) }
    }

    /// The log will end with this. Durable when it returns: the truncation must not be so before.
    pub(crate) fn lower(&mut self, last: Option<LogId>) -> Result<(), StoreError> {
        self.write(self.stored.last.min(last))?;
        self.flusher().flush()
    }

    pub(crate) fn flusher(&self) -> Flusher {
        Flusher { file: Arc::clone(&self.file), path: self.path.clone(), unflushed: Arc::clone(&self.unflushed) }
    }

    fn write(&mut self, last: Option<LogId>) -> Result<(), StoreError> {
        self.stored = StoredFloor { number: self.stored.number + 1, last };
        let at = (self.stored.number % 2) * SLOT as u64;
        self.file.write_all_at(&record(self.stored), at).map_err(StoreError::io("write", &self.path))?;
        self.unflushed.store(true, Ordering::Release);
        Ok(())
    }
}

/// Flushes the floor in the background.
#[derive(Debug, Clone)]
pub(crate) struct Flusher {
    file: Arc<File>,
    path: PathBuf,
    unflushed: Arc<AtomicBool>,
}

impl Flusher {
    pub(crate) fn is_due(&self) -> bool {
        self.unflushed.load(Ordering::Acquire)
    }

    /// Blocks.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.unflushed.store(false, Ordering::Release);
        self.file.sync_data().map_err(StoreError::io("flush", &self.path))
    }
}

pub(crate) fn record(stored: StoredFloor) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(&mut bytes, Kind::Floor, &codec::encode(&stored));
    bytes
}

fn slot(bytes: &[u8], at: usize) -> Option<StoredFloor> {
    match frame::read(bytes.get(..at + SLOT)?, at) {
        Found::Frame { kind: Kind::Floor, payload, .. } => codec::decode(payload).ok(),
        _ => None,
    }
}
