//! The high-water mark of the log, stored apart from the log so that a lost log is noticed.
//!
//! The mark names the newest entry that was on disk when the mark was written. A log that ends before its mark has
//! lost entries that this peer has acknowledged. Such a peer would vote for a candidate that lacks them, and a lone one
//! would lease capacity twice. So its directory is refused. The file is called `high-water-mark`.
//!
//! A commit waits for one flush only, that of the log. The mark is written after it, before the entries are
//! acknowledged, and without a flush. An unflushed write survives the process, so a killed process leaves an exact
//! mark. A power failure may leave a mark that is a second old ([`Flusher`]), which is still a lower bound. Only two
//! rare writes are flushed at once:
//! - the first one, so that a log that was ever acknowledged has a mark;
//! - the one before a truncation. Only a truncation moves the end of the log back, and a mark from before it would
//!   refuse an intact log.
//!
//! The file has two slots, each within a sector, which are written in turn. If a power failure tears a write, the
//! other, older slot remains. After a second without a write, the [`Flusher`] copies the newer slot over the older one.
//! From then on, damage to one slot loses nothing.
//!
//! A slot also stores which entries other peers are known to have on disk ([`Acknowledged`]). This needs no flush of
//! its own, because an older value is a lower bound, too.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::log::{
    LogId, StoreError,
    acknowledged::{Acknowledged, KnownPeers},
    codec::{self, FrameResult, Kind},
    directory::{self, Directory},
};

const FILE_NAME: &str = "high-water-mark";
/// The sector size, which a disk writes as a whole.
const SLOT_BYTES: usize = 512;

/// The content of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct StoredMark {
    /// Counts the writes. The slot with the higher number is in force.
    pub(crate) number: u64,
    /// The end of the log.
    pub(crate) last: Option<LogId>,
    pub(crate) known: KnownPeers,
}

/// The high-water mark, as the disk thread writes it.
#[derive(Debug)]
pub(crate) struct HighWaterMark(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: File,
    path: PathBuf,
    acknowledged: Acknowledged,
    /// Locked while a slot is written, but not during a flush.
    state: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    stored: StoredMark,
    is_flushed: bool,
    /// Whether the older slot has the same content.
    is_copied: bool,
}

impl HighWaterMark {
    /// `None` if there is no such file.
    pub(crate) fn read(directory: &Directory) -> Result<Option<StoredMark>, StoreError> {
        let Some(bytes) = directory.bytes(FILE_NAME)? else { return Ok(None) };
        let path = directory.path(FILE_NAME);
        let slots = [slot(&bytes, 0), slot(&bytes, SLOT_BYTES)];
        if slots.iter().any(Option::is_none) && slots.iter().any(Option::is_some) {
            tracing::warn!(path = %path.display(), "one of the two records of the high-water mark is damaged, by a power failure during a write or a bad disk; using the other");
        }
        let newest = slots.into_iter().flatten().max_by_key(|stored| stored.number);
        let damaged =
            || StoreError::Damaged { path, offset: 0, what: "both records of the high-water mark are damaged".into() };
        newest.map(Some).ok_or_else(damaged)
    }

    /// Continues from `read`, or creates the file with the end of the log.
    pub(crate) fn open(
        directory: &Directory,
        read: Option<StoredMark>,
        last: Option<LogId>,
        acknowledged: Acknowledged,
    ) -> Result<HighWaterMark, StoreError> {
        let path = directory.path(FILE_NAME);
        let stored = match read {
            Some(stored) => stored,
            None => {
                let first = StoredMark { number: 0, last, known: acknowledged.known() };
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
        Ok(HighWaterMark(Arc::new(Shared { file, path, acknowledged, state })))
    }

    /// Raises the mark to an entry that is on disk.
    pub(crate) fn raise(&mut self, last: LogId) -> Result<(), StoreError> {
        let is_first = {
            let mut state = self.0.state();
            let before = state.stored.last;
            self.0.write(&mut state, before.max(Some(last)))?;
            before.is_none()
        };
        if is_first { self.0.flush() } else { Ok(()) }
    }

    /// Lowers the mark before a truncation. The mark is durable when this returns, before the truncation begins.
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
    /// Ignores poison: nothing panics while it is locked.
    fn state(&self) -> MutexGuard<'_, Slots> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Overwrites the older slot.
    fn write(&self, state: &mut Slots, last: Option<LogId>) -> Result<(), StoreError> {
        let stored = StoredMark { number: state.stored.number + 1, last, known: self.acknowledged.known() };
        let at = (stored.number % 2) * SLOT_BYTES as u64;
        self.file.write_all_at(&record(&stored), at).map_err(StoreError::io("write", &self.path))?;
        let same = |mark: &StoredMark| (mark.last, mark.known.clone());
        state.is_copied = same(&stored) == same(&state.stored);
        (state.stored, state.is_flushed) = (stored, false);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.state().is_flushed = true;
        self.file.sync_data().map_err(StoreError::io("flush", &self.path))
    }
}

/// Flushes the mark in the background.
#[derive(Debug, Clone)]
pub(crate) struct Flusher(Arc<Shared>);

impl Flusher {
    pub(crate) fn is_due(&self) -> bool {
        let state = self.0.state();
        !state.is_flushed || !state.is_copied || state.stored.known != self.0.acknowledged.known()
    }

    /// Flushes writes since the last call. If there were none, copies the newer slot over the older one. Blocks.
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

pub(crate) fn record(stored: &StoredMark) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::write_frame(&mut bytes, Kind::HighWaterMark, &codec::encode(stored));
    bytes
}

pub(crate) fn slot(bytes: &[u8], at: usize) -> Option<StoredMark> {
    match codec::read_frame(bytes.get(..at + SLOT_BYTES)?, at) {
        FrameResult::Frame { kind: Kind::HighWaterMark, payload, .. } => codec::decode(payload).ok(),
        _ => None,
    }
}
