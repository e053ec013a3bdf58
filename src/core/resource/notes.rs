//! The notes of a resource.

use super::Resource;
use crate::{pool::PoolNotes, resource::budget::usage::UsageRow, types::Millis};

/// What the next master should know, although no answer depends on it.
#[derive(Debug, Clone, PartialEq)]
pub enum Notes {
    Pool(PoolNotes),
    /// BUDGET: what holders have spent.
    Usage(Vec<UsageRow>),
}

impl Resource {
    /// Whether notes are due. With `all`: whether anything has changed since the last notes.
    pub fn has_notes(&self, now: Millis, all: bool) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.has_notes(now, all)) || self.has_usage(now, all)
    }

    /// Takes the notes that are due: at most `entries` of about `bytes` together. With `all` also those not due.
    pub fn take_notes(&mut self, now: Millis, entries: usize, bytes: usize, all: bool) -> Option<Notes> {
        if let Some(pool) = &mut self.pool {
            return pool.take_notes(now, entries, bytes, all).map(Notes::Pool);
        }
        Some(self.take_usage(now, entries, bytes)).filter(|rows| !rows.is_empty()).map(Notes::Usage)
    }

    /// Makes all notes due again, because notes that were taken may be lost.
    pub fn note_anew(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.note_anew();
        }
        self.write_usage_again();
    }
}
