//! gRPC on the arbiter threads, behind one listener.
//!
//! Each arbiter is a current-thread runtime, on which a connection is served and its requests are decided. One listener
//! accepts all connections and distributes them ([`distribute`](crate::listen::distribute)): with SO_REUSEPORT, a
//! second server could silently bind the same port. hyper reads the requests, and [`dispatch`] dispatches them.

pub(crate) mod admin;
mod capacity;
mod convert;
mod dispatch;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub(crate) mod pools;
mod problems;
mod push;
mod session;
mod status;

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use leaseway_proto::{
    admin::MASTER_METADATA, doorman::capacity_server::CapacityServer, push::push_server::PushServer,
    session::session_server::SessionServer, status::status_server::StatusServer,
};
use leaseway_raft::ProposeError;
use tokio::sync::{mpsc, watch};
use tonic::{
    Status,
    metadata::{Ascii, MetadataValue},
    service::Routes,
};
use tonic_health::server::HealthReporter;

pub(crate) use self::capacity::CapacityService;
pub use self::dispatch::extra_method::{ExtraMethod, GrpcCaller};
use self::dispatch::{ConnectionService, Dispatcher, HotServices, request_body::BodyLimits};
pub(crate) use self::{push::PushService, session::SessionService, status::StatusService};
use crate::{
    auth::{Admitted, Authorizer},
    config::limits::Limits,
    listen::{
        Accepted, ArbiterConnection, Connection, Listener,
        open_connections::{CLOSE_TIMEOUT, Ending, OpenConnection},
    },
    node::{NotMaster, RequestError},
    runtime::signals::until,
};

/// The services of the clients' listener.
#[derive(Clone)]
pub(crate) struct GrpcServices {
    pub(crate) capacity: CapacityService,
    pub(crate) status: StatusService,
    pub(crate) push: PushService,
    pub(crate) session: SessionService,
    pub(crate) health: HealthReporter,
}

/// Maximum number of concurrent requests per connection.
const MAX_STREAMS: u32 = 1024;
/// Time without a message before a keep-alive ping.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Time to answer a keep-alive ping before the connection is closed.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Default and maximum number of rows in a page of a list.
const PAGE_ROWS: usize = 100;
const MAX_PAGE_ROWS: usize = 1000;

/// Serves an arbiter's connections until `stop`. Then each is closed as soon as its pending requests are answered.
pub(crate) async fn serve(
    services: GrpcServices,
    authorizer: Arc<Authorizer>,
    limits: Arc<Limits>,
    mut connections: mpsc::UnboundedReceiver<ArbiterConnection>,
    stop: watch::Receiver<bool>,
) {
    let server = Server::new(dispatcher(services, authorizer, &limits));
    let mut stopped = pin!(until(stop.clone()));
    loop {
        let next = tokio::select! {
            () = &mut stopped => return,
            next = connections.recv() => next,
        };
        let Some((accepted, connection_count)) = next else { return };
        let served = server.serve_connection(accepted, stop.clone());
        tokio::spawn(async move {
            let _connection_count = connection_count;
            served.await;
        });
    }
}

struct Server {
    dispatcher: Arc<Dispatcher>,
    http2: http2::Builder<TokioExecutor>,
}

impl Server {
    fn new(dispatcher: Dispatcher) -> Server {
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .keep_alive_interval(Some(KEEP_ALIVE))
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            // gRPC clients do not use the Date header.
            .auto_date_header(false);
        Server { dispatcher: Arc::new(dispatcher), http2 }
    }

    /// Serves one connection, including its handshake.
    fn serve_connection(
        &self,
        accepted: Accepted,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (dispatcher, http2) = (Arc::clone(&self.dispatcher), self.http2.clone());
        async move {
            let open = accepted.open_connection();
            // Boxed, so that the memory of the handshake is freed before the first request.
            let opened = tokio::select! {
                opened = Box::pin(accepted.open()) => opened,
                _ = open.wait_for_ending() => None,
                () = until(stop) => None,
            };
            let Some(connection) = opened else { return };
            let service = ConnectionService::new(dispatcher, connection.caller().clone(), Arc::clone(&open));
            serve_connection(http2.serve_connection(TokioIo::new(connection), service), open).await;
        }
    }
}

type Served = http2::Connection<TokioIo<Connection>, ConnectionService, TokioExecutor>;

async fn serve_connection(served: Served, connection: Arc<OpenConnection>) {
    let mut served = pin!(served);
    let ended = tokio::select! {
        biased;
        ended = &mut served => ended,
        how = connection.wait_for_ending() => match how {
            Ending::Now => return,
            Ending::Soon => {
                served.as_mut().graceful_shutdown();
                tokio::time::timeout(CLOSE_TIMEOUT, served).await.unwrap_or(Ok(()))
            }
            Ending::WhenDone => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        },
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection broken");
    }
}

/// Accepts and serves connections on this thread until `stop`. For listeners with few connections.
pub(crate) async fn serve_here(listener: Listener, services: Routes, limits: &Limits, stop: watch::Receiver<bool>) {
    serve_all(listener, Server::new(Dispatcher::new(None, body_limits(limits), services)), stop).await;
}

/// Like [`serve_here`], with a [`GrpcCaller`] in each request.
pub(crate) async fn serve_guarded(
    listener: Listener,
    services: Routes,
    extra_methods: Vec<ExtraMethod>,
    authorizer: Arc<Authorizer>,
    limits: &Limits,
    stop: watch::Receiver<bool>,
) {
    serve_all(
        listener,
        Server::new(Dispatcher::guarded(authorizer, body_limits(limits), services, extra_methods)),
        stop,
    )
    .await;
}

async fn serve_all(listener: Listener, server: Server, stop: watch::Receiver<bool>) {
    let mut stopped = pin!(until(stop.clone()));
    loop {
        tokio::select! {
            () = &mut stopped => return,
            accepted = listener.accept() => drop(tokio::spawn(server.serve_connection(accepted, stop.clone()))),
        }
    }
}

fn body_limits(limits: &Limits) -> BodyLimits {
    BodyLimits { message_bytes: limits.message_bytes, timeout: Duration::from_secs(limits.request_secs) }
}

fn dispatcher(services: GrpcServices, authorizer: Arc<Authorizer>, limits: &Limits) -> Dispatcher {
    let message_bytes = limits.message_bytes;
    let capacity = CapacityServer::new(services.capacity.clone()).max_decoding_message_size(message_bytes);
    let status = StatusServer::new(services.status).max_decoding_message_size(message_bytes);
    let push = PushServer::new(services.push.clone()).max_decoding_message_size(message_bytes);
    let session = SessionServer::new(services.session).max_decoding_message_size(message_bytes);
    let health = tonic_health::pb::health_server::HealthServer::new(
        tonic_health::server::HealthService::from_health_reporter(services.health),
    );
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(leaseway_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors are valid, as tested");
    let others = Routes::new(capacity).add_service(status).add_service(push).add_service(session);
    let others = others.add_service(health).add_service(reflection);
    let hot = HotServices { capacity: services.capacity, push: services.push, authorizer };
    Dispatcher::new(Some(hot), body_limits(limits), others)
}

/// The caller of a request, as set by the dispatcher. If it is missing, any policy denies the request.
fn admitted<T>(request: &tonic::Request<T>, authorizer: &Arc<Authorizer>) -> Admitted {
    request.extensions().get::<Admitted>().cloned().unwrap_or_else(|| Admitted::unknown(authorizer))
}

/// The error of a follower, for methods whose answers have no field for the master's address.
fn not_master(why: &NotMaster) -> Status {
    Status::failed_precondition(RequestError::NotMaster(why.clone()).to_string())
}

/// The outcome of a change, for the audit log.
fn outcome<T>(result: &Result<T, Status>) -> Result<(), String> {
    result.as_ref().map(drop).map_err(|status| status.message().to_owned())
}

fn page_size(requested: u32) -> usize {
    if requested == 0 { PAGE_ROWS } else { (requested as usize).min(MAX_PAGE_ROWS) }
}

/// The answer of a peer that is not the master, with the master's admin address in its metadata.
fn not_master_status(why: &NotMaster) -> Status {
    let mut status = match why.master {
        Some(_) => not_master(why),
        None => Status::unavailable("there is no master at the moment; try again in a second"),
    };
    // Empty if no master is known.
    let admin = why.master.as_ref().map_or("", |master| &master.admin);
    if let Ok(admin) = admin.parse::<MetadataValue<Ascii>>() {
        status.metadata_mut().insert(MASTER_METADATA, admin);
    }
    status
}

/// The error for a failed proposal, which may have been stored nevertheless.
fn proposal_failed(error: &ProposeError) -> Status {
    match error {
        ProposeError::TooLarge { .. } => Status::invalid_argument(error.to_string()),
        _ => Status::unavailable(format!("{error}; check what is in force, then try again")),
    }
}

/// A node without peers, for tests.
#[cfg(test)]
fn start_node(
    repository: leaseway_core::policy::template::Repository,
    threads: &crate::node::Threads,
) -> crate::node::NodeHandle {
    let start = crate::node::NodeStart {
        repository,
        access: None,
        authorizer: Arc::new(Authorizer::open()),
        source: "test".into(),
        text: "".into(),
        limits: Arc::new(Limits::default()),
        clock: crate::runtime::clock::Clock::start(),
        arbiters: threads.handles(),
        seed: 1,
        membership: None,
        parent: None,
        accounts: Arc::default(),
    };
    crate::node::NodeHandle::start(start, || {})
}
