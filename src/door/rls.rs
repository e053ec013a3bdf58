//! Envoy asks for each request (RLS), with the rules of envoyproxy/ratelimit.

pub mod file;
pub mod rules;
pub mod unit;
