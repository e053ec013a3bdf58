//! Answers that wait for a commit. An answer must not be sent before a quorum has stored its promises. Meanwhile the
//! resource continues with its rounds. Changes are numbered; an answer is sent when all changes up to its number are
//! stored.

use std::collections::BTreeMap;

use crate::resource::Answer;

/// Waiting answers, by the number that they wait for. A later answer may wait for an earlier number.
pub(super) struct Commits<T> {
    /// All changes up to this one are stored.
    stored: u64,
    held: BTreeMap<u64, Vec<(T, Answer)>>,
}

impl<T> Default for Commits<T> {
    fn default() -> Commits<T> {
        Commits { stored: 0, held: BTreeMap::new() }
    }
}

impl<T> Commits<T> {
    /// All changes up to `stored` are stored, and no answer waits.
    pub(super) fn after(stored: u64) -> Commits<T> {
        Commits { stored, held: BTreeMap::new() }
    }

    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Records that all changes up to `number` are stored. Returns whether that is new.
    pub(super) fn store(&mut self, number: u64) -> bool {
        let before = self.stored;
        self.stored = number.max(before);
        number > before
    }

    /// Holds an answer until `number` is stored.
    pub(super) fn hold(&mut self, number: u64, ticket: T, answer: Answer) {
        self.held.entry(number).or_default().push((ticket, answer));
    }

    /// Takes the answers whose changes are stored.
    pub(super) fn release(&mut self) -> impl Iterator<Item = (T, Answer)> + use<T> {
        let later = self.held.split_off(&(self.stored + 1));
        std::mem::replace(&mut self.held, later).into_values().flatten()
    }
}
