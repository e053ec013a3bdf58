//! Who may read pages: callers that may read everything.

use std::sync::Arc;

use axum::{
    extract::{Extension, Request},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use tonic::{Code, Status};

use crate::{access::Visitor, metrics::CallKind};

/// Lets a request pass, or says why not.
pub(super) async fn check(Extension(visitor): Extension<Arc<Visitor>>, request: Request, next: Next) -> Response {
    let admitted = visitor.admit(request.headers(), CallKind::Http);
    match admitted.and_then(|admitted| admitted.check_reads_everything(CallKind::Http)) {
        Ok(()) => next.run(request).await,
        Err(why) => denied(&why, request.headers().contains_key(header::AUTHORIZATION)),
    }
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
