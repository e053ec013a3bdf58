//! Gateways let callers of other protocols into a cluster.
//!
//! A gateway is a client of the cluster: it holds leases, and decides by them in its own process. Each protocol has a
//! module of its own ([`rls`], [`rlqs`], [`http`]). They share the [`lease_table`]: the open resources, and whose they
//! are. A gateway does not divide capacity, and does not know other holders.
//!
//! Without the feature `serve` there is only [`rlqs::quotas`], which is pure.

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(feature = "serve")]
pub mod http;
#[cfg(feature = "serve")]
pub mod lease_table;
#[cfg(feature = "serve")]
pub mod resource_id;
pub mod rlqs;
#[cfg(feature = "serve")]
pub mod rls;
#[cfg(feature = "serve")]
mod serve;

#[cfg(feature = "serve")]
pub use self::{
    http::{HttpOptions, LongWindow},
    rls::file::RulesError,
    serve::{Addresses, Gateway, GatewayError, Options, RlsOptions, install_metrics},
};
