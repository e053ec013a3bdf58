//! Commands of operators: configuration, peers, pools, limits, declarations, overrides, mastership.

pub(crate) mod access;
pub(crate) mod admin;
pub(crate) mod backup;
pub(crate) mod capacity;
pub(crate) mod config;
pub(crate) mod declarations;
pub(crate) mod limits;
pub(crate) mod peers;
pub(crate) mod pool;
