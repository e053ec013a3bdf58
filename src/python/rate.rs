//! So many per second.

use std::sync::Arc;

use leaseway_client::{Rate, limiter::TryError};
use pyo3::prelude::*;

use crate::{
    arguments::{self, maybe_seconds, permits, units},
    client::NativeClient,
    error::Fault,
    handle::{self, Handle, NativeResource, Options},
    reservation::{Reservation, Unclaimed},
    state::Standing,
    waiting::{Call, Passed},
};

/// A rate. See `leaseway/limiters.py`.
#[pyclass(name = "Rate", extends = NativeResource, subclass, frozen, weakref, module = "leaseway._native")]
pub(crate) struct NativeRate(Arc<Handle<Rate>>);

/// Whether it passed. What is too much at once now, and what has to wait, did not.
pub(crate) fn passed<T>(tried: Result<T, TryError>) -> Result<Option<T>, Fault> {
    match tried {
        Ok(passed) => Ok(Some(passed)),
        Err(TryError::Closed) => Err(Fault::closed()),
        Err(TryError::NotNow { .. } | TryError::TooMany { .. }) => Ok(None),
    }
}

impl NativeRate {
    fn waiting(&self, n: i64) -> PyResult<Call> {
        let n = permits(n)?;
        Ok(self.0.call(|rate| async move { rate.wait_many(n).await.map(|()| Passed::new(rate, n)) })?)
    }

    fn reserving(&self, n: i64) -> PyResult<Call> {
        let n = permits(n)?;
        Ok(self.0.call(|rate| async move { rate.reserve(n).await.map(|taken| Unclaimed(Some(taken))) })?)
    }
}

#[pymethods]
impl NativeRate {
    #[new]
    #[pyo3(signature = (
        client, resource, *, wants = None, priority = 0, mode = None, burst = None, window = None, max_debt = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python's")]
    fn new(
        client: Py<NativeClient>,
        resource: String,
        wants: Option<f64>,
        priority: i64,
        mode: Option<&str>,
        burst: Option<f64>,
        window: Option<f64>,
        max_debt: Option<i64>,
    ) -> PyResult<PyClassInitializer<NativeRate>> {
        let mode = mode.map(arguments::mode).transpose()?;
        let burst = handle::burst(burst, window)?;
        let max_debt = max_debt.map(|permits| units("max_debt", permits)).transpose()?;
        let handle = Handle::open(client, Options { resource, wants, priority, mode, burst, max_debt })?;
        let base = PyClassInitializer::from(NativeResource::of(&handle));
        Ok(base.add_subclass(NativeRate(handle)))
    }

    /// Lets n pass if that is possible now, and says whether it did.
    #[pyo3(signature = (n = 1))]
    fn try_acquire(&self, n: i64) -> PyResult<bool> {
        Ok(passed(self.0.limiter()?.try_acquire(permits(n)?))?.is_some())
    }

    /// Waits until n may pass together. Timeout if that takes longer than so many seconds; then none has passed.
    #[pyo3(signature = (n = 1, timeout = None))]
    fn wait(&self, py: Python<'_>, n: i64, timeout: Option<f64>) -> PyResult<()> {
        let timeout = maybe_seconds("timeout", timeout)?;
        self.waiting(n)?.block(py, timeout, self.0.id()).map(drop)
    }

    fn _wait(&self, py: Python<'_>, n: i64) -> PyResult<Py<PyAny>> {
        self.waiting(n)?.start(py)
    }

    /// Waits until n may pass, for something of which only its end will show what it takes.
    #[pyo3(signature = (n, timeout = None))]
    fn reserve(&self, py: Python<'_>, n: i64, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = maybe_seconds("timeout", timeout)?;
        self.reserving(n)?.block(py, timeout, self.0.id())
    }

    fn _reserve(&self, py: Python<'_>, n: i64) -> PyResult<Py<PyAny>> {
        self.reserving(n)?.start(py)
    }

    /// Reserves n if they may pass now; else None.
    fn try_reserve(&self, n: i64) -> PyResult<Option<Reservation>> {
        Ok(passed(self.0.limiter()?.try_reserve(permits(n)?))?.map(Reservation::new))
    }

    /// So many have been used already. What is not there is owed, and paid before anything else passes. DebtExceeded
    /// says what went beyond max_debt: that is forgotten.
    fn charge(&self, n: i64) -> PyResult<()> {
        Ok(self.0.limiter()?.charge(units("n", n)?).map_err(Fault::from)?)
    }

    /// So many have passed and were not used: those that passed last. As many come back as there would be now if they
    /// had never passed.
    fn refund(&self, n: i64) -> PyResult<()> {
        self.0.limiter()?.refund(units("n", n)?);
        Ok(())
    }

    /// How much is owed now.
    #[getter]
    fn debt(&self) -> PyResult<u64> {
        Ok(self.0.limiter()?.debt())
    }

    /// How many could pass now without waiting; none while a caller waits.
    #[getter]
    fn available(&self) -> PyResult<u64> {
        Ok(self.0.limiter()?.available())
    }

    /// What could be had now.
    #[getter]
    fn standing(&self) -> PyResult<Standing> {
        Ok(self.0.limiter()?.standing().into())
    }

    fn __repr__(&self) -> PyResult<String> {
        let capacity = self.0.limiter()?.resource().capacity().get();
        Ok(format!("Rate({:?}, capacity={capacity})", self.0.id()))
    }
}
