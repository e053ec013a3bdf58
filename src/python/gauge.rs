//! So many at the same time.

use std::sync::Arc;

use leaseway_client::{Gauge, limiter::Burst};
use pyo3::prelude::*;

use crate::{
    arguments::{self, maybe_seconds, permits},
    client::NativeClient,
    handle::{Handle, NativeResource, Options},
    permit::Permit,
    rate::passed,
    waiting::Call,
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
    #[pyo3(signature = (client, resource, *, wants = None, priority = 0, mode = None))]
    fn new(
        client: Py<NativeClient>,
        resource: String,
        wants: Option<f64>,
        priority: i64,
        mode: Option<&str>,
    ) -> PyResult<PyClassInitializer<NativeGauge>> {
        let mode = mode.map(arguments::mode).transpose()?;
        let options = Options { resource, wants, priority, mode, burst: Burst::Smooth, max_debt: None };
        let handle = Handle::open(client, options)?;
        let base = PyClassInitializer::from(NativeResource::of(&handle));
        Ok(base.add_subclass(NativeGauge(handle)))
    }

    /// n permits, if they are free now; else None.
    #[pyo3(signature = (n = 1))]
    fn try_acquire(&self, n: i64) -> PyResult<Option<Permit>> {
        Ok(passed(self.0.limiter()?.try_acquire(permits(n)?))?.map(Permit::new))
    }

    /// Waits for n permits at once. Timeout if that takes longer than so many seconds; then none is in use.
    #[pyo3(signature = (n = 1, timeout = None))]
    fn acquire(&self, py: Python<'_>, n: i64, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = maybe_seconds("timeout", timeout)?;
        self.acquiring(n)?.block(py, timeout, self.0.id())
    }

    fn _acquire(&self, py: Python<'_>, n: i64) -> PyResult<Py<PyAny>> {
        self.acquiring(n)?.start(py)
    }

    /// Permits that are out, of this process.
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
