//! Forwards requests to the master of the cluster.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leaseway_client::{
    Channel, Connection, Transport, tls_error,
    transport::{MasterReply, follow_redirects},
};
use leaseway_core::types::escaped;
use leaseway_proto::doorman::{
    GetCapacityRequest, GetCapacityResponse, Mastership, ReleaseCapacityRequest, ReleaseCapacityResponse,
    capacity_client::CapacityClient,
};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};

use super::problem::{Problem, ProblemKind};
use crate::lease_table::LeaseTableOptions;

/// The time limit for an answer of the master. Longer than an election.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for an answer of one server, after which another is asked.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before all servers are asked again.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The servers of a node, and the connection to the last known master.
#[derive(Debug)]
pub(super) struct Cluster {
    servers: Vec<Arc<str>>,
    transport: Transport,
    master: Mutex<Option<Arc<Connection>>>,
}

type Outcome<T> = MasterReply<T, Problem>;

impl Cluster {
    pub(super) fn new(options: &LeaseTableOptions) -> Cluster {
        let servers = options.servers.iter().map(|server| server.as_str().into()).collect();
        Cluster { servers, transport: options.transport.clone(), master: Mutex::default() }
    }

    pub(super) async fn get_capacity(&self, request: &GetCapacityRequest) -> Result<GetCapacityResponse, Problem> {
        let ask = |channel| {
            let request = request.clone();
            async move { Ok(CapacityClient::new(channel).get_capacity(request).await?.into_inner()) }
        };
        self.ask(ask, |answer| answer.mastership.as_ref()).await
    }

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

    /// Asks the last known master, then all servers in turn, until there is an answer or the timeout expires.
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
                let (ask, mastership, failure) = (&ask, &mastership, &last);
                let in_time = move |at: Arc<str>| async move {
                    if Instant::now() >= deadline {
                        return Outcome::Never(no_master(failure));
                    }
                    self.ask_one(&at, ask, mastership).await
                };
                match follow_redirects(Arc::clone(server), in_time).await.1 {
                    Outcome::Answer(answer) => return Ok(answer),
                    Outcome::Never(problem) => return Err(problem),
                    Outcome::Elsewhere(master) => last = format!("{master} is not the master"),
                    Outcome::NotNow(why) => last = why,
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
    ) -> Outcome<T> {
        let connection = match self.connection(address) {
            Ok(connection) => connection,
            Err(why) => return Outcome::NotNow(why),
        };
        let status = match timeout(ATTEMPT_TIMEOUT, ask(connection.channel.clone())).await {
            Ok(Ok(answer)) => {
                return match mastership(&answer).map(|redirect| redirect.master_address.as_deref()) {
                    None => {
                        *self.lock() = Some(connection);
                        Outcome::Answer(answer)
                    }
                    Some(Some(master)) if !master.is_empty() => Outcome::Elsewhere(master.into()),
                    Some(_) => Outcome::NotNow(format!("{address} is not the master and knows no master")),
                };
            }
            Ok(Err(status)) => status,
            Err(_) => {
                self.transport.distrust(&connection);
                self.lock().take_if(|master| Arc::ptr_eq(master, &connection));
                return Outcome::NotNow(format!("{address} does not answer"));
            }
        };
        refused(address, &status)
    }

    /// Reuses the connection to the master if it has this address.
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

/// Classifies an error that the server has returned.
fn refused<T>(address: &str, status: &Status) -> Outcome<T> {
    if let Some(why) = tls_error(status) {
        return Outcome::NotNow(format!("{address}: {why}"));
    }
    let message = escaped(status.message()).into_owned();
    match status.code() {
        Code::InvalidArgument => Outcome::Never(Problem::new(ProblemKind::BadValue, message)),
        Code::PermissionDenied => Outcome::Never(Problem::new(ProblemKind::Denied, message)),
        Code::ResourceExhausted => {
            Outcome::Never(Problem::new(ProblemKind::NoRoom, message).retry_after(Duration::from_secs(1)))
        }
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            Outcome::NotNow(format!("{address}: {message}"))
        }
        code => {
            let why = format!("the server at {address} answered {code:?}: {message}");
            Outcome::Never(Problem::new(ProblemKind::BadCluster, why))
        }
    }
}
