//! Processes that this binary runs: a server, a gateway, the peers of a node.

pub(crate) mod access;
pub(crate) mod gateway;
pub(crate) mod listen_address;
pub(crate) mod log;
#[cfg(feature = "planted")]
pub(crate) mod planted;
pub(crate) mod serve;
pub(crate) mod tls;
pub(crate) mod up;
pub(crate) mod value_parsers;
