//! The state that the tasks of one peer share.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicBool};

use leaseway_core::types::Millis;
use tokio::sync::watch;

use crate::{
    election::{
        master_lease::{Mastership, PeerAddress},
        vote::Ballot,
    },
    log::{
        acknowledged::Acknowledged,
        disk::Failing,
        store::LogStore,
        types::{Membership, PeerId, Raft},
    },
    settings::Settings,
    transport::{handshake::Handshake, liveness::Liveness},
};

pub(crate) struct LocalPeer {
    pub(crate) settings: Arc<Settings>,
    /// Set once every vote lease of an earlier process of this peer has ended.
    pub(crate) raft: Arc<OnceLock<Raft>>,
    pub(crate) handshake: Arc<Handshake>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) log: LogStore,
    pub(crate) ballot: Ballot,
    pub(crate) failing: Failing,
    pub(crate) mastership: watch::Receiver<Mastership>,
    pub(crate) discovered: DiscoveredMaster,
}

impl LocalPeer {
    pub(crate) fn id(&self) -> PeerId {
        self.handshake.peer()
    }

    pub(crate) fn now(&self) -> Millis {
        (self.settings.clock)()
    }

    /// The membership as this peer knows it; `None` before consensus has begun.
    pub(crate) fn membership(&self) -> Option<Membership> {
        let metrics = self.raft.get()?.metrics();
        let membership = metrics.borrow().membership_config.membership().clone();
        Some(membership)
    }
}

/// The master as other peers name it, for a peer that does not hear it.
#[derive(Debug, Default)]
pub(crate) struct DiscoveredMaster {
    named: Mutex<Option<PeerAddress>>,
    /// Whether this peer hears the master itself, or is it.
    pub(crate) hears_master: AtomicBool,
}

impl DiscoveredMaster {
    pub(crate) fn master(&self) -> Option<PeerAddress> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_master(&self, master: Option<PeerAddress>) {
        *self.named.lock().unwrap_or_else(PoisonError::into_inner) = master;
    }
}
