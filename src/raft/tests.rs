//! Several peers in one process, with real sockets and files.

mod backup;
mod callers;
mod chaos;
mod clock;
mod cluster;
mod contract;
pub(crate) mod delays;
pub(crate) mod disks;
mod elections;
mod floor;
mod format;
mod full_disk;
mod lease_watcher;
mod master_leases;
mod measurements;
mod membership;
mod older_copies;
mod partitions;
mod pre_votes;
mod registers;
mod rejections;
mod scale;
pub(crate) mod segments;
mod snapshots;
mod transfers;
