//! A cached minimum of many times, recomputed only after the current minimum was removed.

use std::cell::Cell;

use leaseway_core::Millis;

/// The cached value is exact or absent.
#[derive(Debug, Default)]
pub(super) struct CachedMin(Cell<Option<Millis>>);

impl CachedMin {
    /// A value was added.
    pub(super) fn insert(&self, at: Millis) {
        self.0.set(self.0.get().map(|first| first.min(at)));
    }

    /// A value was removed.
    pub(super) fn remove(&self, at: Millis) {
        self.0.set(self.0.get().filter(|first| *first < at));
    }

    /// The minimum, recomputed with `find` if it is not cached; the maximum time if there are no values.
    pub(super) fn get(&self, find: impl Fn() -> Option<Millis>) -> Millis {
        let found = || find().unwrap_or(Millis(u64::MAX));
        let first = self.0.get().unwrap_or_else(found);
        self.0.set(Some(first));
        first
    }

    /// Whether it is known, without recomputing it, that the minimum is after `at`.
    pub(super) fn is_after(&self, at: Millis) -> bool {
        self.0.get().is_some_and(|first| first > at)
    }

    /// Drops the cached value.
    pub(super) fn invalidate(&self) {
        self.0.set(None);
    }
}
