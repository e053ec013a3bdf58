//! Processes that this binary runs: a server, a gateway, the peers of a node.

pub(crate) mod gateway;
pub(crate) mod listen_address;
#[cfg(feature = "planted")]
pub(crate) mod planted;
pub(crate) mod serve;
pub(crate) mod up;
