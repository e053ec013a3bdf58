//! The interface for gRPC services of other crates: the caller of a request, and methods that bypass tonic.

use std::{fmt, future::Future, time::Duration};

use leaseway_core::{
    policy::access::{AccessRequest, Action},
    types::Principal,
};
use prost::Message;
use tonic::{Extensions, Status};

use super::{
    request_body::{RequestBody, read},
    response::{Answering, encoded, framed, within},
};
use crate::{auth::Admitted, observe::metrics::CallKind};

/// The caller of a gRPC request, and its permissions.
#[derive(Clone)]
pub struct GrpcCaller {
    admitted: Admitted,
    principal: Principal,
}

impl GrpcCaller {
    /// The caller of a request that arrived through [`ExtraServices`](crate::ExtraServices).
    pub fn of(extensions: &Extensions) -> Result<GrpcCaller, Status> {
        let admitted = extensions.get::<Admitted>().cloned();
        Ok(admitted.ok_or_else(|| Status::internal("unexpected error: the request has no caller"))?.into())
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

    /// The principal to charge for the state that the caller creates.
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

impl fmt::Debug for GrpcCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcCaller").field("principal", &self.principal).finish_non_exhaustive()
    }
}

type Method = dyn Fn(GrpcCaller, RequestBody, Option<Duration>) -> Answering + Send + Sync;

/// A unary method that bypasses tonic.
pub struct ExtraMethod {
    path: &'static str,
    method: Box<Method>,
}

impl ExtraMethod {
    /// `path` is `/SERVICE/METHOD`. tonic still answers requests with `grpc-encoding`.
    pub fn new<Q, A, F>(
        path: &'static str,
        method: impl Fn(GrpcCaller, Q) -> F + Clone + Send + Sync + 'static,
    ) -> ExtraMethod
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: Future<Output = Result<A, Status>> + Send,
    {
        let method = move |caller: GrpcCaller, mut body: RequestBody, timeout: Option<Duration>| {
            let method = method.clone();
            within(timeout, async move {
                let request = read::<Q>(&mut body).await;
                let charge = body.into_charge();
                let answered = match request {
                    Ok(request) => method(caller, request).await,
                    Err(status) => Err(status),
                };
                Ok(encoded(answered.map(|answer| framed(&answer)), charge))
            })
        };
        ExtraMethod { path, method: Box::new(method) }
    }

    pub(super) fn is_to(&self, path: &str) -> bool {
        self.path == path
    }

    pub(super) fn answer(&self, caller: GrpcCaller, body: RequestBody, timeout: Option<Duration>) -> Answering {
        (self.method)(caller, body, timeout)
    }
}

impl fmt::Debug for ExtraMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shortcut").field(&self.path).finish()
    }
}
