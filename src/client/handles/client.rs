//! The client and how it is built.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_core::Millis;
use leaseway_tls::{ClientTls, Credentials, Files};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};

use crate::{
    error::{BuildError, NotReady, check_id},
    handles::{asker::ClientAsker, book::Book, health::Health, resource_builder::ResourceBuilder, shared::Shared},
    session::{Mode, Pace, Session, Settings},
    transport::{
        Driver, Hints, Listener, Token, Transport,
        endpoint::{self, Endpoint},
    },
};

#[cfg(test)]
mod tests;

/// As the servers have it.
const RESOURCES_PER_REQUEST: usize = 1000;

/// A client of a Leaseway (or Doorman) node: keeps the leases of the resources that are open, in a task of its own.
/// Cheap to clone. When the last clone and the last resource are gone, everything is given back; to wait for that, call
/// [`close`](Self::close).
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

/// Shared by a client and its handles. The last to drop it closes the client.
pub(crate) struct CloseGuard {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mode: Mode,
    pub(crate) runtime: Handle,
    /// Dropped with the guard, which ends the thread of a blocking client.
    pub(crate) _gone: Option<oneshot::Sender<()>>,
}

impl Drop for CloseGuard {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// How a [`Client`] is to be.
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
    book: Option<Book>,
}

impl Client {
    /// A client with default settings. It connects by itself, and goes on trying: a server that is away is no error.
    /// Must be called within a tokio runtime.
    pub fn connect(endpoint: impl Into<String>) -> Result<Client, BuildError> {
        Client::builder().endpoint(endpoint).build()
    }

    /// A client with settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A resource to be opened, as a rate, a gauge or as it is.
    pub fn resource(&self, id: impl Into<Arc<str>>) -> ResourceBuilder {
        ResourceBuilder::new(Arc::clone(&self.guard), id.into())
    }

    /// The runtime that keeps its leases: for waiting in other threads than tokio's own.
    pub fn runtime(&self) -> &Handle {
        &self.guard.runtime
    }

    /// What it calls itself.
    pub fn id(&self) -> &str {
        &self.guard.shared.id
    }

    /// How it gets on with its servers.
    pub fn health(&self) -> Health {
        self.guard.shared.health()
    }

    /// Waits until every resource that is open has its first lease, or says which has none and why. One that has ended
    /// or never came is waited for, even if the [`Mode`] lets something through meanwhile.
    pub async fn ready(&self, timeout: Duration) -> Result<(), NotReady> {
        self.guard.shared.ready(None, timeout).await
    }

    /// Is told when what may be used has changed, of any resource that is open.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.guard.shared.changes()
    }

    /// Asks for leases for `span` from now on and not after it, until this is called again; an answer that comes later
    /// does not count. Leases live on until they end, and can be given back. For a client that passes on its leases to
    /// a process that may go to another client of the same id: this one may ask until that process may have gone there.
    pub fn ask_for(&self, span: Duration) {
        self.guard.shared.ask_for(span);
    }

    /// Ends without giving anything back: what it was leased counts until it ends by itself. For those that have passed
    /// on what they were leased, and cannot wait until that is over.
    pub fn abandon(&self) {
        self.guard.shared.abandon();
    }

    /// Gives everything back and waits until that is done, or has failed once: then leases end by themselves. What
    /// waits at a limiter is told that it is closed. Does the same when called again.
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
    /// A server of the node, as `HOST:PORT` (see [`endpoint::read`]). Name several, and any of them will do: one that
    /// is not the master says which is.
    #[must_use]
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Builder {
        self.endpoints.push(endpoint.into());
        self
    }

    /// Several servers of the node.
    #[must_use]
    pub fn endpoints<E: Into<String>>(mut self, endpoints: impl IntoIterator<Item = E>) -> Builder {
        self.endpoints.extend(endpoints.into_iter().map(Into::into));
        self
    }

    /// What the client calls itself, instead of `HOST:PID:NUMBER`. No two clients that run at the same time may share
    /// one: what one has been given would be taken for the other's.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Builder {
        self.id = Some(id.into());
        self
    }

    /// It limits others with what it is leased: servers show it as a gateway.
    #[must_use]
    pub fn gateway(mut self) -> Builder {
        self.is_gateway = true;
        self
    }

    /// What to use when leases have ended unrenewed; each resource can have its own.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Builder {
        self.mode = mode;
        self
    }

    /// How long an answer may take (3 s). Then the next server is tried.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Builder {
        self.pace.deadline = millis(deadline);
        self
    }

    /// The longest pause between attempts while no server answers (15 s). The first is 100 ms. Pauses also end early
    /// enough to try every endpoint once in a refresh interval (5 s until a server has said how long it is).
    #[must_use]
    pub fn backoff_max(mut self, pause: Duration) -> Builder {
        self.pace.backoff_max = millis(pause);
        self
    }

    /// Refreshes come no sooner than that (1 s), even if the server says so.
    #[must_use]
    pub fn refresh_min(mut self, interval: Duration) -> Builder {
        self.pace.refresh_min = millis(interval);
        self
    }

    /// Connects over TLS. An endpoint with `https://` does so as well, and then trusts the CAs of the system.
    #[must_use]
    pub fn tls(mut self, tls: &ClientTls) -> Builder {
        self.tls = Some(tls.clone());
        self
    }

    /// Says with every request who asks. It is sent over TLS, or to this machine.
    #[must_use]
    pub fn token(mut self, token: &Token) -> Builder {
        self.token = Some(token.clone());
        self
    }

    /// Shares connections with other clients of this process, and with them TLS and token.
    #[must_use]
    pub fn transport(mut self, transport: &Transport) -> Builder {
        self.transport = Some(transport.clone());
        self
    }

    /// Whether to listen for hints that asking now would change something (yes). Without them everything takes refresh
    /// intervals instead of round trips, and there is one stream less to every server.
    #[must_use]
    pub fn hints(mut self, listen: bool) -> Builder {
        self.without_hints = !listen;
        self
    }

    /// Writes down what may be used because of leases, for auditors.
    #[must_use]
    pub fn book(mut self, book: &Book) -> Builder {
        self.book = Some(book.clone());
        self
    }

    /// Makes jitter repeatable, for tests.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Builder {
        self.seed = Some(seed);
        self
    }

    /// The client. Must be called within a tokio runtime.
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
        let shared = Arc::new(Shared::new(id, session, self.book));
        let hints = (!self.without_hints).then(|| Hints::new(Listener::Client(Arc::clone(&shared.id))));
        let asker = ClientAsker::new(Arc::clone(&shared), self.is_gateway, deadline);
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
        Ok(match &self.token {
            Some(token) => transport.with_token(token.clone()),
            None => transport,
        })
    }
}

/// `HOST:PID:NUMBER`: no two clients that run at the same time have the same. Numbers begin anywhere: in containers
/// that share the name of their host every process may have the same id.
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
