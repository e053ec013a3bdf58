//! The first stop of every request: GetCapacity, Watch and [shortcuts](super::shortcut) of guests are answered here,
//! all other methods go to tonic's router.
//!
//! Nearly all requests are GetCapacity, and what tonic does for each of them costs more than to decide it: layers of
//! services that are cloned and boxed, a router that matches the path against a tree, two streams of messages. So that
//! one method is read and answered here ([`super::unary`]), from hyper's requests; the rest of the protocol, and of the
//! services, is tonic's. Watch is answered here for the memory of its streams ([`super::hint_answer`]).

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{HeaderMap, Request, Response};
use hyper::{body::Incoming, service::Service};
use leaseway_proto::{
    doorman::GetCapacityRequest,
    push::{WatchRequest, push_server::Push as _},
};
use tonic::{Status, codegen::Service as _, service::Routes};

#[cfg(feature = "otlp")]
use super::answering;
use super::{
    CapacityService, PushService,
    answer::{self, Answer, refusal},
    answering::{Answering, refused, within},
    body::{BodyLimits, RequestBody},
    caller::GrpcCaller,
    deadline, parts,
    shortcut::Shortcut,
    tonic_answer::TonicAnswer,
    unary,
};
#[cfg(feature = "otlp")]
use crate::observe::traces::RequestSpan;
use crate::{
    auth::{Authorizer, CallerCache},
    listen::{
        Caller,
        budget::{Charge, ENTRY, REQUEST},
        open_connections::OpenConnection,
    },
    observe::metrics::CallKind,
};

const GET_CAPACITY: &str = "/doorman.Capacity/GetCapacity";
const WATCH: &str = "/leaseway.push.v1.Push/Watch";
/// Takes a stream of requests, for as long as the caller lives.
const QUOTAS: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// The services with methods that are answered here.
pub(super) struct Clients {
    pub(super) capacity: CapacityService,
    pub(super) push: PushService,
    pub(super) authorizer: Arc<Authorizer>,
}

/// The services as all connections of a listener share them.
pub(super) struct Front {
    /// Where clients are served.
    clients: Option<Clients>,
    /// What decides who calls; none where the services see to that.
    authorizer: Option<Arc<Authorizer>>,
    shortcuts: Vec<Shortcut>,
    limits: BodyLimits,
    others: Routes,
}

impl Front {
    /// `others` has everything, also the services of clients: their other methods, and the calls that are not plain.
    pub(super) fn new(clients: Option<Clients>, limits: BodyLimits, others: Routes) -> Front {
        let authorizer = clients.as_ref().map(|clients| Arc::clone(&clients.authorizer));
        Front { clients, authorizer, shortcuts: Vec::new(), limits, others: others.prepare() }
    }

    /// Of guests: no clients are served.
    pub(super) fn guarded(
        authorizer: Arc<Authorizer>,
        limits: BodyLimits,
        services: Routes,
        shortcuts: Vec<Shortcut>,
    ) -> Front {
        Front { authorizer: Some(authorizer), shortcuts, ..Front::new(None, limits, services) }
    }
}

/// The services as one connection sees them. A call holds on to it.
#[derive(Clone)]
pub(super) struct ConnectionService(Arc<Called>);

struct Called {
    front: Arc<Front>,
    caller: Caller,
    caller_cache: Option<Arc<CallerCache>>,
    connection: Arc<OpenConnection>,
}

impl ConnectionService {
    pub(super) fn new(front: Arc<Front>, caller: Caller, connection: Arc<OpenConnection>) -> ConnectionService {
        let visit =
            |authorizer: &Arc<Authorizer>| Arc::new(CallerCache::new(Arc::clone(authorizer), Some(caller.clone())));
        let caller_cache = front.authorizer.as_ref().map(visit);
        ConnectionService(Arc::new(Called { front, caller, caller_cache, connection }))
    }
}

/// Headers that few calls have. Found in one pass: a lookup by name costs as much as visiting all of them.
#[derive(Default)]
struct Extras {
    /// The message is compressed, or said not to be.
    has_encoding: bool,
    timeout: Option<Duration>,
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

/// The methods that are answered here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Here {
    GetCapacity,
    Watch,
}

fn to_be_answered_here<B>(request: &Request<B>, extras: &Extras) -> Option<Here> {
    match request.uri().path() {
        _ if extras.has_encoding => None,
        GET_CAPACITY => Some(Here::GetCapacity),
        WATCH => Some(Here::Watch),
        _ => None,
    }
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let extras = Extras::of(request.headers());
        #[cfg(feature = "otlp")]
        let span = RequestSpan::of_call(&request);
        let answering = match to_be_answered_here(&request, &extras).filter(|_| self.0.front.clients.is_some()) {
            Some(Here::GetCapacity) => self.get_capacity(request, extras.timeout),
            Some(Here::Watch) => self.watch(request, &extras),
            None => self.take_shortcut(request, &extras),
        };
        #[cfg(feature = "otlp")]
        let answering = answering::spanned(span, answering);
        answering
    }
}

impl ConnectionService {
    fn get_capacity(&self, request: Request<Incoming>, timeout: Option<Duration>) -> Answering {
        let called = Arc::clone(&self.0);
        let caller_cache = called.caller_cache.as_ref();
        let subject = caller_cache.map(|caller_cache| caller_cache.subject(request.headers(), CallKind::GetCapacity));
        let subject = match subject.transpose() {
            Ok(subject) => subject.flatten(),
            Err(status) => return refused(status),
        };
        let mut body = match Charge::request(&called.connection.budget, REQUEST) {
            Ok(under_way) => RequestBody::new(request.into_body(), called.front.limits, under_way),
            Err(why) => return refused(why.into()),
        };
        within(timeout, async move {
            let asked = unary::read::<GetCapacityRequest>(&mut body).await;
            let mut under_way = body.into_charge();
            let answered = match (asked, &called.front.clients) {
                (Ok(asked), Some(clients)) => {
                    match under_way.resize(REQUEST + ENTRY * asked.resource.len().saturating_sub(1)) {
                        Ok(()) => clients.capacity.answer_get(asked, Some(&called.caller), subject.as_deref()).await,
                        Err(why) => Err(why.into()),
                    }
                }
                (Ok(_), None) => Err(not_here()),
                (Err(status), _) => Err(status),
            };
            let framed = match answered {
                Ok(answer) => Ok(parts::framed(answer).await),
                Err(status) => Err(status),
            };
            Ok(answer::encoded(framed, under_way))
        })
    }

    fn watch(&self, request: Request<Incoming>, extras: &Extras) -> Answering {
        let called = Arc::clone(&self.0);
        let under_way = match Charge::request(&called.connection.budget, REQUEST) {
            Ok(under_way) => under_way,
            Err(why) => return refused(why.into()),
        };
        let (head, body) = match self.introduced(request) {
            Ok(request) => request.into_parts(),
            Err(status) => return refused(status),
        };
        let mut body = RequestBody::new(body, called.front.limits, under_way);
        within(extras.timeout, async move {
            let asked = unary::read::<WatchRequest>(&mut body).await;
            let under_way = body.into_charge();
            let hints = match (asked, &called.front.clients) {
                (Ok(asked), Some(clients)) => {
                    clients.push.watch(tonic::Request::from_http(Request::from_parts(head, asked))).await
                }
                (Ok(_), None) => Err(not_here()),
                (Err(status), _) => Err(status),
            };
            Ok(match hints {
                Ok(hints) => answer::hints(hints.into_inner(), under_way),
                Err(status) => refusal(status),
            })
        })
    }

    fn take_shortcut(&self, request: Request<Incoming>, extras: &Extras) -> Answering {
        let Called { front, caller_cache, connection, .. } = &*self.0;
        let path = request.uri().path();
        let shortcut = front.shortcuts.iter().find(|shortcut| shortcut.is_to(path) && !extras.has_encoding);
        let (Some(shortcut), Some(caller_cache)) = (shortcut, caller_cache) else {
            return self.pass_on(request, extras);
        };
        let caller = match caller_cache.admit(request.headers(), CallKind::Gateway) {
            Ok(admitted) => GrpcCaller::from(admitted),
            Err(status) => return refused(status),
        };
        let body = match Charge::request(&connection.budget, REQUEST) {
            Ok(under_way) => RequestBody::new(request.into_body(), front.limits, under_way),
            Err(why) => return refused(why.into()),
        };
        shortcut.answer(caller, body, extras.timeout)
    }

    /// With what is known of its connection, and of who makes the call.
    fn introduced<B>(&self, mut request: Request<B>) -> Result<Request<B>, Status> {
        if let (Some(caller_cache), Some(call)) = (&self.0.caller_cache, CallKind::of(request.uri().path())) {
            let admitted = caller_cache.admit(request.headers(), call)?;
            request.extensions_mut().insert(admitted);
        }
        let extensions = request.extensions_mut();
        extensions.insert(self.0.caller.clone());
        extensions.insert(Arc::clone(&self.0.connection.budget));
        Ok(request)
    }

    fn pass_on(&self, request: Request<Incoming>, extras: &Extras) -> Answering {
        let Called { front, connection, .. } = &*self.0;
        let budget = &connection.budget;
        let under_way = match Charge::request(budget, REQUEST + extras.bytes) {
            Ok(under_way) => under_way,
            Err(why) => return refused(why.into()),
        };
        let body_charge = match Charge::part(budget, 0) {
            Ok(charge) => charge,
            Err(why) => return refused(why.into()),
        };
        let is_stream = request.uri().path() == QUOTAS;
        let body = if is_stream { RequestBody::of_stream } else { RequestBody::new };
        let request = match self.introduced(request) {
            Ok(request) => request.map(|incoming| body(incoming, front.limits, body_charge)),
            Err(status) => return refused(status),
        };
        let answering = front.others.clone().call(request);
        within(extras.timeout, async move {
            let (head, body) = answering.await?.into_parts();
            Ok(match TonicAnswer::begin(body, under_way).await {
                Ok(answer) => Response::from_parts(head, Answer::Tonic(answer)),
                Err(status) => refusal(status),
            })
        })
    }
}

fn not_here() -> Status {
    Status::unimplemented("clients are not served here")
}

#[cfg(test)]
mod tests;
