//! Gauges and their permits.

use std::sync::{Arc, Mutex, PoisonError};

use leaseway_client::Gauge;
use pyo3::prelude::*;

use crate::{
    arguments::{self, maybe_seconds, permits},
    client::NativeClient,
    cost::{AnyLimit, Cost},
    fork::PidGuarded,
    handle::{Handle, NativeResource, Options},
    rate::passed,
    waiting::{Call, Deliver},
};

/// A gauge. See `leaseway/limiters.py`.
#[pyclass(name = "Gauge", extends = NativeResource, subclass, frozen, weakref, module = "leaseway._native")]
pub(crate) struct NativeGauge(Arc<Handle<Gauge>>);

impl NativeGauge {
    fn acquiring(&self, n: i64) -> PyResult<Call> {
        let n = permits(n)?;
        Ok(self.0.call(|gauge| async move { gauge.acquire_many(n).await })?)
    }
}

#[pymethods]
impl NativeGauge {
    #[new]
    #[pyo3(signature = (client, resource, *, wants = None, priority = None, mode = None))]
    fn new(
        client: Py<NativeClient>,
        resource: String,
        wants: Option<f64>,
        priority: Option<i64>,
        mode: Option<&str>,
    ) -> PyResult<PyClassInitializer<NativeGauge>> {
        let mode = mode.map(arguments::mode).transpose()?;
        let options = Options { resource, wants, priority, mode, burst: None, max_debt: None };
        let handle = Handle::open(client, options)?;
        let base = PyClassInitializer::from(NativeResource::of(&handle));
        Ok(base.add_subclass(NativeGauge(handle)))
    }

    /// Takes n permits if they are free now; None otherwise.
    #[pyo3(signature = (n = 1))]
    fn try_acquire(&self, n: i64) -> PyResult<Option<Permit>> {
        let taken = passed(self.0.limiter()?.try_acquire(permits(n)?))?;
        Ok(taken.map(|taken| Permit::new(Held::Gauge(taken))))
    }

    /// Waits for n permits. Raises Timeout, and takes none, after `timeout` seconds.
    #[pyo3(signature = (n = 1, timeout = None))]
    fn acquire(&self, py: Python<'_>, n: i64, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = maybe_seconds("timeout", timeout)?;
        self.acquiring(n)?.block(py, timeout, self.0.id())
    }

    fn _acquire(&self, py: Python<'_>, n: i64) -> PyResult<Py<PyAny>> {
        self.acquiring(n)?.start(py)
    }

    /// n permits of this gauge, for `Client.limits`.
    #[pyo3(signature = (n = 1))]
    fn of(&self, n: i64) -> PyResult<Cost> {
        Cost::of(AnyLimit::Gauge(Arc::clone(&self.0)), n)
    }

    /// Permits in use by this process.
    #[getter]
    fn in_use(&self) -> PyResult<u64> {
        Ok(self.0.limiter()?.in_use())
    }

    fn __repr__(&self) -> PyResult<String> {
        let gauge = self.0.limiter()?;
        let (capacity, in_use) = (gauge.resource().capacity().get(), gauge.in_use());
        Ok(format!("Gauge({:?}, capacity={capacity}, in_use={in_use})", self.0.id()))
    }
}

/// Permits in use. They are returned by `release`, at the end of a `with`, or when the object is collected.
#[pyclass(frozen, weakref, module = "leaseway._native")]
pub(crate) struct Permit(Mutex<Option<PidGuarded<Held>>>);

/// What a permit returns when it is dropped.
#[expect(dead_code, reason = "kept until it is dropped")]
pub(crate) enum Held {
    Gauge(leaseway_client::Permit),
    /// Not settled, so permits of rates count as used.
    Several(leaseway_client::Reservations),
}

impl Permit {
    pub(crate) fn new(permit: Held) -> Permit {
        Permit(Mutex::new(Some(PidGuarded::new(permit))))
    }
}

impl Deliver for leaseway_client::Permit {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Permit::new(Held::Gauge(self)))?.into_any())
    }
}

#[pymethods]
impl Permit {
    /// Returns the permits. Further calls do nothing, and neither does a call in a forked process: the permits belong
    /// to the parent.
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
