//! Answers that wait for a commit: they must not leave before a quorum has stored what they promise. Meanwhile the
//! resource continues with its rounds. Changes are numbered; an answer leaves when all changes up to its number are
//! stored.

use std::collections::BTreeMap;

use crate::resource::Answer;

/// Waiting answers, by the number they wait for. A later answer may wait for an earlier number.
pub(super) struct Commits<T> {
    /// The number of the newest changes that were proposed.
    proposed: u64,
    /// All changes up to this one are stored.
    stored: u64,
    held: BTreeMap<u64, Vec<(T, Answer)>>,
}

impl<T> Default for Commits<T> {
    fn default() -> Commits<T> {
        Commits { proposed: 0, stored: 0, held: BTreeMap::new() }
    }
}

impl<T> Commits<T> {
    pub(super) fn propose(&mut self, number: u64) {
        self.proposed = number;
    }

    /// All changes up to `number` are stored. Returns whether that is new.
    pub(super) fn store(&mut self, number: u64) -> bool {
        let before = self.stored;
        self.stored = number.max(before);
        number > before
    }

    /// Whether changes are under way.
    pub(super) fn are_under_way(&self) -> bool {
        self.stored < self.proposed
    }

    /// The answer leaves once `number` is stored.
    pub(super) fn hold(&mut self, number: u64, ticket: T, answer: Answer) {
        self.held.entry(number).or_default().push((ticket, answer));
    }

    /// The answers whose changes have been stored.
    pub(super) fn release(&mut self) -> impl Iterator<Item = (T, Answer)> + use<T> {
        let later = self.held.split_off(&(self.stored + 1));
        std::mem::replace(&mut self.held, later).into_values().flatten()
    }
}
