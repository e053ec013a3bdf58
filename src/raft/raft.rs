//! The types that consensus is told about.

use std::sync::Arc;

use openraft::TokioRuntime;
use serde::{Deserialize, Serialize};

use crate::{command::Command, propose_error::ProposeError};

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
/// openraft's internal state, as `with_raft_state` shows it.
pub(crate) type RaftState = openraft::RaftState<PeerId, Member, tokio::time::Instant>;
pub(crate) type StorageError = openraft::StorageError<PeerId>;
pub(crate) type Membership = openraft::Membership<PeerId, Member>;
pub(crate) type StoredMembership = openraft::StoredMembership<PeerId, Member>;

/// What the membership remembers about a peer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Where its peer listener is, unless the settings of the reading peer say otherwise.
    pub(crate) address: String,
    /// Where clients reached it when it was added.
    pub(crate) advertise: String,
}

/// A log entry's payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Payload {
    /// A new term begins: state of earlier ones that come after this are ignored.
    BeginTerm,
    /// What several callers proposed, each list all or nothing. One entry, so that one write to disk serves all of
    /// them: openraft waits for each entry of its own.
    Propose { term: u64, proposals: Arc<Vec<Vec<Command>>> },
}

/// The result of applying a [`Payload`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// Nothing that a caller waits for.
    None,
    /// The number of the term that began.
    TermBegan(u64),
    Proposed(Vec<Result<(), ProposeError>>),
}
