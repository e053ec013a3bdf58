//! Connections to servers: finding the master and calling it.

pub(crate) mod pages;
pub(crate) mod ports;
pub(crate) mod run_file;
pub(crate) mod search;
mod security;

use std::{cell::RefCell, future::Future, sync::Once, time::Duration};

use leaseway_client::endpoint::Endpoint;
use leaseway_client::{Channel, NoConnection, Transport, endpoint, tls_error};
use leaseway_proto::doorman::Mastership;
use leaseway_proto::status::status_client::StatusClient;
use leaseway_proto::status::{GetStatusRequest, GetStatusResponse};
use tokio::time::timeout;
use tonic::{Code, Status};

pub(crate) use self::security::{Security, TlsFlags};
use crate::connect::pages::Pages;
use crate::connect::ports::Wanted;
use crate::connect::run_file::Found;
use crate::connect::search::{Attempt, Attempted, SearchLimits, search};
use crate::error::{AddressSource, CliError, Port};
use crate::output::note;

/// The interval of HTTP/2 pings, and the timeout of their answers.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The maximum of `--timeout`: one hour.
const MAX_SECONDS: u64 = 3600;

#[derive(clap::Args, Clone)]
pub(crate) struct TimeLimit {
    /// Time limit for the whole command in seconds, 1 to 3600 [default: 5, or 1 if the connection is refused]
    #[arg(
        long,
        env = "LEASEWAY_TIMEOUT",
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=MAX_SECONDS)
    )]
    pub(crate) timeout: Option<u64>,
}

#[derive(clap::Args)]
pub(crate) struct Target {
    /// Servers of the cluster. They are tried in order, and any of them redirects to the master. To use TLS, write
    /// https:// before each address [default: the peers of a running leaseway up, else 127.0.0.1:5100]
    #[arg(
        long,
        env = "LEASEWAY_SERVER",
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        value_parser = endpoint::read
    )]
    server: Vec<Endpoint>,
    #[command(flatten)]
    pub(crate) limit: TimeLimit,
    #[command(flatten)]
    pub(crate) security: Security,
}

/// A server's status, and the connection to it.
pub(crate) struct Observed {
    pub(crate) status: GetStatusResponse,
    pub(crate) address: String,
    pub(crate) channel: Channel,
}

impl Target {
    /// The addresses to ask.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.found().addresses
    }

    fn found(&self) -> Found {
        found(Port::Clients, &self.server)
    }

    /// A target for other servers, with the same time limit and credentials.
    pub(crate) fn with_servers(&self, addresses: &[String]) -> Result<Target, CliError> {
        let server = addresses.iter().map(|address| endpoint::read(address)).collect::<Result<_, _>>();
        let server = server.map_err(|error| CliError::Client(error.to_string()))?;
        Ok(Target { server, limit: self.limit.clone(), security: self.security_beside() })
    }

    /// Credentials for servers whose addresses come from the given ones, without a scheme.
    pub(crate) fn security_beside(&self) -> Security {
        self.security.as_secured_as(&self.server)
    }

    pub(crate) fn transport(&self) -> Result<Transport, CliError> {
        self.security.transport(&self.server)
    }

    pub(crate) fn pages(&self) -> Result<Pages, CliError> {
        self.security.pages(&self.server)
    }

    pub(crate) fn timeout(&self) -> Duration {
        SearchLimits::of(self.limit.timeout).limit
    }

    /// Calls the servers in turn, and the master that they name.
    pub(crate) async fn ask_master<T, F: Future<Output = Result<T, Status>>>(
        &self,
        ask: impl Fn(Channel) -> F,
        mastership: impl Fn(&T) -> Option<&Mastership>,
    ) -> Result<T, CliError> {
        let (transport, Found { addresses, origin }) = (self.transport()?, self.found());
        let found =
            search(&addresses, SearchLimits::of(self.limit.timeout), async |address: &str, attempt: Attempt| {
                let channel = match reach(&transport, address, attempt).await {
                    Ok(channel) => channel,
                    Err(outcome) => return outcome,
                };
                let answer = match within(attempt.patience, ask(channel.clone())).await {
                    Ok(answer) => answer,
                    Err(status) => return failed(address, channel, &status, Wanted::Clients).await,
                };
                match mastership(&answer).map(|redirect| redirect.master_address.clone()) {
                    None => Attempted::Answer(answer),
                    Some(Some(master)) => Attempted::Elsewhere(master),
                    Some(None) => Attempted::NotNow(CliError::NoMaster { address: address.to_owned() }),
                }
            });
        found.await.map_err(|error| error.with_origin(origin))
    }

    /// The status of the master, which alone knows the leases; of any server if `here` is set or no master is known.
    pub(crate) async fn observe(&self, request: &GetStatusRequest, here: bool) -> Result<Observed, CliError> {
        let (headless, transport) = (RefCell::new(None), self.transport()?);
        let Found { addresses: servers, origin } = self.found();
        let found = search(&servers, SearchLimits::of(self.limit.timeout), async |address: &str, attempt: Attempt| {
            let observed = match look(&transport, address, attempt, request).await {
                Ok(observed) => observed,
                Err(outcome) => return outcome,
            };
            let status = &observed.status;
            let (is_master, master) = (status.is_master, status.master_address.clone());
            match master {
                _ if is_master || here => Attempted::Answer(observed),
                master if !master.is_empty() => Attempted::Elsewhere(master),
                _ if servers.len() == 1 => Attempted::Answer(observed),
                _ => {
                    headless.replace(Some(observed));
                    Attempted::NotNow(CliError::NoMaster { address: address.to_owned() })
                }
            }
        });
        found.await.or_else(|error| headless.take().ok_or(error.with_origin(origin)))
    }

    /// The status of one server, reached with the target's credentials.
    pub(crate) async fn observe_at(&self, address: &str, request: &GetStatusRequest) -> Result<Observed, CliError> {
        let (transport, server) = (self.transport()?, [address.to_owned()]);
        let look = async |address: &str, attempt: Attempt| {
            look(&transport, address, attempt, request).await.map_or_else(|outcome| outcome, Attempted::Answer)
        };
        search(&server, SearchLimits::of(self.limit.timeout), look).await
    }
}

async fn look(
    transport: &Transport,
    address: &str,
    attempt: Attempt,
    request: &GetStatusRequest,
) -> Result<Observed, Attempted<Observed>> {
    let channel = reach(transport, address, attempt).await?;
    match within(attempt.patience, get_status(&channel, request.clone())).await {
        Ok(status) => Ok(Observed { status, address: address.to_owned(), channel }),
        Err(status) => Err(failed(address, channel, &status, Wanted::Status).await),
    }
}

pub(crate) async fn get_status(channel: &Channel, request: GetStatusRequest) -> Result<GetStatusResponse, Status> {
    Ok(StatusClient::new(channel.clone()).get_status(request).await?.into_inner())
}

/// Limits the duration of a call.
pub(crate) async fn within<T>(limit: Duration, asked: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = || Status::deadline_exceeded(format!("no answer in {:.1} s", limit.as_secs_f64()));
    timeout(limit, asked).await.unwrap_or_else(|_| Err(late()))
}

/// The given addresses; without any, those of a running `leaseway up`, or the default.
pub(crate) fn found(port: Port, given: &[Endpoint]) -> Found {
    if given.is_empty() {
        let found = run_file::find(port);
        if let Some(process) = found.other_up(port) {
            // Once, because a command may search repeatedly.
            static SAID: Once = Once::new();
            SAID.call_once(|| note(format_args!("using the peers of `leaseway up` (process {process})")));
        }
        return found;
    }
    let addresses = given.iter().map(|server| server.address.clone()).collect();
    Found { addresses, origin: AddressSource::of_given(port) }
}

async fn reach<T>(transport: &Transport, address: &str, attempt: Attempt) -> Result<Channel, Attempted<T>> {
    let unreachable = |why| CliError::Unreachable { address: address.to_owned(), why, origin: None };
    connect(transport, address, attempt).await.map_err(|broken| broken.attempted(address, unreachable))
}

/// Classifies the error of a call that may be repeated.
async fn failed<T>(address: &str, channel: Channel, status: &Status, wanted: Wanted) -> Attempted<T> {
    let unreachable = |why| CliError::Unreachable { address: address.to_owned(), why, origin: None };
    if let Some(why) = tls_error(status) {
        return Attempted::Never(CliError::Tls { address: address.to_owned(), why });
    }
    if let Some(below) = not_grpc(status) {
        return match ports::speaks_otherwise(address, wanted).await {
            Some(wrong) => Attempted::Never(wrong),
            None => Attempted::NotNow(unreachable(below)),
        };
    }
    match status.code() {
        Code::Unimplemented => match ports::serves_otherwise(address, channel, wanted).await {
            Some(wrong) => Attempted::Never(wrong),
            None => Attempted::Never(refused(address, status)),
        },
        Code::DeadlineExceeded | Code::Cancelled => Attempted::NotNow(unreachable(status.message().to_owned())),
        Code::Unavailable => Attempted::NotNow(refused(address, status)),
        Code::Unauthenticated => {
            Attempted::Never(CliError::Unknown { address: address.to_owned(), why: status.message().to_owned() })
        }
        _ => Attempted::Never(refused(address, status)),
    }
}

/// Why there is no connection.
pub(crate) enum Broken {
    /// No process listens on the port.
    NothingListens(String),
    /// Possibly temporary.
    Unreachable(String),
    /// Permanent: one side rejects the other, or a token would be sent unencrypted.
    Refused(String),
}

impl Broken {
    /// The outcome of the attempt. `error` makes the error of a temporary failure.
    pub(crate) fn attempted<T>(self, address: &str, error: impl FnOnce(String) -> CliError) -> Attempted<T> {
        match self {
            Broken::NothingListens(why) => Attempted::NothingListens(error(why)),
            Broken::Unreachable(why) => Attempted::NotNow(error(why)),
            Broken::Refused(why) => Attempted::Never(CliError::Tls { address: address.to_owned(), why }),
        }
    }

    fn why(error: &NoConnection) -> Broken {
        if let Some(why) = tls_error(error) {
            return Broken::Refused(why);
        }
        if let NoConnection::TokenInTheClear(_) = error {
            return Broken::Refused(format!("{error} (--insecure)"));
        }
        let is_refused = chain(error).any(|error| {
            let error = error.downcast_ref::<std::io::Error>();
            error.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        });
        let why = root(error);
        if is_refused { Broken::NothingListens(why) } else { Broken::Unreachable(why) }
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Broken::NothingListens(why) | Broken::Unreachable(why) | Broken::Refused(why)) = self;
        f.write_str(why)
    }
}

pub(crate) async fn connect(transport: &Transport, address: &str, attempt: Attempt) -> Result<Channel, Broken> {
    // A server may name a master by a malformed address.
    let address = endpoint::parse(address).map_err(|error| Broken::Unreachable(error.to_string()))?;
    let connecting = transport.connect(&address, |endpoint| {
        let endpoint = endpoint.connect_timeout(attempt.patience).timeout(attempt.left);
        // Without keep-alive a subscriber would not notice that its server is gone.
        endpoint.http2_keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(KEEP_ALIVE)
    });
    let late = |_| Broken::Unreachable(format!("no connection in {:.1} s", attempt.patience.as_secs_f64()));
    timeout(attempt.patience, connecting).await.map_err(late)?.map_err(|error| Broken::why(&error))
}

/// The error for a status that a server sent.
pub(crate) fn refused(address: &str, status: &Status) -> CliError {
    let (address, why) = (address.to_owned(), status.message().to_owned());
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => CliError::Denied { address, why },
        code => CliError::Refused { address, code, why },
    }
}

/// The root cause of a status that was created on this side, not sent by the server.
pub(crate) fn from_below(status: &Status) -> Option<String> {
    std::error::Error::source(status).map(root)
}

/// Like [`from_below`], or tonic's message about an HTTP server without gRPC.
pub(crate) fn not_grpc(status: &Status) -> Option<String> {
    let says = |text| status.message().contains(text);
    let page = says("grpc-status header missing") || says("while receiving response with status: ");
    from_below(status).or_else(|| page.then(|| status.message().to_owned()))
}

fn chain<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// The root cause: "connection refused" rather than "transport error".
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    chain(error).last().unwrap_or(error).to_string()
}

/// Runs a command on a runtime of its own.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::Runtime)?;
    runtime.block_on(work)
}
