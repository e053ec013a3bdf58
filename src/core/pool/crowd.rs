//! A sorted set that knows its last member, of all and of those that use something.

use std::collections::BTreeSet;

/// Members in an order.
#[derive(Debug)]
pub(super) struct Crowd<P> {
    busy: BTreeSet<P>,
    idle: BTreeSet<P>,
}

impl<P> Default for Crowd<P> {
    fn default() -> Crowd<P> {
        Crowd { busy: BTreeSet::new(), idle: BTreeSet::new() }
    }
}

impl<P: Ord + Copy> Crowd<P> {
    pub(super) fn insert(&mut self, place: P, is_busy: bool) {
        if is_busy {
            self.busy.insert(place)
        } else {
            self.idle.insert(place)
        };
    }

    pub(super) fn remove(&mut self, place: P) {
        let _ = self.busy.remove(&place) || self.idle.remove(&place);
    }

    pub(super) fn len(&self) -> usize {
        self.busy.len() + self.idle.len()
    }

    pub(super) fn last(&self) -> Option<P> {
        self.busy.last().max(self.idle.last()).copied()
    }

    /// The members that use something, in order.
    pub(super) fn busy(&self) -> impl DoubleEndedIterator<Item = P> {
        self.busy.iter().copied()
    }

    pub(super) fn last_busy(&self) -> Option<P> {
        self.busy.last().copied()
    }
}
