//! How the uplink gets on with the parent, to be looked at.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use leaseway_core::{Millis, Settings};
use tokio::sync::watch;

/// How the uplink gets on. Times are those of the server's clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UplinkReport {
    /// The server it asks at present: the parent's master, as far as is known.
    pub(crate) master: Arc<str>,
    /// When it began.
    pub(crate) since: Millis,
    /// When the parent's master last answered.
    pub(crate) answered: Option<Millis>,
    /// Requests that have failed since.
    pub(crate) failures: u32,
    /// What the last failure was, also if it is over.
    pub(crate) last_error: Option<String>,
    /// Where the page of the parent's master is, if it says so.
    pub(crate) page: Option<String>,
    /// How many resources it keeps leases of.
    pub(crate) resources: usize,
}

/// Where the report of the uplink in charge hangs; empty while this peer is not master.
#[derive(Debug, Clone)]
pub(in super::super) struct UplinkStatus {
    report: Arc<watch::Sender<Option<UplinkReport>>>,
    /// The longest that a lease given below may be believed, as far as the parent has said.
    longest: Arc<AtomicU64>,
}

impl Default for UplinkStatus {
    fn default() -> UplinkStatus {
        UplinkStatus { report: Arc::new(watch::Sender::new(None)), longest: Arc::default() }
    }
}

impl UplinkStatus {
    pub(in super::super) fn read(&self) -> Option<UplinkReport> {
        self.report.borrow().clone()
    }

    pub(in super::super) fn wipe(&self) {
        self.report.send_replace(None);
    }

    pub(in super::super) fn longest(&self) -> Millis {
        Millis(self.longest.load(Ordering::Relaxed))
    }

    pub(super) fn lease_of(&self, settings: &Settings) {
        self.longest.fetch_max(settings.last_lease_over(Millis(0)).0, Ordering::Relaxed);
    }

    pub(super) fn write(&self, change: impl FnOnce(&mut UplinkReport)) {
        self.report.send_modify(|report| change(report.get_or_insert_default()));
    }
}
