//! What a server says about itself as a whole, the same for `leaseway status`, `leaseway check` and the page.

use leaseway_core::Millis;
use leaseway_proto::status::{Absence, GetStatusResponse, Health, Uplink};

use crate::node::{NodeHandle, server_info::ServerInfo};

pub(crate) fn own_status(node: &NodeHandle, info: &ServerInfo, health: Option<Health>) -> GetStatusResponse {
    let config = node.config();
    let (is_master, master) = match node.check() {
        Ok(()) => (true, info.advertise.to_string()),
        Err(why) => (false, why.master.map(|master| master.grpc).unwrap_or_default()),
    };
    let absence = node.absence();
    GetStatusResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        server_id: info.id.to_string(),
        is_master,
        master_address: master,
        uptime_ms: node.clock.at().0,
        config_source: config.source.clone(),
        config_version: config.version,
        config_error: config.rejected.clone().unwrap_or_default(),
        resources_total: node.resources() as u64,
        uplink: uplink(node),
        takes_no_part: absence.map(|absence| Absence { reason: absence.reason().to_owned(), why: absence.to_string() }),
        losses: if health.is_some() { node.losses() } else { Vec::new() },
        health,
        access: node.authorizer().in_words(),
        names_taken: node.children().names_taken(node.clock.at()),
        ..GetStatusResponse::default()
    }
}

fn uplink(node: &NodeHandle) -> Option<Uplink> {
    let parent = node.parent()?;
    let report = node.uplink().unwrap_or_default();
    let ago = |at: Millis| node.clock.at().since(at).0;
    let asks = !report.master.is_empty();
    Some(Uplink {
        node: parent.node.to_string(),
        parent: parent.addresses.iter().map(ToString::to_string).collect(),
        master: report.master.to_string(),
        up_ms: if asks { ago(report.since) } else { 0 },
        answered_ms: report.answered.map(ago),
        failures: report.failures,
        last_error: report.last_error.unwrap_or_default(),
        resources: report.resources as u64,
    })
}
