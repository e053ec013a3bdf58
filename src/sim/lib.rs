//! Deterministic simulation of whole Leaseway clusters on one virtual clock.
//!
//! A run has one thread, one queue of events and one seeded random number generator. A [scenario](scenario::Scenario)
//! describes a tree of nodes, the clients of each node, the network between them and the injected faults. Its
//! [plan](scenario::plan::Plan) is run with a seed. The same scenario and seed repeat a run to the bit, so a failure
//! can be replayed, traced and shrunk.
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
//! - the access policy ([`Policy`](leaseway_core::policy::access::Policy)),
//! - the promises of the replicated state machine ([`Promises`](leaseway_core::lease::promises::Promises)).
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
//! Every invariant is checked after every event. [`leaseway_core::resource::invariant`] explains their codes. A run
//! that breaks one ends as a [`RunFailure`](accounting::figures::RunFailure) with the seed and the time. Clients keep
//! [`accounting`] of their own, which never asks a node. The [`oracle`](accounting::oracle) computes the capacity that
//! a single server with full knowledge would give each client, and [`Figures`](accounting::figures::Figures) compare
//! the two.
//!
//! A simulation that cannot fail proves nothing. So with the feature `planted`, `runner::planted` leaves out single
//! rules of the protocol and searches for a seed that notices.
//!
//! # An example
//!
//! One request of a run with seed 7 and the fault `frees-unconfirmed` planted, from the message to the verdict.
//! The times and amounts are illustrative:
//!
//! | | where | what happens |
//! |---|---|---|
//! | 1 | `Plan::run` | seeds the generator with 7; every delay, loss and fault below is drawn from it |
//! | 2 | `step_client` | the session of client 3 is polled and returns a request; it becomes a `Message` |
//! | 3 | `Simulation::send` | [`network`] draws a delay of 12 ms and no loss, and queues an arrival at 40.012 s |
//! | 4 | `Simulation::deliver` | 40.012 s is the earliest event; the clock advances and the node takes the request |
//! | 5 | `Simulation::request` | the `ResourceEngine` of its master runs a round and returns effects |
//! | 6 | `apply_effects` | changes go into the log of the peers; the answer waits for the commit event 5 ms later |
//! | 7 | `committed` | the engine releases the answer, which travels back as a second message |
//! | 8 | `answer_client` | the session accepts the lease; the client may use 50 from now on |
//! | 9 | `Accounting::believe` | adds the 50 to the sum of all clients: 110 of 100, because client 1 still uses 60 |
//! | 10 | `RunFailure` | the run ends with seed 7, 40.025 s and I2, the bound of what clients believe |
//!
//! Without the planted fault the engine had kept the 60 as held in step 5, and the answer had granted 40. The same seed
//! repeats all ten steps, so `leaseway-bench simulate` can print them as a trace.
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
//! | `accounting` | measurements, the oracle, and a linearizability checker for tests of real peers |
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
