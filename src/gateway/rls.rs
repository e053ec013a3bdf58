//! Envoy asks for each request (RLS), with the rules of envoyproxy/ratelimit.
//!
//! [`file`] reads the rules, [`rules`] says which of them a descriptor falls under, [`decision`] whether a request may
//! pass. How much there is of anything is the cluster's to say: of a rule a gateway takes which resource is meant, the
//! window, and what Envoy is told.

mod answer;
pub mod current;
pub mod decision;
pub mod file;
pub mod meters;
pub mod reload;
pub mod rules;
pub mod service;
pub mod templates;
pub mod unit;

pub use self::{current::CurrentRules, service::RlsService};
