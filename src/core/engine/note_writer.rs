//! Writes the notes of a pool or of a budget, which should survive its master.
//!
//! No answer waits for notes; only retirement does. On a tick, a resource with notes to write requests a turn. In its turn
//! it writes up to a maximum. The caller grants turns, and so limits the amount that all resources of a node write
//! together. Notes that may have been lost are written again.

use crate::{
    resource::{Notes, Resource},
    types::Millis,
};

/// The maximum number of entries and bytes per turn.
const MAX_ENTRIES: usize = 64;
const MAX_BYTES: usize = 16 << 10;
/// The maximum of the last turn, before this master leaves.
const MAX_LAST_ENTRIES: usize = 1024;
const MAX_LAST_BYTES: usize = 128 << 10;

#[derive(Debug, Default)]
pub(super) struct NoteWriter {
    /// The number of the newest notes.
    proposed: u64,
    stored: u64,
    lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoteScope {
    /// Notes that are due.
    Due,
    /// All notes that are not written yet.
    All,
    /// All notes, with the higher maximum, because this master leaves.
    Last,
}

impl NoteWriter {
    /// Whether no notes were ever written.
    pub(super) fn is_unused(&self) -> bool {
        self.proposed == 0 && !self.lost
    }

    pub(super) fn stored(&mut self, number: u64) {
        self.stored = self.stored.max(number);
    }

    pub(super) fn lost(&mut self) {
        self.lost = true;
    }

    /// Whether all notes that were written are stored.
    pub(super) fn is_stored(&self) -> bool {
        !self.lost && self.stored == self.proposed
    }

    /// Whether there is something to write. After a loss everything is written again.
    pub(super) fn is_due(&mut self, resource: &mut Resource, now: Millis, scope: NoteScope) -> bool {
        if std::mem::take(&mut self.lost) {
            self.stored = self.proposed;
            resource.note_anew();
        }
        resource.has_notes(now, scope != NoteScope::Due)
    }

    pub(super) fn take(&mut self, resource: &mut Resource, now: Millis, scope: NoteScope) -> Option<(u64, Notes)> {
        let (entries, bytes) =
            if scope == NoteScope::Last { (MAX_LAST_ENTRIES, MAX_LAST_BYTES) } else { (MAX_ENTRIES, MAX_BYTES) };
        let notes = resource.take_notes(now, entries, bytes, scope != NoteScope::Due)?;
        self.proposed += 1;
        Some((self.proposed, notes))
    }
}
