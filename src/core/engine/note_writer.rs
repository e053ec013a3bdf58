//! What a pool wants to be remembered beyond its master.
//!
//! Never on the way of an answer: with a tick a pool that has something to note asks for a turn, and when it has one
//! notes as much as a turn allows. The caller gives turns, so that what all pools of a node write together is bounded.
//! What may be lost is noted again; no answer waits for it, only a resource that is about to retire.

use crate::{pool::PoolNotes, resource::Resource, types::time::Millis};

/// What may be noted in a turn: so many entries, of so many bytes together.
const ENTRIES: usize = 64;
const BYTES: usize = 16 << 10;
/// What may be noted when this master goes.
const LAST_ENTRIES: usize = 1024;
const LAST_BYTES: usize = 128 << 10;

/// How far the notes of a pool are stored.
#[derive(Debug, Default)]
pub(super) struct NoteWriter {
    /// The number of the newest notes.
    proposed: u64,
    stored: u64,
    lost: bool,
}

/// Which notes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoteScope {
    /// Those that are due.
    Due,
    /// All that are not noted yet.
    All,
    /// The same, and more at once: this master goes.
    Last,
}

impl NoteWriter {
    pub(super) fn stored(&mut self, number: u64) {
        self.stored = self.stored.max(number);
    }

    pub(super) fn lost(&mut self) {
        self.lost = true;
    }

    /// Whether everything that was noted is stored.
    pub(super) fn is_stored(&self) -> bool {
        !self.lost && self.stored == self.proposed
    }

    /// Whether there is something to note. After a loss everything is noted anew.
    pub(super) fn is_due(&mut self, resource: &mut Resource, now: Millis, scope: NoteScope) -> bool {
        if std::mem::take(&mut self.lost) {
            self.stored = self.proposed;
            resource.note_anew();
        }
        resource.has_notes(now, scope != NoteScope::Due)
    }

    pub(super) fn take(&mut self, resource: &mut Resource, now: Millis, scope: NoteScope) -> Option<(u64, PoolNotes)> {
        let (entries, bytes) = if scope == NoteScope::Last { (LAST_ENTRIES, LAST_BYTES) } else { (ENTRIES, BYTES) };
        let notes = resource.take_notes(now, entries, bytes, scope != NoteScope::Due)?;
        self.proposed += 1;
        Some((self.proposed, notes))
    }
}
