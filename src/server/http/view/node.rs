//! A server, its peers, and its place in a tree.

mod findings;

use std::time::SystemTime;

use leaseway_core::Millis;
use leaseway_quorum::{PeerReport, Role};
use serde::Serialize;

use self::findings::findings;
pub(in super::super) use self::findings::{Finding, Severity, verdict};
use super::{
    super::{Pages, free_bytes},
    resources::ResourceRow,
};
use crate::{actors::NotMaster, peer_endpoints::PeerEndpoints};

/// A server as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(in super::super) struct NodeView {
    pub(in super::super) server: String,
    pub(in super::super) version: &'static str,
    pub(in super::super) uptime_ms: u64,
    pub(in super::super) is_master: bool,
    pub(in super::super) master: Option<MasterView>,
    /// Why this peer takes no part in its node.
    pub(in super::super) absence: Option<String>,
    pub(in super::super) config_source: String,
    pub(in super::super) config_version: u64,
    /// Why the newest configuration was refused.
    pub(in super::super) config_rejected: Option<String>,
    /// Who may do what, in words; empty where everything is allowed.
    pub(in super::super) access: String,
    pub(in super::super) resources: usize,
    pub(in super::super) holders: usize,
    pub(in super::super) clients: u64,
    /// The worst first.
    pub(in super::super) findings: Vec<Finding>,
    pub(in super::super) limits: Vec<LimitRow>,
    /// Empty for a server without a data directory.
    pub(in super::super) peers: Vec<PeerRow>,
    pub(in super::super) parent: Option<ParentRow>,
    pub(in super::super) children: Vec<ChildRow>,
    /// Of this server's certificate; negative: it has ended.
    pub(in super::super) certificate_ends_secs: Option<i64>,
    /// Where the data directory is.
    pub(in super::super) free_bytes: Option<u64>,
    /// Why nothing is stored any more.
    pub(in super::super) data_failed: Option<String>,
}

/// Another peer that is master.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(in super::super) struct MasterView {
    pub(in super::super) grpc: String,
    /// Where its pages are; empty if it does not say.
    pub(in super::super) http: String,
}

/// A peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(in super::super) struct PeerRow {
    pub(in super::super) peer: String,
    /// `master`, `follower` or `learner`.
    pub(in super::super) role: &'static str,
    /// It answers this page.
    pub(in super::super) is_here: bool,
    pub(in super::super) grpc: String,
    pub(in super::super) http: String,
    /// Entries of the log that it lacks, if that is known here.
    pub(in super::super) lag: Option<u64>,
    /// How long ago it was heard from; absent for this one, and for one never heard from.
    pub(in super::super) heard_ms: Option<u64>,
}

/// The parent of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(in super::super) struct ParentRow {
    /// What this node is called there.
    pub(in super::super) node: String,
    pub(in super::super) addresses: Vec<String>,
    /// The server that is asked at present; empty while another peer of this node asks.
    pub(in super::super) master: String,
    /// How long ago it answered; absent if it never has.
    pub(in super::super) answered_ms: Option<u64>,
    /// In a row.
    pub(in super::super) failures: u32,
    pub(in super::super) last_error: String,
    /// Resources that it is asked for.
    pub(in super::super) resources: usize,
}

/// A child node.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(in super::super) struct ChildRow {
    pub(in super::super) node: String,
    /// Resources of its last request.
    pub(in super::super) resources: usize,
    /// How long ago that was.
    pub(in super::super) asked_ms: u64,
}

/// How much of a limit is used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in super::super) struct LimitRow {
    pub(in super::super) what: &'static str,
    /// What raises it.
    pub(in super::super) flag: &'static str,
    pub(in super::super) used: usize,
    pub(in super::super) most: usize,
}

/// Looks at the server.
pub(in super::super) async fn node(pages: &Pages) -> NodeView {
    let rows = pages.looks.resources.get(pages).await;
    let rows = &rows.rows;
    let config = pages.node.config();
    let at = pages.node.clock.at();
    let (is_master, master) = match pages.node.check() {
        Ok(()) => (true, None),
        Err(NotMaster { master }) => (false, master.map(|master| MasterView { grpc: master.grpc, http: master.http })),
    };
    let (free_bytes, data_failed) = match &pages.stored {
        Some((quorum, data)) => {
            let failure = quorum.failure().borrow().as_ref().map(ToString::to_string);
            (free_bytes(data).await, failure)
        }
        None => (None, None),
    };
    let ends = pages.tls.as_ref().and_then(|tls| tls.credentials().expires());
    let mut view = NodeView {
        server: pages.info.id.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        uptime_ms: at.0,
        is_master,
        master,
        absence: pages.node.absence().map(|absence| absence.to_string()),
        config_source: config.source.clone(),
        config_version: config.version,
        config_rejected: config.rejected.clone(),
        access: pages.node.gate().in_words(),
        resources: pages.node.resources(),
        holders: rows.iter().map(|row| row.holders).sum(),
        clients: rows.iter().map(|row| row.clients).sum(),
        findings: Vec::new(),
        limits: limits(pages, rows),
        peers: peers(pages),
        parent: parent(pages),
        children: children(pages, at),
        certificate_ends_secs: ends.map(seconds_until),
        free_bytes,
        data_failed,
    };
    view.findings = findings(&view, rows);
    view
}

fn seconds_until(end: SystemTime) -> i64 {
    match end.duration_since(SystemTime::now()) {
        Ok(left) => left.as_secs() as i64,
        Err(since) => -(since.duration().as_secs() as i64),
    }
}

fn limits(pages: &Pages, rows: &[ResourceRow]) -> Vec<LimitRow> {
    let limits = &pages.node.limits;
    let row = |what, flag, used, most| LimitRow { what, flag, used, most };
    let holders = rows.iter().map(|row| row.holders);
    vec![
        row("resources", "--max-resources", pages.node.resources(), limits.resources),
        row("holders in all", "--max-clients", holders.clone().sum(), limits.clients),
        row(
            "holders of one resource",
            "--max-clients-per-resource",
            holders.max().unwrap_or_default(),
            limits.clients_per_resource,
        ),
        row("gRPC connections", "--max-connections", pages.connections.count(), limits.connections),
        row("listeners for hints", "--max-watchers", pages.node.watching(), limits.watchers),
        row("bytes that wait", "--max-waiting-bytes", pages.budget.used(), limits.waiting_bytes),
        row("live pages", "--max-live-pages", pages.live.open(), limits.live_pages),
    ]
}

fn peers(pages: &Pages) -> Vec<PeerRow> {
    let Some((quorum, _)) = &pages.stored else { return Vec::new() };
    let row = |peer: PeerReport| {
        let addresses = PeerEndpoints::from(peer.advertise.as_str());
        PeerRow {
            is_here: peer.name == quorum.name(),
            peer: peer.name,
            role: match peer.role {
                Role::Master => "master",
                Role::Follower => "follower",
                Role::Learner => "learner",
            },
            grpc: addresses.grpc,
            http: addresses.http,
            lag: peer.lag,
            heard_ms: peer.last_contact.map(|ago| ago.0),
        }
    };
    quorum.peers().into_iter().map(row).collect()
}

pub(super) fn parent(pages: &Pages) -> Option<ParentRow> {
    let parent = pages.node.parent()?;
    let uplink = pages.node.uplink().unwrap_or_default();
    let at = pages.node.clock.at();
    Some(ParentRow {
        node: parent.node.to_string(),
        addresses: parent.addresses.iter().map(ToString::to_string).collect(),
        master: uplink.master.to_string(),
        answered_ms: uplink.answered.map(|answered| at.since(answered).0),
        failures: uplink.failures,
        last_error: uplink.last_error.unwrap_or_default(),
        resources: uplink.resources,
    })
}

fn children(pages: &Pages, at: Millis) -> Vec<ChildRow> {
    let list = pages.node.children().list(at).into_iter();
    list.map(|child| ChildRow { node: child.id, resources: child.resources, asked_ms: at.since(child.at).0 }).collect()
}
