//! Rate limits for Envoys that ask for each request (RLS), by the rules of envoyproxy/ratelimit.
//!
//! The rules come from files ([`mod@file`]) or from a control plane ([`xds`]). [`rules`] finds the rule for a descriptor, and [`decision`] decides whether a request
//! passes. The capacity comes from the cluster: a rule gives the resource, the window, and the limit that Envoy is
//! told.

mod answer;
pub mod current;
pub mod decision;
mod definition;
pub mod file;
pub mod rules;
pub mod service;
pub mod templates;
pub mod xds;
