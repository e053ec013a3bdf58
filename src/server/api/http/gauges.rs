//! Gauges: set at each scrape, from what is true then.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::SystemTime,
};

use leaseway_core::{PoolReport, escaped_lines};
use leaseway_raft::{Ineligible, PeerReport, RaftHandle};
use metrics::gauge;

use super::gauge_text::{GaugeText, escaped_label};
use crate::{
    api::status::survey::Totals,
    node::{Status, UplinkReport},
    observe::metrics::process,
};

/// What is true of the process as a whole.
pub(crate) struct ProcessGauges {
    pub(crate) is_master: bool,
    pub(crate) resources: usize,
    /// Resources that hold more than their capacity.
    pub(crate) over_capacity: usize,
    pub(crate) connections: usize,
    pub(crate) waiting_bytes: usize,
    pub(crate) watchers: usize,
    pub(crate) subscribers: usize,
    pub(crate) config_version: u64,
    pub(crate) config_rejected: bool,
    pub(crate) overrides: usize,
}

/// Sets the gauges of the uplink, on the peer that has one.
pub(crate) fn set_uplink_gauges(uplink: &UplinkReport) {
    gauge!("leaseway_uplink_resources").set(uplink.resources as f64);
    gauge!("leaseway_uplink_failures").set(f64::from(uplink.failures));
}

/// Sets for how long this server's certificate is still valid.
pub(crate) fn set_certificate_expires(at: SystemTime) {
    let seconds = match at.duration_since(SystemTime::now()) {
        Ok(left) => left.as_secs_f64(),
        Err(since) => -since.duration().as_secs_f64(),
    };
    gauge!("leaseway_tls_certificate_expires_seconds").set(seconds);
}

/// For every reason there is, so that none has to be known beforehand.
pub(crate) fn set_absence(absence: Option<&Ineligible>) {
    for reason in Ineligible::REASONS {
        let is_so = absence.is_some_and(|absence| absence.reason() == reason);
        gauge!("leaseway_peer_takes_no_part", "reason" => reason).set(f64::from(u8::from(is_so)));
    }
}

pub(crate) fn set_process_gauges(gauges: &ProcessGauges) {
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
    gauge!("leaseway_config_rejected").set(f64::from(u8::from(gauges.config_rejected)));
}

/// Sets sums over the resources without series of their own.
pub(crate) fn set_left_out_gauges(resources: usize, rest: &Totals) {
    gauge!("leaseway_metrics_resources_left_out").set(resources as f64);
    gauge!("leaseway_left_out_capacity").set(rest.capacity.get());
    gauge!("leaseway_left_out_wants").set(rest.wants.get());
    gauge!("leaseway_left_out_has").set(rest.granted.get());
    gauge!("leaseway_left_out_held").set(rest.held.get());
    gauge!("leaseway_left_out_subclients").set(rest.subclients as f64);
}

/// Sets the gauges of the quorum and its data directory.
pub(crate) fn set_quorum_gauges(quorum: &RaftHandle, free: Option<u64>) {
    leaseway_raft::repeat_gauges();
    if let Some(free) = free {
        gauge!("leaseway_data_free_bytes").set(free as f64);
    }
    gauge!("leaseway_data_failed").set(f64::from(u8::from(quorum.failure().borrow().is_some())));
    let peers = quorum.peers();
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

pub(super) fn put_resource_gauges(series: &mut GaugeText, status: &Status) {
    let resource = escaped_label(&label(&status.id));
    let mut set = |name: &'static str, value: f64| series.put(name, &resource, value);
    let report = &status.report;
    set("doorman_server_has", report.sums.granted.get());
    set("doorman_server_wants", report.sums.wants.get());
    set("doorman_server_subclients", report.sums.subclients as f64);
    // Where nothing is divided, a capacity would only look exceeded.
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
        set("leaseway_resource_estate", promises.unclaimed.get());
    }
    if let Some(pool) = &status.pool {
        put_pool_gauges(series, &resource, pool);
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

const LABEL: usize = 128;

/// An id as a label: as people read it, and cut if it is long, with a number that tells it from others that begin the
/// same.
fn label(id: &str) -> String {
    // A line break is escaped when the label is written.
    let text = escaped_lines(id);
    if text.len() <= LABEL {
        return text.into_owned();
    }
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let number = format!("…{:016x}", hasher.finish());
    let end = (0..=LABEL - number.len()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}{number}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_tell_ids_apart() {
        assert_eq!(label("mysql"), "mysql");
        assert_eq!(label("a\n\u{1b}[2J"), "a\n\\u001b[2J");
        let long = |end: &str| label(&format!("{}{end}", "ü".repeat(200)));
        assert!(long("a").len() <= LABEL && long("a").starts_with('ü'), "{}", long("a"));
        assert_ne!(long("a"), long("b"));
        assert_eq!(label(&"x".repeat(LABEL)), "x".repeat(LABEL));
    }
}
