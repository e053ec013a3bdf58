//! What operators look at: metrics, and whether the door is alive.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use leaseway_server::{Guest, GuestRefusal};
use metrics_exporter_prometheus::PrometheusHandle;

use crate::bridge::Bridge;

#[derive(Clone)]
struct Pages {
    prometheus: PrometheusHandle,
    bridge: Arc<Bridge>,
}

pub(crate) fn routes(prometheus: PrometheusHandle, bridge: Arc<Bridge>) -> Router {
    Router::new()
        .route("/metrics", get(render_metrics))
        // Probes prove nothing.
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(Pages { prometheus, bridge })
}

async fn render_metrics(guest: Guest, State(pages): State<Pages>) -> Response {
    match guest.check_reads_everything() {
        Ok(()) => {
            let text = pages.prometheus.render();
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        Err(refusal @ GuestRefusal::Unknown(_)) => (StatusCode::UNAUTHORIZED, format!("{refusal}\n")).into_response(),
        Err(refusal @ GuestRefusal::Denied(_)) => (StatusCode::FORBIDDEN, format!("{refusal}\n")).into_response(),
    }
}

/// Ready means: it decides. What it decides while the cluster is away is its operator's choice, and no other door would
/// know better.
async fn readyz(State(pages): State<Pages>) -> String {
    let health = pages.bridge.client().health();
    match health.failures {
        0 => format!("ready: the cluster is asked at {}\n", leaseway_core::escaped(&health.server)),
        failures => format!("ready, but the last {failures} requests to the cluster have failed\n"),
    }
}
