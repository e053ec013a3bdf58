//! Peers in one process, with real sockets and files.

mod chaos;
mod elections;
pub(crate) mod harness;
mod history;
mod master_leases;
mod measurements;
mod membership;
mod membership_chaos;
mod openraft_contract;
mod rejections;
mod storage;
