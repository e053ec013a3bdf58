//! gRPC on the arbiter threads, behind one listener.
//!
//! Connections are served on the arbiters (one current-thread runtime for each), where a request is decided without
//! changing threads. hyper reads requests; most are answered by [`front`], the others by tonic. One ordinary listener
//! accepts connections and distributes them ([`distribute`](crate::listen::distribute)): with SO_REUSEPORT a second
//! server could silently bind the same port.

pub(crate) mod admin;
mod answer;
mod answering;
mod body;
mod caller;
mod capacity;
mod convert;
mod deadline;
mod entries;
mod framing;
mod front;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod hint_answer;
mod invalid;
mod operators;
mod parts;
pub(crate) mod pools;
mod problems;
mod push;
mod shortcut;
mod status;
mod tonic_answer;
mod unary;

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use leaseway_proto::{
    doorman::capacity_server::CapacityServer, push::push_server::PushServer, status::status_server::StatusServer,
};
use tokio::sync::{mpsc, watch};
use tonic::{Status, service::Routes};
use tonic_health::server::HealthReporter;

pub(crate) use self::capacity::CapacityService;
use self::{
    body::BodyLimits,
    front::{Clients, ConnectionService, Front},
};
pub use self::{caller::GrpcCaller, shortcut::Shortcut};
pub(crate) use self::{push::PushService, status::StatusService};
use crate::{
    auth::{Admitted, Authorizer},
    config::limits::Limits,
    listen::{
        Accepted, ArbiterConnection, Connection, Listener,
        open_connections::{CLOSE_TIMEOUT, Ending, OpenConnection},
    },
    node::{NotMaster, Refused},
    runtime::signals::until,
};

/// The services that every arbiter serves.
#[derive(Clone)]
pub(crate) struct GrpcServices {
    pub(crate) capacity: CapacityService,
    pub(crate) status: StatusService,
    pub(crate) push: PushService,
    pub(crate) health: HealthReporter,
}

/// The most requests under way on one connection.
const STREAMS: u32 = 1024;
/// A keep-alive ping is sent after so long without a message …
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// … and the connection closed if it is not answered within so long.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one arbiter's connections until `stop`; requests under way are still answered, and then their connections
/// end.
pub(crate) async fn serve(
    services: GrpcServices,
    authorizer: Arc<Authorizer>,
    limits: Arc<Limits>,
    mut connections: mpsc::UnboundedReceiver<ArbiterConnection>,
    stop: watch::Receiver<bool>,
) {
    let server = Server::new(front(services, authorizer, &limits));
    let mut stopped = pin!(until(stop.clone()));
    loop {
        let next = tokio::select! {
            () = &mut stopped => return,
            next = connections.recv() => next,
        };
        let Some((accepted, counted)) = next else { return };
        let served = server.serve_connection(accepted, stop.clone());
        tokio::spawn(async move {
            let _counted = counted;
            served.await;
        });
    }
}

/// What the connections of a listener are served with.
struct Server {
    front: Arc<Front>,
    http2: http2::Builder<TokioExecutor>,
}

impl Server {
    fn new(front: Front) -> Server {
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .keep_alive_interval(Some(KEEP_ALIVE))
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            // gRPC clients do not use the Date header.
            .auto_date_header(false);
        Server { front: Arc::new(front), http2 }
    }

    /// Serves one connection from its first byte to its end.
    fn serve_connection(
        &self,
        accepted: Accepted,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (front, http2) = (Arc::clone(&self.front), self.http2.clone());
        async move {
            let open = accepted.open_connection();
            // Boxed: all that a handshake needs is gone before the first request.
            let opened = tokio::select! {
                opened = Box::pin(accepted.open()) => opened,
                _ = open.told_to_end() => None,
                () = until(stop) => None,
            };
            let Some(connection) = opened else { return };
            let service = ConnectionService::new(front, connection.caller().clone(), Arc::clone(&open));
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
        how = connection.told_to_end() => match how {
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

/// Accepts and serves connections on this thread until `stop`, where there are few.
pub(crate) async fn serve_here(listener: Listener, services: Routes, limits: &Limits, stop: watch::Receiver<bool>) {
    serve_all(listener, Server::new(Front::new(None, body_limits(limits), services)), stop).await;
}

/// As [`serve_here`]; requests carry who makes them.
pub(crate) async fn serve_guarded(
    listener: Listener,
    services: Routes,
    shortcuts: Vec<Shortcut>,
    authorizer: Arc<Authorizer>,
    limits: &Limits,
    stop: watch::Receiver<bool>,
) {
    serve_all(listener, Server::new(Front::guarded(authorizer, body_limits(limits), services, shortcuts)), stop).await;
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
    BodyLimits { message_bytes: limits.message_bytes, patience: Duration::from_secs(limits.request_secs) }
}

fn front(services: GrpcServices, authorizer: Arc<Authorizer>, limits: &Limits) -> Front {
    let message_bytes = limits.message_bytes;
    let capacity = CapacityServer::new(services.capacity.clone()).max_decoding_message_size(message_bytes);
    let status = StatusServer::new(services.status).max_decoding_message_size(message_bytes);
    let push = PushServer::new(services.push.clone()).max_decoding_message_size(message_bytes);
    let health = tonic_health::pb::health_server::HealthServer::new(
        tonic_health::server::HealthService::from_health_reporter(services.health),
    );
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(leaseway_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors are compiled in, and a test asks for them");
    let others =
        Routes::new(capacity).add_service(status).add_service(push).add_service(health).add_service(reflection);
    let hot = Clients { capacity: services.capacity, push: services.push, authorizer };
    Front::new(Some(hot), body_limits(limits), others)
}

/// Who makes a call. The front knows it of every call; one that came past it may do nothing.
fn admitted<T>(request: &tonic::Request<T>, authorizer: &Arc<Authorizer>) -> Admitted {
    request.extensions().get::<Admitted>().cloned().unwrap_or_else(|| Admitted::unknown(authorizer))
}

/// The error of methods that only the master answers and whose answers have no field for its address.
fn not_master(why: &NotMaster) -> Status {
    Status::failed_precondition(Refused::NotMaster(why.clone()).to_string())
}
