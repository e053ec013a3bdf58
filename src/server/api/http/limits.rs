//! `/api/v1/limits`: reads and sets the capacities of single resources. The only part of this API that changes
//! anything, so it checks its callers itself.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{FromRequestParts, Path},
    http::{HeaderMap, StatusCode, Uri, header, request::Parts},
    response::{IntoResponse, Response},
    routing::get,
};
use leaseway_core::types::{escaped, parse_quantity};
use leaseway_proto::admin::{Limit, LimitChange, ListLimitsRequest, ListLimitsResponse, SetLimitsResponse};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{Code, Status};

use super::{
    json::{ApiError, JsonAnswer, Parameters, answer},
    serving::denied,
};
use crate::{
    api::{
        grpc::admin::limits::{list, set},
        pages::{PASTED_BYTES, Pages},
    },
    auth::{Admitted, CallerCache},
    listen::Caller,
    node::NotMaster,
    observe::metrics::CallKind,
};

/// Time for a body to arrive.
const TIMEOUT: Duration = Duration::from_secs(10);

const WITHOUT_TOKEN: &str =
    "missing or wrong token: send `authorization: Bearer TOKEN` with the operators' token (--admin-token-file)";
const NOT_LOCAL: &str = "this server has neither an access policy nor an operators' token, so limits can be changed from \
     its own machine only: add `access:` to the configuration, or start the server with --admin-token-file";

pub(super) fn routes() -> Router<Pages> {
    Router::new()
        .route("/api/v1/limits", get(page).post(change_many))
        .route("/api/v1/limits/{*resource}", get(one).put(put).delete(remove))
}

/// A caller that reads limits.
struct Reader {
    pages: Pages,
    admitted: Admitted,
    /// Whether the request has a token.
    has_tried: bool,
}

/// A caller that changes limits.
struct Writer {
    reader: Reader,
    uri: Uri,
}

impl FromRequestParts<Pages> for Reader {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, pages: &Pages) -> Result<Reader, Response> {
        let has_tried = parts.headers.contains_key(header::AUTHORIZATION);
        let caller_cache = parts.extensions.get::<Arc<CallerCache>>().cloned();
        let caller_cache =
            caller_cache.unwrap_or_else(|| CallerCache::new(Arc::clone(pages.node.authorizer()), None).into());
        let admitted = caller_cache.admit(&parts.headers, CallKind::Http).map_err(|why| denied(&why, has_tried))?;
        Ok(Reader { pages: pages.clone(), admitted, has_tried })
    }
}

impl FromRequestParts<Pages> for Writer {
    type Rejection = Response;

    /// Without an access policy, changes need the operators' token if the server has one, and otherwise a caller on
    /// this machine.
    async fn from_request_parts(parts: &mut Parts, pages: &Pages) -> Result<Writer, Response> {
        if parts.headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
            let why = "this request was sent by a web page of another site: send it from the pages of this server, or without a browser";
            return Err(ApiError(StatusCode::FORBIDDEN, why.to_owned()).into_response());
        }
        let authorizer = pages.node.authorizer();
        let is_local = || parts.extensions.get::<Caller>().is_some_and(|caller| caller.address.is_loopback());
        if authorizer.is_open() && !authorizer.is_operators(&parts.headers) {
            return Err(denied(&Status::unauthenticated(WITHOUT_TOKEN), false));
        }
        if authorizer.is_open() && !authorizer.has_operators_token() && !is_local() {
            return Err(denied(&Status::permission_denied(NOT_LOCAL), true));
        }
        let reader = Reader::from_request_parts(parts, pages).await?;
        Ok(Writer { reader, uri: parts.uri.clone() })
    }
}

impl Reader {
    fn list(&self, request: &ListLimitsRequest) -> Result<ListLimitsResponse, Status> {
        list(&self.pages.node, &self.admitted, request)
    }

    fn failed(&self, why: &Status) -> Response {
        failed(why, self.has_tried)
    }
}

impl Writer {
    async fn set(&self, changes: &[LimitChange]) -> Result<SetLimitsResponse, Response> {
        let Reader { pages, admitted, .. } = &self.reader;
        if let Err(NotMaster { master: Some(master) }) = pages.node.check()
            && !master.http.is_empty()
        {
            return Err(self.redirect(&master.http));
        }
        set(&pages.node, admitted, changes).await.map_err(|why| self.reader.failed(&why))
    }

    fn redirect(&self, master: &str) -> Response {
        let scheme = if self.reader.pages.health.tls.is_some() { "https" } else { "http" };
        let location = format!("{scheme}://{master}{}", self.uri);
        let why = json!({ "error": format!("this peer is not the master: send the request to {location}") });
        (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)], Json(why)).into_response()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageParameters {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    after: String,
    #[serde(default)]
    size: u32,
}

async fn page(reader: Reader, parameters: Parameters<PageParameters>) -> Result<JsonAnswer, Response> {
    let PageParameters { prefix, after, size } = parameters.map_err(|why| ApiError::from(why).into_response())?.0;
    let request = ListLimitsRequest { prefix, after, page_size: size, resource_id: String::new() };
    let ListLimitsResponse { limit, next_after, total } = reader.list(&request).map_err(|why| reader.failed(&why))?;
    let limits: Vec<Value> = limit.iter().map(as_json).collect();
    Ok(answer(json!({ "limits": limits, "next_after": next_after, "total": total })))
}

async fn one(reader: Reader, Path(resource_id): Path<String>) -> Result<JsonAnswer, Response> {
    let request = ListLimitsRequest { resource_id: resource_id.clone(), ..Default::default() };
    let found = reader.list(&request).map_err(|why| reader.failed(&why))?;
    Ok(found.limit.first().map_or_else(|| Err(no_limit(&resource_id)), |limit| answer(as_json(limit))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewLimit {
    capacity: Capacity,
}

/// A number, or a rate such as `"60000/min"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Capacity {
    Amount(f64),
    Rate(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManyChanges {
    changes: Vec<OneChange>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneChange {
    resource: String,
    /// `null` removes the limit.
    #[serde(deserialize_with = "Option::deserialize")]
    capacity: Option<Capacity>,
}

impl Capacity {
    fn read(self, field: impl FnOnce() -> String) -> Result<f64, ApiError> {
        match self {
            Capacity::Amount(amount) => Ok(amount),
            Capacity::Rate(text) => parse_quantity(&text).ok_or_else(|| {
                let (field, text) = (field(), escaped(&text));
                bad_request(format!("{field}: is `{text}`, expected a number like 40 or a rate like \"60000/min\""))
            }),
        }
    }
}

async fn put(
    writer: Writer,
    Path(resource_id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<JsonAnswer, Response> {
    let NewLimit { capacity } = read(&headers, body).await.map_err(IntoResponse::into_response)?;
    let capacity = capacity.read(|| "capacity".into()).map_err(IntoResponse::into_response)?;
    writer.set(&[LimitChange { resource_id, capacity: Some(capacity) }]).await.map(counts)
}

async fn remove(writer: Writer, Path(resource_id): Path<String>) -> Result<JsonAnswer, Response> {
    let set = writer.set(&[LimitChange { resource_id: resource_id.clone(), capacity: None }]).await?;
    Ok(if set.removed == 0 { Err(no_limit(&resource_id)) } else { counts(set) })
}

async fn change_many(writer: Writer, headers: HeaderMap, body: Body) -> Result<JsonAnswer, Response> {
    let ManyChanges { changes } = read(&headers, body).await.map_err(IntoResponse::into_response)?;
    let one = |(at, OneChange { resource, capacity }): (usize, OneChange)| {
        let capacity = capacity.map(|capacity| capacity.read(|| format!("changes[{at}].capacity"))).transpose()?;
        Ok(LimitChange { resource_id: resource, capacity })
    };
    let changes = changes.into_iter().enumerate().map(one).collect::<Result<Vec<_>, ApiError>>();
    writer.set(&changes.map_err(IntoResponse::into_response)?).await.map(counts)
}

async fn read<T: for<'a> Deserialize<'a>>(headers: &HeaderMap, body: Body) -> Result<T, ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // A page of another site cannot send this type without the consent of this server.
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        let why = "content-type: expected application/json".to_owned();
        return Err(ApiError(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let Ok(Ok(bytes)) = timeout(TIMEOUT, to_bytes(body, PASTED_BYTES)).await else {
        let why = "the body is larger than 1 MiB, or did not arrive within 10 s: send the changes in parts, or use `leaseway limits import`";
        return Err(ApiError(StatusCode::PAYLOAD_TOO_LARGE, why.to_owned()));
    };
    serde_json::from_slice(&bytes)
        .map_err(|error| bad_request(format!("body: {error}; docs/reference/api.md describes the fields")))
}

fn counts(set: SetLimitsResponse) -> JsonAnswer {
    answer(json!({ "added": set.added, "replaced": set.replaced, "removed": set.removed }))
}

fn as_json(limit: &Limit) -> Value {
    json!({
        "resource": limit.resource_id, "capacity": limit.capacity, "at_unix": limit.at_unix, "by": limit.by,
    })
}

fn bad_request(why: String) -> ApiError {
    ApiError(StatusCode::BAD_REQUEST, why)
}

fn no_limit(resource: &str) -> ApiError {
    ApiError(StatusCode::NOT_FOUND, format!("`{}` has no limit of its own", escaped(resource)))
}

fn failed(why: &Status, has_tried: bool) -> Response {
    let status = match why.code() {
        Code::Unauthenticated | Code::PermissionDenied => return denied(why, has_tried),
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::ResourceExhausted => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    ApiError(status, why.message().to_owned()).into_response()
}
