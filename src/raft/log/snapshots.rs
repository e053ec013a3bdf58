//! The snapshot: one file with the state up to some entry of the log. Its content is opaque to this module.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use openraft::{AnyError, ErrorSubject, ErrorVerb, StorageIOError};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{
    log::{
        LogId, SnapshotMeta, StorageError, StoreError,
        codec::{self, Kind},
        directory::{self, Directory},
        disk_thread::{Failure, FailureLatch},
    },
    metrics,
};

const FILE_NAME: &str = "snapshot";

/// The content of the file. Only `state` is sent to other peers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredSnapshot {
    pub(crate) meta: SnapshotMeta,
    /// An encoded [`StoredState`](crate::state::StoredState).
    #[serde(with = "whole_bytes")]
    pub(crate) state: Vec<u8>,
}

/// Encodes a byte vector in one piece. Byte by byte is too slow for megabytes, and gives the same bytes.
mod whole_bytes {
    use serde::{Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        from.deserialize_byte_buf(ByteVisitor)
    }

    struct ByteVisitor;

    impl de::Visitor<'_> for ByteVisitor {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("bytes")
        }

        fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }
    }
}

/// Reads and writes the snapshot, on threads that may block.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    directory: Arc<Directory>,
    failing: FailureLatch,
    /// The last entry that the snapshot on disk covers.
    covered: Arc<watch::Sender<Option<LogId>>>,
    /// The size of the snapshot on disk.
    bytes: Arc<AtomicU64>,
    /// Allows one write at a time: openraft may install a snapshot while it builds another.
    writing: Arc<Mutex<()>>,
}

impl Snapshots {
    pub(crate) fn new(directory: Arc<Directory>, failing: FailureLatch) -> Snapshots {
        Snapshots { directory, failing, covered: Arc::default(), bytes: Arc::default(), writing: Arc::default() }
    }

    /// Blocks.
    pub(crate) fn open(&self) -> Result<Option<StoredSnapshot>, StoreError> {
        let Some(stored) = self.directory.read::<StoredSnapshot>(FILE_NAME, Kind::Snapshot)? else { return Ok(None) };
        self.covers(stored.meta.last_log_id);
        self.bytes.store(stored.state.len() as u64, Ordering::Relaxed);
        Ok(Some(stored))
    }

    /// The approximate size of the snapshot on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn damaged(&self, why: &dyn std::fmt::Display) -> StoreError {
        StoreError::Damaged { path: self.directory.path(FILE_NAME), offset: 0, what: why.to_string() }
    }

    pub(crate) async fn read(&self) -> Result<Option<StoredSnapshot>, StorageError> {
        let this = self.clone();
        blocking(ErrorVerb::Read, move || this.directory.read::<StoredSnapshot>(FILE_NAME, Kind::Snapshot)).await
    }

    fn covers(&self, upto: Option<LogId>) {
        self.covered.send_if_modified(|covered| {
            let is_more = *covered < upto;
            *covered = upto.max(*covered);
            is_more
        });
    }

    /// Waits until the snapshot on disk covers this entry.
    pub(crate) async fn cover(&self, entry: LogId) -> Result<(), Failure> {
        let (mut covered, mut failing) = (self.covered.subscribe(), self.failing.watch());
        tokio::select! {
            _ = covered.wait_for(|upto| *upto >= Some(entry)) => Ok(()),
            failed = failing.wait_for(Option::is_some) => match failed.ok().and_then(|failure| failure.clone()) {
                Some(failure) => Err(failure),
                None => Err(Failure("consensus has ended".into())),
            },
        }
    }

    /// Replaces the snapshot, unless the one on disk covers more. A failure ends consensus on this peer, as with the
    /// log.
    pub(crate) async fn write(&self, meta: SnapshotMeta, state: Vec<u8>) -> Result<(), StorageError> {
        let this = self.clone();
        let written = blocking(ErrorVerb::Write, move || {
            let upto = meta.last_log_id;
            let bytes = codec::encode(&StoredSnapshot { meta, state });
            let _one = this.writing.lock().unwrap_or_else(PoisonError::into_inner);
            if *this.covered.borrow() > upto {
                return Ok(());
            }
            metrics::snapshot(bytes.len());
            this.bytes.store(bytes.len() as u64, Ordering::Relaxed);
            #[cfg(test)]
            crate::tests::harness::faults::inject_disk_fault(this.directory.root(), FILE_NAME)?;
            directory::replace(this.directory.root(), FILE_NAME, Kind::Snapshot, &bytes)?;
            this.covers(upto);
            Ok(())
        });
        written.await.inspect_err(|error| self.fail(error))
    }

    /// Ends consensus on this peer, which also wakes up waiters in [`cover`](Self::cover).
    pub(crate) fn fail(&self, why: &dyn std::fmt::Display) {
        self.failing.fail(why);
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
