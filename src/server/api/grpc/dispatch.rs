//! Dispatch of gRPC requests: GetCapacity, Watch and [extra methods](extra_method) are answered here, all other methods
//! go to tonic's router.
//!
//! Most requests are GetCapacity. tonic's overhead for one (layers of cloned and boxed services, a router, two streams
//! of messages) costs more than its decision, so this method is read from hyper's request and answered directly
//! ([`request_body`]). Watch bypasses tonic because tonic's streams need more memory ([`response`]). Special cases,
//! such as compression, are left to tonic.

pub(super) mod extra_method;
pub(super) mod request_body;
mod response;

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Request, Response, header::AUTHORIZATION};
use hyper::{body::Incoming, service::Service};
use leaseway_proto::{
    doorman::GetCapacityRequest,
    push::{WatchRequest, push_server::Push as _},
};
use tonic::{Status, codegen::Service as _, service::Routes};

use self::{
    extra_method::{ExtraMethod, GrpcCaller},
    request_body::{BodyLimits, RequestBody},
    response::{Answer, Answering, StreamAnswer, framed_capacity, refusal, within},
};
use super::{CapacityService, PushService};
#[cfg(feature = "otlp")]
use crate::observe::traces::RequestSpan;
use crate::{
    auth::{Authorizer, CallerCache},
    listen::{
        Caller,
        open_connections::OpenConnection,
        waiting_bytes::{Charge, ENTRY, REQUEST},
    },
    observe::metrics::CallKind,
};

const GET_CAPACITY: &str = "/doorman.Capacity/GetCapacity";
const WATCH: &str = "/leaseway.push.v1.Push/Watch";
/// The methods with streams of requests.
const RENEW: &str = "/leaseway.session.v1.Session/Renew";
const QUOTAS: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
/// The maximum number of digits in `grpc-timeout`; with more, hours would overflow.
const MAX_TIMEOUT_DIGITS: usize = 8;

/// The services with methods that bypass tonic.
pub(super) struct HotServices {
    pub(super) capacity: CapacityService,
    pub(super) push: PushService,
    pub(super) authorizer: Arc<Authorizer>,
}

/// The services of a listener.
pub(super) struct Dispatcher {
    /// None at listeners that do not serve clients.
    clients: Option<HotServices>,
    /// None if the services authorize callers themselves.
    authorizer: Option<Arc<Authorizer>>,
    extra_methods: Vec<ExtraMethod>,
    limits: BodyLimits,
    routes: Routes,
}

impl Dispatcher {
    /// `routes` has all services, including those in `clients`.
    pub(super) fn new(clients: Option<HotServices>, limits: BodyLimits, routes: Routes) -> Dispatcher {
        let authorizer = clients.as_ref().map(|clients| Arc::clone(&clients.authorizer));
        Dispatcher { clients, authorizer, extra_methods: Vec::new(), limits, routes: routes.prepare() }
    }

    /// Dispatches to services of another crate, which authorize their callers themselves.
    pub(super) fn guarded(
        authorizer: Arc<Authorizer>,
        limits: BodyLimits,
        routes: Routes,
        extra_methods: Vec<ExtraMethod>,
    ) -> Dispatcher {
        Dispatcher { authorizer: Some(authorizer), extra_methods, ..Dispatcher::new(None, limits, routes) }
    }

    fn clients(&self) -> Result<&HotServices, Status> {
        self.clients.as_ref().ok_or_else(|| Status::unimplemented("this listener does not serve clients"))
    }
}

/// The services as seen by one connection. Each call holds a clone.
#[derive(Clone)]
pub(super) struct ConnectionService(Arc<ConnectionContext>);

struct ConnectionContext {
    dispatcher: Arc<Dispatcher>,
    caller: Caller,
    caller_cache: Option<Arc<CallerCache>>,
    connection: Arc<OpenConnection>,
}

impl ConnectionService {
    pub(super) fn new(
        dispatcher: Arc<Dispatcher>,
        caller: Caller,
        connection: Arc<OpenConnection>,
    ) -> ConnectionService {
        let new_cache =
            |authorizer: &Arc<Authorizer>| Arc::new(CallerCache::new(Arc::clone(authorizer), Some(caller.clone())));
        let caller_cache = dispatcher.authorizer.as_ref().map(new_cache);
        ConnectionService(Arc::new(ConnectionContext { dispatcher, caller, caller_cache, connection }))
    }
}

/// Headers of interest, collected in one pass: a lookup by name costs as much as visiting all headers.
#[derive(Default)]
struct Headers {
    /// `grpc-encoding` is present.
    has_encoding: bool,
    timeout: Option<Duration>,
    /// Total header size in bytes.
    bytes: usize,
}

impl Headers {
    fn of(map: &HeaderMap) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in map {
            headers.bytes += name.as_str().len() + value.len();
            match name.as_str() {
                "grpc-encoding" => headers.has_encoding = true,
                "grpc-timeout" => headers.timeout = headers.timeout.or_else(|| timeout(value)),
                _ => {}
            }
        }
        headers
    }
}

/// The value of `grpc-timeout`. As in tonic, a call with a malformed one has no deadline.
pub(super) fn timeout(header: &HeaderValue) -> Option<Duration> {
    let text = header.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > MAX_TIMEOUT_DIGITS {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        #[cfg(feature = "otlp")]
        let mut span = RequestSpan::of_call(&request);
        let answering = self.start(request).unwrap_or_else(|status| Box::pin(std::future::ready(Ok(refusal(status)))));
        #[cfg(feature = "otlp")]
        let answering: Answering = Box::pin(async move {
            let answered = answering.await;
            if let Ok(response) = &answered {
                span.answered(response);
            }
            answered
        });
        answering
    }
}

impl ConnectionService {
    /// Starts to answer a request, or refuses it.
    fn start(&self, request: Request<Incoming>) -> Result<Answering, Status> {
        let headers = Headers::of(request.headers());
        let dispatcher = &self.0.dispatcher;
        match (request.uri().path(), &dispatcher.clients) {
            _ if headers.has_encoding => self.pass_on(request, &headers),
            (GET_CAPACITY, Some(_)) => self.get_capacity(request, headers.timeout),
            (WATCH, Some(_)) => self.watch(request, headers.timeout),
            (path, _) => match dispatcher.extra_methods.iter().find(|extra_method| extra_method.is_to(path)) {
                Some(extra_method) => self.answer_extra(extra_method, request, &headers),
                None => self.pass_on(request, &headers),
            },
        }
    }

    fn charged_body(&self, body: Incoming) -> Result<RequestBody, Status> {
        let charge = Charge::request(&self.0.connection.waiting_bytes, REQUEST)?;
        Ok(RequestBody::new(body, self.0.dispatcher.limits, charge))
    }

    fn get_capacity(&self, request: Request<Incoming>, timeout: Option<Duration>) -> Result<Answering, Status> {
        let context = Arc::clone(&self.0);
        let subject = match &context.caller_cache {
            Some(caller_cache) => {
                caller_cache.authenticate(request.headers().get(AUTHORIZATION), CallKind::GetCapacity)?
            }
            None => None,
        };
        let mut body = self.charged_body(request.into_body())?;
        Ok(within(timeout, async move {
            let request = request_body::read::<GetCapacityRequest>(&mut body).await;
            let mut charge = body.into_charge();
            let answered = async {
                let request = request?;
                charge.resize(REQUEST + ENTRY * request.resource.len().saturating_sub(1))?;
                let capacity = &context.dispatcher.clients()?.capacity;
                let answer = capacity.answer_get(request, Some(&context.caller), subject.as_deref()).await?;
                Ok(framed_capacity(answer).await)
            };
            let answered = answered.await;
            Ok(response::encoded(answered, charge))
        }))
    }

    fn watch(&self, request: Request<Incoming>, timeout: Option<Duration>) -> Result<Answering, Status> {
        let context = Arc::clone(&self.0);
        let (head, body) = self.with_context(request)?.into_parts();
        let mut body = self.charged_body(body)?;
        Ok(within(timeout, async move {
            let request = request_body::read::<WatchRequest>(&mut body).await;
            let charge = body.into_charge();
            let hints = async {
                let request = tonic::Request::from_http(Request::from_parts(head, request?));
                context.dispatcher.clients()?.push.watch(request).await
            };
            Ok(match hints.await {
                Ok(hints) => response::hints(hints.into_inner(), charge),
                Err(status) => refusal(status),
            })
        }))
    }

    fn answer_extra(
        &self,
        extra_method: &ExtraMethod,
        request: Request<Incoming>,
        headers: &Headers,
    ) -> Result<Answering, Status> {
        let Some(caller_cache) = &self.0.caller_cache else { return self.pass_on(request, headers) };
        let caller = GrpcCaller::from(caller_cache.admit(request.headers(), CallKind::Gateway)?);
        Ok(extra_method.answer(caller, self.charged_body(request.into_body())?, headers.timeout))
    }

    /// Adds the connection, and the caller's permissions, to the request.
    fn with_context<B>(&self, mut request: Request<B>) -> Result<Request<B>, Status> {
        if let (Some(caller_cache), Some(call)) = (&self.0.caller_cache, CallKind::of(request.uri().path())) {
            let admitted = caller_cache.admit(request.headers(), call)?;
            request.extensions_mut().insert(admitted);
        }
        let extensions = request.extensions_mut();
        extensions.insert(self.0.caller.clone());
        extensions.insert(Arc::clone(&self.0.connection.waiting_bytes));
        Ok(request)
    }

    /// Leaves a request to tonic.
    fn pass_on(&self, request: Request<Incoming>, headers: &Headers) -> Result<Answering, Status> {
        let ConnectionContext { dispatcher, connection, .. } = &*self.0;
        let charge = Charge::request(&connection.waiting_bytes, REQUEST + headers.bytes)?;
        let body_charge = Charge::part(&connection.waiting_bytes, 0)?;
        let is_stream = matches!(request.uri().path(), RENEW | QUOTAS);
        let body = if is_stream { RequestBody::of_stream } else { RequestBody::new };
        let request = self.with_context(request)?.map(|incoming| body(incoming, dispatcher.limits, body_charge));
        let answering = dispatcher.routes.clone().call(request);
        Ok(within(headers.timeout, async move {
            let (head, body) = answering.await?.into_parts();
            Ok(match StreamAnswer::begin(body, charge).await {
                Ok(answer) => Response::from_parts(head, Answer::Stream(answer)),
                Err(status) => refusal(status),
            })
        }))
    }
}

#[cfg(test)]
mod tests;
