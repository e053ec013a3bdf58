//! Who may read pages: callers that may read everything.

use std::sync::Arc;

use axum::{
    extract::{Extension, Request},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use tonic::{Code, Status};

use crate::{
    auth::{Authorizer, CallerCache},
    listen::Caller,
    observe::metrics::CallKind,
};

/// Lets a request pass, or says why not.
pub(super) async fn check(
    Extension(caller_cache): Extension<Arc<CallerCache>>,
    mut request: Request,
    next: Next,
) -> Response {
    let admitted = caller_cache.admit(request.headers(), CallKind::Http);
    match admitted.and_then(|admitted| admitted.check_reads_everything(CallKind::Http).map(|()| admitted)) {
        Ok(admitted) => {
            // A page that goes on looks again at what its caller may do.
            request.extensions_mut().insert(admitted);
            next.run(request).await
        }
        Err(why) => denied(&why, request.headers().contains_key(header::AUTHORIZATION)),
    }
}

/// Whether a request that is answered in any case may be told everything.
pub(super) fn reads_everything(authorizer: &Arc<Authorizer>, headers: &HeaderMap, caller: Option<Caller>) -> bool {
    // Probes carry no token, and one that is wrong makes no difference to them.
    let caller_cache = Arc::new(CallerCache::new(Arc::clone(authorizer), caller));
    caller_cache.admit(headers, CallKind::Http).is_ok_and(|admitted| admitted.reads_everything())
}

/// A caller that has proved nothing is told how it could.
fn denied(why: &Status, has_tried: bool) -> Response {
    let status = match why.code() {
        Code::PermissionDenied if has_tried => StatusCode::FORBIDDEN,
        _ => StatusCode::UNAUTHORIZED,
    };
    let mut response = (status, format!("{}\n", why.message())).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    }
    response
}
