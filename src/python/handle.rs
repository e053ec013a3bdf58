//! Resources that are open, and opened anew in a forked process.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leaseway_client::{Basis, Gauge, Mode, OpenError, Rate, Resource, ResourceBuilder, limiter::Burst};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{arguments, client::NativeClient, error::Fault, fork::Own, waiting::Call};

/// How to open a resource.
pub(crate) struct Options {
    pub(crate) resource: String,
    pub(crate) wants: Option<f64>,
    pub(crate) priority: i64,
    pub(crate) mode: Option<Mode>,
    pub(crate) burst: Burst,
    pub(crate) max_debt: Option<u64>,
}

impl Options {
    fn of(&self, client: &leaseway_client::Client) -> ResourceBuilder {
        let mut builder = client.resource(self.resource.as_str()).priority(self.priority).burst(self.burst);
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

/// How much a rate may save up.
pub(crate) fn burst(permits: Option<f64>, window: Option<f64>) -> PyResult<Burst> {
    match (permits, window) {
        (Some(_), Some(_)) => Err(PyValueError::new_err("both burst and window: say one of them")),
        (Some(permits), None) if permits.is_finite() && permits >= 0.0 => Ok(Burst::Permits(permits)),
        (Some(permits), None) => Err(PyValueError::new_err(format!("burst={permits}: expected permits, 0 or more"))),
        (None, Some(window)) => Ok(Burst::Window(arguments::seconds("window", window)?)),
        (None, None) => Ok(Burst::Smooth),
    }
}

/// A rate or a gauge of the client library.
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

/// A handle that each process opens for itself.
pub(crate) struct Handle<L> {
    client: Py<NativeClient>,
    options: Options,
    current: Mutex<Own<Arc<L>>>,
}

impl<L: Limits> Handle<L> {
    pub(crate) fn open(client: Py<NativeClient>, options: Options) -> Result<Arc<Handle<L>>, Fault> {
        let opened = L::open(options.of(&client.get().live()?.client))?;
        Ok(Arc::new(Handle { client, options, current: Mutex::new(Own::new(Arc::new(opened))) }))
    }

    /// That of this process.
    pub(crate) fn limiter(&self) -> Result<Arc<L>, Fault> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = current.get() {
            return Ok(Arc::clone(opened));
        }
        let opened = Arc::new(L::open(self.options.of(&self.client.get().live()?.client))?);
        *current = Own::new(Arc::clone(&opened));
        Ok(opened)
    }

    pub(crate) fn id(&self) -> &str {
        &self.options.resource
    }

    /// A call that runs where the client does.
    pub(crate) fn call<G: crate::waiting::Gain, E: Into<Fault> + Send + 'static, F>(
        &self,
        start: impl FnOnce(Arc<L>) -> F,
    ) -> Result<Call, Fault>
    where
        F: Future<Output = Result<G, E>> + Send + 'static,
    {
        let limiter = self.limiter()?;
        let runtime = limiter.resource().runtime().clone();
        Ok(Call::new(&runtime, start(limiter)))
    }
}

/// What rates and gauges have in common.
#[pyclass(name = "Resource", subclass, frozen, module = "leaseway._native")]
pub(crate) struct NativeResource(Arc<dyn AnyHandle>);

trait AnyHandle: Send + Sync {
    fn id(&self) -> &str;
    fn client(&self, py: Python<'_>) -> Py<NativeClient>;
    fn look(&self) -> Result<Resource, Fault>;
}

impl<L: Limits> AnyHandle for Handle<L> {
    fn id(&self) -> &str {
        Handle::id(self)
    }

    fn client(&self, py: Python<'_>) -> Py<NativeClient> {
        self.client.clone_ref(py)
    }

    fn look(&self) -> Result<Resource, Fault> {
        Ok(self.limiter()?.resource().clone())
    }
}

impl NativeResource {
    pub(crate) fn of<L: Limits>(handle: &Arc<Handle<L>>) -> NativeResource {
        NativeResource(Arc::clone(handle) as Arc<dyn AnyHandle>)
    }

    fn get_ready(&self, timeout: f64) -> PyResult<Call> {
        let timeout: Duration = arguments::seconds("timeout", timeout)?;
        let resource = self.0.look()?;
        let runtime = resource.runtime().clone();
        Ok(Call::new(&runtime, async move { resource.ready(timeout).await }))
    }
}

#[pymethods]
impl NativeResource {
    /// Which resource.
    #[getter]
    fn id(&self) -> &str {
        self.0.id()
    }

    /// Whose handle it is.
    #[getter]
    fn client(&self, py: Python<'_>) -> Py<NativeClient> {
        self.0.client(py)
    }

    /// How much may be used now; infinite without a limit.
    #[getter]
    fn capacity(&self) -> PyResult<f64> {
        Ok(self.0.look()?.capacity().get())
    }

    /// Why so much: "lease" while there is one, "fallback" if it has ended or none could be had and the mode decides,
    /// "unknown" before the first answer.
    #[getter]
    fn basis(&self) -> PyResult<&'static str> {
        Ok(match self.0.look()?.usable().basis {
            Basis::Unknown => "unknown",
            Basis::Lease => "lease",
            Basis::Fallback => "fallback",
        })
    }

    /// The lease there is now: (how much, for how many seconds still); or None.
    #[getter]
    fn lease(&self) -> PyResult<Option<(f64, f64)>> {
        Ok(self.0.look()?.lease().map(|(capacity, left)| (capacity.get(), left.as_secs_f64())))
    }

    /// At what priority the server counts this client.
    #[getter]
    fn priority(&self) -> PyResult<i64> {
        Ok(self.0.look()?.priority())
    }

    /// Asks for so much from now on: at once if that differs by more than a tenth, else with the next refresh.
    fn set_wants(&self, wants: f64) -> PyResult<()> {
        Ok(self.0.look()?.set_wants(wants).map_err(Fault::from)?)
    }

    /// Estimates from now on what is wanted, from what passes and what waits.
    fn estimate_wants(&self) -> PyResult<()> {
        Ok(self.0.look()?.estimate_wants().map_err(Fault::from)?)
    }

    /// Waits until it has a lease; else NotReady says why it has none.
    #[pyo3(signature = (timeout = 5.0))]
    fn ready(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        self.get_ready(timeout)?.block(py, None, self.0.id()).map(drop)
    }

    fn _ready(&self, py: Python<'_>, timeout: f64) -> PyResult<Py<PyAny>> {
        self.get_ready(timeout)?.start(py)
    }
}
