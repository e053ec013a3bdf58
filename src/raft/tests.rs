//! Several peers in one process, with real sockets and files.

mod backup;
mod callers;
mod chaos;
mod clock;
mod cluster;
mod contract;
mod elections;
pub(crate) mod faults;
mod format;
mod full_disk;
mod high_water_mark;
mod lease_watcher;
mod master_leases;
mod measurements;
mod membership;
mod older_copies;
mod partitions;
mod rejections;
pub(crate) mod segments;
mod snapshots;
