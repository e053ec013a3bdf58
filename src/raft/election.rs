//! Who is master: votes, elections and the master lease.
//!
//! openraft elects leaders, but a leader that is cut off continues to believe that it leads. [`lease_renewal`] turns
//! leadership into a [`master_lease`], which holds only while a quorum confirms it. [`vote`] ensures that a peer that has
//! confirmed a lease votes for no other peer while the lease may hold. [`timer`] starts elections, after a pre-vote.

pub(crate) mod lease_renewal;
pub(crate) mod local_peer;
pub(crate) mod master_lease;
pub(crate) mod timer;
pub(crate) mod vote;
