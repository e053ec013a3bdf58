//! The HTTP server: connections, limits, access, host names, compression.

use std::{
    convert::Infallible,
    fmt::Display,
    io::Write as _,
    net::IpAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router,
    body::to_bytes,
    extract::{Extension, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::sync::watch;
use tonic::{Code, Status, codegen::Service as _};

use crate::{
    api::pages::live::Streamed,
    auth::{Authorizer, CallerCache},
    listen::{
        Accepted, Caller, Listener,
        open_connections::{Ending, OpenConnection},
        waiting_bytes::{Charge, ChargedBytes, REQUEST},
    },
    observe::metrics::CallKind,
    runtime::{
        background::{in_background, in_parts},
        signals::until,
    },
};

/// Probes need no certificate and no host name.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/healthcheck"];

/// Maximum number of headers of a request, and their maximum total size.
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 << 10;
/// Minimum length of compressed responses. Shorter ones fit into a packet uncompressed.
const MIN_COMPRESSED: usize = 1400;
/// Number of bytes compressed before yielding, which takes some hundred microseconds.
const CHUNK: usize = 16 << 10;

/// The configuration of a listener.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) pages: Router,
    pub(crate) authorizer: Arc<Authorizer>,
    /// Maximum length of the body of a request. It is charged before the body is read.
    pub(crate) body_bytes: usize,
    /// The accepted host names. None over TLS, which accepts all.
    pub(crate) names: Option<HostNames>,
}

/// Serves until `stop`; pending requests are still answered. The headers of a request must arrive within `timeout` of
/// the end of the previous one, so idle connections are closed.
pub(crate) async fn serve(listener: Listener, serving: Serving, timeout: Duration, stop: watch::Receiver<bool>) {
    let mut http = auto::Builder::new(TokioExecutor::new());
    let mut http1 = http.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(timeout).max_headers(MAX_HEADERS).max_buf_size(MAX_HEADER_BYTES);
    let mut http2 = http.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(timeout).max_header_list_size(MAX_HEADER_BYTES as u32);
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
        _ = open.wait_for_ending() => None,
    };
    let Some(connection) = opened else { return };
    let caller = connection.caller().clone();
    let caller_cache = Arc::new(CallerCache::new(Arc::clone(&serving.authorizer), Some(caller.clone())));
    let service = service_fn(|mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        request.extensions_mut().insert(Arc::clone(&caller_cache));
        let bytes = if request.body().is_end_stream() { REQUEST } else { REQUEST + serving.body_bytes };
        let named = serving.check_host(&request);
        let (pages, open) = (serving.pages.clone(), Arc::clone(&open));
        async move {
            match named {
                Ok(()) => answer(pages, open, bytes, request.map(axum::body::Body::new)).await,
                Err(why) => Ok(refusal(StatusCode::MISDIRECTED_REQUEST, &why)),
            }
        }
    });
    let mut served = pin!(http.serve_connection(TokioIo::new(connection), service));
    let ended = tokio::select! {
        ended = &mut served => ended,
        how = open.wait_for_ending() => match how {
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
    let charge = match Charge::request(&connection.waiting_bytes, bytes) {
        Ok(charge) => charge,
        Err(why) => return Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, &why)),
    };
    let (head, body) = pages.call(request).await?.into_parts();
    if head.extensions.get::<Streamed>().is_some() {
        return Ok(http::Response::from_parts(head, Page::Stream { body, charge }));
    }
    // All other pages are in memory, so this neither waits nor fails.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    Ok(match charge.answered(bytes.len()) {
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
    /// Checks the host name of a request, except for probes.
    fn check_host(&self, request: &http::Request<Incoming>) -> Result<(), String> {
        match &self.names {
            Some(names) if !PROBES.contains(&request.uri().path()) => names.check(request.uri(), request.headers()),
            _ => Ok(()),
        }
    }
}

enum Page {
    Whole(Option<ChargedBytes>),
    /// Keeps the charge of the request, so that the connection does not count as idle.
    Stream {
        body: axum::body::Body,
        charge: Charge,
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
        let (body, request_charge) = match &mut *self {
            Page::Whole(page) => return Poll::Ready(page.take().map(|page| Ok(Frame::data(page)))),
            Page::Stream { body, charge } => (body, charge),
        };
        let next = ready!(Pin::new(body).poll_frame(context));
        let bytes = next.and_then(Result::ok).and_then(|frame| frame.into_data().ok());
        // If a message exceeds the limit of waiting bytes, the stream ends, and the page reconnects.
        Poll::Ready(bytes.and_then(|bytes| {
            let charge = Some(Charge::answer(request_charge.connection(), bytes.len()).ok()?);
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

/// Requires a certificate for pages if clients must have one.
pub(crate) async fn certified(State(required): State<bool>, request: Request, next: Next) -> Response {
    let is_known = request.extensions().get::<Caller>().is_some_and(|caller| caller.names.is_some());
    if !required || is_known || PROBES.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let why = "this page requires a client certificate of the CA that this server trusts (--tls-ca, --tls-client-auth); \
               /healthz and /readyz do not\n";
    (StatusCode::UNAUTHORIZED, why).into_response()
}

/// Requires permission to read everything.
pub(super) async fn check_access(
    Extension(caller_cache): Extension<Arc<CallerCache>>,
    mut request: Request,
    next: Next,
) -> Response {
    let admitted = caller_cache.admit(request.headers(), CallKind::Http);
    match admitted.and_then(|admitted| admitted.check_reads_everything(CallKind::Http).map(|()| admitted)) {
        Ok(admitted) => {
            // Live pages check it again.
            request.extensions_mut().insert(admitted);
            next.run(request).await
        }
        Err(why) => denied(&why, request.headers().contains_key(header::AUTHORIZATION)),
    }
}

/// Whether the caller of a page without access checks may read everything.
pub(super) fn reads_everything(authorizer: &Arc<Authorizer>, headers: &HeaderMap, caller: Option<Caller>) -> bool {
    let caller_cache = Arc::new(CallerCache::new(Arc::clone(authorizer), caller));
    caller_cache.admit(headers, CallKind::Http).is_ok_and(|admitted| admitted.reads_everything())
}

pub(super) fn denied(why: &Status, has_tried: bool) -> Response {
    let status = match why.code() {
        Code::PermissionDenied if has_tried => StatusCode::FORBIDDEN,
        _ => StatusCode::UNAUTHORIZED,
    };
    let mut response = (status, format!("{}\n", why.message())).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Compresses responses if the request accepts gzip.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    let accepted = accepts_gzip(request.headers());
    let response = next.run(request).await;
    if response.extensions().get::<Streamed>().is_some() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if !accepted {
        return Response::from_parts(parts, body);
    }
    let plain = to_bytes(body, usize::MAX).await.unwrap_or_default();
    if plain.len() < MIN_COMPRESSED {
        return Response::from_parts(parts, axum::body::Body::from(plain));
    }
    let text = plain.clone();
    match in_background(move || gzip(&text)).await {
        Some(Ok(compressed)) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            Response::from_parts(parts, axum::body::Body::from(compressed))
        }
        _ => Response::from_parts(parts, axum::body::Body::from(plain)),
    }
}

fn gzip(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut written = Ok(());
    in_parts(plain.chunks(CHUNK), |part| {
        if written.is_ok() {
            written = encoder.write_all(part);
        }
    });
    written?;
    encoder.finish()
}

/// Whether `gzip` or `*` is accepted with a weight above 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for coding in lists.flat_map(|list| list.split(',')) {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok()).unwrap_or(1.0_f32);
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") => return weight > 0.0,
            "*" => any = weight > 0.0,
            _ => {}
        }
    }
    any
}

/// The host names that a plain HTTP listener answers to, as protection from DNS rebinding: a page from anywhere can
/// make a browser send requests here under the page's own name, and read the answers. The attacker cannot choose the
/// `Host` header, which has the name of the page. Over TLS, the certificate gives the same protection.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostNames(Vec<String>);

impl HostNames {
    /// `advertise`: `HOST:PORT`.
    pub(crate) fn new(named: &[String], advertise: Option<&str>) -> HostNames {
        let names = named.iter().map(String::as_str).chain(advertise);
        HostNames(names.map(|name| host(name).to_ascii_lowercase()).collect())
    }

    /// Refuses unknown names. Requests without a name (HTTP/1.0) do not come from browsers and are accepted.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), String> {
        let of_header = || headers.get(header::HOST).map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        let Some(name) = uri.host().map(str::to_owned).or_else(of_header) else { return Ok(()) };
        if self.has(&name) {
            return Ok(());
        }
        Err(format!(
            "this server does not answer to the name `{}`, as protection against DNS rebinding: use the address of the server, or add the name to --http-names",
            leaseway_core::types::escaped(host(&name))
        ))
    }

    fn has(&self, name: &str) -> bool {
        let host = host(name).to_ascii_lowercase();
        let is_local = host == "localhost" || host.ends_with(".localhost");
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        is_local || is_address || self.0.contains(&host)
    }
}

/// The host without port and final dot.
fn host(name: &str) -> &str {
    let end_of_address = name.rfind(']').unwrap_or(0);
    let host = name.rfind(':').filter(|colon| *colon > end_of_address).map_or(name, |colon| &name[..colon]);
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_compressed_only_for_requests_that_accept_gzip() {
        for (header, accepted) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5, br", true),
            ("*", true),
            ("*, gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("identity", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(header))]);
            assert_eq!(accepts_gzip(&headers), accepted, "{header}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    fn check(names: &HostNames, host: &str) -> Result<(), String> {
        let headers = HeaderMap::from_iter([(header::HOST, host.parse().expect("a header"))]);
        names.check(&Uri::from_static("/"), &headers)
    }

    #[test]
    fn only_addresses_local_names_and_configured_names_are_accepted() {
        let names = HostNames::new(&["Limits.example".to_owned()], Some("a.internal:5100"));
        let accepted = "127.0.0.1:5150 10.1.2.3 [::1]:5150 [::1] localhost:5150 LOCALHOST a.localhost limits.example \
                        LIMITS.example.:80 a.internal:5150";
        for host in accepted.split(' ') {
            assert_eq!(check(&names, host), Ok(()), "{host}");
        }
        assert!(names.check(&Uri::from_static("/"), &HeaderMap::new()).is_ok(), "no browser");
        let refused = "evil.example:5150 evil.limits.example limits.example.evil 127.0.0.1.evil.example localhost.evil \
                       b.internal é";
        for host in refused.split(' ').chain([""]) {
            let error = check(&names, host).expect_err(host);
            assert!(error.contains("--http-names"), "{error}");
        }
        let http2 = Uri::from_static("http://evil.example/");
        assert!(names.check(&http2, &HeaderMap::new()).is_err());
    }
}
