//! How many there are of something, counted by those that are there.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How many there are. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveCount(Arc<AtomicUsize>);

impl LiveCount {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts for as long as what it returns lives.
    pub(crate) fn one_more(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.0))
    }
}

/// Counts for as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
