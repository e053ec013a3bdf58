//! Commands of operators: configuration, peers, pools, capacity, mastership.

pub(crate) mod access;
pub(crate) mod admin;
pub(crate) mod backup;
pub(crate) mod capacity;
pub(crate) mod config;
pub(crate) mod peers;
pub(crate) mod pool;
