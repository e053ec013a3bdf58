//! Serves pages on connections that send their request in time, and take their page.

use std::{
    convert::Infallible,
    fmt::Display,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router,
    body::to_bytes,
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::sync::watch;
use tonic::codegen::Service as _;

use super::host::HostNames;
use crate::{
    auth::{Authorizer, CallerCache},
    listen::{
        Accepted, Caller, Listener,
        budget::{Charge, ChargedBytes, REQUEST},
        open_connections::{Ending, OpenConnection},
    },
    runtime::signals::until,
};

/// Whether the process is alive and ready: probes that ask have no certificate.
const FOR_ALL: [&str; 2] = ["/healthz", "/readyz"];

/// The most headers of a request, and the most bytes that they may have.
const HEADERS: usize = 64;
const HEADER_BYTES: usize = 16 << 10;

/// How requests are served.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) pages: Router,
    /// Who calls on a connection is found by this.
    pub(crate) authorizer: Arc<Authorizer>,
    /// The most bytes that the body of a request may have: they are charged before it is read.
    pub(crate) body_bytes: usize,
    /// The names that this listener answers to; none: to all, because it speaks TLS.
    pub(crate) names: Option<HostNames>,
}

/// Serves until `stop`; requests under way are still answered. The head of a request has to come within `patience`,
/// counted from the end of the one before: an idle connection ends.
pub(crate) async fn serve(listener: Listener, serving: Serving, patience: Duration, stop: watch::Receiver<bool>) {
    let mut http = auto::Builder::new(TokioExecutor::new());
    let mut http1 = http.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(patience).max_headers(HEADERS).max_buf_size(HEADER_BYTES);
    let mut http2 = http.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(patience).max_header_list_size(HEADER_BYTES as u32);
    let mut stopped = pin!(until(stop));
    loop {
        let accepted = tokio::select! {
            () = &mut stopped => return,
            accepted = listener.accept() => accepted,
        };
        tokio::spawn(serve_connection(accepted, http.clone(), serving.clone()));
    }
}

async fn serve_connection(accepted: Accepted, http: auto::Builder<TokioExecutor>, serving: Serving) {
    let open = accepted.open_connection();
    let opened = tokio::select! {
        opened = Box::pin(accepted.open()) => opened,
        _ = open.told_to_end() => None,
    };
    let Some(connection) = opened else { return };
    let caller = connection.caller().clone();
    let caller_cache = Arc::new(CallerCache::new(Arc::clone(&serving.authorizer), Some(caller.clone())));
    let service = service_fn(|mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        request.extensions_mut().insert(Arc::clone(&caller_cache));
        let bytes = if request.body().is_end_stream() { REQUEST } else { REQUEST + serving.body_bytes };
        let meant = serving.is_meant(&request);
        let (pages, open) = (serving.pages.clone(), Arc::clone(&open));
        async move {
            match meant {
                Ok(()) => answer(pages, open, bytes, request.map(axum::body::Body::new)).await,
                Err(why) => Ok(refusal(StatusCode::MISDIRECTED_REQUEST, &why)),
            }
        }
    });
    let mut served = pin!(http.serve_connection(TokioIo::new(connection), service));
    let ended = tokio::select! {
        ended = &mut served => ended,
        how = open.told_to_end() => match how {
            Ending::Now | Ending::Soon => return,
            Ending::WhenDone => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        },
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection broken");
    }
}

async fn answer(
    mut pages: Router,
    connection: Arc<OpenConnection>,
    bytes: usize,
    request: Request,
) -> Result<http::Response<Page>, Infallible> {
    let under_way = match Charge::request(&connection.budget, bytes) {
        Ok(under_way) => under_way,
        Err(why) => return Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, &why)),
    };
    let (head, body) = pages.call(request).await?.into_parts();
    if head.extensions.get::<Streamed>().is_some() {
        return Ok(http::Response::from_parts(head, Page::Stream { body, under_way }));
    }
    // All other pages are made whole in memory, so that this neither waits nor fails.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    Ok(match under_way.answered(bytes.len()) {
        Ok(charge) => http::Response::from_parts(head, Page::whole(bytes, Some(charge))),
        Err(why) => refusal(StatusCode::SERVICE_UNAVAILABLE, &why),
    })
}

fn refusal(status: StatusCode, why: &dyn Display) -> http::Response<Page> {
    let mut response = http::Response::new(Page::whole(format!("{why}\n").into(), None));
    *response.status_mut() = status;
    response
}

impl Serving {
    /// Whether a request may be answered under the name that it is for. Probes use any.
    fn is_meant(&self, request: &http::Request<Incoming>) -> Result<(), String> {
        match &self.names {
            Some(names) if !FOR_ALL.contains(&request.uri().path()) => names.check(request.uri(), request.headers()),
            _ => Ok(()),
        }
    }
}

/// Marks a response whose body goes on, and has no more than one frame in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Streamed;

/// A page that is to be sent.
enum Page {
    Whole(Option<ChargedBytes>),
    /// What the request is charged makes its connection one that is not idle.
    Stream {
        body: axum::body::Body,
        under_way: Charge,
    },
}

impl Page {
    fn whole(bytes: Bytes, charge: Option<Charge>) -> Page {
        Page::Whole(Some(ChargedBytes { bytes, charge }))
    }
}

impl Body for Page {
    type Data = ChargedBytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ChargedBytes>, Infallible>>> {
        let (body, under_way) = match &mut *self {
            Page::Whole(page) => return Poll::Ready(page.take().map(|page| Ok(Frame::data(page)))),
            Page::Stream { body, under_way } => (body, under_way),
        };
        let next = ready!(Pin::new(body).poll_frame(context));
        let bytes = next.and_then(Result::ok).and_then(|frame| frame.into_data().ok());
        // A stream ends early for which there is no room: its page connects again.
        Poll::Ready(bytes.and_then(|bytes| {
            let charge = Some(Charge::answer(under_way.connection(), bytes.len()).ok()?);
            Some(Ok(Frame::data(ChargedBytes { bytes, charge })))
        }))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Page::Whole(page) if page.as_ref().is_none_or(|page| page.bytes.is_empty()))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Page::Whole(page) => SizeHint::with_exact(page.as_ref().map_or(0, |page| page.bytes.len() as u64)),
            Page::Stream { .. } => SizeHint::default(),
        }
    }
}

/// Where clients have to show certificates, pages are for those that do.
pub(crate) async fn certified(State(required): State<bool>, request: Request, next: Next) -> Response {
    let is_known = request.extensions().get::<Caller>().is_some_and(|caller| caller.names.is_some());
    if !required || is_known || FOR_ALL.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let why = "this page is for clients with a certificate of the CA that this server trusts (--tls-ca, \
               --tls-client-auth); /healthz and /readyz are for all\n";
    (StatusCode::UNAUTHORIZED, why).into_response()
}
