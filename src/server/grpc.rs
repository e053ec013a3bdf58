//! gRPC on the arbiter threads, behind one listener.
//!
//! Connections are served on the arbiters (one current-thread runtime for each), where a request is decided without
//! changing threads. hyper reads requests; most are answered by [`front`], the others by tonic. One ordinary listener
//! accepts connections and distributes them ([`distribute`](crate::listen::distribute)): with SO_REUSEPORT a second
//! server could silently bind the same port.

pub(crate) mod admin;
mod capacity;
mod convert;
mod deadline;
mod front;
mod invalid;
mod operators;
pub(crate) mod pools;
mod problems;
mod push;
mod status;
mod unary;

use std::{pin::pin, sync::Arc, time::Duration};

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use leaseway_proto::{
    doorman::capacity_server::CapacityServer, push::push_server::PushServer, status::status_server::StatusServer,
};
use tokio::sync::{mpsc, watch};
use tonic::{Status, service::Routes};
use tonic_health::server::HealthReporter;

pub(crate) use self::capacity::CapacityService;
use self::front::{ConnectionService, Front};
pub(crate) use self::{push::PushService, status::StatusService};
use crate::{
    actors::{NotMaster, Refused},
    listen::ArbiterConnection,
    signals::until,
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
    message_bytes: usize,
    mut connections: mpsc::UnboundedReceiver<ArbiterConnection>,
    stop: watch::Receiver<bool>,
) {
    let front = Arc::new(front(services, message_bytes));
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(Some(KEEP_ALIVE))
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        // gRPC clients do not use the Date header.
        .auto_date_header(false);
    let mut stopped = pin!(until(stop.clone()));
    loop {
        let next = tokio::select! {
            () = &mut stopped => return,
            next = connections.recv() => next,
        };
        let Some(connection) = next else { return };
        tokio::spawn(attend(connection, http2.clone(), Arc::clone(&front), stop.clone()));
    }
}

/// Serves one connection from its first byte to its end.
async fn attend(
    (accepted, _counted): ArbiterConnection,
    http2: http2::Builder<TokioExecutor>,
    front: Arc<Front>,
    stop: watch::Receiver<bool>,
) {
    // Boxed: all that a handshake needs is gone before the first request.
    let opened = tokio::select! {
        opened = Box::pin(accepted.open()) => opened,
        () = until(stop.clone()) => None,
    };
    let Some(connection) = opened else { return };
    let service = ConnectionService::new(front, connection.caller().clone());
    let mut served = pin!(http2.serve_connection(TokioIo::new(connection), service));
    let ended = tokio::select! {
        biased;
        ended = &mut served => ended,
        () = until(stop) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection broken");
    }
}

fn front(services: GrpcServices, message_bytes: usize) -> Front {
    let capacity = CapacityServer::new(services.capacity.clone()).max_decoding_message_size(message_bytes);
    let status = StatusServer::new(services.status).max_decoding_message_size(message_bytes);
    let push = PushServer::new(services.push).max_decoding_message_size(message_bytes);
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
    Front::new(services.capacity, message_bytes, others)
}

/// The error of methods that only the master answers and whose answers have no field for its address.
fn not_master(why: &NotMaster) -> Status {
    Status::failed_precondition(Refused::NotMaster(why.clone()).to_string())
}
