//! The first stop of every request: GetCapacity is answered here, all other methods go to tonic's router.
//!
//! Nearly all requests are GetCapacity, and what tonic does for each of them costs more than to decide it: layers of
//! services that are cloned and boxed, a router that matches the path against a tree, two streams of messages. So that
//! one method is read and answered here ([`super::unary`]), from hyper's requests; the rest of the protocol, and of the
//! services, is tonic's.

use std::{convert::Infallible, future::Future, pin::Pin, sync::Arc, time::Duration};

use http::{HeaderMap, Request, Response};
use hyper::{body::Incoming, service::Service};
use tonic::{codegen::Service as _, service::Routes};

use super::{
    CapacityService,
    deadline::{self, Bounded},
    unary::{self, Answer},
};
use crate::listen::Caller;

const GET_CAPACITY: &str = "/doorman.Capacity/GetCapacity";

/// The services as all connections share them.
pub(super) struct Front {
    capacity: CapacityService,
    /// The longest message.
    message_bytes: usize,
    others: Routes,
}

impl Front {
    /// `others` has everything, also the service for capacity: its other methods, and the calls that are not plain.
    pub(super) fn new(capacity: CapacityService, message_bytes: usize, others: Routes) -> Front {
        Front { capacity, message_bytes, others: others.prepare() }
    }
}

/// The services as one connection sees them. A call holds on to it.
#[derive(Clone)]
pub(super) struct ConnectionService(Arc<Called>);

struct Called {
    front: Arc<Front>,
    caller: Caller,
}

impl ConnectionService {
    pub(super) fn new(front: Arc<Front>, caller: Caller) -> ConnectionService {
        ConnectionService(Arc::new(Called { front, caller }))
    }
}

/// Headers that few calls have. Found in one pass: a lookup by name costs as much as visiting all of them.
#[derive(Default)]
struct Extras {
    /// The message is compressed, or said not to be.
    has_encoding: bool,
    timeout: Option<Duration>,
}

impl Extras {
    fn of(headers: &HeaderMap) -> Extras {
        let mut extras = Extras::default();
        for (name, value) in headers {
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

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let extras = Extras::of(request.headers());
        if is_to_be_answered_here(&request, &extras) {
            let called = Arc::clone(&self.0);
            let body = request.into_body();
            let answering = async move {
                let asked = unary::read(body, called.front.message_bytes).await;
                let answered = match asked {
                    Ok(asked) => called.front.capacity.answer_get(asked, Some(&called.caller)).await,
                    Err(status) => Err(status),
                };
                Ok(unary::answer(answered))
            };
            return within(extras.timeout, answering);
        }
        request.extensions_mut().insert(self.0.caller.clone());
        let answering = self.0.front.others.clone().call(request);
        within(extras.timeout, async move { answering.await.map(|response| response.map(Answer::Tonic)) })
    }
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
