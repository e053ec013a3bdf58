//! The HTTP paths of envoyproxy/ratelimit for callers without gRPC: `/json` and `/healthcheck`.

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use leaseway_server::{CallerRefusal, HttpCaller};
use tokio::sync::watch;
use tonic::Code;

use super::{json, service::RlsService};

/// The maximum size of a request, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;

#[derive(Clone)]
struct RlsHttp {
    service: RlsService,
    /// True once the gateway stops.
    closing: watch::Receiver<bool>,
}

pub(crate) fn routes(service: RlsService, closing: watch::Receiver<bool>) -> Router {
    let state = RlsHttp { service, closing };
    Router::new().route("/json", any(should_rate_limit)).route("/healthcheck", get(health)).with_state(state)
}

async fn should_rate_limit(
    caller: HttpCaller,
    State(gateway): State<RlsHttp>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // Any web page could make the browser of somebody send such a request.
    if headers.contains_key(header::ORIGIN) {
        return plain(StatusCode::FORBIDDEN);
    }
    let caller = match caller.as_grpc() {
        Ok(caller) => caller,
        Err(CallerRefusal::Unknown(_)) => return plain(StatusCode::UNAUTHORIZED),
        Err(CallerRefusal::Denied(_)) => return plain(StatusCode::FORBIDDEN),
    };
    let request = match json::request(&body) {
        Ok(request) => request,
        Err(error) => {
            tracing::debug!("invalid request to /json: {error}");
            return plain(StatusCode::BAD_REQUEST);
        }
    };
    match gateway.service.answer(&caller, &request).await {
        Ok(answer) => {
            let status = StatusCode::from_u16(json::http_status(&answer)).expect("a standard status");
            (status, Json(json::answer(&answer))).into_response()
        }
        Err(status) if status.code() == Code::PermissionDenied => plain(StatusCode::FORBIDDEN),
        // Of any error, like envoyproxy/ratelimit.
        Err(status) => {
            tracing::debug!("request to /json failed: {}", status.message());
            plain(StatusCode::BAD_REQUEST)
        }
    }
}

/// The status, and its name as text.
fn plain(status: StatusCode) -> Response {
    let text = format!("{}\n", status.canonical_reason().unwrap_or_default());
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

/// Whether the process serves. As with the original, that does not depend on rules.
async fn health(State(gateway): State<RlsHttp>) -> Response {
    match *gateway.closing.borrow() {
        true => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        false => "OK".into_response(),
    }
}
