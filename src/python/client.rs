//! The client, which a forked process creates anew.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leaseway_client::{Client, ClientTls, Credentials, Files, LeaseTrace, Mode, Token};
use pyo3::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::{
    arguments,
    error::ClientError,
    fork::{PidGuarded, generation},
    waiting::Call,
};

/// A client, which keeps leases alive in a thread of its own. See `leaseway/client.py`.
#[pyclass(name = "Client", subclass, frozen, weakref, module = "leaseway._native")]
pub(crate) struct NativeClient {
    options: ClientOptions,
    /// The generation of the process that made it.
    made: u64,
    closed: AtomicBool,
    current: Mutex<PidGuarded<ProcessClient>>,
}

/// The client of this process.
#[derive(Clone)]
pub(crate) struct ProcessClient {
    pub(crate) client: Client,
    lease_trace: Option<TimedTrace>,
}

/// A trace, and the time of Python's monotonic clock at its start. With these times, the traces of all processes of a
/// machine can be merged.
#[derive(Clone)]
struct TimedTrace {
    lease_trace: LeaseTrace,
    begun: Instant,
    monotonic: f64,
}

impl TimedTrace {
    fn begin() -> TimedTrace {
        let begun = Instant::now();
        let clock = clock_gettime(ClockId::Monotonic);
        TimedTrace {
            lease_trace: LeaseTrace::new(),
            begun,
            monotonic: clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9,
        }
    }

    fn take(&self) -> Vec<(f64, String, f64)> {
        let at = |at: Instant| self.monotonic + at.saturating_duration_since(self.begun).as_secs_f64();
        let entries = self.lease_trace.take().into_iter();
        entries.map(|entry| (at(entry.at), entry.resource.to_string(), entry.capacity)).collect()
    }
}

/// The options of a client. Files are kept as paths, because loaded credentials have locks, which do not survive a
/// fork.
struct ClientOptions {
    servers: Vec<String>,
    id: Option<String>,
    mode: Mode,
    tls: Option<Files>,
    tls_server_name: Option<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    deadline: Option<Duration>,
    backoff_max: Option<Duration>,
    refresh_min: Option<Duration>,
    lease_trace: bool,
}

impl ClientOptions {
    fn make(&self) -> Result<ProcessClient, ClientError> {
        let mut builder = Client::builder().endpoints(&self.servers).mode(self.mode);
        if let Some(id) = &self.id {
            builder = builder.id(id.replace("{pid}", &std::process::id().to_string()));
        }
        if let Some(files) = &self.tls {
            let credentials = Credentials::load(files.clone())?;
            builder = builder.tls(&ClientTls::new(&credentials, self.tls_server_name.as_deref())?);
        }
        if let Some(token) = self.token()? {
            builder = builder.token(&token);
        }
        if let Some(deadline) = self.deadline {
            builder = builder.deadline(deadline);
        }
        if let Some(pause) = self.backoff_max {
            builder = builder.backoff_max(pause);
        }
        if let Some(interval) = self.refresh_min {
            builder = builder.refresh_min(interval);
        }
        let lease_trace = self.lease_trace.then(TimedTrace::begin);
        if let Some(lease_trace) = &lease_trace {
            builder = builder.lease_trace(&lease_trace.lease_trace);
        }
        Ok(ProcessClient { client: builder.build_blocking()?, lease_trace })
    }

    fn token(&self) -> Result<Option<Token>, ClientError> {
        match (&self.token, &self.token_file) {
            (Some(_), Some(_)) => {
                Err(ClientError::Build("token and token_file exclude each other: pass only one of them".to_owned()))
            }
            (Some(token), None) => Ok(Some(Token::new(token)?)),
            (None, Some(file)) => Ok(Some(Token::file(file)?)),
            (None, None) => Ok(None),
        }
    }

    /// Whether a forked process gets an id of its own. Two clients must not share one.
    fn is_unique(&self) -> bool {
        self.id.as_ref().is_none_or(|id| id.contains("{pid}"))
    }
}

impl NativeClient {
    /// The client of this process. A forked process makes it when it is first needed.
    pub(crate) fn current_client(&self) -> Result<ProcessClient, ClientError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current_client) = current.get() {
            return Ok(current_client.clone());
        }
        if self.closed.load(Ordering::Relaxed) {
            return Err(ClientError::closed());
        }
        if !self.options.is_unique() {
            let id = self.options.id.as_deref().unwrap_or_default();
            return Err(ClientError::Forked(format!(
                "the client `{id}` belongs to the process that this one was forked from, and two clients may not share \
                 an id: make one after the fork, leave the id out, or have {{pid}} in it"
            )));
        }
        let current_client = self.options.make()?;
        *current = PidGuarded::new(current_client.clone());
        Ok(current_client)
    }

    /// The client of this process, if there is one already.
    fn existing(&self) -> Option<ProcessClient> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).get().cloned()
    }

    /// The call that closes the client, unless this process has made none.
    fn closing(&self) -> Option<Call> {
        self.closed.store(true, Ordering::Relaxed);
        let current_client = self.existing()?;
        let runtime = current_client.client.runtime().clone();
        Some(Call::new(&runtime, async move {
            current_client.client.close().await;
            Ok::<(), ClientError>(())
        }))
    }

    fn get_ready(&self, timeout: f64) -> PyResult<Call> {
        let timeout = arguments::seconds("timeout", timeout)?;
        let client = self.current_client()?.client;
        let runtime = client.runtime().clone();
        Ok(Call::new(&runtime, async move { client.ready(timeout).await }))
    }
}

#[pymethods]
impl NativeClient {
    #[new]
    #[pyo3(signature = (
        servers, *, id = None, mode = "safe", tls = false, tls_ca = None, tls_cert = None, tls_key = None,
        tls_server_name = None, token = None, token_file = None, deadline = None, backoff_max = None,
        refresh_min = None, lease_trace = false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        servers: Vec<String>,
        id: Option<String>,
        mode: &str,
        tls: bool,
        tls_ca: Option<PathBuf>,
        tls_cert: Option<PathBuf>,
        tls_key: Option<PathBuf>,
        tls_server_name: Option<String>,
        token: Option<String>,
        token_file: Option<PathBuf>,
        deadline: Option<f64>,
        backoff_max: Option<f64>,
        refresh_min: Option<f64>,
        lease_trace: bool,
    ) -> PyResult<NativeClient> {
        let files = Files { certificate: tls_cert, key: tls_key, ca: tls_ca };
        let options = ClientOptions {
            servers,
            id,
            mode: arguments::mode(mode)?,
            tls: (tls || files.are_given() || tls_server_name.is_some()).then_some(files),
            tls_server_name,
            token,
            token_file,
            deadline: arguments::maybe_seconds("deadline", deadline)?,
            backoff_max: arguments::maybe_seconds("backoff_max", backoff_max)?,
            refresh_min: arguments::maybe_seconds("refresh_min", refresh_min)?,
            lease_trace,
        };
        let current = Mutex::new(PidGuarded::new(options.make()?));
        Ok(NativeClient { options, made: generation(), closed: AtomicBool::new(false), current })
    }

    /// The id of the client.
    #[getter]
    fn id(&self) -> PyResult<String> {
        Ok(self.current_client()?.client.id().to_owned())
    }

    /// The state of the connection to the servers.
    #[getter]
    fn health(&self) -> PyResult<Health> {
        Ok(self.current_client()?.client.health().into())
    }

    /// Waits until every open resource has its first lease. After `timeout` seconds it raises NotReady, which names the
    /// resources without a lease and the reason.
    #[pyo3(signature = (timeout = 5.0))]
    fn ready(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        self.get_ready(timeout)?.block(py, None, "").map(drop)
    }

    fn _ready(&self, py: Python<'_>, timeout: f64) -> PyResult<Py<PyAny>> {
        self.get_ready(timeout)?.start(py)
    }

    /// Releases all leases, and waits until that is done or has failed once. Waiting callers get Closed.
    #[pyo3(signature = (timeout = None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = arguments::maybe_seconds("timeout", timeout)?;
        self.closing().map_or(Ok(()), |call| call.block(py, timeout, "closing").map(drop))
    }

    fn _close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.closing().map_or(Ok(py.None()), |call| call.start(py))
    }

    /// The changes of leased capacity since the last call, for audits: tuples of `(time.monotonic(), resource,
    /// capacity)`. Recorded only with `lease_trace=True`.
    fn take_lease_trace(&self) -> PyResult<Vec<(f64, String, f64)>> {
        Ok(self.current_client()?.lease_trace.map(|lease_trace| lease_trace.take()).unwrap_or_default())
    }

    fn __repr__(&self) -> String {
        let id = self.existing().map(|current_client| current_client.client.id().to_owned());
        let whose = if self.made == generation() { "" } else { ", forked" };
        format!("Client(servers={:?}, id={:?}{whose})", self.options.servers, id.unwrap_or_default())
    }
}

/// The state of the connection to the servers.
#[pyclass(frozen, get_all, module = "leaseway._native")]
pub(crate) struct Health {
    /// The server that receives requests: the master, as far as known.
    server: String,
    /// The servers to try if `server` does not answer.
    endpoints: Vec<String>,
    /// The number of failed requests since the last answer.
    failures: u32,
    /// The error of the last failed request.
    last_error: Option<String>,
    /// The debt of each rate that has any.
    debts: BTreeMap<String, u64>,
}

impl From<leaseway_client::Health> for Health {
    fn from(health: leaseway_client::Health) -> Health {
        let leaseway_client::Health { server, endpoints, failures, last_error, debts, .. } = health;
        Health { server, endpoints, failures, last_error, debts: debts.into_iter().collect() }
    }
}

#[pymethods]
impl Health {
    fn __repr__(&self) -> String {
        let Health { server, endpoints, failures, last_error, debts } = self;
        format!(
            "Health(server={server:?}, endpoints={endpoints:?}, failures={failures}, last_error={}, debts={debts:?})",
            last_error.as_ref().map_or_else(|| "None".to_owned(), |error| format!("{error:?}"))
        )
    }
}
