//! The handshake: every message, in both directions, begins with the info of its sender, which is checked before
//! anything else of the message is read.

use std::sync::{Arc, Mutex, PoisonError};

use leaseway_proto::peer::{LogPosition, PeerInfo};
use openraft::CommittedLeaderId;

use crate::{
    log::{
        LogId, PeerId, StoreError,
        acknowledged::Incarnation,
        codec::{FORMAT, Kind},
        directory::{Directory, Identity},
    },
    settings::Settings,
};

/// Metadata key: the machine-readable reason of a rejection.
pub(super) const REJECTED: &str = "leaseway-turned-away";
/// The reason "the sender belongs to another cluster".
pub(super) const OTHER_CLUSTER: &str = "other-cluster";

/// Why a message was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejected {
    #[error("it did not identify itself")]
    Anonymous,
    #[error(
        "it uses format {theirs} of the peer protocol, but this peer uses format {ours}: run the same version on all \
         peers"
    )]
    Format { theirs: u32, ours: u8 },
    #[error("its secret differs from this peer's: use the same --peer-secret-file on all peers")]
    Secret,
    #[error("its certificate ({0}) is not for the host of any peer in --peers")]
    Certificate(String),
    #[error("its election timeout is {theirs} ms, but this peer's is {ours} ms: use the same --timing on all peers")]
    Timing { theirs: u64, ours: u64 },
    #[error("it belongs to another cluster: check --peers")]
    Cluster,
    #[error("it has the same name as this peer, {0:?}: give each peer its own --id")]
    DuplicateName(String),
}

/// Writes this peer's info and checks those of others.
pub(crate) struct Handshake {
    settings: Arc<Settings>,
    directory: Arc<Directory>,
    peer: PeerId,
    incarnation: Incarnation,
    cluster: Mutex<Option<u128>>,
    /// The checksum of the backup that it would begin a cluster with; zero without one.
    backup: u32,
    /// The peers it would begin a cluster with. Empty if it belongs to a cluster, or was started without `--bootstrap`.
    bootstraps: Mutex<Vec<String>>,
}

impl Handshake {
    pub(crate) fn new(
        settings: Arc<Settings>,
        directory: Arc<Directory>,
        identity: &Identity,
        incarnation: Incarnation,
    ) -> Handshake {
        let backup = settings.restored.as_ref().map_or(0, |backup| backup.checksum());
        Handshake {
            settings,
            directory,
            peer: identity.peer,
            incarnation,
            backup,
            cluster: Mutex::new(identity.cluster),
            bootstraps: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    pub(crate) fn peer(&self) -> PeerId {
        self.peer
    }

    pub(crate) fn cluster(&self) -> Option<u128> {
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces in peer infos that this peer would begin a cluster with these peers.
    pub(crate) fn announce_bootstrap(&self, mut names: Vec<String>) {
        names.sort_unstable();
        *self.bootstraps.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Assigns this peer to a cluster for good, unless it belongs to one already. Blocks until that is on disk.
    pub(crate) fn join_cluster(&self, cluster: u128) -> Result<(), StoreError> {
        let mut ours = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        if ours.is_none() {
            let identity = Identity { name: self.settings.name.clone(), peer: self.peer, cluster: Some(cluster) };
            self.directory.replace("identity", Kind::Identity, &identity)?;
            *ours = Some(cluster);
            self.bootstraps.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        Ok(())
    }

    pub(crate) fn info(&self) -> PeerInfo {
        PeerInfo {
            format: u32::from(FORMAT),
            cluster: self.cluster().map_or_else(Vec::new, |cluster| cluster.to_be_bytes().to_vec()),
            peer: self.peer,
            name: self.settings.name.clone(),
            advertise: self.settings.advertise.clone(),
            election_timeout_ms: self.settings.timing.lease().0,
            bootstraps: self.bootstraps.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            take_over_ms: if self.settings.take_over { self.settings.listening.0 } else { 0 },
            backup: self.backup,
            incarnation: self.incarnation.number,
            started_with: self.incarnation.started_with.map(|log| LogPosition {
                term: log.leader_id.term,
                leader: log.leader_id.node_id,
                index: log.index,
            }),
        }
    }

    /// `is_proven`: the sender knows the secret, if there is one. Accepts a peer without a cluster; each method decides
    /// whether to serve it.
    pub(crate) fn check(&self, other: Option<PeerInfo>, is_proven: bool) -> Result<PeerInfo, Rejected> {
        let other = other.ok_or(Rejected::Anonymous)?;
        if other.format != u32::from(FORMAT) {
            return Err(Rejected::Format { theirs: other.format, ours: FORMAT });
        }
        if !is_proven {
            return Err(Rejected::Secret);
        }
        let ours = self.settings.timing.lease().0;
        if other.election_timeout_ms != ours {
            return Err(Rejected::Timing { theirs: other.election_timeout_ms, ours });
        }
        if let (Some(ours), Some(theirs)) = (self.cluster(), cluster_of(&other))
            && ours != theirs
        {
            return Err(Rejected::Cluster);
        }
        if other.name == self.settings.name && other.peer != self.peer {
            return Err(Rejected::DuplicateName(other.name));
        }
        Ok(other)
    }
}

/// The process of the sender.
pub(crate) fn incarnation_of(info: &PeerInfo) -> Incarnation {
    let PeerInfo { peer, incarnation, started_with, .. } = info;
    let log = |log: &LogPosition| LogId::new(CommittedLeaderId::new(log.term, log.leader), log.index);
    Incarnation { peer: *peer, number: *incarnation, started_with: started_with.as_ref().map(log) }
}

/// The cluster of the sender; `None` if it belongs to none.
pub(crate) fn cluster_of(info: &PeerInfo) -> Option<u128> {
    info.cluster.as_slice().try_into().ok().map(u128::from_be_bytes)
}
