//! `/metrics`. Gauges are set at each scrape.

use std::{
    fmt::Write as _,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::{Instant, SystemTime},
};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
};
use leaseway_core::{pool::PoolReport, types::escaped_lines};
use leaseway_raft::{Ineligible, Limits, PeerReport, RaftHandle};
use metrics::gauge;
use tokio::time::sleep;

use crate::{
    api::{
        pages::Pages,
        status::{
            free_bytes,
            survey::{Totals, is_over_capacity},
        },
    },
    node::{Status, UplinkReport},
    observe::metrics::{help_of_gauge, process, put_requests},
    runtime::background::{in_background, in_parts},
};

/// Number of resources rendered before yielding, which takes some hundred microseconds.
const CHUNK: usize = 32;
/// Maximum length of a label, in bytes.
const MAX_LABEL: usize = 128;
/// Maximum number of groups with series, over all resources.
const MAX_GROUP_SERIES: usize = 1000;

/// Thousands of series take a while to render, so scrapes are rendered in the background, one at a time, and use at
/// most half of the time of a thread.
pub(super) async fn render(State(pages): State<Pages>) -> impl IntoResponse {
    let turn = Arc::clone(&pages.scrapes).acquire_owned().await;
    let began = Instant::now();
    let config = pages.node.config();
    let (statuses, rest) = resources_with_series(&pages).await;
    set_process_gauges(&ProcessGauges {
        is_master: pages.node.check().is_ok(),
        resources: pages.node.resources(),
        over_capacity: rest.over_capacity + statuses.iter().filter(|status| is_over_capacity(&status.report)).count(),
        connections: pages.health.connections.count(),
        waiting_bytes: pages.health.waiting_bytes.used(),
        watchers: pages.node.watching(),
        subscribers: pages.node.subscribers().count(),
        config_version: config.version,
        config_rejected: config.rejected.is_some(),
        overrides: config.overrides.len(),
        limits: pages.node.read_limits(Limits::len).unwrap_or_default(),
        declarations: pages.node.declarations().len(),
    });
    set_left_out_gauges(pages.node.resources().saturating_sub(statuses.len()), &rest);
    let groups: usize = statuses.iter().map(|status| status.report.group_count).sum();
    let with_series: usize = statuses.iter().map(|status| status.report.groups.len()).sum();
    gauge!("leaseway_unlisted_groups").set((groups - with_series.min(MAX_GROUP_SERIES)) as f64);
    if let Some(expires) = pages.health.tls.as_ref().and_then(|tls| tls.credentials().expires()) {
        set_certificate_expires(expires);
    }
    if let Some(uplink) = pages.node.uplink() {
        set_uplink_gauges(&uplink);
    }
    if let Some((raft, data)) = &pages.health.stored {
        set_ineligible(pages.node.ineligible().as_ref());
        set_raft_gauges(raft, free_bytes(data).await);
    }
    let prometheus = pages.prometheus.clone();
    let rendered = in_background(move || {
        let (mut series, mut groups_left) = (GaugeText::default(), MAX_GROUP_SERIES);
        in_parts(statuses.chunks(CHUNK), |part| {
            part.iter().for_each(|status| put_resource_gauges(&mut series, status, &mut groups_left));
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

/// The resources that get series of their own, and the totals of the others. Beyond the limit these are the resources
/// under the most pressure.
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

struct ProcessGauges {
    is_master: bool,
    resources: usize,
    /// Resources that hold more than their capacity.
    over_capacity: usize,
    connections: usize,
    waiting_bytes: usize,
    watchers: usize,
    subscribers: usize,
    config_version: u64,
    config_rejected: bool,
    overrides: usize,
    limits: usize,
    declarations: usize,
}

fn set_uplink_gauges(uplink: &UplinkReport) {
    gauge!("leaseway_uplink_resources").set(uplink.resources as f64);
    gauge!("leaseway_uplink_failures").set(f64::from(uplink.failures));
}

fn set_certificate_expires(at: SystemTime) {
    let seconds = match at.duration_since(SystemTime::now()) {
        Ok(left) => left.as_secs_f64(),
        Err(since) => -since.duration().as_secs_f64(),
    };
    gauge!("leaseway_tls_certificate_expires_seconds").set(seconds);
}

/// Sets one gauge per reason, so that all series exist.
fn set_ineligible(ineligible: Option<&Ineligible>) {
    for reason in Ineligible::REASONS {
        let is_so = ineligible.is_some_and(|ineligible| ineligible.reason() == reason);
        gauge!("leaseway_peer_ineligible", "reason" => reason).set(f64::from(u8::from(is_so)));
    }
}

fn set_process_gauges(gauges: &ProcessGauges) {
    gauge!("leaseway_is_master").set(f64::from(u8::from(gauges.is_master)));
    gauge!("leaseway_resources").set(gauges.resources as f64);
    gauge!("leaseway_resources_over_capacity").set(gauges.over_capacity as f64);
    gauge!("leaseway_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    process::set();
    gauge!("leaseway_connections").set(gauges.connections as f64);
    gauge!("leaseway_waiting_bytes").set(gauges.waiting_bytes as f64);
    gauge!("leaseway_watchers").set(gauges.watchers as f64);
    gauge!("leaseway_pool_subscribers").set(gauges.subscribers as f64);
    gauge!("leaseway_config_version").set(gauges.config_version as f64);
    gauge!("leaseway_overrides").set(gauges.overrides as f64);
    gauge!("leaseway_limits").set(gauges.limits as f64);
    gauge!("leaseway_declarations").set(gauges.declarations as f64);
    gauge!("leaseway_config_rejected").set(f64::from(u8::from(gauges.config_rejected)));
}

/// Sets the totals of resources without their own series.
fn set_left_out_gauges(resources: usize, rest: &Totals) {
    gauge!("leaseway_unlisted_resources").set(resources as f64);
    gauge!("leaseway_unlisted_capacity").set(rest.capacity.get());
    gauge!("leaseway_unlisted_wants").set(rest.wants.get());
    gauge!("leaseway_unlisted_has").set(rest.granted.get());
    gauge!("leaseway_unlisted_held").set(rest.held.get());
    gauge!("leaseway_unlisted_subclients").set(rest.subclients as f64);
}

fn set_raft_gauges(raft: &RaftHandle, free: Option<u64>) {
    leaseway_raft::repeat_gauges();
    if let Some(free) = free {
        gauge!("leaseway_data_free_bytes").set(free as f64);
    }
    gauge!("leaseway_data_failed").set(f64::from(u8::from(raft.failure().borrow().is_some())));
    let peers = raft.peers();
    gauge!("leaseway_peers").set(peers.len() as f64);
    for PeerReport { name, lag, last_contact, .. } in peers {
        if let Some(lag) = lag {
            gauge!("leaseway_peer_lag_entries", "peer" => name.clone()).set(lag as f64);
        }
        if let Some(ago) = last_contact {
            gauge!("leaseway_peer_last_contact_seconds", "peer" => name).set(ago.0 as f64 / 1000.0);
        }
    }
}

fn put_resource_gauges(series: &mut GaugeText, status: &Status, groups_left: &mut usize) {
    let resource = escaped_label(&label(&status.id));
    let report = &status.report;
    put_group_gauges(series, &resource, status, groups_left);
    let mut set = |name: &'static str, value: f64| series.put(name, &resource, value);
    set("doorman_server_has", report.sums.granted.get());
    set("doorman_server_wants", report.sums.wants.get());
    set("doorman_server_subclients", report.sums.subclients as f64);
    // A capacity that is not divided is no limit, and would look exceeded.
    if report.is_divided() {
        set("leaseway_resource_capacity", report.settings.capacity.get());
    }
    set("leaseway_resource_held", report.sums.held.get());
    set("leaseway_resource_learning", f64::from(u8::from(report.learning.0 > 0)));
    if let Some(supply) = &report.supply {
        set("leaseway_resource_lent_seconds", supply.remaining.0 as f64 / 1000.0);
        set("leaseway_resource_awaits_supply", f64::from(u8::from(supply.version == 0)));
    }
    if let Some(overridden) = &report.overridden {
        set("leaseway_resource_override_seconds", overridden.by.ends.since(status.at).0 as f64 / 1000.0);
    }
    if let Some(promises) = status.promises {
        set("leaseway_resource_promised", promises.total.get());
        set("leaseway_resource_unclaimed", promises.unclaimed.get());
    }
    if let Some(pool) = &status.pool {
        put_pool_gauges(series, &resource, pool);
    }
}

fn put_group_gauges(series: &mut GaugeText, resource: &str, status: &Status, left: &mut usize) {
    let report = &status.report;
    if report.group_count == 0 {
        return;
    }
    series.put("leaseway_resource_groups", resource, report.group_count as f64);
    for group in report.groups.iter().take(*left) {
        *left -= 1;
        let labels = format!("resource=\"{resource}\",group=\"{}\"", escaped_label(&label(&group.path)));
        series.put_labelled("leaseway_group_share", &labels, group.share.get());
        series.put_labelled("leaseway_group_wants", &labels, group.wants.get());
        series.put_labelled("leaseway_group_held", &labels, group.held.get());
        if let Some(overridden) = report.overridden_groups.iter().find(|overridden| overridden.group == group.path) {
            let left = overridden.by.ends.since(status.at).0 as f64 / 1000.0;
            series.put_labelled("leaseway_group_override_seconds", &labels, left);
        }
    }
}

fn put_pool_gauges(series: &mut GaugeText, resource: &str, pool: &PoolReport) {
    let mut set = |name: &'static str, value: f64| series.put(name, resource, value);
    set("leaseway_pool_total", pool.total.get());
    set("leaseway_pool_connected", pool.connected.get());
    set("leaseway_pool_priority_connected", pool.priority_connected.get());
    set("leaseway_pool_priority_assigned", pool.priority_assigned.get());
    set("leaseway_pool_recharging", pool.used.get());
    set("leaseway_pool_waiting", (pool.free_waiting + pool.priority_waiting) as f64);
}

/// An id as a label. A long one is truncated, and a hash appended.
fn label(id: &str) -> String {
    // Line breaks are escaped later.
    let text = escaped_lines(id);
    if text.len() <= MAX_LABEL {
        return text.into_owned();
    }
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let number = format!("…{:016x}", hasher.finish());
    let end = (0..=MAX_LABEL - number.len()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}{number}", &text[..end])
}

/// The series of resources as text, grouped by metric: for thousands of series a registry would take a hundred
/// milliseconds and tens of megabytes.
#[derive(Default)]
struct GaugeText(Vec<(&'static str, String)>);

impl GaugeText {
    /// `resource` must be [escaped](escaped_label).
    fn put(&mut self, name: &'static str, resource: &str, value: f64) {
        self.put_labelled(name, &format!("resource=\"{resource}\""), value);
    }

    fn put_labelled(&mut self, name: &'static str, labels: &str, value: f64) {
        let index = self.0.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            let head = format!("# HELP {name} {}\n# TYPE {name} gauge\n", help_of_gauge(name));
            self.0.push((name, head));
            self.0.len() - 1
        });
        let text = &mut self.0[index].1;
        // Writing to a string never fails.
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }

    fn append_to(self, page: &mut String) {
        for (_, text) in self.0 {
            page.push_str(&text);
            page.push('\n');
        }
    }
}

/// The value of a label, without its quotes.
fn escaped_label(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_unique() {
        assert_eq!(label("mysql"), "mysql");
        assert_eq!(label("a\n\u{1b}[2J"), "a\n\\u001b[2J");
        let long = |end: &str| label(&format!("{}{end}", "ü".repeat(200)));
        assert!(long("a").len() <= MAX_LABEL && long("a").starts_with('ü'), "{}", long("a"));
        assert_ne!(long("a"), long("b"));
        assert_eq!(label(&"x".repeat(MAX_LABEL)), "x".repeat(MAX_LABEL));
    }

    #[test]
    fn series_are_grouped_by_metric() {
        let mut series = GaugeText::default();
        for (resource, value) in [("a", 2.5), ("b\"\\\n", 1e15)] {
            let resource = escaped_label(resource);
            series.put("doorman_server_has", &resource, value);
            series.put("leaseway_resource_learning", &resource, 0.0);
        }
        let mut page = "before 1\n".to_owned();
        series.append_to(&mut page);
        let expected = [
            "before 1",
            "# HELP doorman_server_has Sum of the newest leases of all clients, by resource.",
            "# TYPE doorman_server_has gauge",
            r#"doorman_server_has{resource="a"} 2.5"#,
            r#"doorman_server_has{resource="b\"\\\n"} 1000000000000000"#,
            "",
            "# HELP leaseway_resource_learning 1 while the resource is in learning mode, by resource.",
            "# TYPE leaseway_resource_learning gauge",
            r#"leaseway_resource_learning{resource="a"} 0"#,
            r#"leaseway_resource_learning{resource="b\"\\\n"} 0"#,
            "",
            "",
        ];
        assert_eq!(page, expected.join("\n"));
    }
}
