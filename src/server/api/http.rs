//! HTTP: pages and JSON for people and their tools, metrics for Prometheus, and health checks. Doorman's paths redirect
//! to the pages.

mod events;
mod json;
mod limits;
mod metrics;
mod serving;

use axum::{
    Extension, Router,
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode, header},
    middleware,
    response::IntoResponse,
    routing::get,
};
use leaseway_core::types::escaped;

pub(crate) use self::serving::{HostNames, Serving, certified, serve};
use crate::{
    api::{
        pages::{self, Pages, live},
        status::ReadinessProbe,
    },
    listen::Caller,
    node::NotMaster,
};

pub(crate) fn router(pages: Pages) -> Router {
    let requires_certificates = pages.health.tls.as_ref().is_some_and(|tls| tls.requires_certificates());
    let router = Router::new()
        .route("/metrics", get(metrics::render))
        .route("/debug/resources", get(moved_to_resource))
        .route("/debug/status", get(async || moved("/".to_owned())))
        .merge(pages::routes())
        .merge(live::routes())
        .merge(events::routes())
        .merge(json::routes())
        .route_layer(middleware::from_fn(serving::check_access))
        .merge(limits::routes())
        // Probes are not authenticated.
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .fallback(pages::not_found)
        .layer(middleware::from_fn(serving::compress))
        .layer(middleware::map_response(pages::with_headers))
        .layer(middleware::from_fn_with_state(requires_certificates, certified));
    #[cfg(feature = "otlp")]
    let router = router.layer(middleware::from_fn(crate::observe::traces::page));
    router.with_state(pages)
}

fn moved(to: String) -> impl IntoResponse {
    (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, to)])
}

/// Doorman's page of all resources, or of the one in the query.
async fn moved_to_resource(RawQuery(query): RawQuery) -> impl IntoResponse {
    moved(query.map_or("/resources".to_owned(), |query| format!("/resource?{query}")))
}

/// The liveness probe: whether the node actor answers, and this peer is eligible.
async fn healthz(State(pages): State<Pages>) -> impl IntoResponse {
    match (pages.node.ping().await, pages.node.ineligible()) {
        (Err(_), _) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the node has stopped: restart this server, unless it is shutting down\n".to_owned(),
        ),
        (Ok(()), Some(ineligible)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{ineligible}\n")),
        (Ok(()), None) => (StatusCode::OK, "ok\n".to_owned()),
    }
}

/// The readiness probe: whether this server is the master or can redirect to it, and whether its gateway has rules.
/// Rolling restarts wait for it.
///
/// The master's address is shown only to callers that may read everything.
async fn readyz(
    State(pages): State<Pages>,
    headers: HeaderMap,
    caller: Option<Extension<Caller>>,
) -> impl IntoResponse {
    let is_trusted =
        serving::reads_everything(pages.node.authorizer(), &headers, caller.map(|Extension(caller)| caller));
    if pages.node.ping().await.is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "not ready: shutting down\n".to_owned());
    }
    if let Some(ineligible) = pages.node.ineligible() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {ineligible}\n"));
    }
    if let Some(problem) = pages.health.extra.as_ref().and_then(ReadinessProbe::problem) {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {problem}\n"));
    }
    let has_contact = pages.node.has_master_contact();
    let status = if has_contact { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let master = match pages.node.check() {
        Ok(()) => return (StatusCode::OK, "ready: master\n".to_owned()),
        Err(NotMaster { master: None }) => {
            return (StatusCode::SERVICE_UNAVAILABLE, "not ready: no master is known\n".to_owned());
        }
        Err(NotMaster { master: Some(master) }) => escaped(&master.grpc).into_owned(),
    };
    let text = match (is_trusted, has_contact) {
        (false, true) => "ready: the master is known\n".to_owned(),
        (false, false) => "not ready: this peer has not heard from the master yet\n".to_owned(),
        (true, true) => format!("ready: the master is {master}\n"),
        (true, false) => {
            format!("not ready: the master is {master} according to other peers; this peer has not heard from it yet\n")
        }
    };
    (status, text)
}
