//! The client, and the one that a forked process makes for itself.

use std::{
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leaseway_client::{Book, Client, ClientTls, Credentials, Files, Mode, Token};
use pyo3::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::{
    arguments,
    error::Fault,
    fork::{Own, life},
    state::Health,
    waiting::Call,
};

/// Keeps leases in a thread of its own. See `leaseway/client.py`.
#[pyclass(name = "Client", subclass, frozen, weakref, module = "leaseway._native")]
pub(crate) struct NativeClient {
    recipe: Recipe,
    /// Which process it was made in.
    made: u64,
    closed: AtomicBool,
    current: Mutex<Own<Live>>,
}

/// The client of this process.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) client: Client,
    book: Option<TimedBook>,
}

/// A book, and what Python's monotonic clock showed when it began: the books of all processes of a machine go together.
#[derive(Clone)]
struct TimedBook {
    book: Book,
    begun: Instant,
    monotonic: f64,
}

impl TimedBook {
    fn begin() -> TimedBook {
        let begun = Instant::now();
        let clock = clock_gettime(ClockId::Monotonic);
        TimedBook { book: Book::new(), begun, monotonic: clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9 }
    }

    fn take(&self) -> Vec<(f64, String, f64)> {
        let at = |at: Instant| self.monotonic + at.saturating_duration_since(self.begun).as_secs_f64();
        let entries = self.book.take().into_iter();
        entries.map(|entry| (at(entry.at), entry.resource.to_string(), entry.capacity)).collect()
    }
}

/// How to make a client. Files are named and not kept: what reads them has locks.
struct Recipe {
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
    book: bool,
}

impl Recipe {
    fn make(&self) -> Result<Live, Fault> {
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
        let book = self.book.then(TimedBook::begin);
        if let Some(book) = &book {
            builder = builder.book(&book.book);
        }
        Ok(Live { client: builder.build_blocking()?, book })
    }

    fn token(&self) -> Result<Option<Token>, Fault> {
        match (&self.token, &self.token_file) {
            (Some(_), Some(_)) => Err(Fault::Build("both token and token_file: say one of them".to_owned())),
            (Some(token), None) => Ok(Some(Token::new(token)?)),
            (None, Some(file)) => Ok(Some(Token::file(file)?)),
            (None, None) => Ok(None),
        }
    }

    /// Whether a forked process has an id of its own: two clients may not share one.
    fn is_unique(&self) -> bool {
        self.id.as_ref().is_none_or(|id| id.contains("{pid}"))
    }
}

impl NativeClient {
    /// The client of this process; in a forked one it is made when it is first needed.
    pub(crate) fn live(&self) -> Result<Live, Fault> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = current.get() {
            return Ok(live.clone());
        }
        if self.closed.load(Ordering::Relaxed) {
            return Err(Fault::closed());
        }
        if !self.recipe.is_unique() {
            let id = self.recipe.id.as_deref().unwrap_or_default();
            return Err(Fault::Forked(format!(
                "the client `{id}` belongs to the process that this one was forked from, and two clients may not share \
                 an id: make one after the fork, leave the id out, or have {{pid}} in it"
            )));
        }
        let live = self.recipe.make()?;
        *current = Own::new(live.clone());
        Ok(live)
    }

    /// That of this process, if there is one already.
    fn existing(&self) -> Option<Live> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).get().cloned()
    }

    /// Nothing is left to wait for in a process that has made none.
    fn closing(&self) -> Option<Call> {
        self.closed.store(true, Ordering::Relaxed);
        let live = self.existing()?;
        let runtime = live.client.runtime().clone();
        Some(Call::new(&runtime, async move {
            live.client.close().await;
            Ok::<(), Fault>(())
        }))
    }

    fn get_ready(&self, timeout: f64) -> PyResult<Call> {
        let timeout = arguments::seconds("timeout", timeout)?;
        let client = self.live()?.client;
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
        refresh_min = None, book = false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python's")]
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
        book: bool,
    ) -> PyResult<NativeClient> {
        let files = Files { certificate: tls_cert, key: tls_key, ca: tls_ca };
        let recipe = Recipe {
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
            book,
        };
        let current = Mutex::new(Own::new(recipe.make()?));
        Ok(NativeClient { recipe, made: life(), closed: AtomicBool::new(false), current })
    }

    /// What it calls itself.
    #[getter]
    fn id(&self) -> PyResult<String> {
        Ok(self.live()?.client.id().to_owned())
    }

    /// How it gets on with its servers.
    #[getter]
    fn health(&self) -> PyResult<Health> {
        Ok(self.live()?.client.health().into())
    }

    /// Waits until every resource that is open has its first lease; else NotReady says which has none, and why.
    #[pyo3(signature = (timeout = 5.0))]
    fn ready(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        self.get_ready(timeout)?.block(py, None, "").map(drop)
    }

    fn _ready(&self, py: Python<'_>, timeout: f64) -> PyResult<Py<PyAny>> {
        self.get_ready(timeout)?.start(py)
    }

    /// Gives everything back, and waits until that is done, or has failed once. Callers that wait are told Closed.
    #[pyo3(signature = (timeout = None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = arguments::maybe_seconds("timeout", timeout)?;
        self.closing().map_or(Ok(()), |call| call.block(py, timeout, "closing").map(drop))
    }

    fn _close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.closing().map_or(Ok(py.None()), |call| call.start(py))
    }

    /// What could be used because of leases since this was last called, for audits: `(time.monotonic(), resource,
    /// capacity)`, from then on. Kept only with `book=True`.
    fn take_book(&self) -> PyResult<Vec<(f64, String, f64)>> {
        Ok(self.live()?.book.map(|book| book.take()).unwrap_or_default())
    }

    fn __repr__(&self) -> String {
        let id = self.existing().map(|live| live.client.id().to_owned());
        let whose = if self.made == life() { "" } else { ", forked" };
        format!("Client(servers={:?}, id={:?}{whose})", self.recipe.servers, id.unwrap_or_default())
    }
}
