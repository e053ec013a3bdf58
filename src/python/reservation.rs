//! Permits of a rate for something of which only its end will show what it takes.

use std::sync::{Mutex, PoisonError};

use pyo3::{exceptions::PyRuntimeError, prelude::*};

use crate::{arguments::units, error::Fault, fork::Own, waiting::Gain};

/// Permits that were taken, until it is settled what was used. Never settled, all of it counts as used.
#[pyclass(frozen, weakref, module = "leaseway._native")]
pub(crate) struct Reservation {
    /// How much was taken.
    #[pyo3(get)]
    reserved: u32,
    taken: Mutex<Option<Own<leaseway_client::Reservation>>>,
}

impl Reservation {
    pub(crate) fn new(taken: leaseway_client::Reservation) -> Reservation {
        Reservation { reserved: taken.reserved(), taken: Mutex::new(Some(Own::new(taken))) }
    }
}

impl Gain for Unclaimed {
    fn claim(mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let taken = self.0.take().ok_or_else(|| PyRuntimeError::new_err("claimed already"))?;
        Ok(Py::new(py, Reservation::new(taken))?.into_any())
    }
}

/// A reservation on its way. If its caller is gone, nothing of it was used.
pub(crate) struct Unclaimed(pub(crate) Option<leaseway_client::Reservation>);

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(taken) = self.0.take() {
            // Nothing used is never beyond what may be owed.
            let _ = taken.settle(0);
        }
    }
}

#[pymethods]
impl Reservation {
    /// So much was used. The rest comes back, as much of it as there would be now if it had never been taken; what was
    /// used beyond it is owed. Once.
    fn settle(&self, used: i64) -> PyResult<()> {
        let used = units("used", used)?;
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        let taken = taken.ok_or_else(|| PyRuntimeError::new_err("this reservation is settled already"))?;
        let taken = taken.take().ok_or_else(|| {
            Fault::Forked("the reservation belongs to the process that this one was forked from".to_owned())
        })?;
        Ok(taken.settle(used).map_err(Fault::from)?)
    }

    fn __enter__(this: Py<Reservation>) -> Py<Reservation> {
        this
    }

    /// What was not settled within counts as used.
    #[pyo3(signature = (_kind = None, _raised = None, _trace = None, /))]
    fn __exit__(&self, _kind: Option<Py<PyAny>>, _raised: Option<Py<PyAny>>, _trace: Option<Py<PyAny>>) {
        drop(self.taken.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
