//! What the tasks of one peer share.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use leaseway_core::Millis;
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
    /// Unset until every vote lease that an earlier process of this peer may have granted has ended.
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

/// What other peers say about the master, for a peer that does not hear it.
#[derive(Debug, Default)]
pub(crate) struct DiscoveredMaster(Mutex<Discovered>);

#[derive(Debug, Default)]
struct Discovered {
    master: Option<PeerAddress>,
    /// Whether this peer hears the master itself, or is it.
    hears_master: bool,
}

impl DiscoveredMaster {
    fn lock(&self) -> MutexGuard<'_, Discovered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn master(&self) -> Option<PeerAddress> {
        self.lock().master.clone()
    }

    pub(crate) fn set_master(&self, master: Option<PeerAddress>) {
        self.lock().master = master;
    }

    pub(crate) fn hears_master(&self) -> bool {
        self.lock().hears_master
    }

    pub(crate) fn set_hears_master(&self, hears: bool) {
        self.lock().hears_master = hears;
    }
}
