//! How the task of a resource is called: now, or at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_core::Millis;
use tokio::sync::Notify;

use crate::runtime::clock::Clock;

/// No wake-up is set.
const NEVER: u64 = u64::MAX;

/// Calls the task of a resource.
#[derive(Debug)]
pub(super) struct Wakeup {
    called: Arc<Notify>,
    wake_at: AtomicU64,
}

impl Default for Wakeup {
    fn default() -> Wakeup {
        Wakeup { called: Arc::default(), wake_at: AtomicU64::new(NEVER) }
    }
}

impl Wakeup {
    /// There is something to attend to.
    pub(super) fn notify(&self) {
        self.called.notify_one();
    }

    /// Called whenever this is notified.
    pub(super) fn called(&self) -> Arc<Notify> {
        Arc::clone(&self.called)
    }

    /// There will be something to attend to then.
    pub(super) fn notify_at(&self, at: Millis) {
        self.wake_at.fetch_min(at.0, Ordering::AcqRel);
        self.notify();
    }

    /// Whether a wake-up was set for a time that has come. It is not told again.
    pub(super) fn is_woken(&self, now: Millis) -> bool {
        let at = self.wake_at.load(Ordering::Acquire);
        at <= now.0 && self.wake_at.compare_exchange(at, NEVER, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) async fn wait(&self, clock: Clock) {
        let wake = async {
            match self.wake_at.load(Ordering::Acquire) {
                NEVER => std::future::pending().await,
                at => tokio::time::sleep(Duration::from_millis(Millis(at).since(clock.at()).0)).await,
            }
        };
        tokio::select! {
            () = self.called.notified() => {}
            () = wake => {}
        }
    }
}
