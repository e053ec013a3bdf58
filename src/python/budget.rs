//! Budgets and their reservations.

use std::sync::Arc;

use leaseway_client::{Budget, BudgetReservation, SpendError};
use pyo3::prelude::*;

use crate::{
    arguments::{amount, maybe_seconds},
    client::NativeClient,
    cost::{AnyLimit, Cost},
    error::ClientError,
    handle::{Handle, NativeResource, Options},
    reservation::{Undelivered, Unsettled},
    waiting::{Call, Deliver},
};

/// A budget. See `leaseway/limiters.py`.
#[pyclass(name = "Budget", extends = NativeResource, subclass, frozen, weakref, module = "leaseway._native")]
pub(crate) struct NativeBudget(Arc<Handle<Budget>>);

impl NativeBudget {
    fn spending(&self, amount: f64) -> PyResult<Call> {
        Ok(self.0.call(|budget| async move { budget.spend(amount).await })?)
    }

    fn reserving(&self, amount: f64) -> PyResult<Call> {
        Ok(self.0.call(|budget| async move { budget.reserve(amount).await.map(Undelivered::new) })?)
    }
}

/// The result, or None if the allowance does not cover the amount now.
fn covered<T>(tried: Result<T, SpendError>) -> Result<Option<T>, ClientError> {
    match tried {
        Ok(covered) => Ok(Some(covered)),
        Err(SpendError::NotCovered { .. } | SpendError::Behind) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[pymethods]
impl NativeBudget {
    #[new]
    fn new(client: Py<NativeClient>, resource: String) -> PyResult<PyClassInitializer<NativeBudget>> {
        let options = Options { resource, wants: None, priority: None, mode: None, burst: None, max_debt: None };
        let handle = Handle::open(client, options)?;
        let base = PyClassInitializer::from(NativeResource::of(&handle));
        Ok(base.add_subclass(NativeBudget(handle)))
    }

    /// Spends the amount if the allowance covers it now. Returns whether it did.
    fn try_spend(&self, amount: f64) -> PyResult<bool> {
        Ok(covered(self.0.limiter()?.try_spend(amount))?.is_some())
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

    /// Waits as `spend` does, for work whose cost is known only at its end.
    #[pyo3(signature = (amount, timeout = None))]
    fn reserve(&self, py: Python<'_>, amount: f64, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = maybe_seconds("timeout", timeout)?;
        self.reserving(amount)?.block(py, timeout, self.0.id())
    }

    fn _reserve(&self, py: Python<'_>, amount: f64) -> PyResult<Py<PyAny>> {
        self.reserving(amount)?.start(py)
    }

    /// Reserves the amount if the allowance covers it now; None otherwise.
    fn try_reserve(&self, amount: f64) -> PyResult<Option<ReservedAmount>> {
        Ok(covered(self.0.limiter()?.try_reserve(amount))?.map(ReservedAmount::new))
    }

    /// Spends an amount that was used already. What the allowance does not cover is owed: the next allowances pay it
    /// before any caller can spend. Raises Closed, and charges nothing, if the client was closed.
    fn charge(&self, amount: f64) -> PyResult<()> {
        Ok(self.0.limiter()?.charge(amount).map_err(ClientError::from)?)
    }

    /// An amount of this budget, for `Client.limits`.
    fn of(&self, amount: f64) -> PyResult<Cost> {
        Cost::new(AnyLimit::Budget(Arc::clone(&self.0)), amount)
    }

    /// What was charged and is not covered by an allowance yet.
    #[getter]
    fn owed(&self) -> PyResult<f64> {
        Ok(self.0.limiter()?.owed())
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

/// An amount of a budget reserved in advance. Unless `settle` is called, all of it is spent.
#[pyclass(name = "BudgetReservation", frozen, weakref, module = "leaseway._native")]
pub(crate) struct ReservedAmount {
    /// The amount reserved.
    #[pyo3(get)]
    reserved: f64,
    taken: Unsettled<BudgetReservation>,
}

impl ReservedAmount {
    fn new(taken: BudgetReservation) -> ReservedAmount {
        ReservedAmount { reserved: taken.reserved(), taken: Unsettled::new(taken) }
    }
}

impl Deliver for Undelivered<BudgetReservation> {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, ReservedAmount::new(self.delivered()?))?.into_any())
    }
}

#[pymethods]
impl ReservedAmount {
    /// Ends the reservation: `used` was used. Takes back what is left of it, unless its period has ended or the client
    /// was closed. Charges the budget for usage beyond the reservation; raises Closed if the client was closed. Can be
    /// called once.
    fn settle(&self, used: f64) -> PyResult<()> {
        amount("used", used)?;
        Ok(self.taken.take()?.settle(used).map_err(ClientError::from)?)
    }

    fn __enter__(this: Py<ReservedAmount>) -> Py<ReservedAmount> {
        this
    }

    /// If the reservation was not settled inside the `with`, all of it is spent.
    #[pyo3(signature = (_kind = None, _raised = None, _trace = None, /))]
    fn __exit__(&self, _kind: Option<Py<PyAny>>, _raised: Option<Py<PyAny>>, _trace: Option<Py<PyAny>>) {
        self.taken.end();
    }
}
