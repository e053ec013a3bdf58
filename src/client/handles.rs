//! The handles of users: a client and its resources, rates and gauges, and the state that they share.

pub(crate) mod asker;
pub(crate) mod balanced;
pub mod blocking;
pub(crate) mod budget;
pub(crate) mod client;
pub(crate) mod gauge;
pub mod layer;
pub(crate) mod lease_trace;
pub(crate) mod limits;
pub(crate) mod metrics;
pub(crate) mod open_resource;
pub(crate) mod outage;
pub(crate) mod rate;
pub(crate) mod resource;
pub(crate) mod resource_builder;
pub(crate) mod shared;
pub(crate) mod spender;
