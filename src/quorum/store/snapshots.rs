//! The snapshot: one file with all facts up to some entry of the log.

use std::sync::Arc;

use openraft::{AnyError, ErrorSubject, ErrorVerb, StorageIOError};
use serde::{Deserialize, Serialize};

use super::{
    StoreError,
    directory::{self, Directory},
    disk::Failing,
    frame::Kind,
};
use crate::{
    codec, metrics,
    raft::{SnapshotMeta, StorageError},
    stored::StoredFacts,
};

const NAME: &str = "snapshot";

/// A snapshot, on disk and on its way to another peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) meta: SnapshotMeta,
    /// [`StoredFacts`].
    pub(crate) facts: Vec<u8>,
}

/// Reads and writes it, on threads that may block.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    directory: Arc<Directory>,
    failing: Failing,
}

impl Snapshots {
    pub(crate) fn new(directory: Arc<Directory>, failing: Failing) -> Snapshots {
        Snapshots { directory, failing }
    }

    /// Blocks.
    pub(crate) fn open(&self) -> Result<Option<(Stored, StoredFacts)>, StoreError> {
        let Some(stored) = self.directory.read::<Stored>(NAME, Kind::Snapshot)? else { return Ok(None) };
        let facts = StoredFacts::decode(&stored.facts).map_err(|error| StoreError::Damaged {
            path: self.directory.path(NAME),
            offset: 0,
            what: error.to_string(),
        })?;
        Ok(Some((stored, facts)))
    }

    pub(crate) async fn read(&self) -> Result<Option<Stored>, StorageError> {
        let this = self.clone();
        blocking(ErrorVerb::Read, move || Ok(this.open()?.map(|(stored, _)| stored))).await
    }

    /// `facts` are of this format. A failure ends consensus on this peer, as with the log.
    pub(crate) async fn write(&self, meta: SnapshotMeta, format: u8, facts: Vec<u8>) -> Result<(), StorageError> {
        let this = self.clone();
        blocking(ErrorVerb::Write, move || {
            let bytes = codec::encode(&Stored { meta, facts });
            metrics::snapshot(bytes.len());
            directory::replace(this.directory.root(), NAME, format, Kind::Snapshot, &bytes)
                .inspect_err(|error| this.failing.fail(error))
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    verb: ErrorVerb,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StorageError> {
    let failed = |error: AnyError| StorageError::from(StorageIOError::new(ErrorSubject::Snapshot(None), verb, error));
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| failed(AnyError::new(&error))),
        Err(gone) => Err(failed(AnyError::new(&gone))),
    }
}
