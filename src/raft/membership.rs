//! Who belongs to the cluster, and how a peer finds its place in it.
//!
//! [`bootstrap`] begins a cluster or joins one; [`members`] adds and removes peers on the master; [`transfer`] hands
//! mastership to another member. [`discovery`] is for a peer that hears no master: it asks the others for the master,
//! and whether it is still a member ([`ineligible`]).

pub(crate) mod bootstrap;
pub(crate) mod discovery;
pub(crate) mod ineligible;
pub(crate) mod members;
pub(crate) mod peers_mismatch;
pub(crate) mod report;
pub(crate) mod transfer;
