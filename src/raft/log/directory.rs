//! The data directory: its lock, the peer's identity, and small files that are replaced as a whole.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::log::{
    PeerId, StoreError,
    codec::{self, FrameResult, Kind},
};

/// How long to wait for the lock of the directory. The process that holds it may be stopping, and finishes a write
/// first.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// A peer's identity, created with its directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) peer: PeerId,
    /// `None` until it belongs to a cluster.
    pub(crate) cluster: Option<u128>,
}

/// A random number, large enough to be unique.
pub(crate) fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system has random numbers");
    u128::from_ne_bytes(bytes)
}

#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    _lock: File,
}

impl Directory {
    /// Blocks for up to [`LOCK_TIMEOUT`] while another process holds the lock.
    pub(crate) fn open(root: &Path) -> Result<Directory, StoreError> {
        fs::create_dir_all(root).map_err(StoreError::io("create", root))?;
        let path = root.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        let began = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Directory { root: root.to_owned(), _lock: lock }),
                Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => return Err(StoreError::InUse { path: root.to_owned() }),
                Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", &path)(error)),
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The content of a file with one frame; `None` if there is no such file.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str, kind: Kind) -> Result<Option<T>, StoreError> {
        read_one(&self.path(name), kind)
    }

    pub(crate) fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        read_all(&self.path(name))
    }

    /// Replaces a file atomically. The new content is durable when this returns.
    pub(crate) fn replace<T: Serialize>(&self, name: &str, kind: Kind, value: &T) -> Result<(), StoreError> {
        replace(&self.root, name, kind, &codec::encode(value))
    }
}

pub(crate) fn read_one<T: DeserializeOwned>(path: &Path, expected: Kind) -> Result<Option<T>, StoreError> {
    let Some(bytes) = read_all(path)? else { return Ok(None) };
    let damaged = |what: String| StoreError::Damaged { path: path.to_owned(), offset: 0, what };
    match codec::read_frame(&bytes, 0) {
        FrameResult::Frame { kind, payload, end } if kind == expected && end == bytes.len() => {
            codec::decode(payload).map(Some).map_err(|error| damaged(error.to_string()))
        }
        FrameResult::Frame { .. } => Err(damaged("unexpected kind of record".into())),
        // A file gets its name only once it is complete.
        FrameResult::End | FrameResult::Torn => Err(damaged("the file is too short".into())),
        FrameResult::Damaged(what) => Err(damaged(what.into())),
        FrameResult::Format(found) => Err(StoreError::Format { path: path.to_owned(), found, known: codec::FORMAT }),
    }
}

pub(crate) fn read_all(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", path)(error)),
    }
}

pub(crate) fn replace(root: &Path, name: &str, kind: Kind, payload: &[u8]) -> Result<(), StoreError> {
    let mut bytes = Vec::with_capacity(codec::HEADER_BYTES + payload.len());
    codec::write_frame(&mut bytes, kind, payload);
    replace_bytes(root, name, &bytes)
}

/// Writes a new file, flushes it, renames it and flushes the directory.
pub(crate) fn replace_bytes(root: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let (path, beside) = (root.join(name), root.join(format!("{name}.new")));
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(StoreError::io("write", &beside))?;
    fs::rename(&beside, &path).map_err(StoreError::io("replace", &path))?;
    sync(root)
}

/// Makes the creation and removal of files durable.
pub(crate) fn sync(directory: &Path) -> Result<(), StoreError> {
    File::open(directory).and_then(|opened| opened.sync_all()).map_err(StoreError::io("flush", directory))
}
