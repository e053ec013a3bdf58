//! The server, its peers, its parent and children, and the explanation of a lease.

use leaseway_core::{
    resource::report::explain::{Block, Explanation},
    types::{HolderKind, Millis},
};
use leaseway_proto::status::{GetStatusResponse, Health, LimitUse, Resource};
use leaseway_raft::{PeerReport, Role};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::resources::{HolderRow, OverrideRow, ResourceRow};
use crate::{
    api::{
        pages::Pages,
        status::{
            UNREACHABLE,
            checkup::{Check, PeersObservation, Severity, check_self},
            limit_use, own_status, peer_list,
        },
    },
    node::{ConfigInForce, NotMaster, addresses::PeerEndpoints},
};

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct NodeView {
    pub(crate) server: String,
    pub(crate) version: &'static str,
    pub(crate) uptime_ms: u64,
    pub(crate) is_master: bool,
    pub(crate) master: Option<MasterView>,
    /// Why this peer is ineligible.
    pub(crate) ineligible: Option<String>,
    pub(crate) config_source: String,
    pub(crate) config_version: u64,
    /// Why the newest configuration was refused.
    pub(crate) config_rejected: Option<String>,
    /// A summary of the policy; empty if everything is allowed.
    pub(crate) access: String,
    /// Number of active resources. Set on the master only, as are `holders` and `clients`.
    pub(crate) resources: Option<usize>,
    pub(crate) holders: Option<usize>,
    pub(crate) clients: Option<u64>,
    /// The worst first.
    pub(crate) checks: Vec<Check>,
    #[serde(serialize_with = "serialize_limits")]
    pub(crate) limits: Vec<LimitUse>,
    pub(crate) overrides: Vec<OverrideRow>,
    /// Empty for a server without a data directory.
    pub(crate) peers: Vec<PeerRow>,
    pub(crate) parent: Option<ParentRow>,
    pub(crate) children: Vec<ChildRow>,
    /// Seconds until the certificate expires; negative after its expiry.
    pub(crate) certificate_ends_secs: Option<i64>,
    /// Free space at the data directory.
    pub(crate) free_bytes: Option<u64>,
    /// The error of the failed write, after which nothing more is stored.
    pub(crate) data_failed: Option<String>,
}

/// The master, as known to this peer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MasterSeen {
    Here,
    /// Another peer, with recent contact.
    At(MasterView),
    /// The last known master is silent. Milliseconds since the last contact; `None` if there was none.
    Silent(Option<u64>),
    Unknown,
}

impl MasterSeen {
    pub(crate) fn of(pages: &Pages) -> MasterSeen {
        let master = match pages.node.check() {
            Ok(()) => return MasterSeen::Here,
            Err(NotMaster { master: None }) => return MasterSeen::Unknown,
            Err(NotMaster { master: Some(master) }) => master,
        };
        let peers = pages.health.stored.as_ref().map(|(raft, _)| raft.peers()).unwrap_or_default();
        let is_it = |peer: &&PeerReport| PeerEndpoints::from(peer.advertise.as_str()).grpc == master.grpc;
        let last_contact = peers.iter().find(is_it).and_then(|peer| peer.last_contact);
        match last_contact.filter(|ago| *ago <= UNREACHABLE) {
            Some(_) => MasterSeen::At(MasterView { grpc: master.grpc, http: master.http }),
            None => MasterSeen::Silent(last_contact.map(|ago| ago.0)),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct MasterView {
    pub(crate) grpc: String,
    /// Empty if unknown.
    pub(crate) http: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct PeerRow {
    pub(crate) peer: String,
    /// `master`, `follower`, `learner` or `unreachable`.
    pub(crate) role: &'static str,
    /// The peer that serves this page.
    pub(crate) is_here: bool,
    pub(crate) grpc: String,
    pub(crate) http: String,
    /// Number of log entries that the peer lacks, if known.
    pub(crate) lag: Option<u64>,
    /// Time since the last contact. None for this peer, and before the first contact.
    pub(crate) last_contact_ms: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct ParentRow {
    /// The name of this node at its parent.
    pub(crate) node: String,
    pub(crate) addresses: Vec<String>,
    /// The parent's master, as far as known. Empty on peers without an uplink.
    pub(crate) master: String,
    /// The address of its pages.
    pub(crate) http: Option<String>,
    /// Time since its last answer.
    pub(crate) answered_ms: Option<u64>,
    /// Failures since the last answer.
    pub(crate) failures: u32,
    pub(crate) last_error: String,
    pub(crate) resources: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct ChildRow {
    pub(crate) node: String,
    /// Resources in its last request.
    pub(crate) resources: usize,
    /// Time since that request.
    pub(crate) asked_ms: u64,
}

pub(crate) async fn node(pages: &Pages) -> NodeView {
    let rows = pages.snapshots.resources.get(pages).await;
    let rows = &rows.rows;
    let config = pages.node.config();
    let at = pages.node.clock.at();
    let master = MasterSeen::of(pages);
    let is_master = master == MasterSeen::Here;
    let known = |number| is_master.then_some(number);
    let health = pages.health.read(&pages.node, &pages.info).await;
    let limits = limits(pages, &health, rows);
    NodeView {
        server: pages.info.id.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        uptime_ms: at.0,
        is_master,
        ineligible: pages.node.ineligible().map(|ineligible| ineligible.to_string()),
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
        checks: check_self(own_observation(pages, &master, health, &limits, rows), observed_peers(pages, is_master)),
        master: if let MasterSeen::At(master) = master { Some(master) } else { None },
        limits,
    }
}

/// The overall severity, and a text for the top of the page.
pub(crate) fn verdict(view: &NodeView) -> (Severity, &'static str) {
    let worst = Severity::worst(&view.checks);
    let text = match worst {
        Severity::Bad => "Unhealthy: clients may not get their share.",
        Severity::Warn => "Works, but needs attention",
        Severity::Ok if view.is_master => "Healthy",
        Severity::Ok => "Healthy, as far as this peer knows",
    };
    (worst, text)
}

/// The status of this server for [`check_self`].
fn own_observation(
    pages: &Pages,
    master: &MasterSeen,
    mut health: Health,
    limits: &[LimitUse],
    rows: &[ResourceRow],
) -> GetStatusResponse {
    health.limit = limits.to_vec();
    let resources: Vec<Resource> = rows.iter().map(ResourceRow::to_status).collect();
    let mut status = own_status(&pages.node, &pages.info, Some(health));
    if let MasterSeen::Silent(_) = master {
        status.master_address.clear();
    }
    GetStatusResponse { resources_total: resources.len() as u64, resources, ..status }
}

fn observed_peers(pages: &Pages, is_master: bool) -> PeersObservation {
    match &pages.health.stored {
        Some((raft, _)) if is_master => PeersObservation::Listed(peer_list(raft, &pages.info)),
        Some(_) => PeersObservation::Elsewhere,
        None => PeersObservation::Alone,
    }
}

/// The overrides, newest first. Expired ones are filtered, because they are removed only once a second.
fn overrides(config: &ConfigInForce, at: Millis) -> Vec<OverrideRow> {
    let mut rows: Vec<OverrideRow> = config.overrides.iter().map(|one| OverrideRow::of(one, at)).collect();
    rows.retain(|row| row.remaining_ms > 0);
    rows.reverse();
    rows
}

fn serialize_limits<S: Serializer>(limits: &[LimitUse], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(limits.iter().map(|LimitUse { what, flag, used, most, soft }| {
        json!({ "what": what, "flag": flag, "used": used, "most": most, "soft": soft })
    }))
}

fn limits(pages: &Pages, health: &Health, rows: &[ResourceRow]) -> Vec<LimitUse> {
    let limits = &pages.node.limits;
    let holders = rows.iter().map(|row| row.holders).max().unwrap_or_default();
    let more = [
        limit_use("holders of one resource", "--max-clients-per-resource", holders, limits.clients_per_resource),
        limit_use("live pages", "--max-live-pages", pages.live.open(), limits.live_pages),
    ];
    health.limit.iter().cloned().chain(more).collect()
}

fn peers(pages: &Pages, is_master: bool) -> Vec<PeerRow> {
    let Some((raft, _)) = &pages.health.stored else { return Vec::new() };
    let row = |peer: PeerReport| {
        let addresses = PeerEndpoints::from(peer.advertise.as_str());
        let is_here = peer.name == raft.name();
        // Followers have contact with the master only.
        let has_contact = !is_here && (is_master || peer.role == Role::Master);
        PeerRow {
            is_here,
            peer: peer.name,
            role: match peer.role {
                _ if has_contact && peer.last_contact.is_none_or(|ago| ago > UNREACHABLE) => "unreachable",
                Role::Master => "master",
                Role::Follower => "follower",
                Role::Learner => "learner",
            },
            grpc: addresses.grpc,
            http: addresses.http,
            lag: peer.lag,
            last_contact_ms: peer.last_contact.map(|ago| ago.0),
        }
    };
    raft.peers().into_iter().map(row).collect()
}

fn parent(pages: &Pages) -> Option<ParentRow> {
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WhyQuery {
    pub(crate) resource: String,
    pub(crate) holder: String,
    /// `client`, `node`, or empty for either.
    pub(crate) kind: String,
}

/// The explanation of a holder's lease.
pub(crate) struct Explained {
    pub(crate) explanation: Explanation,
    pub(crate) holder: HolderRow,
    /// The parent, which can explain this node's own lease. `None` at a root.
    pub(crate) parent: Option<ParentRow>,
}

/// Explains the lease of a holder. `None` if the holder is unknown here.
pub(crate) async fn explain(pages: &Pages, query: &WhyQuery) -> Option<Explained> {
    let _permit = pages.snapshots.holder_reads.acquire().await;
    let mut explanation = None;
    for (name, kind) in [("client", HolderKind::Client), ("node", HolderKind::Node)] {
        if explanation.is_none() && (query.kind.is_empty() || query.kind == name) {
            explanation = pages.node.explain(&query.resource, kind, query.holder.clone()).await;
        }
    }
    let explanation = explanation?;
    let holder = HolderRow::of(&explanation.holder, explanation.at);
    Some(Explained { explanation, holder, parent: parent(pages) })
}

impl Explained {
    /// Milliseconds until the holder asks again, if known.
    pub(crate) fn asks_ms(&self) -> Option<u64> {
        self.explanation.asks.map(|at| at.since(self.explanation.at).0)
    }

    /// Milliseconds until the holder can have its due, at the latest, if known.
    pub(crate) fn latest_ms(&self) -> Option<u64> {
        self.explanation.latest.map(|at| at.since(self.explanation.at).0)
    }

    pub(crate) fn to_json(&self, resource: &str) -> Value {
        let Explained { explanation, holder, parent } = self;
        let mut value = json!(holder);
        value["resource"] = json!(resource);
        value["capacity"] = json!(explanation.capacity.get());
        value["free"] = json!(explanation.free.get());
        value["rule"] = json!(explanation.rule.name());
        value["blocks"] = explanation.blocks.iter().map(Block::name).collect();
        value["asks_ms"] = json!(self.asks_ms());
        value["latest_ms"] = json!(self.latest_ms());
        value["sentences"] = json!(explanation.sentences());
        value["parent"] = json!(parent);
        value
    }
}
