//! Wakes an event loop from the client's thread. It works without the interpreter lock, which the loop may hold for a
//! long time.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::prelude::*;

use crate::fork::PidGuarded;

/// A socket whose file descriptor an event loop watches. There is one per loop.
#[pyclass(frozen, module = "leaseway._native")]
pub(crate) struct LoopWaker(PidGuarded<Arc<Shared>>);

/// The state shared by the waker and the client's thread.
pub(crate) struct Shared {
    /// Numbers of the waiters to wake.
    woken: Mutex<Vec<u64>>,
    writer: UnixStream,
    reader: UnixStream,
}

impl Shared {
    /// Wakes the waiter with this number.
    pub(crate) fn wake(&self, number: u64) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push(number);
        if woken.len() == 1 {
            // A full socket has woken the loop already; a broken one belongs to a closed loop.
            let _ = (&self.writer).write(&[0]);
        }
    }

    fn drain(&self) -> Vec<u64> {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = [0; 64];
        loop {
            match (&self.reader).read(&mut scratch) {
                Ok(64) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return std::mem::take(&mut *woken),
            }
        }
    }
}

#[pymethods]
impl LoopWaker {
    #[new]
    fn new() -> PyResult<LoopWaker> {
        let (writer, reader) = UnixStream::pair()?;
        writer.set_nonblocking(true)?;
        reader.set_nonblocking(true)?;
        Ok(LoopWaker(PidGuarded::new(Arc::new(Shared { woken: Mutex::default(), writer, reader }))))
    }

    /// The file descriptor that the loop has to watch.
    fn fileno(&self) -> i32 {
        self.0.get().map_or(-1, |shared| shared.reader.as_raw_fd())
    }

    /// The numbers to wake since the last call.
    fn drain(&self) -> Vec<u64> {
        self.0.get().map(|shared| shared.drain()).unwrap_or_default()
    }
}

impl LoopWaker {
    pub(crate) fn shared(&self) -> Option<Arc<Shared>> {
        self.0.get().cloned()
    }
}
