//! How the client's thread wakes an event loop: without the interpreter, which the loop may hold for long.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::prelude::*;

use crate::fork::Own;

/// Rings in an event loop that watches its file descriptor. One for each loop.
#[pyclass(frozen, module = "leaseway._native")]
pub(crate) struct Bell(Own<Arc<Rope>>);

/// The other end.
pub(crate) struct Rope {
    /// Those that are to be woken.
    called: Mutex<Vec<u64>>,
    pull: UnixStream,
    ring: UnixStream,
}

impl Rope {
    /// Wakes what waits under this number.
    pub(crate) fn call(&self, number: u64) {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        called.push(number);
        if called.len() == 1 {
            // A socket that is full rings already; one that is broken belongs to a loop that is closed.
            let _ = (&self.pull).write(&[0]);
        }
    }

    fn answer(&self) -> Vec<u64> {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = [0; 64];
        loop {
            match (&self.ring).read(&mut scratch) {
                Ok(64) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return std::mem::take(&mut *called),
            }
        }
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> PyResult<Bell> {
        let (pull, ring) = UnixStream::pair()?;
        pull.set_nonblocking(true)?;
        ring.set_nonblocking(true)?;
        Ok(Bell(Own::new(Arc::new(Rope { called: Mutex::default(), pull, ring }))))
    }

    /// What the loop has to watch.
    fn fileno(&self) -> i32 {
        self.0.get().map_or(-1, |rope| rope.ring.as_raw_fd())
    }

    /// The numbers that were called since this was last asked.
    fn answer(&self) -> Vec<u64> {
        self.0.get().map(|rope| rope.answer()).unwrap_or_default()
    }
}

impl Bell {
    pub(crate) fn rope(&self) -> Option<Arc<Rope>> {
        self.0.get().cloned()
    }
}
