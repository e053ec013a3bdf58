//! gRPC at the listeners of a frontend.

use std::{net::SocketAddr, sync::Arc};

use tokio::task::spawn;
use tonic::service::Routes;
use tonic_health::{
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use super::Frontend;
use crate::{
    error::ServeError,
    grpc::{Shortcut, serve_guarded},
    listen::{Listener, bind, local},
};

impl Frontend {
    /// Serves gRPC; answers where. Requests carry a [`GrpcGuest`](crate::GrpcGuest), which shortcuts are given. Whether
    /// it is alive is for all to ask.
    pub async fn serve_grpc(
        &self,
        flag: &'static str,
        address: SocketAddr,
        services: Routes,
        shortcuts: Vec<Shortcut>,
        health: HealthReporter,
    ) -> Result<SocketAddr, ServeError> {
        let tcp = bind(address, flag).await?;
        let address = local(&tcp, address);
        let services = services.add_service(HealthServer::new(HealthService::from_health_reporter(health)));
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(leaseway_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .expect("the descriptors are compiled in, and a test asks for them");
        let services = services.add_service(reflection);
        let listener = Listener::new(tcp, self.listeners.clients.clone());
        let (gate, limits, stop) = (Arc::clone(&self.gate), self.limits.clone(), self.stop.subscribe());
        spawn(async move { serve_guarded(listener, services, shortcuts, gate, &limits, stop).await });
        Ok(address)
    }
}
