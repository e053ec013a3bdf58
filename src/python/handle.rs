//! Handles of resources, which a forked process opens anew.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leaseway_client::{Basis, Budget, Gauge, Mode, OpenError, Rate, Resource, ResourceBuilder, limiter::Burst};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{arguments, client::NativeClient, error::ClientError, fork::PidGuarded, waiting::Call};

/// The options of a rate, a gauge or a budget.
pub(crate) struct Options {
    pub(crate) resource: String,
    pub(crate) wants: Option<f64>,
    pub(crate) priority: Option<i64>,
    pub(crate) mode: Option<Mode>,
    pub(crate) burst: Option<Burst>,
    pub(crate) max_debt: Option<u64>,
}

impl Options {
    fn of(&self, client: &leaseway_client::Client) -> ResourceBuilder {
        let mut builder = client.resource(self.resource.as_str());
        if let Some(priority) = self.priority {
            builder = builder.priority(priority);
        }
        if let Some(burst) = self.burst {
            builder = builder.burst(burst);
        }
        if let Some(wants) = self.wants {
            builder = builder.wants(wants);
        }
        if let Some(mode) = self.mode {
            builder = builder.mode(mode);
        }
        if let Some(permits) = self.max_debt {
            builder = builder.max_debt(permits);
        }
        builder
    }
}

/// The burst of a rate, from `burst` or `window`.
pub(crate) fn burst(permits: Option<f64>, window: Option<f64>) -> PyResult<Option<Burst>> {
    match (permits, window) {
        (Some(_), Some(_)) => Err(PyValueError::new_err("burst and window exclude each other: pass only one of them")),
        (Some(permits), None) if permits.is_finite() && permits >= 0.0 => Ok(Some(Burst::Permits(permits))),
        (Some(permits), None) => Err(PyValueError::new_err(format!("burst={permits}: expected permits, 0 or more"))),
        (None, Some(window)) => Ok(Some(Burst::Window(arguments::seconds("window", window)?))),
        (None, None) => Ok(None),
    }
}

/// A rate, a gauge or a budget of the client library.
pub(crate) trait Limits: Sized + Send + Sync + 'static {
    fn open(builder: ResourceBuilder) -> Result<Self, OpenError>;
    fn resource(&self) -> &Resource;
}

impl Limits for Rate {
    fn open(builder: ResourceBuilder) -> Result<Rate, OpenError> {
        builder.rate()
    }

    fn resource(&self) -> &Resource {
        Rate::resource(self)
    }
}

impl Limits for Gauge {
    fn open(builder: ResourceBuilder) -> Result<Gauge, OpenError> {
        builder.gauge()
    }

    fn resource(&self) -> &Resource {
        Gauge::resource(self)
    }
}

impl Limits for Budget {
    fn open(builder: ResourceBuilder) -> Result<Budget, OpenError> {
        builder.budget()
    }

    fn resource(&self) -> &Resource {
        Budget::resource(self)
    }
}

/// A handle that is opened anew in each forked process.
pub(crate) struct Handle<L> {
    client: Py<NativeClient>,
    options: Options,
    current: Mutex<PidGuarded<Arc<L>>>,
}

impl<L: Limits> Handle<L> {
    pub(crate) fn open(client: Py<NativeClient>, options: Options) -> Result<Arc<Handle<L>>, ClientError> {
        let opened = L::open(options.of(&client.get().current_client()?.client))?;
        Ok(Arc::new(Handle { client, options, current: Mutex::new(PidGuarded::new(Arc::new(opened))) }))
    }

    /// The limiter of this process.
    pub(crate) fn limiter(&self) -> Result<Arc<L>, ClientError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = current.get() {
            return Ok(Arc::clone(opened));
        }
        let opened = Arc::new(L::open(self.options.of(&self.client.get().current_client()?.client))?);
        *current = PidGuarded::new(Arc::clone(&opened));
        Ok(opened)
    }

    pub(crate) fn id(&self) -> &str {
        &self.options.resource
    }

    /// A call on the runtime of the client.
    pub(crate) fn call<G: crate::waiting::Deliver, E: Into<ClientError> + Send + 'static, F>(
        &self,
        start: impl FnOnce(Arc<L>) -> F,
    ) -> Result<Call, ClientError>
    where
        F: Future<Output = Result<G, E>> + Send + 'static,
    {
        let limiter = self.limiter()?;
        let runtime = limiter.resource().runtime().clone();
        Ok(Call::new(&runtime, start(limiter)))
    }
}

/// The base class of rates, gauges and budgets.
#[pyclass(name = "Resource", subclass, frozen, module = "leaseway._native")]
pub(crate) struct NativeResource(Arc<dyn AnyHandle>);

trait AnyHandle: Send + Sync {
    fn id(&self) -> &str;
    fn client(&self, py: Python<'_>) -> Py<NativeClient>;
    fn resource(&self) -> Result<Resource, ClientError>;
}

impl<L: Limits> AnyHandle for Handle<L> {
    fn id(&self) -> &str {
        Handle::id(self)
    }

    fn client(&self, py: Python<'_>) -> Py<NativeClient> {
        self.client.clone_ref(py)
    }

    fn resource(&self) -> Result<Resource, ClientError> {
        Ok(self.limiter()?.resource().clone())
    }
}

impl NativeResource {
    pub(crate) fn of<L: Limits>(handle: &Arc<Handle<L>>) -> NativeResource {
        NativeResource(Arc::clone(handle) as Arc<dyn AnyHandle>)
    }

    fn get_ready(&self, timeout: f64) -> PyResult<Call> {
        let timeout: Duration = arguments::seconds("timeout", timeout)?;
        let resource = self.0.resource()?;
        let runtime = resource.runtime().clone();
        Ok(Call::new(&runtime, async move { resource.ready(timeout).await }))
    }
}

#[pymethods]
impl NativeResource {
    /// The name of the resource.
    #[getter]
    fn id(&self) -> &str {
        self.0.id()
    }

    /// The client that opened it.
    #[getter]
    fn client(&self, py: Python<'_>) -> Py<NativeClient> {
        self.0.client(py)
    }

    /// The capacity that may be used now; infinite if there is no limit.
    #[getter]
    fn capacity(&self) -> PyResult<f64> {
        Ok(self.0.resource()?.capacity().get())
    }

    /// Where the capacity comes from: "lease" while there is a live lease; "fallback" if it has expired or none could
    /// be obtained, so that the mode decides; "unknown" before the first answer.
    #[getter]
    fn basis(&self) -> PyResult<&'static str> {
        Ok(match self.0.resource()?.usable().basis {
            Basis::Unknown => "unknown",
            Basis::Lease => "lease",
            Basis::Fallback => "fallback",
        })
    }

    /// The current lease as (capacity, seconds left), or None.
    #[getter]
    fn lease(&self) -> PyResult<Option<(f64, f64)>> {
        Ok(self.0.resource()?.lease().map(|(capacity, left)| (capacity.get(), left.as_secs_f64())))
    }

    /// The priority at which the server counts this client.
    #[getter]
    fn priority(&self) -> PyResult<i64> {
        Ok(self.0.resource()?.priority())
    }

    /// Whether the server said that nothing limits this resource, so that every request is granted.
    #[getter]
    fn unlimited(&self) -> PyResult<bool> {
        Ok(self.0.resource()?.is_unlimited())
    }

    /// Sets the wants. A change by more than a tenth is sent immediately, a smaller one with the next refresh.
    fn set_wants(&self, wants: f64) -> PyResult<()> {
        Ok(self.0.resource()?.set_wants(wants).map_err(ClientError::from)?)
    }

    /// Estimates the wants from now on, from the permits that callers take or wait for.
    fn estimate_wants(&self) -> PyResult<()> {
        Ok(self.0.resource()?.estimate_wants().map_err(ClientError::from)?)
    }

    /// Waits for a lease. Raises NotReady, which says why there is none.
    #[pyo3(signature = (timeout = 5.0))]
    fn ready(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        self.get_ready(timeout)?.block(py, None, self.0.id()).map(drop)
    }

    fn _ready(&self, py: Python<'_>, timeout: f64) -> PyResult<Py<PyAny>> {
        self.get_ready(timeout)?.start(py)
    }
}
