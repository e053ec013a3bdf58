//! Fork safety.
//!
//! A fork copies all memory but only the calling thread. In the child the client's thread is missing, and a lock that
//! it held stays locked. So the child never touches inherited values: it leaks them, and creates its own on first use.
//!
//! `os.fork` holds the interpreter lock, so no other thread is in a section of this crate that needs it.

use std::{
    mem,
    sync::atomic::{AtomicU64, Ordering},
};

use pyo3::prelude::*;

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The number of forks between the first process and this one.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Called in the child right after a fork.
#[pyfunction]
#[pyo3(name = "_forked")]
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // Without a new seed all children would have the same jitter.
    fastrand::seed(fastrand::u64(..) ^ u64::from(std::process::id()).rotate_left(32));
}

/// A value that only the process that created it may use and drop.
pub(crate) struct PidGuarded<T> {
    value: Option<T>,
    generation: u64,
}

impl<T> PidGuarded<T> {
    pub(crate) fn new(value: T) -> PidGuarded<T> {
        PidGuarded { value: Some(value), generation: generation() }
    }

    /// The value, if this process created it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.generation == generation())
    }

    /// As [`get`](Self::get), by value.
    pub(crate) fn take(mut self) -> Option<T> {
        if self.generation == generation() { self.value.take() } else { None }
    }
}

impl<T> Drop for PidGuarded<T> {
    fn drop(&mut self) {
        if self.generation != generation() {
            mem::forget(self.value.take());
        }
    }
}
