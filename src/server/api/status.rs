//! The status of a server: what gRPC, the pages and `/api/v1` report.

pub mod checkup;
pub(crate) mod history;
pub(crate) mod survey;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leaseway_core::types::Millis;
use leaseway_proto::{
    admin::{ListPeersResponse, PeerReport, Role},
    status::{GetStatusResponse, Health, Ineligible, LimitUse, Uplink},
};
use leaseway_raft::{Mastership, RaftHandle};

use crate::{
    listen::{open_connections::OpenConnections, tls::Tls, waiting_bytes::WaitingBytes},
    node::{NodeHandle, addresses::PeerEndpoints, addresses::ServerInfo},
    observe::{
        changes::{ChangeKind, NO_MASTER},
        metrics,
    },
};

/// Timeout for reading the free space. If the disk takes longer, the report omits it.
const DISK_TIMEOUT: Duration = Duration::from_millis(500);
/// The period in which changes of master are counted.
const ELECTIONS_PERIOD: Duration = Duration::from_secs(3_600);
/// A peer without contact for this long is unreachable.
pub(crate) const UNREACHABLE: Millis = Millis::from_secs(3);

/// Says why a service of another crate in this process is not ready, if it is not.
#[derive(Clone)]
pub struct ReadinessProbe(Arc<dyn Fn() -> Option<&'static str> + Send + Sync>);

impl ReadinessProbe {
    pub fn new(probe: impl Fn() -> Option<&'static str> + Send + Sync + 'static) -> ReadinessProbe {
        ReadinessProbe(Arc::new(probe))
    }

    pub(crate) fn problem(&self) -> Option<&'static str> {
        (self.0)()
    }
}

impl std::fmt::Debug for ReadinessProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadinessProbe")
    }
}

/// The sources of [`Health`].
#[derive(Clone)]
pub(crate) struct HealthSources {
    pub(crate) connections: OpenConnections,
    pub(crate) waiting_bytes: Arc<WaitingBytes>,
    /// The peers and the data directory, if there is one.
    pub(crate) stored: Option<(RaftHandle, Arc<PathBuf>)>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) extra: Option<ReadinessProbe>,
}

impl HealthSources {
    pub(crate) async fn read(&self, node: &NodeHandle, info: &ServerInfo) -> Health {
        let (free_bytes, data_error, slowest_flush_ms) = match &self.stored {
            Some((raft, data)) => {
                let failure = raft.failure().borrow().as_ref().map(ToString::to_string);
                let slowest = raft.slowest_flush().as_millis() as u64;
                (free_bytes(data).await, failure.unwrap_or_default(), Some(slowest))
            }
            None => (None, String::new(), None),
        };
        let ends = self.tls.as_ref().and_then(|tls| tls.credentials().expires());
        Health {
            unix_ms: node.clock.unix_ms(),
            certificate_ends_unix: ends.map(unix),
            free_bytes,
            data_error,
            limit: self.limits(node),
            admin_address: info.admin.to_string(),
            http_address: info.http.to_string(),
            slowest_flush_ms,
            elections_last_hour: elections(node),
        }
    }

    fn limits(&self, node: &NodeHandle) -> Vec<LimitUse> {
        let limits = &node.limits;
        let soft = |what, flag, most| LimitUse { soft: true, ..limit_use(what, flag, node.resources(), most) };
        let mut all = vec![
            limit_use("resources", "--max-resources", node.resources(), limits.resources),
            limit_use("holders", "--max-clients", node.holders(), limits.clients),
            limit_use("connections", "--max-connections", self.connections.count(), limits.connections),
            limit_use("watchers", "--max-watchers", node.watching(), limits.watchers),
            limit_use("buffered bytes", "--max-waiting-bytes", self.waiting_bytes.used(), limits.waiting_bytes),
        ];
        // A limit of 0 turns them off.
        let shown = [
            soft("resources with metric series", "--metrics-resources", limits.metrics_resources),
            soft("resources with a history", "--history-resources", limits.history_resources),
        ];
        all.extend(shown.into_iter().filter(|limit| limit.most > 0));
        all
    }
}

/// Changes of master during the last hour, as far as this peer has seen them.
fn elections(node: &NodeHandle) -> u64 {
    let hour_ago = SystemTime::now() - ELECTIONS_PERIOD;
    let elections = node.authorizer().audit().changes().list(Some(ChangeKind::Election));
    let elections = elections.iter().filter(|election| election.at >= hour_ago && election.what != NO_MASTER);
    elections.map(|election| election.times).sum()
}

pub(crate) fn limit_use(what: &str, flag: &str, used: usize, most: usize) -> LimitUse {
    LimitUse { what: what.to_owned(), flag: flag.to_owned(), used: used as u64, most: most as u64, soft: false }
}

/// Free bytes at the data directory. Does not block if the disk hangs.
pub(crate) async fn free_bytes(data: &Arc<PathBuf>) -> Option<u64> {
    let data = Arc::clone(data);
    let read = tokio::task::spawn_blocking(move || metrics::free_bytes(&data));
    tokio::time::timeout(DISK_TIMEOUT, read).await.ok()?.ok().flatten()
}

/// Seconds since the epoch.
fn unix(moment: SystemTime) -> i64 {
    match moment.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs() as i64,
        Err(before) => -(before.duration().as_secs() as i64),
    }
}

/// The status of this server as a whole.
pub(crate) fn own_status(node: &NodeHandle, info: &ServerInfo, health: Option<Health>) -> GetStatusResponse {
    let config = node.config();
    let (is_master, master) = match node.check() {
        Ok(()) => (true, info.advertise.to_string()),
        Err(why) => (false, why.master.map(|master| master.grpc).unwrap_or_default()),
    };
    let ineligible = node.ineligible();
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
        ineligible: ineligible
            .map(|ineligible| Ineligible { reason: ineligible.reason().to_owned(), why: ineligible.to_string() }),
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

/// All peers, as known to this one. Only the master has contact with all of them.
pub(crate) fn peer_list(raft: &RaftHandle, info: &ServerInfo) -> ListPeersResponse {
    let mastership = raft.mastership().borrow().clone();
    let name = raft.name().to_owned();
    let (master, master_admin_address) = match mastership {
        Mastership::Master(_) => (name.clone(), info.admin.to_string()),
        Mastership::Follower { of: Some(master) } => {
            (master.name, PeerEndpoints::from(master.advertise.as_str()).admin)
        }
        Mastership::Follower { of: None } | Mastership::Unknown => Default::default(),
    };
    let is_master = matches!(*raft.mastership().borrow(), Mastership::Master(_));
    let peer = raft.peers().into_iter().map(|peer| report(peer, &name, is_master)).collect();
    ListPeersResponse { cluster_id: raft.cluster().unwrap_or_default(), name, master, master_admin_address, peer }
}

fn report(peer: leaseway_raft::PeerReport, own: &str, is_master: bool) -> PeerReport {
    let this = peer.name == own;
    let silent = is_master && !this && peer.last_contact.is_none_or(|since| since > UNREACHABLE);
    let role = match peer.role {
        _ if silent => Role::Unreachable,
        leaseway_raft::Role::Master => Role::Master,
        leaseway_raft::Role::Follower => Role::Follower,
        leaseway_raft::Role::Learner => Role::Learner,
    };
    PeerReport {
        name: peer.name,
        peer_address: peer.address,
        grpc_address: PeerEndpoints::from(peer.advertise.as_str()).grpc,
        role: role.into(),
        term: peer.term,
        log_position: peer.position,
        lag: peer.lag,
        last_contact_ms: peer.last_contact.map(|since| since.0),
        self_: this,
    }
}
