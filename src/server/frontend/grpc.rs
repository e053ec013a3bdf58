//! gRPC at the listeners of a frontend.

use std::{net::SocketAddr, sync::Arc};

use leaseway_core::{
    Principal,
    access::{AccessRequest, Action},
};
use tokio::task::spawn;
use tonic::{Extensions, Status, service::Routes};
use tonic_health::{
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use super::Frontend;
use crate::{
    access::Admitted,
    error::ServeError,
    grpc::serve_guarded,
    listen::{Listener, bind, local},
    metrics::CallKind,
};

impl Frontend {
    /// Serves gRPC; answers where. Requests carry a [`GrpcGuest`]. Whether it is alive is for all to ask.
    pub async fn serve_grpc(
        &self,
        flag: &'static str,
        address: SocketAddr,
        services: Routes,
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
        spawn(async move { serve_guarded(listener, services, gate, &limits, stop).await });
        Ok(address)
    }
}

/// The caller of a gRPC request, and what it may do.
#[derive(Clone)]
pub struct GrpcGuest {
    admitted: Admitted,
    principal: Principal,
}

impl GrpcGuest {
    /// Of a request that came in by a [`Frontend`].
    pub fn of(extensions: &Extensions) -> Result<GrpcGuest, Status> {
        let admitted = extensions.get::<Admitted>().cloned();
        let admitted = admitted.ok_or_else(|| Status::internal("nothing is known of the connection"))?;
        let principal = admitted.origin().map_or(Principal::NONE, |origin| origin.principal);
        Ok(GrpcGuest { admitted, principal })
    }

    /// Whether it may ask for a resource.
    pub fn may_ask(&self, resource: &str) -> Result<(), Status> {
        self.admitted.check_remembered(CallKind::Door, &AccessRequest::on(Action::Ask, resource))
    }

    /// Whether it may ask for a resource as this client.
    pub fn may_ask_as(&self, resource: &str, client: &str) -> Result<(), Status> {
        let request = AccessRequest { holder: Some(client), ..AccessRequest::on(Action::Ask, resource) };
        self.admitted.check_remembered(CallKind::Door, &request)
    }

    /// To whom what it leaves behind is counted.
    pub fn principal(&self) -> Principal {
        self.principal
    }
}

impl std::fmt::Debug for GrpcGuest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrpcGuest").field("principal", &self.principal).finish_non_exhaustive()
    }
}
