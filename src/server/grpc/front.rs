//! The first stop of every request: GetCapacity is answered here, all other methods go to tonic's router.
//!
//! Nearly all requests are GetCapacity, and what tonic does for each of them costs more than to decide it: layers of
//! services that are cloned and boxed, a router that matches the path against a tree, two streams of messages. So that
//! one method is read and answered here ([`super::unary`]), from hyper's requests; the rest of the protocol, and of the
//! services, is tonic's.

use std::{convert::Infallible, future::Future, pin::Pin, sync::Arc, time::Duration};

use http::{HeaderMap, Request, Response};
use hyper::{body::Incoming, service::Service};
use leaseway_proto::doorman::GetCapacityRequest;
use tonic::{codegen::Service as _, service::Routes, transport::server::TcpConnectInfo};

use super::{
    CapacityService,
    body::{BodyLimits, RequestBody},
    deadline::{self, Bounded},
    tonic_answer::TonicAnswer,
    unary::{self, Answer, refusal},
};
use crate::{
    budget::{Charge, ENTRY, REQUEST},
    open_connections::OpenConnection,
};

const GET_CAPACITY: &str = "/doorman.Capacity/GetCapacity";

/// The services as all connections of a listener share them.
pub(super) struct Front {
    /// Where clients are served.
    capacity: Option<CapacityService>,
    limits: BodyLimits,
    others: Routes,
}

impl Front {
    /// `others` has everything, also the service for capacity: its other methods, and the calls that are not plain.
    pub(super) fn new(capacity: Option<CapacityService>, limits: BodyLimits, others: Routes) -> Front {
        Front { capacity, limits, others: others.prepare() }
    }
}

/// The services as one connection sees them.
pub(super) struct ConnectionService {
    front: Arc<Front>,
    connection: Arc<OpenConnection>,
    caller: TcpConnectInfo,
}

impl ConnectionService {
    pub(super) fn new(front: Arc<Front>, connection: Arc<OpenConnection>, caller: TcpConnectInfo) -> ConnectionService {
        ConnectionService { front, connection, caller }
    }
}

/// Headers that few calls have. Found in one pass: a lookup by name costs as much as visiting all of them.
#[derive(Default)]
struct Extras {
    /// The message is compressed, or said not to be.
    has_encoding: bool,
    timeout: Option<Duration>,
    /// What they take.
    bytes: usize,
}

impl Extras {
    fn of(headers: &HeaderMap) -> Extras {
        let mut extras = Extras::default();
        for (name, value) in headers {
            extras.bytes += name.as_str().len() + value.len();
            match name.as_str() {
                "grpc-encoding" => extras.has_encoding = true,
                "grpc-timeout" => extras.timeout = extras.timeout.or_else(|| deadline::timeout(value)),
                _ => {}
            }
        }
        extras
    }
}

fn is_to_be_answered_here<B>(request: &Request<B>, extras: &Extras) -> bool {
    request.uri().path() == GET_CAPACITY && !extras.has_encoding
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let extras = Extras::of(request.headers());
        if self.front.capacity.is_some() && is_to_be_answered_here(&request, &extras) {
            self.answer_here(request.into_body(), extras.timeout)
        } else {
            self.pass_on(request, &extras)
        }
    }
}

impl ConnectionService {
    fn answer_here(&self, body: Incoming, timeout: Option<Duration>) -> Answering {
        let (front, origin) = (Arc::clone(&self.front), self.connection.origin);
        let mut body = match Charge::request(&self.connection.budget, REQUEST) {
            Ok(under_way) => RequestBody::new(body, front.limits, under_way),
            Err(why) => return refused(why.into()),
        };
        within(timeout, async move {
            let asked = unary::read::<GetCapacityRequest>(&mut body).await;
            let mut under_way = body.into_charge();
            let answered = match (asked, &front.capacity) {
                (Ok(asked), Some(capacity)) => {
                    match under_way.resize(REQUEST + ENTRY * asked.resource.len().saturating_sub(1)) {
                        Ok(()) => capacity.answer_get(asked, Some(origin)).await,
                        Err(why) => Err(why.into()),
                    }
                }
                (Ok(_), None) => Err(tonic::Status::unimplemented("clients are not served here")),
                (Err(status), _) => Err(status),
            };
            Ok(unary::answer(answered, under_way))
        })
    }

    fn pass_on(&self, mut request: Request<Incoming>, extras: &Extras) -> Answering {
        let budget = &self.connection.budget;
        let under_way = match Charge::request(budget, REQUEST + extras.bytes) {
            Ok(under_way) => under_way,
            Err(why) => return refused(why.into()),
        };
        let extensions = request.extensions_mut();
        extensions.insert(self.caller.clone());
        extensions.insert(self.connection.origin);
        extensions.insert(Arc::clone(budget));
        let body_charge = match Charge::part(budget, 0) {
            Ok(charge) => charge,
            Err(why) => return refused(why.into()),
        };
        let request = request.map(|body| RequestBody::new(body, self.front.limits, body_charge));
        let answering = self.front.others.clone().call(request);
        within(extras.timeout, async move {
            let (head, body) = answering.await?.into_parts();
            Ok(match TonicAnswer::begin(body, under_way).await {
                Ok(answer) => Response::from_parts(head, Answer::Tonic(answer)),
                Err(status) => refusal(status),
            })
        })
    }
}

fn refused(status: tonic::Status) -> Answering {
    Box::pin(std::future::ready(Ok(refusal(status))))
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

/// Watches the deadline of a call that has one.
fn within(
    timeout: Option<Duration>,
    answering: impl Future<Output = Result<Response<Answer>, Infallible>> + Send + 'static,
) -> Answering {
    match timeout {
        Some(timeout) => Box::pin(Bounded::new(answering, timeout)),
        None => Box::pin(answering),
    }
}

#[cfg(test)]
mod tests;
