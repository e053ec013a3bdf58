//! The replicated log of this peer: its entries, their content ([`command`]) and their storage.
//!
//! A peer keeps everything in its data directory:
//!
//! ```text
//! data/lock             held by the process that uses the directory
//! data/identity         name, peer number, cluster    one frame, replaced as a whole
//! data/vote             the newest vote               one frame, replaced as a whole
//! data/high-water-mark  high-water mark of the log    two slots, written in turn
//! data/snapshot         the state up to some entry    one frame, replaced as a whole
//! data/log/NNN.log      entries, truncations, purges  frames, append-only
//! ```
//!
//! openraft calls [`store::LogStore`]. It keeps the log in memory ([`memory`]) and hands every change to one thread
//! ([`disk`]), which appends it to a segment file ([`segments`]) and flushes.
//!
//! A record counts once it is flushed. A failed write or flush ends consensus on this peer ([`disk_thread::Failure`]).
//! It is not retried, because what it left on the disk is unknown. On start, a record that a crash tore off at the end
//! of the log is dropped, because it was never acknowledged. If it was, the [`high_water_mark`] shows that. A directory
//! with any other damage is refused.

pub(crate) mod acknowledged;
pub(crate) mod codec;
pub(crate) mod command;
pub(crate) mod directory;
pub(crate) mod disk_thread;
pub(crate) mod high_water_mark;
pub(crate) mod memory;
pub(crate) mod segment_files;
pub(crate) mod snapshots;
pub(crate) mod store;

use std::{io, path::PathBuf, sync::Arc};

use openraft::TokioRuntime;
use serde::{Deserialize, Serialize};

use self::command::{Command, ProposeError};

// The types that openraft is instantiated with.
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

/// The payload of a log entry, other than a membership.
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

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is in use by another process: stop that process, or use another directory", path.display())]
    InUse { path: PathBuf },
    /// A file of the directory is missing, incomplete or corrupt. The directory is unchanged. `offset` is 0 if the
    /// whole file is meant.
    #[error(
        "{} is damaged{}: {what}. Do not rely on any file of this directory.\n\
         If this server has peers, and a majority of the others is intact: empty the directory and restart this \
         server. It joins them as a new peer and receives the whole state.\n\
         If it has no peers: restore the file, if it is missing (an older copy lacks later promises), or empty the \
         directory and restart with --take-over, which first waits until leases in use have expired. Below a parent, \
         restart with neither --take-over nor --bootstrap",
        path.display(),
        at_byte(*offset)
    )]
    Damaged { path: PathBuf, offset: u64, what: String },
    /// Another version of the program wrote the file.
    #[error(
        "{} has format {found}, and this version reads only format {known}: use the version of Leaseway that wrote it",
        path.display()
    )]
    Format { path: PathBuf, found: u8, known: u8 },
    /// The directory belongs to a peer of another name.
    #[error(
        "{} belongs to the peer {found:?}, not to {expected:?}: set --id to {found:?}, or use another directory",
        path.display()
    )]
    OtherPeer { path: PathBuf, found: String, expected: String },
}

/// Offset 0 stands for the whole file or directory.
fn at_byte(offset: u64) -> String {
    if offset == 0 { String::new() } else { format!(" at byte {offset}") }
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.into();
        move |source| StoreError::Io { action, path, source }
    }
}
