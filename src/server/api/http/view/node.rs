//! A server, its peers, and its place in a tree.

use leaseway_core::Millis;
use leaseway_proto::status::{GetStatusResponse, Health, LimitUse, Resource};
use leaseway_raft::{PeerReport, Role};
use serde::Serialize;

use super::{super::Pages, overrides::OverrideRow, resources::ResourceRow};
use crate::{
    api::status::{
        checkup::{Check, PeersObservation, Severity, check_self},
        own_status::own_status,
        peer_list::{UNREACHABLE, peer_list},
    },
    node::{ConfigInForce, NotMaster, peer_endpoints::PeerEndpoints},
};

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
    /// Only the master knows resources, and who holds them.
    pub(in super::super) resources: Option<usize>,
    pub(in super::super) holders: Option<usize>,
    pub(in super::super) clients: Option<u64>,
    /// What is not well, the worst first.
    pub(in super::super) findings: Vec<Check>,
    pub(in super::super) limits: Vec<LimitRow>,
    pub(in super::super) overrides: Vec<OverrideRow>,
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

/// Which peer is master, as far as this one knows.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) enum MasterSeen {
    Here,
    /// Another, which was heard from lately.
    At(MasterView),
    /// The last one known here was heard from so many milliseconds ago, or never.
    Silent(Option<u64>),
    Unknown,
}

impl MasterSeen {
    pub(in super::super) fn of(pages: &Pages) -> MasterSeen {
        let master = match pages.node.check() {
            Ok(()) => return MasterSeen::Here,
            Err(NotMaster { master: None }) => return MasterSeen::Unknown,
            Err(NotMaster { master: Some(master) }) => master,
        };
        let peers = pages.health.stored.as_ref().map(|(quorum, _)| quorum.peers()).unwrap_or_default();
        let is_it = |peer: &&PeerReport| PeerEndpoints::from(peer.advertise.as_str()).grpc == master.grpc;
        let heard = peers.iter().find(is_it).and_then(|peer| peer.last_contact);
        match heard.filter(|ago| *ago <= UNREACHABLE) {
            Some(_) => MasterSeen::At(MasterView { grpc: master.grpc, http: master.http }),
            None => MasterSeen::Silent(heard.map(|ago| ago.0)),
        }
    }
}

/// Another peer that is master.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(in super::super) struct MasterView {
    pub(in super::super) grpc: String,
    /// Where its pages are; empty if it does not say.
    pub(in super::super) http: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(in super::super) struct PeerRow {
    pub(in super::super) peer: String,
    /// `master`, `follower`, `learner` or `unreachable`.
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
    /// Where the page of that server is.
    pub(in super::super) http: Option<String>,
    /// How long ago it answered; absent if it never has.
    pub(in super::super) answered_ms: Option<u64>,
    /// In a row.
    pub(in super::super) failures: u32,
    pub(in super::super) last_error: String,
    /// Resources that it is asked for.
    pub(in super::super) resources: usize,
}

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
    pub(in super::super) what: String,
    pub(in super::super) flag: String,
    pub(in super::super) used: usize,
    pub(in super::super) most: usize,
    /// Beyond it nothing is refused: some are only not shown.
    pub(in super::super) soft: bool,
}

/// Snapshots at the server.
pub(in super::super) async fn node(pages: &Pages) -> NodeView {
    let rows = pages.snapshots.resources.get(pages).await;
    let rows = &rows.rows;
    let config = pages.node.config();
    let at = pages.node.clock.at();
    let master = MasterSeen::of(pages);
    let is_master = master == MasterSeen::Here;
    let known = |number| is_master.then_some(number);
    let health = pages.health.look(&pages.node, &pages.info).await;
    let limits = limits(pages, &health, rows);
    NodeView {
        server: pages.info.id.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        uptime_ms: at.0,
        is_master,
        absence: pages.node.absence().map(|absence| absence.to_string()),
        config_source: config.source.clone(),
        config_version: config.version,
        config_rejected: config.rejected.clone(),
        access: pages.node.authorizer().in_words(),
        resources: known(pages.node.resources()),
        holders: known(rows.iter().map(|row| row.holders).sum()),
        clients: is_master.then(|| rows.iter().map(|row| row.clients).sum()),
        overrides: overrides(&config, at),
        peers: peers(pages, is_master),
        parent: parent(pages),
        children: children(pages, at),
        certificate_ends_secs: health.certificate_ends_unix.map(|ends| ends - (health.unix_ms / 1000) as i64),
        free_bytes: health.free_bytes,
        data_failed: Some(health.data_error.clone()).filter(|error| !error.is_empty()),
        findings: check_self(seen(pages, &master, health, &limits, rows), peers_seen(pages, is_master)),
        master: if let MasterSeen::At(master) = master { Some(master) } else { None },
        limits,
    }
}

/// Whether it is fine, in a sentence, and how bad it is.
pub(in super::super) fn verdict(view: &NodeView) -> (Severity, &'static str) {
    let worst = Severity::worst(&view.findings);
    let text = match worst {
        Severity::Bad => "Not fine: clients may not get what they should.",
        Severity::Warn => "It works; something should be looked at.",
        Severity::Ok if view.is_master => "It is fine.",
        Severity::Ok => "It is fine, as far as this peer knows.",
    };
    (worst, text)
}

/// What the server says about itself, with all that verdicts rest on.
fn seen(
    pages: &Pages,
    master: &MasterSeen,
    mut health: Health,
    limits: &[LimitRow],
    rows: &[ResourceRow],
) -> GetStatusResponse {
    health.limit = limits.iter().map(LimitRow::used).collect();
    let resources: Vec<Resource> = rows.iter().map(ResourceRow::seen).collect();
    let mut status = own_status(&pages.node, &pages.info, Some(health));
    if let MasterSeen::Silent(_) = master {
        status.master_address.clear();
    }
    GetStatusResponse { resources_total: resources.len() as u64, resources, ..status }
}

fn peers_seen(pages: &Pages, is_master: bool) -> PeersObservation {
    match &pages.health.stored {
        Some((quorum, _)) if is_master => PeersObservation::Listed(peer_list(quorum, &pages.info)),
        Some(_) => PeersObservation::Elsewhere,
        None => PeersObservation::Alone,
    }
}

/// A server looks at their ends once a second.
fn overrides(config: &ConfigInForce, at: Millis) -> Vec<OverrideRow> {
    let mut rows: Vec<OverrideRow> = config.overrides.iter().map(|one| OverrideRow::of(one, at)).collect();
    rows.retain(|row| row.remaining_ms > 0);
    rows.reverse();
    rows
}

impl LimitRow {
    fn of(limit: &LimitUse) -> LimitRow {
        let LimitUse { what, flag, used, most, soft } = limit.clone();
        LimitRow { what, flag, used: used as usize, most: most as usize, soft }
    }

    fn used(&self) -> LimitUse {
        let LimitRow { what, flag, used, most, soft } = self.clone();
        LimitUse { what, flag, used: used as u64, most: most as u64, soft }
    }
}

fn limits(pages: &Pages, health: &Health, rows: &[ResourceRow]) -> Vec<LimitRow> {
    let limits = &pages.node.limits;
    let row =
        |what: &str, flag: &str, used, most| LimitRow { what: what.into(), flag: flag.into(), used, most, soft: false };
    let holders = rows.iter().map(|row| row.holders).max().unwrap_or_default();
    let mut all: Vec<LimitRow> = health.limit.iter().map(LimitRow::of).collect();
    all.push(row("holders of one resource", "--max-clients-per-resource", holders, limits.clients_per_resource));
    all.push(row("live pages", "--max-live-pages", pages.live.open(), limits.live_pages));
    all
}

fn peers(pages: &Pages, is_master: bool) -> Vec<PeerRow> {
    let Some((quorum, _)) = &pages.health.stored else { return Vec::new() };
    let row = |peer: PeerReport| {
        let addresses = PeerEndpoints::from(peer.advertise.as_str());
        let is_here = peer.name == quorum.name();
        // Followers hear from the master alone.
        let hears = !is_here && (is_master || peer.role == Role::Master);
        PeerRow {
            is_here,
            peer: peer.name,
            role: match peer.role {
                _ if hears && peer.last_contact.is_none_or(|ago| ago > UNREACHABLE) => "unreachable",
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
        http: uplink.page,
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
