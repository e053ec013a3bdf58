//! Learning: a master that does not know the leases of earlier masters gives back what holders say they have.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::{Claimed, Resource};
use crate::{Amount, Millis, Sum, leases::Confirmation};

/// What holders had when they first asked this master, by slot. Leases given since depend on the order of requests, so
/// they say nothing about what holders should get.
#[derive(Default)]
pub(super) struct Learned {
    had: HashMap<u32, Amount, FixedState>,
    sum: Sum,
}

impl Learned {
    fn put(&mut self, slot: u32, had: Amount) {
        self.forget(slot);
        self.had.insert(slot, had);
        self.sum += had;
    }

    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(had) = self.had.remove(&slot) {
            self.sum -= had;
        }
    }
}

impl Resource {
    /// Whether it still learns instead of dividing. Where capacity is not shared there is nothing to learn.
    pub fn is_learning(&self, now: Millis) -> bool {
        now < self.learning_until && self.is_bounded()
    }

    /// Records what a holder says it has. A lease of an earlier master replaces anything that was reported or given
    /// here: what was given may follow from a delayed request that reported more.
    pub(super) fn learn(&mut self, slot: u32, claimed: Claimed, confirmation: Confirmation, now: Millis) {
        if !self.is_learning(now) {
            self.learned = None;
            return;
        }
        let kept = self.ledger.holder(slot).leases.kept(claimed.capacity, now);
        let learned = self.learned.get_or_insert_default();
        let had = match learned.had.get(&slot) {
            _ if claimed.is_former => claimed.capacity,
            None => kept.max(claimed.capacity),
            Some(had) if confirmation == Confirmation::Known => *had,
            Some(had) => claimed.capacity.max(*had),
        };
        learned.put(slot, had);
    }

    /// What a holder had; known for all that have asked while it learns.
    pub(super) fn had(&self, slot: u32) -> Amount {
        self.learned.as_ref().and_then(|learned| learned.had.get(&slot)).copied().unwrap_or_default()
    }

    /// What a holder gets back: what it had. Where all together had more than there is, or more is held than there is
    /// (the parent's lease has shrunk meanwhile), all get the same part: a renewed lease must not outlast the lease
    /// that it was cut from, and the order of requests must not matter.
    pub(super) fn given_back(&self, slot: u32) -> Amount {
        let (had, total) = (self.had(slot), self.total());
        let sum = self.learned.as_ref().map_or(Sum::ZERO, |learned| learned.sum);
        let most = sum.max(self.ledger.sums().held);
        if most <= Sum::from(total) { had } else { Amount::clamped(had.get() * total.get() / most.get()) }
    }
}
