//! Doors: callers that speak a protocol of others are let in to a cluster.
//!
//! A door is a client of the cluster: it holds leases, and decides by them in its own process. What a protocol's
//! requests mean is said in a module of its own ([`rls`], [`rlqs`], [`http`]); [`bridge`] is what they share: which
//! resources are open, who holds them, and what is given back when none asks any more. Deliberately absent: anything
//! that divides, or that knows what others hold.

pub mod bridge;
pub mod http;
mod metrics;
pub mod resource_id;
pub mod rlqs;
pub mod rls;

use std::net::SocketAddr;

use leaseway_client::{Transport, endpoint::Endpoint};

/// What a door is to do.
#[derive(Debug)]
pub struct Options {
    /// Servers of the node that it asks.
    pub servers: Vec<Endpoint>,
    /// How they are reached.
    pub transport: Transport,
    /// What it calls itself; without it as the client library does.
    pub id: Option<String>,
    /// Where Envoys ask for each request.
    pub rls: Option<SocketAddr>,
    /// Where Envoys report use and are assigned quotas.
    pub rlqs: Option<SocketAddr>,
    /// Where everything else asks.
    pub http: Option<SocketAddr>,
}
