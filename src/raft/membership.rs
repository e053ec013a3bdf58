//! The members of the cluster, and how a peer becomes one.
//!
//! [`bootstrap`] begins a cluster or joins one. [`members`] adds and removes peers on the master. [`transfer`]
//! transfers mastership to another member. A peer that gets no heartbeats asks the others for the master, and whether
//! it is still a member ([`discovery`], [`ineligible`]).

pub(crate) mod bootstrap;
pub(crate) mod discovery;
pub(crate) mod ineligible;
pub(crate) mod members;
pub(crate) mod peers_mismatch;
pub(crate) mod report;
pub(crate) mod transfer;
