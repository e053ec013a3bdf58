//! The client and how it is built.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_core::types::Millis;
use leaseway_tls::{ClientTls, Credentials, Files};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};

use crate::{
    error::{BuildError, NotReady, check_id},
    handles::{
        asker::ClientAsker,
        lease_trace::LeaseTrace,
        limits::{Cost, Limits},
        resource_builder::ResourceBuilder,
        shared::{CloseGuard, Health, Shared},
    },
    session::{Mode, Pace, Session, Settings},
    transport::{
        Driver, Hints, Listener, Token, Transport,
        endpoint::{self, Endpoint},
    },
};

#[cfg(test)]
mod tests;

/// The default of `--max-resources-per-request` on servers.
const RESOURCES_PER_REQUEST: usize = 1000;

/// A client of a Leaseway (or Doorman) node. It keeps the leases of open resources alive, in a task of its own.
///
/// Clones are cheap and share the client. When the last clone and the last resource handle are dropped, all leases are
/// released in the background. Call [`close`](Self::close) to wait for that.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = leaseway_client::Client::connect("localhost:5100")?;
/// let searches = client.resource("searches").rate()?;
/// searches.wait().await?;
/// // … search …
/// client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    guard: Arc<CloseGuard>,
}

/// Builder of a [`Client`].
#[derive(Debug, Clone, Default)]
pub struct Builder {
    endpoints: Vec<String>,
    id: Option<String>,
    mode: Mode,
    pace: Pace,
    transport: Option<Transport>,
    tls: Option<ClientTls>,
    token: Option<Token>,
    seed: Option<u64>,
    without_hints: bool,
    is_gateway: bool,
    without_streams: bool,
    lease_trace: Option<LeaseTrace>,
}

impl Client {
    /// Creates a client with default settings. It connects in the background and keeps trying, so an unreachable server
    /// is not an error. Must be called within a tokio runtime.
    pub fn connect(endpoint: impl Into<String>) -> Result<Client, BuildError> {
        Client::builder().endpoint(endpoint).build()
    }

    /// Returns a builder.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a builder to open a resource as a rate, as a gauge, or without a limiter.
    pub fn resource(&self, id: impl Into<Arc<str>>) -> ResourceBuilder {
        ResourceBuilder::new(Arc::clone(&self.guard), id.into())
    }

    /// Opens a budget: an amount that may be spent in each period. See [`Budget`](crate::Budget).
    pub fn budget(&self, id: impl Into<Arc<str>>) -> Result<crate::Budget, crate::OpenError> {
        self.resource(id).budget()
    }

    /// Several limits of which an operation needs permits at the same time: all of them, or none. See [`Limits`].
    pub fn limits(&self, costs: impl IntoIterator<Item = Cost>) -> Limits {
        Limits::new(costs, self.guard.runtime.clone())
    }

    /// The runtime that the client runs on, for blocking on it from other threads.
    pub fn runtime(&self) -> &Handle {
        &self.guard.runtime
    }

    /// The id of the client.
    pub fn id(&self) -> &str {
        &self.guard.shared.id
    }

    /// The state of the connection to the servers.
    pub fn health(&self) -> Health {
        self.guard.shared.health()
    }

    /// Waits until every open resource has a lease. The error names those without one, and the reason. A fallback
    /// capacity due to the [`Mode`] does not count, and neither do resources that are closed meanwhile. Fails if the
    /// client is closed.
    pub async fn ready(&self, timeout: Duration) -> Result<(), NotReady> {
        self.guard.shared.ready(None, timeout).await
    }

    /// Notified when the usable capacity of any open resource has changed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.guard.shared.changes()
    }

    /// Lets the client request leases for `span` from now on; another call sets a new limit. Answers that arrive later
    /// are dropped. Leases stay live until they expire, and can still be released.
    ///
    /// For a client that forwards its leases to a process. If that process may switch to another client with the same
    /// id, this client must stop requesting leases before the switch.
    pub fn ask_for(&self, span: Duration) {
        self.guard.shared.ask_for(span);
    }

    /// Closes without releasing leases; they count until they expire. For clients that forwarded their leases and
    /// cannot revoke them.
    pub fn abandon(&self) {
        self.guard.shared.abandon();
    }

    /// Releases all leases, and waits until that is done or has failed once; then they expire. Callers waiting at a
    /// limiter get [`Closed`](crate::limiter::Closed). Idempotent.
    pub async fn close(&self) {
        self.guard.shared.close();
        self.guard.shared.closed().await;
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Builder {
    /// Adds a server of the node, as `HOST:PORT` (see [`endpoint::read`]). Any server will do, because one that is not
    /// the master redirects; name several for fault tolerance.
    #[must_use]
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Builder {
        self.endpoints.push(endpoint.into());
        self
    }

    /// Adds several servers of the node.
    #[must_use]
    pub fn endpoints<E: Into<String>>(mut self, endpoints: impl IntoIterator<Item = E>) -> Builder {
        self.endpoints.extend(endpoints.into_iter().map(Into::into));
        self
    }

    /// Sets the id of the client (default `HOST:PID:NUMBER`). Two clients that run at the same time must not share an
    /// id: the server would mix up their leases.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Builder {
        self.id = Some(id.into());
        self
    }

    /// Marks the client as a gateway, which limits others with its leases. Servers show it as such.
    #[must_use]
    pub fn gateway(mut self) -> Builder {
        self.is_gateway = true;
        self
    }

    /// Renews all leases by requests that name each. By default a client with a hundred leases or more uses a stream, if
    /// the server offers it, and sends only what has changed.
    #[must_use]
    pub fn without_streams(mut self) -> Builder {
        self.without_streams = true;
        self
    }

    /// Sets the capacity to use after a lease has expired without a refresh. Resources can override the mode.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Builder {
        self.mode = mode;
        self
    }

    /// Sets the timeout of requests (default 3 s). After a timeout the client tries the next server.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Builder {
        self.pace.deadline = millis(deadline);
        self
    }

    /// Sets the maximum pause between attempts while no server answers (default 15 s). The first pause is 100 ms.
    /// Pauses are also bounded such that every endpoint is tried once per refresh interval (5 s until it is known).
    #[must_use]
    pub fn backoff_max(mut self, pause: Duration) -> Builder {
        self.pace.backoff_max = millis(pause);
        self
    }

    /// Sets the minimum refresh interval (default 1 s), whatever the server says.
    #[must_use]
    pub fn refresh_min(mut self, interval: Duration) -> Builder {
        self.pace.refresh_min = millis(interval);
        self
    }

    /// Connects over TLS. Endpoints with `https://` do so as well, and trust the CAs of the system by default.
    #[must_use]
    pub fn tls(mut self, tls: &ClientTls) -> Builder {
        self.tls = Some(tls.clone());
        self
    }

    /// Sends a bearer token with every request. It is only sent over TLS, or to this machine: other endpoints are an
    /// error of [`build`](Self::build).
    #[must_use]
    pub fn token(mut self, token: &Token) -> Builder {
        self.token = Some(token.clone());
        self
    }

    /// Shares connections with other clients of this process, including TLS settings and token.
    #[must_use]
    pub fn transport(mut self, transport: &Transport) -> Builder {
        self.transport = Some(transport.clone());
        self
    }

    /// Sets whether to listen to the server's hints to refresh early (default true). Without hints, changes of leases
    /// take refresh intervals instead of round trips, and the client needs no stream for hints.
    #[must_use]
    pub fn hints(mut self, listen: bool) -> Builder {
        self.without_hints = !listen;
        self
    }

    /// Records changes of leased capacity, for audits.
    #[must_use]
    pub fn lease_trace(mut self, lease_trace: &LeaseTrace) -> Builder {
        self.lease_trace = Some(lease_trace.clone());
        self
    }

    /// Seeds the jitter, for reproducible tests.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Builder {
        self.seed = Some(seed);
        self
    }

    /// Builds the client. Must be called within a tokio runtime.
    pub fn build(self) -> Result<Client, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let (client, driver) = self.assemble(runtime.clone(), None)?;
        runtime.spawn(driver.run());
        Ok(client)
    }

    pub(crate) fn assemble(
        self,
        runtime: Handle,
        gone: Option<oneshot::Sender<()>>,
    ) -> Result<(Client, Driver<ClientAsker>), BuildError> {
        if self.endpoints.is_empty() {
            return Err(BuildError::NoEndpoint);
        }
        let endpoints: Vec<_> =
            self.endpoints.iter().map(|endpoint| endpoint::read(endpoint)).collect::<Result<_, _>>()?;
        let transport = self.make_transport(&endpoints)?;
        let endpoints = endpoints.into_iter().map(|endpoint| endpoint.address.into()).collect();
        let id: Arc<str> = self.id.unwrap_or_else(unique_id).into();
        check_id(&id).map_err(BuildError::BadId)?;
        let deadline = Duration::from_millis(self.pace.deadline.0);
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        let session =
            Session::new(Settings { endpoints, pace: self.pace, resources_per_request: RESOURCES_PER_REQUEST, seed });
        let shared = Arc::new(Shared::new(id, session, self.lease_trace));
        let hints = (!self.without_hints).then(|| Hints::new(Listener::Client(Arc::clone(&shared.id))));
        let asker = ClientAsker::new(Arc::clone(&shared), self.is_gateway, !self.without_streams, deadline);
        let driver = Driver::new(asker, transport, hints);
        let guard = CloseGuard { shared, mode: self.mode, runtime, _gone: gone };
        Ok((Client { guard: Arc::new(guard) }, driver))
    }
}

impl Builder {
    fn make_transport(&self, endpoints: &[Endpoint]) -> Result<Transport, BuildError> {
        if let Some(shared) = &self.transport {
            if self.tls.is_some() || self.token.is_some() {
                return Err(BuildError::SharedTransport);
            }
            if endpoint::over_tls(endpoints, shared.is_secured())? && !shared.is_secured() {
                return Err(BuildError::SharedTransport);
            }
            return Ok(shared.clone());
        }
        let mut transport = Transport::new();
        if endpoint::over_tls(endpoints, self.tls.is_some())? {
            let tls = match &self.tls {
                Some(tls) => tls.clone(),
                None => ClientTls::new(&Credentials::load(Files::default())?, None)?,
            };
            transport = transport.with_tls(tls);
        }
        let Some(token) = &self.token else { return Ok(transport) };
        let transport = transport.with_token(token.clone());
        match endpoints.iter().find(|endpoint| transport.exposes_token(&endpoint.address)) {
            Some(exposed) => Err(BuildError::TokenInTheClear(exposed.address.clone())),
            None => Ok(transport),
        }
    }
}

/// A unique `HOST:PID:NUMBER`. Numbers start at random, because processes in containers with the same host name may
/// have the same PID.
fn unique_id() -> String {
    static FIRST: LazyLock<u64> = LazyLock::new(|| u64::from(fastrand::u32(..)));
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = *FIRST + NUMBER.fetch_add(1, Ordering::Relaxed);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}:{}:{number}", std::process::id())
}

fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
