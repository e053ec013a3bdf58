//! The timing and size of notes.

use crate::types::Millis;

/// A change that is too small to be due is noted after this time.
pub(crate) const MAX_NOTE_AGE: Millis = Millis::from_secs(30);
/// A change by more than this fraction is due immediately.
pub(crate) const LARGE_CHANGE: f64 = 1.0 / 16.0;
/// The size of an entry without names.
const ENTRY_BYTES: usize = 48;

/// The time until a value that departs from its note by `speed` per second has changed by [`LARGE_CHANGE`]; at most
/// [`MAX_NOTE_AGE`].
pub(crate) fn until_large_change(value: f64, speed: f64) -> Millis {
    Millis((value * LARGE_CHANGE / speed * 1000.0) as u64).min(MAX_NOTE_AGE)
}

/// The remaining size of a batch of notes.
pub(crate) struct NoteBudget {
    now: Millis,
    /// Includes notes that are not due.
    all: bool,
    /// Maximum number of remembered entries of each kind.
    pub(crate) max_entries: usize,
    entries: usize,
    bytes: usize,
}

impl NoteBudget {
    /// Limits a batch to this number of entries and bytes. The last entry may exceed the bytes.
    pub(crate) fn new(now: Millis, all: bool, max_entries: usize, entries: usize, bytes: usize) -> NoteBudget {
        NoteBudget { now, all, max_entries, entries, bytes }
    }

    /// Whether an entry with this due time fits into the batch.
    pub(crate) fn takes(&self, due: Millis) -> bool {
        (self.all || due <= self.now) && self.entries > 0 && self.bytes > 0
    }

    pub(crate) fn is_left(&self) -> bool {
        self.entries > 0 && self.bytes > 0
    }

    pub(crate) fn take(&mut self, id: &str) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(id.len() + ENTRY_BYTES);
    }
}
