//! Polls files for changes. Unlike notifications, polling detects every way to replace a file: rename, symlink swap,
//! network mounts.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use leaseway_tls::{FileStamp, file_stamp};

pub const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Files, and their stamps when they were last read.
#[derive(Debug)]
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    list: fn(&Path) -> Vec<PathBuf>,
    loaded: Vec<(PathBuf, FileStamp)>,
    seen: Vec<(PathBuf, FileStamp)>,
}

impl WatchedFiles {
    /// Must be called before the files are read, so that no change is missed.
    pub fn new(paths: Vec<PathBuf>) -> WatchedFiles {
        WatchedFiles::listed(paths, |path| vec![path.to_owned()])
    }

    /// Like [`new`](Self::new). `list` expands a path, such as a directory, to files.
    pub fn listed(paths: Vec<PathBuf>, list: fn(&Path) -> Vec<PathBuf>) -> WatchedFiles {
        let loaded = stamps(&paths, list);
        WatchedFiles { paths, list, seen: loaded.clone(), loaded }
    }

    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Whether the files have changed since they were read, but not since the previous call. So files that are still
    /// being written do not count yet.
    pub fn have_changed(&mut self) -> bool {
        let now = stamps(&self.paths, self.list);
        let is_settled = now == self.seen;
        self.seen = now;
        is_settled && self.seen != self.loaded
    }

    /// Must be called before the files are read again.
    pub fn mark_read(&mut self) {
        self.loaded = stamps(&self.paths, self.list);
        self.seen.clone_from(&self.loaded);
    }
}

fn stamps(paths: &[PathBuf], list: fn(&Path) -> Vec<PathBuf>) -> Vec<(PathBuf, FileStamp)> {
    let files = paths.iter().flat_map(|path| list(path));
    files.map(|file| (file.clone(), file_stamp(&file))).collect()
}
