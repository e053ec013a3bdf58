//! gRPC at the listeners of extra services.

use std::{net::SocketAddr, sync::Arc};

use tokio::task::spawn;
use tonic::service::Routes;
use tonic_health::{
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use super::ExtraServices;
use crate::{
    api::grpc::{Shortcut, serve_guarded},
    config::error::ServeError,
    listen::{ListenOption, Listener, bind, local},
};

impl ExtraServices {
    /// Serves gRPC; answers where. Requests carry a [`GrpcCaller`](crate::GrpcCaller), which shortcuts are given. Whether
    /// it is alive is for all to ask.
    pub async fn serve_grpc(
        &self,
        listen: ListenOption,
        services: Routes,
        shortcuts: Vec<Shortcut>,
        health: HealthReporter,
    ) -> Result<SocketAddr, ServeError> {
        let tcp = bind(listen.address, listen.flag).await?;
        let address = local(&tcp, listen.address);
        let services = services.add_service(HealthServer::new(HealthService::from_health_reporter(health)));
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(leaseway_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .expect("the descriptors are compiled in, and a test asks for them");
        let services = services.add_service(reflection);
        let listener = Listener::new(tcp, self.listeners.clients.clone());
        let (authorizer, limits, stop) =
            (Arc::clone(&self.guard.authorizer), Arc::clone(&self.guard.limits), self.stop.subscribe());
        spawn(async move { serve_guarded(listener, services, shortcuts, authorizer, &limits, stop).await });
        Ok(address)
    }
}
