//! What is held by label. The caller labels records; the ledger does not know what labels mean.

use crate::types::{Amount, Sum};

/// The label of a record that has none.
const NONE: u32 = u32::MAX;

#[derive(Default)]
pub(super) struct Labels {
    /// By slot.
    of: Vec<u32>,
    /// By label.
    held: Vec<Sum>,
}

impl Labels {
    /// Labels a record that holds `held`.
    pub(super) fn set(&mut self, slot: u32, label: u32, held: Amount) {
        self.remove(slot, held);
        let (at, index) = (slot as usize, label as usize);
        self.of.resize(self.of.len().max(at + 1), NONE);
        self.held.resize(self.held.len().max(index + 1), Sum::ZERO);
        self.of[at] = label;
        self.held[index] += held;
    }

    /// Removes the label of a record that holds `held`.
    pub(super) fn remove(&mut self, slot: u32, held: Amount) {
        if let Some(of) = self.of.get_mut(slot as usize).filter(|of| **of != NONE) {
            self.held[*of as usize] -= held;
            *of = NONE;
        }
    }

    /// The amount of a record has changed.
    pub(super) fn change(&mut self, slot: u32, before: Amount, after: Amount) {
        if let Some(of) = self.of.get(slot as usize).filter(|of| **of != NONE) {
            let held = &mut self.held[*of as usize];
            *held -= before;
            *held += after;
        }
    }

    pub(super) fn held(&self, label: u32) -> Sum {
        self.held.get(label as usize).copied().unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> usize {
        self.of.capacity() * size_of::<u32>() + self.held.capacity() * size_of::<Sum>()
    }
}
