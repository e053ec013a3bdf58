//! Pages for operators: metrics, open resources, health.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use leaseway_client::Basis;
use leaseway_server::{CallerRefusal, HttpCaller};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};

use crate::{
    lease_table::{LeaseEntry, LeaseTable},
    rls::{current::CurrentRules, declare::DeclareStatus, rules::Rules, templates},
};

/// The maximum number of resources on a page.
const MAX_ROWS: usize = 1_000;

#[derive(Clone)]
struct Pages {
    prometheus: PrometheusHandle,
    lease_table: Arc<LeaseTable>,
    /// None if the gateway does not serve RLS.
    rules: Option<Arc<CurrentRules>>,
    /// None if the gateway does not declare templates.
    declaring: Option<Arc<DeclareStatus>>,
}

/// The pages, and the probes alone.
#[derive(Clone)]
pub(crate) struct Routes {
    pub(crate) all: Router,
    pub(crate) probes: Router,
}

pub(crate) fn routes(
    prometheus: PrometheusHandle,
    lease_table: Arc<LeaseTable>,
    rules: Option<Arc<CurrentRules>>,
    declaring: Option<Arc<DeclareStatus>>,
) -> Routes {
    let state = Pages { prometheus, lease_table, rules, declaring };
    // Probes need no credentials.
    let probes = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        // The probe of envoyproxy/ratelimit.
        .route("/healthcheck", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz));
    let all = Router::new()
        .route("/metrics", get(render_metrics))
        .route("/debug/resources", get(render_resources))
        .route("/rlconfig", get(|caller, pages| render_rules(caller, pages, |rules, _| rules.dump())))
        .route("/rlconfig/resources", get(|caller, pages| render_rules(caller, pages, templates_of)))
        .merge(probes.clone());
    Routes { all: all.with_state(state.clone()), probes: probes.with_state(state) }
}

async fn render_metrics(caller: HttpCaller, State(pages): State<Pages>) -> Response {
    for_readers(&caller, || {
        let text = pages.prometheus.render();
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
    })
}

/// The client id of the gateway, and its open resources by name.
async fn render_resources(caller: HttpCaller, State(pages): State<Pages>) -> Response {
    for_readers(&caller, || {
        let mut entries = pages.lease_table.all();
        let open = entries.len();
        if open > MAX_ROWS {
            entries.select_nth_unstable_by(MAX_ROWS, |one, other| one.id().cmp(other.id()));
            entries.truncate(MAX_ROWS);
        }
        entries.sort_unstable_by(|one, other| one.id().cmp(other.id()));
        let client = pages.lease_table.client();
        let health = client.health();
        Json(json!({
            "client": client.id(),
            "server": health.server,
            "failures": health.failures,
            "open": open,
            "resources": entries.iter().map(|entry| row(entry)).collect::<Vec<_>>(),
        }))
        .into_response()
    })
}

type RenderRules = fn(&Rules, &CurrentRules) -> String;

fn templates_of(rules: &Rules, current: &CurrentRules) -> String {
    templates::resources(rules, &current.request_limits())
}

/// The rules in force, as text.
async fn render_rules(caller: HttpCaller, State(pages): State<Pages>, render: RenderRules) -> Response {
    for_readers(&caller, || match &pages.rules {
        Some(current) => current.with(|rules| render(rules, current)).into_response(),
        None => (StatusCode::NOT_FOUND, "this gateway has no rules: it does not serve RLS\n").into_response(),
    })
}

fn row(entry: &LeaseEntry) -> Value {
    let (opened, standing) = (entry.rate().resource(), entry.standing());
    let told = |number: f64| if number.is_finite() { number.into() } else { Value::Null };
    json!({
        "resource": entry.id(),
        "capacity": told(standing.capacity.get()),
        "basis": basis(opened.usable().basis),
        "lease_expires_in": opened.lease().map(|(_, left)| left.as_secs_f64()),
        "remaining": told(standing.available.floor().max(0.0)),
        "debt": entry.rate().debt(),
    })
}

pub(crate) fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Lease => "lease",
        Basis::Fallback => "fallback",
        Basis::Unknown => "unknown",
    }
}

fn for_readers(caller: &HttpCaller, page: impl FnOnce() -> Response) -> Response {
    match caller.check_reads_everything() {
        Ok(()) => page(),
        Err(refusal @ CallerRefusal::Unknown(_)) => (StatusCode::UNAUTHORIZED, format!("{refusal}\n")).into_response(),
        Err(refusal @ CallerRefusal::Denied(_)) => (StatusCode::FORBIDDEN, format!("{refusal}\n")).into_response(),
    }
}

/// A gateway is ready even if the cluster is unreachable. It then decides by `--without-lease`, like all other
/// gateways. A failed declaration does not change that. It is not ready before a control plane has sent the first
/// rules.
async fn readyz(State(pages): State<Pages>) -> Response {
    if let Some(problem) = pages.rules.and_then(|rules| rules.with(Rules::problem)) {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {problem}\n")).into_response();
    }
    let health = pages.lease_table.client().health();
    let problem = pages.declaring.and_then(|declaring| declaring.problem());
    let text = match (health.failures, problem) {
        (0, None) => format!("ready: using the server at {}\n", leaseway_core::types::escaped(&health.server)),
        (0, Some(problem)) => format!("ready, but {problem}\n"),
        (failures, _) => format!("ready, but the last {failures} requests to the cluster have failed\n"),
    };
    text.into_response()
}
