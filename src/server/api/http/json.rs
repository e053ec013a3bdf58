//! `/api/v1`: the data of the pages as JSON. The fields are documented in docs/reference/api.md.

use std::time::SystemTime;

use axum::{
    Json, Router,
    extract::{Query, State, rejection::QueryRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    api::{
        pages::{
            Pages,
            view::{
                node::{self, WhyQuery},
                resources::{self as view, HolderQuery, PAGE_ROWS, ResourceQuery},
            },
        },
        status::history::{Point, Series, Span},
    },
    observe::changes::{Change, ChangeKind},
};

pub(super) fn routes() -> Router<Pages> {
    Router::new()
        .route("/api/v1/status", get(status))
        .route("/api/v1/peers", get(peers))
        .route("/api/v1/resources", get(resources))
        .route("/api/v1/resource", get(resource))
        .route("/api/v1/holders", get(holders))
        .route("/api/v1/history", get(history))
        .route("/api/v1/explain", get(explain))
        .route("/api/v1/changes", get(changes))
        .route("/api/{*unknown}", get(unknown))
}

pub(super) struct ApiError(pub(super) StatusCode, pub(super) String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.0, [(header::CACHE_CONTROL, "no-store")], Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> ApiError {
        let why = rejection.body_text();
        ApiError(StatusCode::BAD_REQUEST, format!("{why}; docs/reference/api.md lists the parameters"))
    }
}

pub(super) type JsonAnswer = Result<([(header::HeaderName, &'static str); 1], Json<Value>), ApiError>;
pub(super) type Parameters<T> = Result<Query<T>, QueryRejection>;

pub(super) fn answer(value: Value) -> JsonAnswer {
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(value)))
}

fn not_known(what: &str) -> ApiError {
    let why = format!("this peer does not know {what}; ask the master, which knows all active resources");
    ApiError(StatusCode::NOT_FOUND, why)
}

async fn unknown() -> ApiError {
    let known = "status, peers, resources, resource, holders, history, explain, changes, events, limits";
    ApiError(StatusCode::NOT_FOUND, format!("no such path; expected one of {known} below /api/v1"))
}

async fn status(State(pages): State<Pages>) -> JsonAnswer {
    let view = node::node(&pages).await;
    let (severity, summary) = node::verdict(&view);
    let mut value = json!(view);
    for part in ["peers", "parent", "children"] {
        value.as_object_mut().map(|fields| fields.remove(part));
    }
    value["summary"] = summary.into();
    value["severity"] = json!(severity);
    answer(value)
}

async fn peers(State(pages): State<Pages>) -> JsonAnswer {
    let view = node::node(&pages).await;
    answer(json!({ "peers": view.peers, "parent": view.parent, "children": view.children }))
}

async fn resources(State(pages): State<Pages>, parameters: Parameters<ResourceQuery>) -> JsonAnswer {
    let Query(query) = parameters?;
    let rows = pages.snapshots.resources.get(&pages).await;
    let (page, matching) = rows.page(&query);
    answer(json!({
        "resources": page, "matching": matching, "page": query.page.max(1), "pages": matching.div_ceil(PAGE_ROWS),
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneResource {
    resource: String,
}

async fn resource(State(pages): State<Pages>, parameters: Parameters<OneResource>) -> JsonAnswer {
    let Query(OneResource { resource }) = parameters?;
    let detail = view::resource(&pages, &resource).await.ok_or_else(|| not_known("this resource"))?;
    answer(detail.to_json())
}

async fn holders(State(pages): State<Pages>, parameters: Parameters<HolderQuery>) -> JsonAnswer {
    let Query(query) = parameters?;
    let page = view::holders(&pages, &query).await.ok_or_else(|| not_known("this resource"))?;
    answer(json!({
        "holders": page.rows, "matching": page.matching, "page": query.page.max(1), "pages": page.pages,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryParameters {
    resource: String,
    #[serde(default)]
    span: Span,
}

async fn history(State(pages): State<Pages>, parameters: Parameters<HistoryParameters>) -> JsonAnswer {
    let Query(HistoryParameters { resource, span }) = parameters?;
    let samples: Vec<Value> = pages.history.of(&resource, span, SystemTime::now()).iter().map(sample).collect();
    let every_ms = span.slot().as_millis() as u64;
    answer(json!({ "resource": resource, "span": span, "every_ms": every_ms, "samples": samples }))
}

fn sample(point: &Point) -> Value {
    let mut value = series(&point.mean);
    value["at"] = humantime::format_rfc3339_seconds(point.at).to_string().into();
    value["min"] = series(&point.min);
    value["max"] = series(&point.max);
    value
}

fn series(series: &Series) -> Value {
    let [capacity, wants, granted, held] = series.0;
    json!({ "capacity": capacity, "wants": wants, "granted": granted, "held": held })
}

async fn explain(State(pages): State<Pages>, parameters: Parameters<WhyQuery>) -> JsonAnswer {
    let Query(query) = parameters?;
    if !["", "client", "node"].contains(&query.kind.as_str()) {
        return Err(ApiError(StatusCode::BAD_REQUEST, "kind: unknown kind; expected `client` or `node`".to_owned()));
    }
    let explained = node::explain(&pages, &query).await.ok_or_else(|| not_known("this holder of this resource"))?;
    answer(explained.to_json(&query.resource))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangesParameters {
    #[serde(default)]
    kind: String,
}

async fn changes(State(pages): State<Pages>, parameters: Parameters<ChangesParameters>) -> JsonAnswer {
    let Query(ChangesParameters { kind }) = parameters?;
    let which = change_kind(&kind)?;
    let all: Vec<Value> = pages.node.authorizer().audit().changes().list(which).iter().map(change).collect();
    answer(json!({ "changes": all }))
}

/// The kind with this name; all kinds if it is empty.
pub(super) fn change_kind(name: &str) -> Result<Option<ChangeKind>, ApiError> {
    let kind = ChangeKind::named(name);
    if kind.is_none() && !name.is_empty() {
        let known = ChangeKind::ALL.map(ChangeKind::name).join(", ");
        return Err(ApiError(StatusCode::BAD_REQUEST, format!("kind: unknown kind; expected one of {known}")));
    }
    Ok(kind)
}

pub(super) fn change(change: &Change) -> Value {
    json!({
        "at": humantime::format_rfc3339_millis(change.at).to_string(), "kind": change.kind.name(),
        "what": change.what, "outcome": change.outcome, "who": change.who,
        "address": change.address.map(|address| address.to_string()), "resource": change.resource,
        "times": change.times,
    })
}
