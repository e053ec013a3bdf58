//! Commands that act as a client of the cluster.

pub(crate) mod ask;
pub(crate) mod shell;
