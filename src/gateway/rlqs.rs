//! Quotas for Envoys (RLQS): Envoys report their requests, and are assigned quotas.
//!
//! Each Envoy is a client of the cluster, under its own name. It acknowledges nothing, so assignments count as in use
//! until they expire: see [`quotas`], which is pure. The feature `serve` adds the gRPC service.

#[cfg(feature = "serve")]
mod envoy_session;
#[cfg(feature = "serve")]
mod leases;
pub mod quotas;
#[cfg(feature = "serve")]
pub mod report;
#[cfg(feature = "serve")]
mod service;

#[cfg(feature = "serve")]
pub use self::service::{RlqsOptions, RlqsService};
