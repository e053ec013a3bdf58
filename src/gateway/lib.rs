//! Gateways for callers that speak other protocols.
//!
//! A gateway is a client of the cluster: it holds leases, and decides requests by them in its own process. Each
//! protocol has a module ([`rls`], [`rlqs`], [`http`]). They share the [`lease_table`] of open resources. A gateway
//! does not divide capacity, and knows no other holders.
//!
//! Without the feature `serve` the crate has only [`rlqs::quotas`], which is pure: it has no clock and no I/O.

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
    http::{HttpOptions, LongWindow, PriceFile, PriceFileError},
    rls::{
        answer::{AnswerOptions, HeaderNames},
        declare::DeclareOptions,
        file::RulesError,
        stats::{StatsOptions, Statsd},
        xds::{XdsOptions, XdsVariant},
    },
    serve::{Addresses, Gateway, GatewayError, Options, RlsOptions, install_metrics},
};

/// The innermost cause of an error, which says most.
#[cfg(feature = "serve")]
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    leaseway_client::transport::tls_error(error).unwrap_or_else(|| {
        let last = std::iter::successors(Some(error), |error| (*error).source()).last().unwrap_or(error);
        last.to_string()
    })
}
