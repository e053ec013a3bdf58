//! Deterministic simulation of whole Leaseway clusters on one virtual clock.
//!
//! One thread, one queue of events, one seeded generator of random numbers. A [scenario](scenario::Scenario) describes
//! a tree of nodes, the clients of each node, the network between them and the faults that are injected. Its
//! [plan](scenario::plan::Plan) is run with a seed, and the same scenario and seed repeat a run to the bit. So a
//! failure that a seed finds once can be replayed, traced and shrunk.
//!
//! # What is real
//!
//! All code that decides anything is the code that ships:
//!
//! - each master's [`ResourceEngine`](leaseway_core::engine::ResourceEngine), with the core inside,
//! - each child node's [`UplinkEngine`](leaseway_uplink::UplinkEngine),
//! - each client's [`Session`](leaseway_client::session::Session), limiter
//!   ([`Bucket`](leaseway_client::limiter::Bucket)) and estimate of demand
//!   ([`WindowDemand`](leaseway_client::limiter::WindowDemand)),
//! - a gateway's state for an Envoy ([`Envoy`](leaseway_gateway::envoy::Envoy)),
//! - the access policy ([`Policy`](leaseway_core::access::Policy)),
//! - what the replicated state machine makes of promises ([`Promises`](leaseway_core::Promises)).
//!
//! # What is simulated
//!
//! - The network: messages are delayed, lost, duplicated and reordered, and links are cut.
//! - The log of a node's peers: a promise is stored after the commit latency. When a master is lost, any prefix of what
//!   was not stored yet survives.
//! - Elections: an event. A node has at most one master at any moment.
//! - Clients and child nodes of the original Doorman protocol, Envoys and their streams to gateways, callers of
//!   limiters, operators who override capacities, and attackers who send requests under the names of others.
//!
//! Out of scope: callers that queue at a limiter, RLS and HTTP front ends, sockets, encodings, disks, threads, clocks
//! that differ, and Raft. End-to-end tests and `leaseway-bench chaos` cover those.
//!
//! # What is checked
//!
//! Every invariant is checked after every event; a run that breaks one ends as a
//! [`RunFailure`](accounting::figures::RunFailure) with the seed and the time. Clients keep [`accounting`] of their
//! own, which never asks a node. The [`oracle`](accounting::oracle) computes what a single server with full knowledge would give each
//! client, and [`Figures`](accounting::figures::Figures) compare the two.
//!
//! A simulation that cannot fail proves nothing: with the feature `planted`, `runner::planted` leaves single rules of
//! the protocol out and looks for a seed that notices.

pub mod accounting;
mod client;
pub mod network;
mod node;
pub mod runner;
pub mod scenario;
mod simulation;
pub mod units;
