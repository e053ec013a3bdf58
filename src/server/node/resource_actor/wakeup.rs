//! Wakes the task of a resource, now or at a given time. The task handles messages, and runs rounds left over by
//! request threads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_core::types::Millis;
use tokio::sync::Notify;

use crate::runtime::clock::Clock;

/// No wake-up is scheduled.
const NEVER: u64 = u64::MAX;

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
    pub(super) fn notify(&self) {
        self.called.notify_one();
    }

    /// The `Notify` that each wake-up notifies.
    pub(super) fn called(&self) -> Arc<Notify> {
        Arc::clone(&self.called)
    }

    /// Schedules a wake-up. The earliest one counts.
    pub(super) fn notify_at(&self, at: Millis) {
        self.wake_at.fetch_min(at.0, Ordering::AcqRel);
        self.notify();
    }

    /// Whether a scheduled wake-up is due. Clears it if so.
    pub(super) fn is_woken(&self, now: Millis) -> bool {
        let at = self.wake_at.load(Ordering::Acquire);
        at <= now.0 && self.wake_at.compare_exchange(at, NEVER, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns after a notification, or when the scheduled wake-up is due.
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
