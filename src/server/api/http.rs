//! HTTP: pages and JSON for people and their tools, metrics for Prometheus, health checks, and debug pages at Doorman's
//! paths.

mod api;
mod debug;
mod gauge_text;
mod gauges;
mod guard;
mod gzip;
mod host;
mod live;
mod page;
mod serving;
mod view;

use std::{sync::Arc, time::Instant};

use axum::{
    Extension, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    middleware,
    response::IntoResponse,
    routing::get,
};
use leaseway_core::escaped;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{sync::Semaphore, time::sleep};

use self::{gauge_text::GaugeText, view::ResourceCache};
pub(crate) use self::{
    host::HostNames,
    live::LivePages,
    page::PASTED_BYTES,
    serving::{Serving, certified, serve},
};
use crate::{
    api::status::{
        health::{HealthSources, free_bytes},
        history::History,
        survey::{Surveyor, Totals, is_over_capacity},
    },
    listen::Caller,
    node::{NodeHandle, NotMaster, Status, server_info::ServerInfo},
    observe::metrics::put_requests,
    runtime::background::{in_background, in_parts},
};

/// Pages that look at all holders of a resource at the same time.
const MAX_SNAPSHOTS: usize = 2;

/// Resources whose series are written in some hundred microseconds.
const PART: usize = 32;

/// What the pages are made from.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) node: NodeHandle,
    pub(crate) info: ServerInfo,
    pub(crate) prometheus: PrometheusHandle,
    pub(crate) health: HealthSources,
    /// One scrape at a time.
    pub(crate) scrapes: Arc<Semaphore>,
    /// Resources with series of their own.
    pub(crate) metrics_resources: usize,
    pub(crate) history: Arc<History>,
    pub(crate) surveyor: Arc<Surveyor>,
    pub(crate) live: Arc<LivePages>,
    pub(crate) snapshots: Snapshots,
}

/// What pages share so that many of them cost little more than one.
#[derive(Clone)]
pub(crate) struct Snapshots {
    resources: Arc<ResourceCache>,
    /// Snapshots at all holders of a resource: so many at a time.
    holders: Arc<Semaphore>,
}

impl Default for Snapshots {
    fn default() -> Snapshots {
        Snapshots { resources: Arc::default(), holders: Arc::new(Semaphore::new(MAX_SNAPSHOTS)) }
    }
}

pub(crate) fn router(pages: Pages) -> Router {
    let requires_certificates = pages.health.tls.as_ref().is_some_and(|tls| tls.requires_certificates());
    let router = Router::new()
        .route("/metrics", get(render_metrics))
        .route("/debug/status", get(debug::status))
        .route("/debug/resources", get(debug::resources))
        .merge(page::routes())
        .merge(live::routes())
        .merge(api::routes())
        .route_layer(middleware::from_fn(guard::check))
        // Probes prove nothing.
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .fallback(|| async { (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, "/debug/status")]) })
        .layer(middleware::from_fn(gzip::compress))
        .layer(middleware::map_response(page::protected))
        .layer(middleware::from_fn_with_state(requires_certificates, certified));
    #[cfg(feature = "otlp")]
    let router = router.layer(middleware::from_fn(crate::observe::traces::page));
    router.with_state(pages)
}

/// A page of thousands of series takes a while to render: that is done in the background, one page at a time, and half
/// of the time at most.
async fn render_metrics(State(pages): State<Pages>) -> impl IntoResponse {
    let turn = Arc::clone(&pages.scrapes).acquire_owned().await;
    let began = Instant::now();
    let config = pages.node.config();
    let (statuses, rest) = resources_with_series(&pages).await;
    gauges::set_process_gauges(&gauges::ProcessGauges {
        is_master: pages.node.check().is_ok(),
        resources: pages.node.resources(),
        over_capacity: rest.over_capacity + statuses.iter().filter(|status| is_over_capacity(&status.report)).count(),
        connections: pages.health.connections.count(),
        waiting_bytes: pages.health.budget.used(),
        watchers: pages.node.watching(),
        subscribers: pages.node.subscribers().count(),
        config_version: config.version,
        config_rejected: config.rejected.is_some(),
        overrides: config.overrides.len(),
    });
    gauges::set_left_out_gauges(pages.node.resources().saturating_sub(statuses.len()), &rest);
    if let Some(expires) = pages.health.tls.as_ref().and_then(|tls| tls.credentials().expires()) {
        gauges::set_certificate_expires(expires);
    }
    if let Some(uplink) = pages.node.uplink() {
        gauges::set_uplink_gauges(&uplink);
    }
    if let Some((quorum, data)) = &pages.health.stored {
        gauges::set_absence(pages.node.absence().as_ref());
        gauges::set_quorum_gauges(quorum, free_bytes(data).await);
    }
    let prometheus = pages.prometheus.clone();
    let rendered = in_background(move || {
        let mut series = GaugeText::default();
        in_parts(statuses.chunks(PART), |part| {
            part.iter().for_each(|status| gauges::put_resource_gauges(&mut series, status));
        });
        let mut page = prometheus.render();
        put_requests(&mut page);
        series.append_to(&mut page);
        page
    });
    let rendered = rendered.await;
    tokio::spawn(async move {
        sleep(began.elapsed()).await;
        drop(turn);
    });
    match rendered {
        Some(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// All resources if there are few, else those under the most pressure, and sums over the rest.
async fn resources_with_series(pages: &Pages) -> (Vec<Status>, Totals) {
    let most = pages.metrics_resources;
    if pages.node.resources() <= most {
        let (statuses, _) = pages.node.statuses("", most).await;
        return (statuses, Totals::default());
    }
    let survey = pages.surveyor.survey(&pages.node).await;
    let chosen: Vec<Arc<str>> = survey.metrics.samples.iter().map(|(id, _)| Arc::clone(id)).collect();
    (pages.node.statuses_named(&chosen).await, survey.metrics.rest)
}

/// Alive means that the node still takes messages, not merely that the process exists; and that this peer takes part in
/// it.
async fn healthz(State(pages): State<Pages>) -> impl IntoResponse {
    match (pages.node.ping().await, pages.node.absence()) {
        (Err(_), _) => (StatusCode::SERVICE_UNAVAILABLE, "the node is gone\n".to_owned()),
        (Ok(()), Some(absence)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{absence}\n")),
        (Ok(()), None) => (StatusCode::OK, "ok\n".to_owned()),
    }
}

/// Ready means: answers, if only that another peer has to be asked and which that is, and counts among the peers: a
/// restart of all in turn waits for that.
///
/// Where the master is, is told to those that may read everything; that it is this peer, to all.
async fn readyz(
    State(pages): State<Pages>,
    headers: HeaderMap,
    caller: Option<Extension<Caller>>,
) -> impl IntoResponse {
    let tells = guard::reads_everything(pages.node.authorizer(), &headers, caller.map(|Extension(caller)| caller));
    if pages.node.ping().await.is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "not ready: shutting down\n".to_owned());
    }
    if let Some(absence) = pages.node.absence() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {absence}\n"));
    }
    match pages.node.check() {
        Ok(()) => (StatusCode::OK, "ready: master\n".to_owned()),
        Err(NotMaster { master: Some(_) }) if !tells && pages.node.has_heard_itself() => {
            (StatusCode::OK, "ready: the master is known\n".to_owned())
        }
        Err(NotMaster { master: Some(_) }) if !tells => {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready: this peer has not heard from the master yet\n".to_owned())
        }
        Err(NotMaster { master: Some(master) }) if !pages.node.has_heard_itself() => {
            let text = format!(
                "not ready: others say that the master is {}; this peer has not heard from it yet\n",
                escaped(&master.grpc)
            );
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
        Err(NotMaster { master: Some(master) }) => {
            (StatusCode::OK, format!("ready: the master is {}\n", escaped(&master.grpc)))
        }
        Err(NotMaster { master: None }) => {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready: no master is known\n".to_owned())
        }
    }
}
