//! Notices of resources to the uplink, for example that the parent should be asked now.
//!
//! They are kept in a list with a wake-up, because a full mailbox would lose them. A resource asks at most once until
//! it is summarized, so the number of resources bounds the list.

use std::sync::Mutex;

use leaseway_uplink::Notice;
use tokio::sync::Notify;

/// Notices that the uplink has not read.
#[derive(Debug, Default)]
pub(crate) struct UplinkNotices {
    unread: Mutex<Vec<Notice>>,
    wake: Notify,
}

impl UplinkNotices {
    pub(crate) fn post(&self, notice: Notice) {
        self.unread.lock().expect("no panic while the list is locked").push(notice);
        self.wake.notify_one();
    }

    /// Returns when there may be notices.
    pub(crate) async fn posted(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.unread.lock().expect("no panic while the list is locked"))
    }
}
