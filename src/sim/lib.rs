//! Deterministic simulation of whole Leaseway clusters on one virtual clock.
//!
//! A run has one thread, one queue of events and one seeded random number generator. A [scenario](scenario::Scenario)
//! describes a tree of nodes, the clients of each node, the network between them and the injected faults. Its
//! [plan](scenario::plan::Plan) is run with a seed. The same scenario and seed repeat a run to the bit, so a failure can
//! be replayed, traced and shrunk.
//!
//! # What is real
//!
//! The code that makes decisions is the code that ships:
//!
//! - each master's [`ResourceEngine`](leaseway_core::engine::ResourceEngine), with the core inside,
//! - each child node's [`UplinkEngine`](leaseway_uplink::UplinkEngine),
//! - each client's [`Session`](leaseway_client::session::Session), limiter
//!   ([`Bucket`](leaseway_client::limiter::Bucket)) and estimate of demand
//!   ([`WindowDemand`](leaseway_client::limiter::WindowDemand)),
//! - a gateway's quotas of an Envoy ([`EnvoyQuotas`](leaseway_gateway::rlqs::quotas::EnvoyQuotas)),
//! - the access policy ([`Policy`](leaseway_core::access::Policy)),
//! - the promises of the replicated state machine ([`Promises`](leaseway_core::Promises)).
//!
//! # What is simulated
//!
//! - The network: messages are delayed, lost, duplicated and reordered, and links are cut.
//! - The log of a node's peers: a promise is stored after the commit latency. When a master is lost, any prefix of the
//!   uncommitted log survives.
//! - Elections, which are single events. A node has at most one master at any time.
//! - Clients and child nodes of the original Doorman protocol, Envoys and their streams to gateways, callers of
//!   limiters, operators who override capacities, and attackers who send requests under the names of others.
//!
//! Not simulated: callers that queue at a limiter, RLS and HTTP front ends, sockets, encodings, disks, threads,
//! different clocks, and Raft. End-to-end tests and `leaseway-bench chaos` cover these.
//!
//! # What is checked
//!
//! Every invariant is checked after every event; a run that breaks one ends as a
//! [`RunFailure`](accounting::figures::RunFailure) with the seed and the time. Clients keep [`accounting`] of their
//! own, which never asks a node. The [`oracle`](accounting::oracle) computes the capacity that a single server with full
//! knowledge would give each client, and [`Figures`](accounting::figures::Figures) compare the two.
//!
//! A simulation that cannot fail proves nothing. So with the feature `planted`, `runner::planted` leaves out single rules
//! of the protocol and searches for a seed that notices.
//!
//! # Modules
//!
//! | module | |
//! |---|---|
//! | `units` | durations, fractions and algorithms, as scenario files write them |
//! | `scenario` | scenario files, plans, faults, and random scenarios |
//! | `network` | the delays and losses of messages, and the messages |
//! | `client` | simulated clients of every kind |
//! | `node` | simulated nodes: the engines of a master, and the replicated state |
//! | `accounting` | measurements, and the oracle |
//! | `simulation` | the event loop, and the events of clients and nodes |
//! | `runner` | one run or many in parallel; the search for planted faults |

pub mod accounting;
mod client;
pub mod network;
mod node;
pub mod runner;
pub mod scenario;
mod simulation;
pub mod units;
