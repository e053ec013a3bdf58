//! Injected faults: single messages between peers that are late, and disks that are slow or fail.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use tokio::sync::Notify;

use crate::{log::StoreError, transport::Method};

/// Requests of all tests in this process to hold a message, by the address that it is sent to. Each link of a
/// [`Cluster`](super::cluster::Cluster) has its own address.
static WANTED: Mutex<BTreeMap<String, Vec<HeldMessage>>> = Mutex::new(BTreeMap::new());

/// A message that is held until it is released, for at most ten seconds.
#[derive(Clone)]
pub(crate) struct HeldMessage {
    method: Option<Method>,
    state: Arc<HeldMessageState>,
}

#[derive(Default)]
struct HeldMessageState {
    caught: Notify,
    released: Notify,
    answered: Notify,
}

impl HeldMessage {
    /// Waits until a message is held.
    pub(crate) async fn caught(&self) {
        self.state.caught.notified().await;
    }

    /// Delivers the message, and waits for the answer.
    pub(crate) async fn deliver(&self) {
        self.release();
        self.state.answered.notified().await;
    }

    pub(crate) fn release(&self) {
        self.state.released.notify_one();
    }
}

/// Holds the next message to this address, and of this method if one is given. The sender's timeout goes on.
pub(crate) fn hold_next(address: &str, method: Option<Method>) -> HeldMessage {
    let held = HeldMessage { method, state: Arc::default() };
    let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
    wanted.entry(address.to_owned()).or_default().push(held.clone());
    held
}

/// Sends a message, or holds it first. A held message is delivered even if its sender has given up on it.
pub(crate) async fn deliver<T: Send + 'static>(
    address: &str,
    method: Method,
    send: impl Future<Output = T> + Send + 'static,
) -> T {
    let held = {
        let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        let of_link = wanted.get_mut(address);
        of_link.and_then(|of_link| {
            let index = of_link.iter().position(|held| held.method.is_none_or(|wanted| wanted == method))?;
            Some(of_link.remove(index))
        })
    };
    let Some(held) = held else { return send.await };
    held.state.caught.notify_one();
    let late = tokio::spawn(async move {
        // A message that is never released must not outlive its test.
        let _ = tokio::time::timeout(Duration::from_secs(10), held.state.released.notified()).await;
        let answer = send.await;
        held.state.answered.notify_one();
        answer
    });
    late.await.expect("a held message is delivered in the end")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskState {
    Sound,
    /// Each write takes this long.
    Slow(Duration),
    /// Each write fails.
    Broken,
}

#[derive(Debug, Default, Clone, Copy)]
struct Disks {
    log: Option<DiskState>,
    snapshot: Option<DiskState>,
}

/// The disks of all tests in this process, by data directory.
static DISKS: Mutex<BTreeMap<PathBuf, Disks>> = Mutex::new(BTreeMap::new());

fn with<R>(directory: &Path, f: impl FnOnce(&mut Disks) -> R) -> R {
    f(DISKS.lock().unwrap_or_else(PoisonError::into_inner).entry(directory.to_owned()).or_default())
}

/// Sets the disk for the log and the vote.
pub(crate) fn set_log_disk(directory: &Path, state: DiskState) {
    with(directory, |disks| disks.log = Some(state));
}

/// Sets the disk for snapshots.
pub(crate) fn set_snapshot_disk(directory: &Path, state: DiskState) {
    with(directory, |disks| disks.snapshot = Some(state));
}

/// Called on the thread that is about to write.
pub(crate) fn inject_disk_fault(directory: &Path, what: &str) -> Result<(), StoreError> {
    match with(directory, |disks| if what == "snapshot" { disks.snapshot } else { disks.log }) {
        Some(DiskState::Slow(takes)) => thread::sleep(takes),
        Some(DiskState::Broken) => {
            return Err(StoreError::io("write to", directory.join(what))(io::Error::other("the disk is broken")));
        }
        Some(DiskState::Sound) | None => {}
    }
    Ok(())
}
