//! Permits of several limits at once.

use std::sync::{Mutex, PoisonError};

use leaseway_client::{Limits, Reservations, limiter::TryError};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
};

use crate::{
    arguments::{maybe_seconds, units},
    client::NativeClient,
    cost::Cost,
    error::ClientError,
    fork::PidGuarded,
    gauge::{Held, Permit},
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

    fn reserving<D: Deliver>(&self, wrap: impl FnOnce(Undelivered) -> D + Send + 'static) -> PyResult<Call> {
        let limits = self.limits()?;
        let runtime = self.client.get().current_client()?.client.runtime().clone();
        Ok(Call::new(&runtime, async move { limits.reserve().await.map(|taken| wrap(Undelivered(Some(taken)))) }))
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

    /// One number for each limit.
    fn numbers(&self, name: &str, given: Vec<i64>) -> PyResult<Vec<u64>> {
        check_count(self.costs.len(), given.len())?;
        given.into_iter().map(|n| units(name, n)).collect()
    }
}

fn check_count(limits: usize, given: usize) -> PyResult<()> {
    let wrong = || PyValueError::new_err(format!("{given} numbers for {limits} limits: pass one for each, in order"));
    if limits == given { Ok(()) } else { Err(wrong()) }
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
    fn _costs(&self, permits: Vec<i64>) -> PyResult<Vec<Cost>> {
        check_count(self.costs.len(), permits.len())?;
        self.costs.iter().zip(permits).map(|(cost, n)| Cost::of(cost.get().limit(), n)).collect()
    }

    /// Waits for the permits of all limits, and takes them together. Raises Timeout, and takes none, after `timeout`
    /// seconds.
    #[pyo3(signature = (timeout = None))]
    fn acquire(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = maybe_seconds("timeout", timeout)?;
        self.reserving(UndeliveredPermit)?.block(py, timeout, &self.resources().join(", "))
    }

    fn _acquire(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.reserving(UndeliveredPermit)?.start(py)
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
        self.reserving(|taken| taken)?.block(py, timeout, &self.resources().join(", "))
    }

    fn _reserve(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.reserving(|taken| taken)?.start(py)
    }

    /// Reserves the permits of all limits if they are available now. Otherwise a Refusal, which is false.
    fn try_reserve(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self.try_taking()? {
            Ok(taken) => Py::new(py, ReservedPermits::new(taken))?.into_any(),
            Err(refusal) => Py::new(py, refusal)?.into_any(),
        })
    }

    /// Charges each rate for permits that were already used: one number for each limit. Those of gauges are ignored.
    /// Raises DebtExceeded if the debt of a rate would exceed max_debt; the part beyond it is not charged.
    #[pyo3(signature = (*permits))]
    fn charge(&self, permits: Vec<i64>) -> PyResult<()> {
        let permits = self.numbers("permits", permits)?;
        Ok(self.limits()?.charge(&permits).map_err(ClientError::from)?)
    }

    /// Returns to each rate the permits taken last, because they were not used. The numbers of gauges are ignored.
    #[pyo3(signature = (*permits))]
    fn refund(&self, permits: Vec<i64>) -> PyResult<()> {
        let permits = self.numbers("permits", permits)?;
        self.limits()?.refund(&permits);
        Ok(())
    }

    fn __repr__(&self) -> String {
        let costs: Vec<_> =
            self.costs.iter().map(|cost| format!("{:?}: {}", cost.get().id(), cost.get().permits())).collect();
        format!("Limits({})", costs.join(", "))
    }
}

/// Why permits are not available now: a limit refuses, and nothing was taken from any. It is false.
#[pyclass(frozen, get_all, module = "leaseway._native")]
pub(crate) struct Refusal {
    /// The index of the limit. If several refuse, it is the one whose permits will be available last.
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

/// Permits on their way to the caller. If the caller is gone, all of them are returned.
struct Undelivered(Option<Reservations>);

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let Some(taken) = self.0.take() {
            let nothing = vec![0; taken.reserved().len()];
            // Settling for 0 cannot exceed the maximum debt.
            let _ = taken.settle(&nothing);
        }
    }
}

fn delivered(mut taken: Undelivered) -> PyResult<Reservations> {
    taken.0.take().ok_or_else(|| PyRuntimeError::new_err("delivered already"))
}

impl Deliver for Undelivered {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, ReservedPermits::new(delivered(self)?))?.into_any())
    }
}

struct UndeliveredPermit(Undelivered);

impl Deliver for UndeliveredPermit {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Permit::new(Held::Several(delivered(self.0)?)))?.into_any())
    }
}

/// Permits of several limits taken in advance. Unless `settle` is called, those of rates count as used.
#[pyclass(name = "Reservations", frozen, weakref, module = "leaseway._native")]
pub(crate) struct ReservedPermits {
    /// The number of permits taken of each limit.
    #[pyo3(get)]
    reserved: Vec<u32>,
    taken: Mutex<Option<PidGuarded<Reservations>>>,
}

impl ReservedPermits {
    fn new(taken: Reservations) -> ReservedPermits {
        ReservedPermits { reserved: taken.reserved().map(|n| n as u32).collect(), taken: Mutex::new(Some(PidGuarded::new(taken))) }
    }
}

#[pymethods]
impl ReservedPermits {
    /// Ends the reservation: one number of used permits for each limit. Rates get unused permits back, and usage beyond
    /// the reservation becomes debt. Permits of gauges are returned; their numbers are ignored. Can be called once.
    #[pyo3(signature = (*used))]
    fn settle(&self, used: Vec<i64>) -> PyResult<()> {
        check_count(self.reserved.len(), used.len())?;
        let used = used.into_iter().map(|n| units("used", n)).collect::<PyResult<Vec<_>>>()?;
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        let taken = taken.ok_or_else(|| PyRuntimeError::new_err("this reservation is already settled"))?;
        let taken = taken.take().ok_or_else(|| {
            ClientError::Forked("the reservation belongs to the process that this one was forked from".to_owned())
        })?;
        Ok(taken.settle(&used).map_err(ClientError::from)?)
    }

    fn __enter__(this: Py<ReservedPermits>) -> Py<ReservedPermits> {
        this
    }

    /// If the reservation was not settled inside the `with`, all its permits of rates count as used.
    #[pyo3(signature = (_kind = None, _raised = None, _trace = None, /))]
    fn __exit__(&self, _kind: Option<Py<PyAny>>, _raised: Option<Py<PyAny>>, _trace: Option<Py<PyAny>>) {
        drop(self.taken.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
