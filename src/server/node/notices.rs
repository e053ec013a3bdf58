//! What resources tell the uplink: that they want something from the parent, now.
//!
//! A list and a wake-up instead of messages, so that nothing is lost to a full mailbox. A resource is on it once until
//! it is condensed, so it is as long as there are resources.

use std::sync::Mutex;

use leaseway_uplink::Notice;
use tokio::sync::Notify;

/// Notices that the uplink has not read yet.
#[derive(Debug, Default)]
pub(super) struct Notices {
    unread: Mutex<Vec<Notice>>,
    wake: Notify,
}

impl Notices {
    pub(super) fn post(&self, notice: Notice) {
        self.unread.lock().expect("nothing panics while the list is held").push(notice);
        self.wake.notify_one();
    }

    /// Returns once there may be something to read.
    pub(super) async fn posted(&self) {
        self.wake.notified().await;
    }

    pub(super) fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.unread.lock().expect("nothing panics while the list is held"))
    }
}
