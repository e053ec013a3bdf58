//! Permits of a gauge.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::{fork::Own, waiting::Gain};

/// Permits in use, until released: by `release`, at the end of a `with`, or when it is garbage.
#[pyclass(frozen, weakref, module = "leaseway._native")]
pub(crate) struct Permit(Mutex<Option<Own<leaseway_client::Permit>>>);

impl Permit {
    pub(crate) fn new(permit: leaseway_client::Permit) -> Permit {
        Permit(Mutex::new(Some(Own::new(permit))))
    }
}

impl Gain for leaseway_client::Permit {
    fn claim(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Permit::new(self))?.into_any())
    }
}

#[pymethods]
impl Permit {
    /// Returns it. Once is enough, and again does no harm. In a forked process it does nothing: the permit is the
    /// parent's.
    fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn __enter__(this: Py<Permit>) -> Py<Permit> {
        this
    }

    #[pyo3(signature = (_kind = None, _raised = None, _trace = None, /))]
    fn __exit__(&self, _kind: Option<Py<PyAny>>, _raised: Option<Py<PyAny>>, _trace: Option<Py<PyAny>>) {
        self.release();
    }
}
