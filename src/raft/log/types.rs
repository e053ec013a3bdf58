//! The types that openraft is instantiated with, and the payload of a log entry.

use std::sync::Arc;

use openraft::TokioRuntime;
use serde::{Deserialize, Serialize};

use crate::log::command::{Command, ProposeError};

openraft::declare_raft_types!(
    pub(crate) Types:
        D = Payload,
        R = Outcome,
        NodeId = u64,
        Node = Member,
        Entry = openraft::Entry<Types>,
        SnapshotData = std::io::Cursor<Vec<u8>>,
        AsyncRuntime = TokioRuntime,
);

pub(crate) type PeerId = u64;
pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type LogId = openraft::LogId<PeerId>;
pub(crate) type Vote = openraft::Vote<PeerId>;
pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type RaftMetrics = openraft::RaftMetrics<PeerId, Member>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<PeerId, Member>;
/// openraft's internal state, as `Raft::with_raft_state` shows it.
pub(crate) type RaftState = openraft::RaftState<PeerId, Member, tokio::time::Instant>;
pub(crate) type StorageError = openraft::StorageError<PeerId>;
pub(crate) type Membership = openraft::Membership<PeerId, Member>;
pub(crate) type StoredMembership = openraft::StoredMembership<PeerId, Member>;

/// A peer in the stored membership.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// The address of its peer listener. An address in the settings of the reading peer takes precedence.
    pub(crate) address: String,
    /// The address for clients at the time the peer was added.
    pub(crate) advertise: String,
}

/// The payload of a log entry of ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Payload {
    /// Begins the next term of the master lease. Proposals of earlier terms that follow in the log are ignored.
    BeginTerm,
    /// The proposals of several callers, each applied as a whole or not at all. They share an entry, and so one disk
    /// write and one message to each peer.
    Propose { term: u64, proposals: Arc<Vec<Vec<Command>>> },
}

/// The result of applying an entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The entry was not a [`Payload`].
    None,
    TermBegan(u64),
    /// One result per proposal.
    Proposed(Vec<Result<(), ProposeError>>),
}
