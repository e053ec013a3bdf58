//! Disks that are slow or fail on request.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use crate::log::StoreError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskState {
    Sound,
    /// A write takes this long.
    Slow(Duration),
    /// A write waits until the state changes.
    Stuck,
    /// A write fails.
    Broken,
}

#[derive(Debug, Default, Clone, Copy)]
struct Disks {
    log: Option<DiskState>,
    snapshot: Option<DiskState>,
    /// The number of snapshots that were about to be written.
    begun: usize,
}

/// The disks of all tests in this process, by data directory.
static DISKS: Mutex<BTreeMap<PathBuf, Disks>> = Mutex::new(BTreeMap::new());

fn with<R>(directory: &Path, f: impl FnOnce(&mut Disks) -> R) -> R {
    f(DISKS.lock().unwrap_or_else(PoisonError::into_inner).entry(directory.to_owned()).or_default())
}

/// Sets the disk for the log and the vote.
pub(super) fn set(directory: &Path, state: DiskState) {
    with(directory, |disks| disks.log = Some(state));
}

/// Sets the disk for snapshots.
pub(super) fn set_for_snapshots(directory: &Path, state: DiskState) {
    with(directory, |disks| disks.snapshot = Some(state));
}

/// The number of snapshots that were about to be written so far.
pub(super) fn snapshots_begun(directory: &Path) -> usize {
    with(directory, |disks| disks.begun)
}

/// Called on the thread that is about to write.
pub(crate) fn meet(directory: &Path, what: &str) -> Result<(), StoreError> {
    let is_snapshot = what == "snapshot";
    with(directory, |disks| disks.begun += usize::from(is_snapshot));
    let now = || with(directory, |disks| if is_snapshot { disks.snapshot } else { disks.log });
    while now() == Some(DiskState::Stuck) {
        thread::sleep(Duration::from_millis(2));
    }
    match now() {
        Some(DiskState::Slow(takes)) => thread::sleep(takes),
        Some(DiskState::Broken) => {
            return Err(StoreError::io("write to", directory.join(what))(io::Error::other("the disk is broken")));
        }
        Some(DiskState::Sound | DiskState::Stuck) | None => {}
    }
    Ok(())
}
