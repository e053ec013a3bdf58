//! Every message, in both directions, begins with who speaks. Nothing else of it is looked at before that has been
//! checked.

use std::sync::{Arc, Mutex, PoisonError};

use leaseway_proto::peer::Introduction;

use crate::{
    codec::FORMAT,
    raft::PeerId,
    settings::{Settings, knows},
    store::{StoreError, directory::Directory, directory::Identity, frame::Kind},
};

/// In answers to those who are turned away: why, for machines.
pub(super) const TURNED_AWAY: &str = "leaseway-turned-away";
/// It belongs to another cluster.
pub(super) const OTHER_CLUSTER: &str = "other-cluster";

/// Why somebody is not talked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stranger {
    #[error("it did not say who it is")]
    Nobody,
    #[error("it speaks format {theirs}, this peer format {ours}: all peers need versions of the same format")]
    Format { theirs: u32, ours: u8 },
    #[error("its secret is not the one of this peer")]
    Secret,
    #[error("it stands by a master for {theirs} ms, this peer for {ours}: all peers need the same timing")]
    Timing { theirs: u64, ours: u64 },
    #[error("it belongs to another cluster")]
    Cluster,
    #[error("it has the name of this peer, {0:?}: every peer needs one of its own")]
    Namesake(String),
}

/// Says who this peer is, and checks what others say.
#[derive(Debug)]
pub(crate) struct Introducer {
    settings: Arc<Settings>,
    directory: Arc<Directory>,
    peer: PeerId,
    cluster: Mutex<Option<u128>>,
    /// Whom this peer would begin a cluster with; empty once it belongs to one, or was not told to.
    bootstraps: Mutex<Vec<String>>,
}

impl Introducer {
    pub(crate) fn new(settings: Arc<Settings>, directory: Arc<Directory>, identity: &Identity) -> Introducer {
        Introducer {
            settings,
            directory,
            peer: identity.peer,
            cluster: Mutex::new(identity.cluster),
            bootstraps: Mutex::default(),
        }
    }

    pub(crate) fn peer(&self) -> PeerId {
        self.peer
    }

    pub(crate) fn cluster(&self) -> Option<u128> {
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says from now on that a cluster is to be begun, with these.
    pub(crate) fn bootstrap(&self, mut names: Vec<String>) {
        names.sort_unstable();
        *self.bootstraps.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// From now on this peer belongs to this cluster. Blocks until that is on the disk; a peer that belongs to one
    /// stays there.
    pub(crate) fn belong(&self, cluster: u128) -> Result<(), StoreError> {
        let mut ours = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        if ours.is_none() {
            let identity = Identity { name: self.settings.name.clone(), peer: self.peer, cluster: Some(cluster) };
            self.directory.replace("identity", Kind::Identity, &identity)?;
            *ours = Some(cluster);
            self.bootstraps.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        Ok(())
    }

    pub(crate) fn introduction(&self) -> Introduction {
        Introduction {
            format: u32::from(FORMAT),
            cluster: self.cluster().map_or_else(Vec::new, |cluster| cluster.to_be_bytes().to_vec()),
            peer: self.peer,
            name: self.settings.name.clone(),
            advertise: self.settings.advertise.clone(),
            secret: self.settings.secret.as_ref().map_or_else(Vec::new, |secret| secret.bytes().to_vec()),
            election_timeout_ms: self.settings.timing.lease().0,
            bootstraps: self.bootstraps.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            take_over_ms: if self.settings.take_over { self.settings.listening.0 } else { 0 },
        }
    }

    /// Whoever is of no cluster yet may talk to anybody who has the secret: what it may do is another question.
    pub(crate) fn check(&self, other: Option<Introduction>) -> Result<Introduction, Stranger> {
        let other = other.ok_or(Stranger::Nobody)?;
        if other.format != u32::from(FORMAT) {
            return Err(Stranger::Format { theirs: other.format, ours: FORMAT });
        }
        if !knows(self.settings.secret.as_ref(), &other.secret) {
            return Err(Stranger::Secret);
        }
        let ours = self.settings.timing.lease().0;
        if other.election_timeout_ms != ours {
            return Err(Stranger::Timing { theirs: other.election_timeout_ms, ours });
        }
        if let (Some(ours), Some(theirs)) = (self.cluster(), cluster_of(&other))
            && ours != theirs
        {
            return Err(Stranger::Cluster);
        }
        if other.name == self.settings.name && other.peer != self.peer {
            return Err(Stranger::Namesake(other.name));
        }
        Ok(other)
    }
}

/// The cluster somebody belongs to. What is not of the right length is nobody's.
pub(crate) fn cluster_of(introduction: &Introduction) -> Option<u128> {
    introduction.cluster.as_slice().try_into().ok().map(u128::from_be_bytes)
}
