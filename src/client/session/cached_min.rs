//! The least of many moments, remembered: most changes move it no further away, and then it need not be looked for.

use std::cell::Cell;

use leaseway_core::Millis;

/// See the module. What is remembered is exact, or nothing.
#[derive(Debug, Default)]
pub(super) struct CachedMin(Cell<Option<Millis>>);

impl CachedMin {
    /// There is one at `at`.
    pub(super) fn insert(&self, at: Millis) {
        self.0.set(self.0.get().map(|first| first.min(at)));
    }

    /// The one at `at` is not there any more.
    pub(super) fn remove(&self, at: Millis) {
        self.0.set(self.0.get().filter(|first| *first < at));
    }

    /// The least, found by `find` if it is not known. The end of all time if there is none.
    pub(super) fn get(&self, find: impl Fn() -> Option<Millis>) -> Millis {
        let found = || find().unwrap_or(Millis(u64::MAX));
        let first = self.0.get().unwrap_or_else(found);
        self.0.set(Some(first));
        first
    }

    /// Whether it is certain that there is none up to `at`.
    pub(super) fn is_after(&self, at: Millis) -> bool {
        self.0.get().is_some_and(|first| first > at)
    }

    /// All may have changed.
    pub(super) fn invalidate(&self) {
        self.0.set(None);
    }
}
