//! Envoy reports what it lets through, and is assigned what it may (RLQS).
//!
//! An Envoy is a client of the cluster by its name: it wants what is offered to it, and what it was leased is told to
//! it as a [`quota`]. It acknowledges nothing, so all that it was told counts as had until its time is over:
//! [`leaseway_envoy`].

mod envoy_session;
mod leases;
mod quota;
pub mod report;
mod service;
#[cfg(test)]
mod tests;

pub use leaseway_envoy::EnvoySettings;

pub use self::service::{NAME, RlqsOptions, RlqsService};
