//! Load balancing across backends. See `leaseway/balancer.py`.
//!
//! Here backends are indexes; the objects that they stand for are in Python. No Python code runs under the lock of a
//! balancer: a thread that waits for the lock keeps the interpreter lock, which that code would need.

use std::{
    ptr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leaseway_client::{
    Balanced, Capacity, OpenError, Rate,
    balancer::{Balancer, Schedule},
    limiter::Closed,
};
use pyo3::{
    exceptions::{PyIndexError, PyValueError},
    prelude::*,
};
use tokio::{runtime, time::Instant};

use crate::{
    arguments,
    error::ClientError,
    fork::PidGuarded,
    handle::Handle,
    rate::NativeRate,
    waiting::{Call, Deliver},
};

/// The base class of `Balancer` and `Balanced`.
#[pyclass(name = "Backends", subclass, frozen, module = "leaseway._native")]
pub(crate) struct NativeBackends(Source);

enum Source {
    Own(Arc<Balancer<usize>>),
    Leases(Arc<Leases>),
}

/// A balancer of any backends.
trait AnyBalancer {
    fn pick(&self) -> Option<usize>;
    fn peek(&self, rejected: &[usize]) -> Option<usize>;
    fn pick_only(&self, index: usize) -> bool;
    fn pick_sticky(&self, index: usize) -> bool;
    fn pause(&self, index: usize);
    fn resume(&self, index: usize);
    fn failed(&self, index: usize);
    fn next_retry(&self) -> Option<Instant>;
    fn is_enabled(&self, index: usize) -> bool;
}

impl<B> AnyBalancer for Balancer<B> {
    fn pick(&self) -> Option<usize> {
        Some(Balancer::pick(self)?.index())
    }

    fn peek(&self, rejected: &[usize]) -> Option<usize> {
        self.peek_where(|backend| !rejected.iter().any(|index| ptr::eq(backend, &self.backends()[*index])))
    }

    fn pick_only(&self, index: usize) -> bool {
        self.pick_where(|backend| ptr::eq(backend, &self.backends()[index])).is_some()
    }

    fn pick_sticky(&self, index: usize) -> bool {
        Balancer::pick_sticky(self, index).is_some()
    }

    fn pause(&self, index: usize) {
        Balancer::pause(self, index);
    }

    fn resume(&self, index: usize) {
        Balancer::resume(self, index);
    }

    fn failed(&self, index: usize) {
        Balancer::failed(self, index, Instant::now());
    }

    fn next_retry(&self) -> Option<Instant> {
        Balancer::next_retry(self)
    }

    fn is_enabled(&self, index: usize) -> bool {
        Balancer::is_enabled(self, index)
    }
}

/// The balanced rates, which a forked process opens anew.
struct Leases {
    rates: Vec<Arc<Handle<Rate>>>,
    retry: Duration,
    current: Mutex<PidGuarded<Balanced>>,
}

impl Leases {
    fn new(rates: Vec<Arc<Handle<Rate>>>, retry: Duration) -> Result<Leases, ClientError> {
        let current = Mutex::new(PidGuarded::new(Leases::open(&rates, retry)?));
        Ok(Leases { rates, retry, current })
    }

    fn open(rates: &[Arc<Handle<Rate>>], retry: Duration) -> Result<Balanced, ClientError> {
        let opened =
            rates.iter().map(|rate| Ok((*rate.limiter()?).clone())).collect::<Result<Vec<_>, ClientError>>()?;
        let runtime = opened.first().map(|rate| rate.resource().runtime().clone());
        let _inside = runtime.as_ref().map(runtime::Handle::enter);
        Balanced::with_retry(opened, retry).map_err(|error| match error {
            OpenError::EstimatedWants(id) => ClientError::Open(format!(
                "the wants of `{id}` cannot be estimated, because a backend gets no operations before it has a lease: open it with wants=…"
            )),
            error => error.into(),
        })
    }

    /// The balanced rates of this process.
    fn balanced(&self) -> Result<Balanced, ClientError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = current.get() {
            return Ok(opened.clone());
        }
        let opened = Leases::open(&self.rates, self.retry)?;
        *current = PidGuarded::new(opened.clone());
        Ok(opened)
    }
}

impl NativeBackends {
    fn with<R>(&self, work: impl FnOnce(&dyn AnyBalancer) -> R) -> PyResult<R> {
        Ok(match &self.0 {
            Source::Own(balancer) => work(&**balancer),
            Source::Leases(leases) => work(leases.balanced()?.balancer()),
        })
    }

    fn len(&self) -> usize {
        match &self.0 {
            Source::Own(balancer) => balancer.backends().len(),
            Source::Leases(leases) => leases.rates.len(),
        }
    }

    fn index(&self, index: i64) -> PyResult<usize> {
        let wrong = || PyIndexError::new_err(format!("index={index}: there are {} backends, from 0", self.len()));
        usize::try_from(index).ok().filter(|index| *index < self.len()).ok_or_else(wrong)
    }
}

#[pymethods]
impl NativeBackends {
    fn _pick(&self) -> PyResult<Option<usize>> {
        self.with(|balancer| balancer.pick())
    }

    /// The index that would be picked if these backends were not usable.
    fn _peek(&self, rejected: Vec<usize>) -> PyResult<Option<usize>> {
        self.with(move |balancer| balancer.peek(&rejected))
    }

    /// Picks this backend as if those before it were not usable. Returns False if it is not enabled.
    fn _pick_only(&self, index: usize) -> PyResult<bool> {
        self.with(|balancer| balancer.pick_only(index))
    }

    fn _pick_sticky(&self, index: i64) -> PyResult<bool> {
        let index = self.index(index)?;
        self.with(|balancer| balancer.pick_sticky(index))
    }

    /// Disables a backend until `resume`, to drain it, or because it cannot be used.
    fn pause(&self, index: i64) -> PyResult<()> {
        let index = self.index(index)?;
        self.with(|balancer| balancer.pause(index))
    }

    /// Ends a pause.
    fn resume(&self, index: i64) -> PyResult<()> {
        let index = self.index(index)?;
        self.with(|balancer| balancer.resume(index))
    }

    /// Disables a backend for the back-off, because an operation on it failed. Further failures during the back-off do
    /// not prolong it.
    fn failed(&self, index: i64) -> PyResult<()> {
        let index = self.index(index)?;
        self.with(|balancer| balancer.failed(index))
    }

    /// Seconds until the next back-off ends: how long to wait if no backend is enabled. None if there is no back-off.
    fn next_retry(&self) -> PyResult<Option<f64>> {
        let at = self.with(|balancer| balancer.next_retry())?;
        Ok(at.map(|at| at.saturating_duration_since(Instant::now()).as_secs_f64()))
    }

    /// Whether a backend is enabled: it has a share, is not paused and not in back-off.
    fn is_enabled(&self, index: i64) -> PyResult<bool> {
        let index = self.index(index)?;
        self.with(|balancer| balancer.is_enabled(index))
    }
}

/// A balancer with weights. See `leaseway/balancer.py`.
#[pyclass(name = "Balancer", extends = NativeBackends, subclass, frozen, weakref, module = "leaseway._native")]
pub(crate) struct NativeBalancer(Arc<Balancer<usize>>);

fn weight(name: &str, weight: i64) -> PyResult<u32> {
    let wrong = |_| PyValueError::new_err(format!("{name}={weight}: expected a whole number from 0 to {}", u32::MAX));
    u32::try_from(weight).map_err(wrong)
}

#[pymethods]
impl NativeBalancer {
    #[new]
    fn new(weights: Vec<i64>, retry: f64) -> PyResult<PyClassInitializer<NativeBalancer>> {
        if weights.len() > Schedule::MAX_MEMBERS {
            let (given, max) = (weights.len(), Schedule::MAX_MEMBERS);
            return Err(PyValueError::new_err(format!("{given} backends: at most {max} are allowed")));
        }
        let of = |(index, given): (usize, i64)| Ok((index, weight(&format!("weights[{index}]"), given)?));
        let backends = weights.into_iter().enumerate().map(of).collect::<PyResult<Vec<_>>>()?;
        let balancer = Arc::new(Balancer::weighted(backends).with_retry(arguments::seconds("retry", retry)?));
        let base = PyClassInitializer::from(NativeBackends(Source::Own(Arc::clone(&balancer))));
        Ok(base.add_subclass(NativeBalancer(balancer)))
    }

    /// Sets the capacity of a backend's lease, which is its share: 0 when the lease has expired, infinity if there is
    /// no limit. What backends have accrued is rescaled, so that none starves after leases have become much smaller.
    fn set_capacity(this: &Bound<'_, Self>, index: i64, capacity: f64) -> PyResult<()> {
        if capacity.is_nan() || capacity < 0.0 {
            return Err(PyValueError::new_err(format!("capacity={capacity}: expected a number, 0 or more")));
        }
        let capacity = if capacity.is_infinite() { Capacity::UNLIMITED } else { Capacity::of(capacity) };
        let index = this.as_super().get().index(index)?;
        this.get().0.set_capacity(index, capacity);
        Ok(())
    }

    /// Sets the weight of a backend, which is its share. The schedule starts anew.
    fn set_weight(this: &Bound<'_, Self>, index: i64, weight: i64) -> PyResult<()> {
        let index = this.as_super().get().index(index)?;
        this.get().0.set_weight(index, self::weight("weight", weight)?);
        Ok(())
    }
}

/// A balancer of rates with their leases. See `leaseway/balancer.py`.
#[pyclass(name = "Balanced", extends = NativeBackends, subclass, frozen, weakref, module = "leaseway._native")]
pub(crate) struct NativeBalanced(Arc<Leases>);

impl NativeBalanced {
    fn waiting(&self) -> Result<Call, ClientError> {
        let balanced = self.0.balanced()?;
        // There is at least one rate.
        let runtime = balanced.balancer().backends()[0].resource().runtime().clone();
        Ok(Call::new(&runtime, async move {
            let index = balanced.wait().await?.index();
            Ok::<_, Closed>(UndeliveredPick { balanced, index: Some(index) })
        }))
    }

    fn ids(&self) -> String {
        self.0.rates.iter().map(|rate| rate.id()).collect::<Vec<_>>().join(", ")
    }
}

#[pymethods]
impl NativeBalanced {
    #[new]
    fn new(rates: Vec<Py<NativeRate>>, retry: f64) -> PyResult<PyClassInitializer<NativeBalanced>> {
        let retry = arguments::seconds("retry", retry)?;
        match rates.len() {
            0 => return Err(PyValueError::new_err("there is no rate: expected at least one")),
            given if given > Schedule::MAX_MEMBERS => {
                let max = Schedule::MAX_MEMBERS;
                return Err(PyValueError::new_err(format!("{given} rates: at most {max} are allowed")));
            }
            _ => {}
        }
        let leases = Arc::new(Leases::new(rates.into_iter().map(|rate| rate.get().handle()).collect(), retry)?);
        let base = PyClassInitializer::from(NativeBackends(Source::Leases(Arc::clone(&leases))));
        Ok(base.add_subclass(NativeBalanced(leases)))
    }

    fn _wait_blocking(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = arguments::maybe_seconds("timeout", timeout)?;
        self.waiting()?.block(py, timeout, &self.ids())
    }

    fn _wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.waiting()?.start(py)
    }

    /// The names of the resources, in order.
    #[getter]
    fn resources(&self) -> Vec<String> {
        self.0.rates.iter().map(|rate| rate.id().to_owned()).collect()
    }
}

/// A pick with its permit on the way to the caller. If the caller is gone, the permit is returned.
struct UndeliveredPick {
    balanced: Balanced,
    index: Option<usize>,
}

impl Deliver for UndeliveredPick {
    fn deliver(mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.index.take().into_pyobject(py)?.unbind())
    }
}

impl Drop for UndeliveredPick {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.balanced.balancer().backends()[index].refund(1);
        }
    }
}
