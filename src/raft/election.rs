//! Votes, elections and the master lease.
//!
//! openraft elects leaders, but a leader that is cut off continues to believe that it leads. [`master_lease`] turns
//! leadership into a master lease, which holds only while a quorum confirms it. [`vote`] ensures that a peer that has
//! confirmed a lease votes for no other peer while the lease may hold. [`timer`] starts elections, after a pre-vote.

pub(crate) mod master_lease;
pub(crate) mod timer;
pub(crate) mod vote;

use std::sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicBool};

use leaseway_core::types::Millis;
use tokio::sync::watch;

use self::{
    master_lease::{Mastership, PeerAddress},
    vote::Ballot,
};
use crate::{
    log::{Membership, PeerId, Raft, acknowledged::Acknowledged, disk_thread::FailureLatch, store::LogStore},
    settings::Settings,
    transport::{HistoryAnswer, handshake::Handshake, liveness::Liveness},
};

/// The state that the tasks of this peer share.
pub(crate) struct PeerContext {
    pub(crate) settings: Arc<Settings>,
    /// Set when consensus begins, once every vote lease of an earlier process of this peer has ended.
    pub(crate) raft: Arc<OnceLock<Raft>>,
    pub(crate) handshake: Arc<Handshake>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) log: LogStore,
    pub(crate) ballot: Ballot,
    pub(crate) failing: FailureLatch,
    pub(crate) mastership: watch::Receiver<Mastership>,
    pub(crate) discovered: DiscoveredMaster,
    pub(crate) history: HistoryAnswer,
}

impl PeerContext {
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

/// The master that other peers have named. Used while this peer gets no heartbeats from a master.
#[derive(Debug, Default)]
pub(crate) struct DiscoveredMaster {
    named: Mutex<Option<PeerAddress>>,
    /// Whether this peer gets heartbeats from the master, or is the master.
    pub(crate) gets_heartbeats: AtomicBool,
}

impl DiscoveredMaster {
    pub(crate) fn master(&self) -> Option<PeerAddress> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_master(&self, master: Option<PeerAddress>) {
        *self.named.lock().unwrap_or_else(PoisonError::into_inner) = master;
    }
}
