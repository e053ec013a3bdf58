//! Requests that are passed on to the cluster's master as they are.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leaseway_client::{Channel, Connection, Transport, tls_error};
use leaseway_core::escaped;
use leaseway_proto::doorman::{
    GetCapacityRequest, GetCapacityResponse, Mastership, ReleaseCapacityRequest, ReleaseCapacityResponse,
    capacity_client::CapacityClient,
};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};

use super::problem::{Problem, ProblemKind};
use crate::lease_table::LeaseTableOptions;

/// An election is over sooner.
const TIMEOUT: Duration = Duration::from_secs(5);
/// After so long without an answer another server is asked.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Before all are asked once more.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// Servers that name each other are not followed for ever.
const MAX_REDIRECTS: usize = 4;

/// The servers of a node, and which of them answered as its master.
#[derive(Debug)]
pub(super) struct Cluster {
    servers: Vec<Arc<str>>,
    transport: Transport,
    master: Mutex<Option<Arc<Connection>>>,
}

/// What became of asking one server.
enum Heard<T> {
    Answer(T),
    /// It knows who the master is.
    Elsewhere(Arc<str>),
    /// It, or another, may answer later.
    NotNow(String),
    Never(Problem),
}

impl Cluster {
    /// The one that the bridge has its leases from.
    pub(super) fn new(options: &LeaseTableOptions) -> Cluster {
        let servers = options.servers.iter().map(|server| server.as_str().into()).collect();
        Cluster { servers, transport: options.transport.clone(), master: Mutex::default() }
    }

    /// Asks for capacity.
    pub(super) async fn get_capacity(&self, request: &GetCapacityRequest) -> Result<GetCapacityResponse, Problem> {
        let ask = |channel| {
            let request = request.clone();
            async move { Ok(CapacityClient::new(channel).get_capacity(request).await?.into_inner()) }
        };
        self.ask(ask, |answer| answer.mastership.as_ref()).await
    }

    /// Gives capacity back.
    pub(super) async fn release_capacity(
        &self,
        request: &ReleaseCapacityRequest,
    ) -> Result<ReleaseCapacityResponse, Problem> {
        let ask = |channel| {
            let request = request.clone();
            async move { Ok(CapacityClient::new(channel).release_capacity(request).await?.into_inner()) }
        };
        self.ask(ask, |answer| answer.mastership.as_ref()).await
    }

    /// Asks the server that last was the master, then all of them in turn, until there is an answer or time is up.
    async fn ask<T, F: Future<Output = Result<T, Status>>>(
        &self,
        ask: impl Fn(Channel) -> F,
        mastership: impl Fn(&T) -> Option<&Mastership>,
    ) -> Result<T, Problem> {
        let deadline = Instant::now() + TIMEOUT;
        let mut last = String::new();
        loop {
            let known = self.known_master().map(|connection| Arc::clone(&connection.address));
            for server in known.iter().chain(&self.servers) {
                let mut at = Arc::clone(server);
                for _ in 0..=MAX_REDIRECTS {
                    if Instant::now() >= deadline {
                        return Err(no_master(&last));
                    }
                    match self.ask_one(&at, &ask, &mastership).await {
                        Heard::Answer(answer) => return Ok(answer),
                        Heard::Never(problem) => return Err(problem),
                        Heard::Elsewhere(master) => at = master,
                        Heard::NotNow(why) => {
                            last = why;
                            break;
                        }
                    }
                }
            }
            sleep(RETRY_DELAY).await;
        }
    }

    async fn ask_one<T, F: Future<Output = Result<T, Status>>>(
        &self,
        address: &Arc<str>,
        ask: &impl Fn(Channel) -> F,
        mastership: &impl Fn(&T) -> Option<&Mastership>,
    ) -> Heard<T> {
        let connection = match self.connection(address) {
            Ok(connection) => connection,
            Err(why) => return Heard::NotNow(why),
        };
        let status = match timeout(ATTEMPT_TIMEOUT, ask(connection.channel.clone())).await {
            Ok(Ok(answer)) => {
                return match mastership(&answer).map(|elsewhere| elsewhere.master_address.as_deref()) {
                    None => {
                        *self.lock() = Some(connection);
                        Heard::Answer(answer)
                    }
                    Some(Some(master)) if !master.is_empty() => Heard::Elsewhere(master.into()),
                    Some(_) => Heard::NotNow(format!("{address} is not the master and knows of none")),
                };
            }
            Ok(Err(status)) => status,
            Err(_) => {
                self.transport.distrust(&connection);
                self.lock().take_if(|master| Arc::ptr_eq(master, &connection));
                return Heard::NotNow(format!("{address} does not answer"));
            }
        };
        refused(address, &status)
    }

    /// The one in use, if it is to this address.
    fn connection(&self, address: &Arc<str>) -> Result<Arc<Connection>, String> {
        match self.known_master().filter(|master| master.address == *address) {
            Some(master) => Ok(master),
            None => self.transport.connection(address).map_err(|error| error.to_string()),
        }
    }

    fn known_master(&self) -> Option<Arc<Connection>> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Connection>>> {
        self.master.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_master(last: &str) -> Problem {
    let why = format!("no master answered within {} s: {}", TIMEOUT.as_secs(), escaped(last));
    Problem::new(ProblemKind::NoMaster, why).retry_after(Duration::from_secs(1))
}

/// What an error of the server means for the caller.
fn refused<T>(address: &str, status: &Status) -> Heard<T> {
    if let Some(why) = tls_error(status) {
        return Heard::NotNow(format!("{address}: {why}"));
    }
    let message = escaped(status.message()).into_owned();
    match status.code() {
        Code::InvalidArgument => Heard::Never(Problem::new(ProblemKind::BadValue, message)),
        Code::PermissionDenied => Heard::Never(Problem::new(ProblemKind::Denied, message)),
        Code::ResourceExhausted => {
            Heard::Never(Problem::new(ProblemKind::NoRoom, message).retry_after(Duration::from_secs(1)))
        }
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            Heard::NotNow(format!("{address}: {message}"))
        }
        code => {
            let why = format!("the server at {address} answered {code:?}: {message}");
            Heard::Never(Problem::new(ProblemKind::BadCluster, why))
        }
    }
}
