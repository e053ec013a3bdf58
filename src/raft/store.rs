//! What a peer keeps on disk: its identity, its vote, the log and a snapshot.
//!
//! ```text
//! data/lock          held by the process that uses the directory
//! data/identity      name, number, cluster          one frame, replaced as a whole
//! data/vote          the newest vote                one frame, replaced as a whole
//! data/floor         what the log ended with        two frames, written in turn
//! data/snapshot      all state up to some entry     one frame, replaced as a whole
//! data/log/NNN.log   entries, truncations, purges   frames, appended
//! ```
//!
//! Nothing counts before it is on disk. A failed write or flush ends consensus on this peer
//! ([`Failure`](disk::Failure)): what it left on the disk is unknown, so it is not retried. A record that a crash tore
//! off at the end of the log was never acknowledged, unless the floor says so, and is dropped; any other damage is
//! refused at start.

mod adapter;
pub(crate) mod directory;
pub(crate) mod disk;
pub(crate) mod floor;
pub(crate) mod flush_times;
pub(crate) mod frame;
pub(crate) mod log;
pub(crate) mod segments;
pub(crate) mod snapshots;

pub(crate) use adapter::LogStore;

use std::{io, path::PathBuf};

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        /// On which file.
        path: PathBuf,
        source: io::Error,
    },
    /// Another process has it, or another peer of this one.
    #[error("{} is in use by another process", path.display())]
    InUse { path: PathBuf },
    /// Not as it was written. Nothing was changed.
    #[error(
        "{} is damaged at byte {offset}: {what}. Nothing of this directory can be relied on.\n\
         A peer of several: if a majority of the others is intact, empty the directory and start again, and this peer \
         will join them as a new one and be given everything anew.\n\
         A server without peers: put back what is missing (an older copy forgets what was promised since), or empty \
         the directory and start again with --take-over, which first waits for the leases that may be in use; below a \
         parent, with neither --take-over nor --bootstrap",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        /// Where in it.
        offset: u64,
        what: String,
    },
    /// Written by a version that this one does not know.
    #[error(
        "{} is of format {found}, this version reads format {known} only: use the version that wrote it",
        path.display()
    )]
    Format {
        path: PathBuf,
        found: u8,
        /// What would be understood.
        known: u8,
    },
    /// It belongs to a peer of another name.
    #[error(
        "{} belongs to the peer {found:?}, not to {expected:?}: start that one, or use another directory",
        path.display()
    )]
    OtherPeer {
        path: PathBuf,
        /// The peer it belongs to.
        found: String,
        /// The peer that was to be started.
        expected: String,
    },
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.into();
        move |source| StoreError::Io { action, path, source }
    }
}
