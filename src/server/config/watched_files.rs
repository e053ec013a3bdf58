//! Files that are polled for changes. Polling notices every way of replacing a file (rename, symlink swap, network
//! mounts), which notifications of the system do not.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

pub const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Identifies a version of a file: modification time, length and inode. `None` if it cannot be read.
type Stamp = Option<(SystemTime, u64, u64)>;

/// Files, and what they looked like when they were last read.
#[derive(Debug)]
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    list: fn(&Path) -> Vec<PathBuf>,
    loaded: Vec<(PathBuf, Stamp)>,
    seen: Vec<(PathBuf, Stamp)>,
}

impl WatchedFiles {
    /// Call it before the files are read, so that no change is missed.
    pub fn new(paths: Vec<PathBuf>) -> WatchedFiles {
        WatchedFiles::listed(paths, |path| vec![path.to_owned()])
    }

    /// As [`new`](Self::new); `list` returns the files that a path stands for, such as those of a directory.
    pub fn listed(paths: Vec<PathBuf>, list: fn(&Path) -> Vec<PathBuf>) -> WatchedFiles {
        let loaded = stamps(&paths, list);
        WatchedFiles { paths, list, seen: loaded.clone(), loaded }
    }

    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Whether they have changed since they were read. A file that is still being written looks different at each call,
    /// and does not count until two calls have seen the same.
    pub fn have_changed(&mut self) -> bool {
        let now = stamps(&self.paths, self.list);
        let is_settled = now == self.seen;
        self.seen = now;
        is_settled && self.seen != self.loaded
    }

    /// Call it just before they are read again.
    pub fn mark_read(&mut self) {
        self.loaded = stamps(&self.paths, self.list);
        self.seen.clone_from(&self.loaded);
    }
}

fn stamps(paths: &[PathBuf], list: fn(&Path) -> Vec<PathBuf>) -> Vec<(PathBuf, Stamp)> {
    let files = paths.iter().flat_map(|path| list(path));
    files.map(|file| (file.clone(), stamp(&file))).collect()
}

fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
