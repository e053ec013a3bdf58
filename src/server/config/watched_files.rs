//! A file that is looked at once a second, instead of being watched: that notices every way of replacing it (rename,
//! symlink swap, network mounts), which watches do not.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// How often files are looked at.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Identifies a version of the file. `None`: it cannot be read.
type Stamp = Option<(SystemTime, u64, u64)>;

/// A file, and what it looked like when it was last read.
#[derive(Debug)]
pub(crate) struct WatchedFile {
    path: PathBuf,
    loaded: Stamp,
    seen: Stamp,
}

impl WatchedFile {
    /// Call it before the file is read: what happens from here on is not missed.
    pub(crate) fn new(path: PathBuf) -> WatchedFile {
        let loaded = stamp(&path);
        WatchedFile { path, loaded, seen: loaded }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has changed since it was read, and is not being written still: such a file looks different each time.
    pub(crate) fn has_changed(&mut self) -> bool {
        let now = stamp(&self.path);
        let settled = now == std::mem::replace(&mut self.seen, now);
        settled && now != self.loaded
    }

    /// It is read now.
    pub(crate) fn is_read(&mut self) {
        self.loaded = stamp(&self.path);
        self.seen = self.loaded;
    }
}

fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
