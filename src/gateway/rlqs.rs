//! Quotas for Envoys (RLQS): Envoys report their requests, and are assigned quotas.
//!
//! Each Envoy is a client of the cluster under its name. It acknowledges nothing, so assignments count as in use until they
//! expire: see [`envoy`](crate::envoy).

mod envoy_session;
mod leases;
pub mod report;
mod service;

pub use self::service::{RlqsOptions, RlqsService};
pub use crate::envoy::EnvoySettings;
