//! A cluster on one virtual clock: the real engines, uplinks and sessions, a seeded network between them, and mishaps.
//!
//! Real, and the same code as ships: each master's [`ResourceEngine`](leaseway_engine::ResourceEngine) with the core in
//! it, each child node's [`UplinkEngine`](leaseway_engine::uplink::UplinkEngine), each client's
//! [`Session`](leaseway_client::session::Session), what a limiter lets through ([`Bucket`](leaseway_client::limiter::Bucket)) and how
//! much its callers want ([`WindowDemand`](leaseway_client::limiter::WindowDemand)), what a gateway makes of an Envoy's reports
//! ([`Envoy`](leaseway_envoy::Envoy)), what an access policy lets in ([`Policy`](leaseway_core::access::Policy)), and
//! what the quorum's state machine makes of promises ([`Promises`](leaseway_core::Promises)).
//!
//! Simulated: the network (late, lost and repeated messages, links that are cut), the log of a node's peers (a promise
//! is stored after a while; of what was not, any part survives its master), elections (an event; at most one master of
//! a node at any moment), clients of the original protocol and the leases of child nodes that speak it, and what
//! clients want and use, callers of limiters, operators that override capacities, Envoys and the streams to their
//! gateways, and strangers that ask and release under names of others.
//!
//! Absent: callers that wait, and with them the lines of the client library; what RLS and HTTP gateways have around a
//! limiter; sockets, encodings, disks, threads within a run, clocks that differ, and Raft. These are the business of
//! the end-to-end tests and of `leaseway-bench chaos`.
//!
//! A [`Scenario`] is a file; a [`Plan`] is one that was checked. [`Plan::run`] runs it with a seed and [`run_all`] runs
//! many: the same scenario and seed give the same run, to the bit. Every promise is checked at every step, and a run
//! that breaks one ends as [`Broken`]. [`Figures`] are what the clients' own books say, beside what one server that
//! knew all of them would have given them.

mod books;
mod client;
mod draw;
mod envoys;
mod figures;
mod limiters;
mod message;
mod network;
mod node;
mod oracle;
mod original;
mod plan;
#[cfg(feature = "planted")]
pub mod planted;
mod pools;
mod queue;
mod runs;
mod scenario;
mod tree;
mod units;
mod uses;
mod world;

pub use self::{
    books::UsageFigures,
    figures::{Broken, Figures, Keep, Point, PoolPoint},
    network::Network,
    oracle::Apart,
    plan::Plan,
    pools::{Kicks, PoolFigures},
    runs::{Observer, Outcomes, run_all},
    scenario::{BUILT_IN, Handover, ResourceSpec, Scenario, built_in},
    units::{Algorithm, Between, Part, Span},
};
