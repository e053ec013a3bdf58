//! Permits of several limits at once.

use std::sync::{Mutex, PoisonError};

use leaseway_client::{Limits, Reservations, limiter::TryError};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    arguments::maybe_seconds,
    client::NativeClient,
    cost::{Cost, LimitKind},
    error::ClientError,
    fork::PidGuarded,
    gauge::{Held, Permit},
    reservation::{Undelivered, Unsettled},
    waiting::{Call, Deliver},
};

/// Several limits. See `leaseway/limiters.py`.
#[pyclass(name = "Limits", subclass, frozen, weakref, module = "leaseway._native")]
pub(crate) struct NativeLimits {
    client: Py<NativeClient>,
    costs: Vec<Py<Cost>>,
    current: Mutex<PidGuarded<Limits>>,
}

impl NativeLimits {
    fn open(client: &Py<NativeClient>, costs: &[Py<Cost>]) -> Result<Limits, ClientError> {
        let opened = costs.iter().map(|cost| cost.get().open()).collect::<Result<Vec<_>, _>>()?;
        Ok(client.get().current_client()?.client.limits(opened))
    }

    /// The limits of this process.
    fn limits(&self) -> Result<Limits, ClientError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = current.get() {
            return Ok(opened.clone());
        }
        let opened = NativeLimits::open(&self.client, &self.costs)?;
        *current = PidGuarded::new(opened.clone());
        Ok(opened)
    }

    fn kinds(&self) -> Vec<LimitKind> {
        self.costs.iter().map(|cost| cost.get().kind()).collect()
    }

    fn acquiring(&self) -> PyResult<Call> {
        self.taking(|taken| UndeliveredPermit(Undelivered::new(taken)))
    }

    fn reserving(&self) -> PyResult<Call> {
        let kinds = self.kinds();
        self.taking(|taken| UndeliveredReservations { taken: Undelivered::new(taken), kinds })
    }

    fn taking<D: Deliver>(&self, wrap: impl FnOnce(Reservations) -> D + Send + 'static) -> PyResult<Call> {
        let limits = self.limits()?;
        let runtime = self.client.get().current_client()?.client.runtime().clone();
        Ok(Call::new(&runtime, async move { limits.reserve().await.map(wrap) }))
    }

    fn try_taking(&self) -> PyResult<Result<Reservations, Refusal>> {
        match self.limits()?.try_reserve() {
            Ok(taken) => Ok(Ok(taken)),
            Err(refusal) if refusal.error == TryError::Closed => Err(ClientError::closed().into()),
            Err(refusal) => Ok(Err(Refusal {
                index: refusal.index,
                reason: refusal.to_string(),
                retry_after: refusal.retry_after().map(|wait| wait.as_secs_f64()),
                resource: refusal.resource,
            })),
        }
    }
}

/// Checks that there is one valid number for each limit.
fn checked(kinds: &[LimitKind], name: &str, given: Vec<f64>) -> PyResult<Vec<f64>> {
    let (limits, numbers) = (kinds.len(), given.len());
    if limits != numbers {
        let wrong = format!("{numbers} numbers for {limits} limits: pass one for each, in order");
        return Err(PyValueError::new_err(wrong));
    }
    kinds.iter().zip(&given).try_for_each(|(kind, number)| kind.check(name, *number))?;
    Ok(given)
}

#[pymethods]
impl NativeLimits {
    #[new]
    fn new(client: Py<NativeClient>, costs: Vec<Py<Cost>>) -> PyResult<NativeLimits> {
        let current = Mutex::new(PidGuarded::new(NativeLimits::open(&client, &costs)?));
        Ok(NativeLimits { client, costs, current })
    }

    /// The client.
    #[getter]
    fn client(&self, py: Python<'_>) -> Py<NativeClient> {
        self.client.clone_ref(py)
    }

    /// The names of the resources, in order.
    #[getter]
    fn resources(&self) -> Vec<String> {
        self.costs.iter().map(|cost| cost.get().id().to_owned()).collect()
    }

    /// The same limits with other numbers of permits.
    fn _costs(&self, permits: Vec<f64>) -> PyResult<Vec<Cost>> {
        let permits = checked(&self.kinds(), "permits", permits)?;
        self.costs.iter().zip(permits).map(|(cost, n)| Cost::new(cost.get().limit(), n)).collect()
    }

    /// Waits for the permits of all limits, and takes them together. Raises Timeout, and takes none, after `timeout`
    /// seconds.
    #[pyo3(signature = (timeout = None))]
    fn acquire(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = maybe_seconds("timeout", timeout)?;
        self.acquiring()?.block(py, timeout, &self.resources().join(", "))
    }

    fn _acquire(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.acquiring()?.start(py)
    }

    /// Takes the permits of all limits if they are available now. Otherwise a Refusal, which is false, and nothing is
    /// taken.
    fn try_acquire(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self.try_taking()? {
            Ok(taken) => Py::new(py, Permit::new(Held::Several(taken)))?.into_any(),
            Err(refusal) => Py::new(py, refusal)?.into_any(),
        })
    }

    /// Waits for the permits of all limits, for work whose cost is known only at its end.
    #[pyo3(signature = (timeout = None))]
    fn reserve(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = maybe_seconds("timeout", timeout)?;
        self.reserving()?.block(py, timeout, &self.resources().join(", "))
    }

    fn _reserve(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.reserving()?.start(py)
    }

    /// Reserves the permits of all limits if they are available now. Otherwise a Refusal, which is false.
    fn try_reserve(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self.try_taking()? {
            Ok(taken) => Py::new(py, ReservedPermits::new(taken, self.kinds()))?.into_any(),
            Err(refusal) => Py::new(py, refusal)?.into_any(),
        })
    }

    /// Charges each rate and budget for what was already used: one number for each limit. Those of gauges are ignored.
    /// Raises DebtExceeded if the debt of a rate would exceed max_debt; the part beyond it is not charged.
    #[pyo3(signature = (*permits))]
    fn charge(&self, permits: Vec<f64>) -> PyResult<()> {
        let permits = checked(&self.kinds(), "permits", permits)?;
        Ok(self.limits()?.charge(&permits).map_err(ClientError::from)?)
    }

    /// Returns to each rate the permits taken last, because they were not used. The numbers of gauges and budgets are
    /// ignored.
    #[pyo3(signature = (*permits))]
    fn refund(&self, permits: Vec<f64>) -> PyResult<()> {
        let permits = checked(&self.kinds(), "permits", permits)?;
        self.limits()?.refund(&permits);
        Ok(())
    }

    fn __repr__(&self) -> String {
        let costs: Vec<_> =
            self.costs.iter().map(|cost| format!("{:?}: {}", cost.get().id(), cost.get().number())).collect();
        format!("Limits({})", costs.join(", "))
    }
}

/// Why permits are not available now: a limit refuses, and nothing was taken from any. It is false.
#[pyclass(frozen, get_all, module = "leaseway._native")]
pub(crate) struct Refusal {
    /// The index of the limit: the first budget that refuses; otherwise the limit whose permits will be available last.
    index: usize,
    /// Its resource.
    resource: String,
    /// Why it refuses.
    reason: String,
    /// Seconds until the permits of all limits will be available, if nothing changes; None if that is unknown.
    retry_after: Option<f64>,
}

#[pymethods]
impl Refusal {
    fn __bool__(&self) -> bool {
        false
    }

    fn __repr__(&self) -> String {
        let retry_after = self.retry_after.map_or("None".to_owned(), |wait| wait.to_string());
        format!("Refusal({:?}, retry_after={retry_after})", self.reason)
    }
}

struct UndeliveredReservations {
    taken: Undelivered<Reservations>,
    kinds: Vec<LimitKind>,
}

impl Deliver for UndeliveredReservations {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, ReservedPermits::new(self.taken.delivered()?, self.kinds))?.into_any())
    }
}

struct UndeliveredPermit(Undelivered<Reservations>);

impl Deliver for UndeliveredPermit {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Permit::new(Held::Several(self.0.delivered()?)))?.into_any())
    }
}

/// Permits of a rate or a gauge, or an amount of a budget.
#[derive(Clone, Copy, IntoPyObject)]
enum Quantity {
    Permits(u32),
    Amount(f64),
}

/// Permits of several limits taken in advance. Unless `settle` is called, those of rates count as used, and amounts of
/// budgets are spent.
#[pyclass(name = "Reservations", frozen, weakref, module = "leaseway._native")]
pub(crate) struct ReservedPermits {
    /// The number of permits, or the amount, taken of each limit.
    #[pyo3(get)]
    reserved: Vec<Quantity>,
    kinds: Vec<LimitKind>,
    taken: Unsettled<Reservations>,
}

impl ReservedPermits {
    fn new(taken: Reservations, kinds: Vec<LimitKind>) -> ReservedPermits {
        let reserved = taken.reserved().zip(&kinds).map(|(number, kind)| match kind {
            LimitKind::Permits => Quantity::Permits(number as u32),
            LimitKind::Budget => Quantity::Amount(number),
        });
        ReservedPermits { reserved: reserved.collect(), kinds, taken: Unsettled::new(taken) }
    }
}

#[pymethods]
impl ReservedPermits {
    /// Ends the reservation: one number for each limit, the permits or the amount used. Rates and budgets get back what
    /// was not used, and are charged for usage beyond the reservation. Permits of gauges are returned; their numbers
    /// are ignored. Can be called once.
    #[pyo3(signature = (*used))]
    fn settle(&self, used: Vec<f64>) -> PyResult<()> {
        let used = checked(&self.kinds, "used", used)?;
        Ok(self.taken.take()?.settle(&used).map_err(ClientError::from)?)
    }

    fn __enter__(this: Py<ReservedPermits>) -> Py<ReservedPermits> {
        this
    }

    /// If the reservation was not settled inside the `with`, all its permits of rates count as used, and its amounts of
    /// budgets are spent.
    #[pyo3(signature = (_kind = None, _raised = None, _trace = None, /))]
    fn __exit__(&self, _kind: Option<Py<PyAny>>, _raised: Option<Py<PyAny>>, _trace: Option<Py<PyAny>>) {
        self.taken.end();
    }
}
