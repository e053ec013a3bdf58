//! Forked processes. A fork copies one thread and all memory: the client's thread is missing in the child, and a lock
//! that it held is held for ever. So the child leaves alone what it has inherited, and makes its own when it is used.
//!
//! `os.fork` holds the interpreter, so no other thread is between two lines of this crate that do.

use std::{
    mem,
    sync::atomic::{AtomicU64, Ordering},
};

use pyo3::prelude::*;

static LIFE: AtomicU64 = AtomicU64::new(0);

/// Which of the processes between the first one and this it is.
pub(crate) fn life() -> u64 {
    LIFE.load(Ordering::Relaxed)
}

/// This process has just begun as a copy of another.
#[pyfunction]
#[pyo3(name = "_forked")]
pub(crate) fn forked() {
    LIFE.fetch_add(1, Ordering::Relaxed);
    // All children of a process would have the same jitter.
    fastrand::seed(fastrand::u64(..) ^ u64::from(std::process::id()).rotate_left(32));
}

/// Something that only the process that made it may use, and drop.
pub(crate) struct Own<T> {
    value: Option<T>,
    life: u64,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Own<T> {
        Own { value: Some(value), life: life() }
    }

    /// The value, if it is this process's.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.life == life())
    }

    /// As [`get`](Self::get), to keep.
    pub(crate) fn take(mut self) -> Option<T> {
        if self.life == life() { self.value.take() } else { None }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.life != life() {
            mem::forget(self.value.take());
        }
    }
}
