//! The end of the process, when the client is closed while daemon threads may still wait for permits.
//!
//! Such a thread must not see that the client is closed: it would print a traceback, and the interpreter aborts the
//! process if a thread writes while it ends. So the thread stops, as daemon threads do at any call once the interpreter
//! ends.

use std::{
    sync::{Mutex, PoisonError},
    thread::{self, ThreadId},
};

use pyo3::prelude::*;

use crate::fork::PidGuarded;

/// The thread that runs the exit handlers, once it does.
static EXITING: Mutex<Option<PidGuarded<ThreadId>>> = Mutex::new(None);

/// Called by the exit handler before it closes the clients.
#[pyfunction]
#[pyo3(name = "_exiting")]
pub(crate) fn exiting() {
    *EXITING.lock().unwrap_or_else(PoisonError::into_inner) = Some(PidGuarded::new(thread::current().id()));
}

/// Stops the calling thread for good if another one runs the exit handlers.
pub(crate) fn stop_daemon_thread(py: Python<'_>) {
    let exiting = EXITING.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|own| own.get().copied());
    if exiting.is_some_and(|exiting| exiting != thread::current().id()) {
        py.detach(|| {
            loop {
                thread::park();
            }
        })
    }
}
