//! The snapshot: one file with all state up to some entry of the log.

use std::sync::{Arc, Mutex, PoisonError};

use openraft::{AnyError, ErrorSubject, ErrorVerb, StorageIOError};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{
    StoreError,
    directory::{self, Directory},
    disk::{Failing, Failure},
    frame::Kind,
};
use crate::{
    codec, metrics,
    raft::{LogId, SnapshotMeta, StorageError},
    stored::StoredState,
};

const NAME: &str = "snapshot";

/// A snapshot, on disk and on its way to another peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredSnapshot {
    pub(crate) meta: SnapshotMeta,
    /// [`StoredState`].
    #[serde(with = "at_once")]
    pub(crate) state: Vec<u8>,
}

/// Bytes as they are, and not one by one: of many megabytes that takes too long. They are stored the same.
mod at_once {
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

/// Reads and writes it, on threads that may block.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    directory: Arc<Directory>,
    failing: Failing,
    /// What the one on disk covers.
    covered: Arc<watch::Sender<Option<LogId>>>,
    /// One is written at a time: openraft may install one while it builds another.
    writing: Arc<Mutex<()>>,
}

impl Snapshots {
    pub(crate) fn new(directory: Arc<Directory>, failing: Failing) -> Snapshots {
        Snapshots { directory, failing, covered: Arc::default(), writing: Arc::default() }
    }

    /// Blocks.
    pub(crate) fn open(&self) -> Result<Option<(StoredSnapshot, StoredState)>, StoreError> {
        let Some(stored) = self.directory.read::<StoredSnapshot>(NAME, Kind::Snapshot)? else { return Ok(None) };
        let state = StoredState::decode(&stored.state).map_err(|error| StoreError::Damaged {
            path: self.directory.path(NAME),
            offset: 0,
            what: error.to_string(),
        })?;
        self.covers(stored.meta.last_log_id);
        Ok(Some((stored, state)))
    }

    /// The state are not decoded: nothing is applied until this returns, and they were when the peer started, or come
    /// from itself.
    pub(crate) async fn read(&self) -> Result<Option<StoredSnapshot>, StorageError> {
        let this = self.clone();
        blocking(ErrorVerb::Read, move || this.directory.read::<StoredSnapshot>(NAME, Kind::Snapshot)).await
    }

    fn covers(&self, upto: Option<LogId>) {
        self.covered.send_if_modified(|covered| {
            let is_more = *covered < upto;
            *covered = upto.max(*covered);
            is_more
        });
    }

    /// Waits until the one on disk covers this entry.
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

    /// `state` are of this format. Nothing is written if the one on disk covers more. A failure ends consensus on this
    /// peer, as with the log.
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
            #[cfg(test)]
            crate::tests::disks::meet(this.directory.root(), NAME)?;
            directory::replace(this.directory.root(), NAME, Kind::Snapshot, &bytes)?;
            this.covers(upto);
            Ok(())
        });
        written.await.inspect_err(|error| self.fail(error))
    }

    /// Ends consensus on this peer: one that was to be there will not be. What waits for it goes on.
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
