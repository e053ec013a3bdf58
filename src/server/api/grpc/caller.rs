//! Callers of services of another crate.

use leaseway_core::{
    Principal,
    access::{AccessRequest, Action},
};
use tonic::{Extensions, Status};

use crate::{auth::Admitted, observe::metrics::CallKind};

/// The caller of a gRPC request, and what it may do.
#[derive(Clone)]
pub struct GrpcCaller {
    admitted: Admitted,
    principal: Principal,
}

impl GrpcCaller {
    /// Of a request that came in by a [`ExtraServices`](crate::ExtraServices).
    pub fn of(extensions: &Extensions) -> Result<GrpcCaller, Status> {
        let admitted = extensions.get::<Admitted>().cloned();
        Ok(admitted.ok_or_else(|| Status::internal("nothing is known of the connection"))?.into())
    }

    /// Whether it may ask for a resource.
    pub fn may_ask(&self, resource: &str) -> Result<(), Status> {
        self.admitted.check_remembered(CallKind::Gateway, &AccessRequest::on(Action::Ask, resource))
    }

    /// Whether it may ask for a resource as this client.
    pub fn may_ask_as(&self, resource: &str, client: &str) -> Result<(), Status> {
        let request = AccessRequest { holder: Some(client), ..AccessRequest::on(Action::Ask, resource) };
        self.admitted.check_remembered(CallKind::Gateway, &request)
    }

    /// To whom what it leaves behind is counted.
    pub fn principal(&self) -> Principal {
        self.principal
    }
}

impl From<Admitted> for GrpcCaller {
    fn from(admitted: Admitted) -> GrpcCaller {
        let principal = admitted.origin().map_or(Principal::NONE, |origin| origin.principal);
        GrpcCaller { admitted, principal }
    }
}

impl std::fmt::Debug for GrpcCaller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrpcCaller").field("principal", &self.principal).finish_non_exhaustive()
    }
}
