//! Budgets.

use std::sync::Arc;

use leaseway_client::{Budget, SpendError, limiter::Burst};
use pyo3::prelude::*;

use crate::{
    arguments::maybe_seconds,
    client::NativeClient,
    error::ClientError,
    handle::{Handle, NativeResource, Options},
    waiting::Call,
};

/// A budget. See `leaseway/limiters.py`.
#[pyclass(name = "Budget", extends = NativeResource, subclass, frozen, weakref, module = "leaseway._native")]
pub(crate) struct NativeBudget(Arc<Handle<Budget>>);

impl NativeBudget {
    fn spending(&self, amount: f64) -> PyResult<Call> {
        Ok(self.0.call(|budget| async move { budget.spend(amount).await })?)
    }
}

#[pymethods]
impl NativeBudget {
    #[new]
    fn new(client: Py<NativeClient>, resource: String) -> PyResult<PyClassInitializer<NativeBudget>> {
        let options = Options { resource, wants: None, priority: 0, mode: None, burst: Burst::Smooth, max_debt: None };
        let handle = Handle::open(client, options)?;
        let base = PyClassInitializer::from(NativeResource::of(&handle));
        Ok(base.add_subclass(NativeBudget(handle)))
    }

    /// Spends the amount if the allowance covers it now. Returns whether it did.
    fn try_spend(&self, amount: f64) -> PyResult<bool> {
        match self.0.limiter()?.try_spend(amount) {
            Ok(()) => Ok(true),
            Err(SpendError::NotCovered { .. } | SpendError::Behind) => Ok(false),
            Err(error) => Err(ClientError::from(error).into()),
        }
    }

    /// Waits until the allowance covers the amount, and spends it. Raises Timeout, and spends nothing, after `timeout`
    /// seconds.
    #[pyo3(signature = (amount, timeout = None))]
    fn spend(&self, py: Python<'_>, amount: f64, timeout: Option<f64>) -> PyResult<()> {
        let timeout = maybe_seconds("timeout", timeout)?;
        self.spending(amount)?.block(py, timeout, self.0.id()).map(drop)
    }

    fn _spend(&self, py: Python<'_>, amount: f64) -> PyResult<Py<PyAny>> {
        self.spending(amount)?.start(py)
    }

    /// What may be spent now, without asking.
    #[getter]
    fn left(&self) -> PyResult<f64> {
        Ok(self.0.limiter()?.left())
    }

    /// What this process has spent in the current period.
    #[getter]
    fn spent(&self) -> PyResult<f64> {
        Ok(self.0.limiter()?.spent())
    }

    /// The start and the end of the current period in Unix seconds; None before the first lease, and for a budget that
    /// is spent once.
    #[getter]
    fn period(&self) -> PyResult<Option<(i64, i64)>> {
        Ok(self.0.limiter()?.period())
    }

    fn __repr__(&self) -> PyResult<String> {
        let budget = self.0.limiter()?;
        Ok(format!("Budget({:?}, left={}, spent={})", self.0.id(), budget.left(), budget.spent()))
    }
}
