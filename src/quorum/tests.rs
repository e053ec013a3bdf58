//! Peers with real sockets and real files, all in one process.

mod backup;
mod candidacy;
mod chaos;
mod contract;
mod elections;
mod floor;
mod format;
mod full_disk;
mod measurements;
mod membership;
mod reigns;
mod segments;
mod snapshots;
mod strangers;
mod world;
