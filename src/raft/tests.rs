//! Peers with real sockets and real files, all in one process.

mod backup;
mod callers;
mod chaos;
mod clock;
mod contract;
pub(crate) mod delays;
pub(crate) mod disks;
mod elections;
mod floor;
mod format;
mod full_disk;
mod hand_overs;
mod master_leases;
mod measurements;
mod membership;
mod multitude;
mod older_copies;
mod partitions;
mod pre_votes;
mod registers;
pub(crate) mod segments;
mod snapshots;
mod strangers;
mod watchman;
mod world;
