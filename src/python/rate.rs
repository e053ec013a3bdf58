//! Rates and their reservations.

use std::sync::Arc;

use leaseway_client::{Rate, limiter::TryError};
use pyo3::prelude::*;

use crate::{
    arguments::{self, maybe_seconds, permits, units},
    client::NativeClient,
    cost::{AnyLimit, Cost},
    error::ClientError,
    handle::{self, Handle, NativeResource, Options},
    reservation::{Undelivered, Unsettled},
    waiting::{AcquiredPermits, Call, Deliver},
};

/// A rate. See `leaseway/limiters.py`.
#[pyclass(name = "Rate", extends = NativeResource, subclass, frozen, weakref, module = "leaseway._native")]
pub(crate) struct NativeRate(Arc<Handle<Rate>>);

/// The permits, or None if they are not available now.
pub(crate) fn passed<T>(tried: Result<T, TryError>) -> Result<Option<T>, ClientError> {
    match tried {
        Ok(passed) => Ok(Some(passed)),
        Err(TryError::Closed) => Err(ClientError::closed()),
        Err(TryError::NotNow { .. } | TryError::TooMany { .. }) => Ok(None),
    }
}

impl NativeRate {
    pub(crate) fn handle(&self) -> Arc<Handle<Rate>> {
        Arc::clone(&self.0)
    }

    fn waiting(&self, n: i64) -> PyResult<Call> {
        let n = permits(n)?;
        Ok(self.0.call(|rate| async move { rate.wait_many(n).await.map(|()| AcquiredPermits::new(rate, n)) })?)
    }

    fn reserving(&self, n: i64) -> PyResult<Call> {
        let n = permits(n)?;
        Ok(self.0.call(|rate| async move { rate.reserve(n).await.map(Undelivered::new) })?)
    }
}

#[pymethods]
impl NativeRate {
    #[new]
    #[pyo3(signature = (
        client, resource, *, wants = None, priority = None, mode = None, burst = None, window = None, max_debt = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        client: Py<NativeClient>,
        resource: String,
        wants: Option<f64>,
        priority: Option<i64>,
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

    /// Takes n permits if they are available now. Returns whether it did.
    #[pyo3(signature = (n = 1))]
    fn try_acquire(&self, n: i64) -> PyResult<bool> {
        Ok(passed(self.0.limiter()?.try_acquire(permits(n)?))?.is_some())
    }

    /// Waits for n permits. Raises Timeout, and takes none, after `timeout` seconds.
    #[pyo3(signature = (n = 1, timeout = None))]
    fn wait(&self, py: Python<'_>, n: i64, timeout: Option<f64>) -> PyResult<()> {
        let timeout = maybe_seconds("timeout", timeout)?;
        self.waiting(n)?.block(py, timeout, self.0.id()).map(drop)
    }

    fn _wait(&self, py: Python<'_>, n: i64) -> PyResult<Py<PyAny>> {
        self.waiting(n)?.start(py)
    }

    /// Waits for n permits, for work whose cost is known only at its end.
    #[pyo3(signature = (n, timeout = None))]
    fn reserve(&self, py: Python<'_>, n: i64, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = maybe_seconds("timeout", timeout)?;
        self.reserving(n)?.block(py, timeout, self.0.id())
    }

    fn _reserve(&self, py: Python<'_>, n: i64) -> PyResult<Py<PyAny>> {
        self.reserving(n)?.start(py)
    }

    /// Reserves n permits if they are available now; None otherwise.
    fn try_reserve(&self, n: i64) -> PyResult<Option<Reservation>> {
        Ok(passed(self.0.limiter()?.try_reserve(permits(n)?))?.map(Reservation::new))
    }

    /// Charges n permits that were already used. Missing permits become debt, which is paid before any caller is
    /// admitted. Raises DebtExceeded if the debt would exceed max_debt; the part beyond it is not charged.
    fn charge(&self, n: i64) -> PyResult<()> {
        Ok(self.0.limiter()?.charge(units("n", n)?).map_err(ClientError::from)?)
    }

    /// Returns the n permits taken last, because they were not used. Then the rate has the credit that it would have if
    /// they had never been taken, so a late refund may restore nothing.
    fn refund(&self, n: i64) -> PyResult<()> {
        self.0.limiter()?.refund(units("n", n)?);
        Ok(())
    }

    /// n permits of this rate, for `Client.limits`.
    #[pyo3(signature = (n = 1))]
    fn of(&self, n: i64) -> PyResult<Cost> {
        Cost::of(AnyLimit::Rate(Arc::clone(&self.0)), n)
    }

    /// The current debt in permits.
    #[getter]
    fn debt(&self) -> PyResult<u64> {
        Ok(self.0.limiter()?.debt())
    }

    /// Permits available without waiting; 0 while a caller waits.
    #[getter]
    fn available(&self) -> PyResult<u64> {
        Ok(self.0.limiter()?.available())
    }

    /// The current state of the rate.
    #[getter]
    fn standing(&self) -> PyResult<Standing> {
        Ok(self.0.limiter()?.standing().into())
    }

    fn __repr__(&self) -> PyResult<String> {
        let capacity = self.0.limiter()?.resource().capacity().get();
        Ok(format!("Rate({:?}, capacity={capacity})", self.0.id()))
    }
}

/// The state of a rate.
#[pyclass(frozen, get_all, module = "leaseway._native")]
pub(crate) struct Standing {
    /// Permits available now, even if others wait for them; negative if there is debt.
    available: f64,
    /// The maximum that can be saved up.
    burst: f64,
    /// Permits per second.
    capacity: f64,
}

impl From<leaseway_client::limiter::Standing> for Standing {
    fn from(standing: leaseway_client::limiter::Standing) -> Standing {
        let leaseway_client::limiter::Standing { available, burst, capacity, .. } = standing;
        Standing { available, burst, capacity: capacity.get() }
    }
}

#[pymethods]
impl Standing {
    /// Seconds until n permits are available if no other caller takes any; None if they never will be.
    #[pyo3(signature = (n = 1))]
    fn ready_in(&self, n: i64) -> PyResult<Option<f64>> {
        let missing = f64::from(permits(n)?) - self.available;
        Ok(match missing {
            missing if missing <= 0.0 => Some(0.0),
            missing if self.capacity > 0.0 => Some(missing / self.capacity),
            _ => None,
        })
    }

    fn __repr__(&self) -> String {
        let Standing { available, burst, capacity } = self;
        format!("Standing(available={available}, burst={burst}, capacity={capacity})")
    }
}

/// Permits taken in advance. Unless `settle` is called, all of them count as used.
#[pyclass(frozen, weakref, module = "leaseway._native")]
pub(crate) struct Reservation {
    /// The number of permits taken.
    #[pyo3(get)]
    reserved: u32,
    taken: Unsettled<leaseway_client::Reservation>,
}

impl Reservation {
    pub(crate) fn new(taken: leaseway_client::Reservation) -> Reservation {
        Reservation { reserved: taken.reserved(), taken: Unsettled::new(taken) }
    }
}

impl Deliver for Undelivered<leaseway_client::Reservation> {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Reservation::new(self.delivered()?))?.into_any())
    }
}

#[pymethods]
impl Reservation {
    /// Ends the reservation: `used` permits were used. Returns the unused ones, up to the credit that the rate would
    /// have if they had never been taken. Usage beyond the reservation becomes debt. Can be called once.
    fn settle(&self, used: i64) -> PyResult<()> {
        let used = units("used", used)?;
        Ok(self.taken.take()?.settle(used).map_err(ClientError::from)?)
    }

    fn __enter__(this: Py<Reservation>) -> Py<Reservation> {
        this
    }

    /// If the reservation was not settled inside the `with`, all its permits count as used.
    #[pyo3(signature = (_kind = None, _raised = None, _trace = None, /))]
    fn __exit__(&self, _kind: Option<Py<PyAny>>, _raised: Option<Py<PyAny>>, _trace: Option<Py<PyAny>>) {
        self.taken.end();
    }
}
