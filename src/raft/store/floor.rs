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
//! which is the older. After a second without a write the [`Flusher`] copies the newer one over the older: from then on
//! either of them says all of it, and one that is damaged takes nothing back.
//!
//! A slot also has what other peers are known to have on disk ([`Acknowledged`]), as of when it was written. That needs
//! no flush of its own: an older one is a lower bound, too.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{
    StoreError,
    directory::{self, Directory},
    frame::{self, Found, Kind},
};
use crate::{
    acknowledged::{Acknowledged, KnownPeers},
    codec,
    raft::LogId,
};

const FILE_NAME: &str = "floor";
/// No disk writes less than that at once.
const SLOT_BYTES: usize = 512;

/// What a slot holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct StoredFloor {
    /// Counts the writes: the higher of the two slots is in force.
    pub(crate) number: u64,
    /// What the log ended with.
    pub(crate) last: Option<LogId>,
    /// What the other peers have.
    pub(crate) known: KnownPeers,
}

/// The floor, as the thread that writes the log keeps it.
#[derive(Debug)]
pub(crate) struct Floor(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: File,
    path: PathBuf,
    acknowledged: Acknowledged,
    /// Held while a slot is written, never during a flush.
    state: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    /// What the newer slot holds.
    stored: StoredFloor,
    is_flushed: bool,
    /// The older slot holds the same.
    is_copied: bool,
}

impl Floor {
    /// What the directory holds; `None` if there is no such file.
    pub(crate) fn read(directory: &Directory) -> Result<Option<StoredFloor>, StoreError> {
        let Some(bytes) = directory.bytes(FILE_NAME)? else { return Ok(None) };
        let path = directory.path(FILE_NAME);
        let slots = [slot(&bytes, 0), slot(&bytes, SLOT_BYTES)];
        if slots.iter().any(Option::is_none) && slots.iter().any(Option::is_some) {
            tracing::warn!(path = %path.display(), "one of its two records is not as it was written: power was lost \
                during a write, or the disk is bad; the other one counts");
        }
        let newest = slots.into_iter().flatten().max_by_key(|stored| stored.number);
        let damaged =
            || StoreError::Damaged { path, offset: 0, what: "neither of its two records is as it was written".into() };
        newest.map(Some).ok_or_else(damaged)
    }

    /// Goes on from what was read, or begins with what the log ends with.
    pub(crate) fn open(
        directory: &Directory,
        read: Option<StoredFloor>,
        last: Option<LogId>,
        acknowledged: Acknowledged,
    ) -> Result<Floor, StoreError> {
        let path = directory.path(FILE_NAME);
        let stored = match read {
            Some(stored) => stored,
            None => {
                let first = StoredFloor { number: 0, last, known: acknowledged.known() };
                let mut bytes = vec![0; 2 * SLOT_BYTES];
                for at in [0, SLOT_BYTES] {
                    let record = record(&first);
                    bytes[at..at + record.len()].copy_from_slice(&record);
                }
                directory::replace_bytes(directory.root(), FILE_NAME, &bytes)?;
                first
            }
        };
        let file = File::options().write(true).open(&path).map_err(StoreError::io("open", &path))?;
        let state = Mutex::new(Slots { stored, is_flushed: true, is_copied: false });
        Ok(Floor(Arc::new(Shared { file, path, acknowledged, state })))
    }

    /// The log has come so far. Called when that is on disk.
    pub(crate) fn raise(&mut self, last: LogId) -> Result<(), StoreError> {
        let is_first = {
            let mut state = self.0.state();
            let before = state.stored.last;
            self.0.write(&mut state, before.max(Some(last)))?;
            before.is_none()
        };
        if is_first { self.0.flush() } else { Ok(()) }
    }

    /// The log will end with this. Durable when it returns: the truncation must not be so before.
    pub(crate) fn lower(&mut self, last: Option<LogId>) -> Result<(), StoreError> {
        {
            let mut state = self.0.state();
            let before = state.stored.last;
            self.0.write(&mut state, before.min(last))?;
        }
        self.0.flush()
    }

    pub(crate) fn flusher(&self) -> Flusher {
        Flusher(Arc::clone(&self.0))
    }
}

impl Shared {
    /// Ignores poison: nothing that panics happens while it is held.
    fn state(&self) -> MutexGuard<'_, Slots> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Over the older slot.
    fn write(&self, state: &mut Slots, last: Option<LogId>) -> Result<(), StoreError> {
        let stored = StoredFloor { number: state.stored.number + 1, last, known: self.acknowledged.known() };
        let at = (stored.number % 2) * SLOT_BYTES as u64;
        self.file.write_all_at(&record(&stored), at).map_err(StoreError::io("write", &self.path))?;
        let same = |floor: &StoredFloor| (floor.last, floor.known.clone());
        state.is_copied = same(&stored) == same(&state.stored);
        (state.stored, state.is_flushed) = (stored, false);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.state().is_flushed = true;
        self.file.sync_data().map_err(StoreError::io("flush", &self.path))
    }
}

/// Flushes the floor in the background.
#[derive(Debug, Clone)]
pub(crate) struct Flusher(Arc<Shared>);

impl Flusher {
    pub(crate) fn is_due(&self) -> bool {
        let state = self.0.state();
        !state.is_flushed || !state.is_copied || state.stored.known != self.0.acknowledged.known()
    }

    /// Flushes what was written since the last call. If nothing was, makes both slots say the same. Blocks.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        {
            let mut state = self.0.state();
            if state.is_flushed {
                let last = state.stored.last;
                self.0.write(&mut state, last)?;
            }
        }
        self.0.flush()
    }
}

pub(crate) fn record(stored: &StoredFloor) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(&mut bytes, Kind::Floor, &codec::encode(stored));
    bytes
}

pub(crate) fn slot(bytes: &[u8], at: usize) -> Option<StoredFloor> {
    match frame::read(bytes.get(..at + SLOT_BYTES)?, at) {
        Found::Frame { kind: Kind::Floor, payload, .. } => codec::decode(payload).ok(),
        _ => None,
    }
}
