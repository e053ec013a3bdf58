//! gRPC on the arbiter threads, behind one listener.
//!
//! tonic is served on the arbiters (one current-thread runtime for each), where a request is decided without changing threads;
//! that costs about half the CPU of a multi-threaded runtime. One ordinary listener accepts and deals connections out: with
//! SO_REUSEPORT a second server could silently bind the same port.

pub(crate) mod admin;
mod capacity;
pub(crate) mod connections;
mod convert;
mod front;
pub(crate) mod pools;
mod push;
mod status;

use std::sync::Arc;

use leaseway_proto::{
    doorman::capacity_server::CapacityServer, push::push_server::PushServer, status::status_server::StatusServer,
};
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::{Status, service::Routes, transport::Server};
use tonic_health::server::HealthReporter;

pub(crate) use self::capacity::CapacityService;
use self::{connections::Dealt, front::Front};
pub(crate) use self::{push::PushService, status::StatusService};
use crate::actors::{NotMaster, Refused};

/// What every arbiter serves.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) capacity: CapacityService,
    pub(crate) status: StatusService,
    pub(crate) push: PushService,
    pub(crate) health: HealthReporter,
}

/// Serves one arbiter's connections until `stop` says so; requests under way are still answered.
pub(crate) async fn serve(
    services: Services,
    message_bytes: usize,
    connections: impl Stream<Item = std::io::Result<Dealt>> + 'static,
    mut stop: watch::Receiver<bool>,
) {
    let front = front(services, message_bytes);
    let stopped = async move {
        // An error means that the sender is gone, which is as good as a stop.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let server = Server::builder()
        .max_concurrent_streams(Some(1024))
        .http2_keepalive_interval(Some(std::time::Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(std::time::Duration::from_secs(10)));
    if let Err(error) = server.serve_with_incoming_shutdown(front, connections, stopped).await {
        tracing::error!(%error, "gRPC serving ended");
    }
}

fn front(services: Services, message_bytes: usize) -> Front {
    let capacity = CapacityServer::new(services.capacity).max_decoding_message_size(message_bytes);
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
    let others = Routes::new(status).add_service(push).add_service(health).add_service(reflection);
    Front::new(capacity, others)
}

/// For what only the master answers and that has no place for another's address.
fn not_master(why: &NotMaster) -> Status {
    Status::failed_precondition(Refused::NotMaster(why.clone()).to_string())
}

/// What a server calls itself, and where it can be reached.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) id: Arc<str>,
    pub(crate) advertise: Arc<str>,
    /// Where operators reach it; empty without peers.
    pub(crate) admin: Arc<str>,
}
