//! Peers in one process, on links and disks that can fail, and the callers and checks of chaos tests.

pub(crate) mod callers;
pub(crate) mod cluster;
pub(crate) mod faults;
pub(crate) mod lease_watcher;
pub(crate) mod requests;

use openraft::CommittedLeaderId;

use crate::log::LogId;

pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, 7), index)
}
