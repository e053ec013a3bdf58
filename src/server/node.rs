//! All of actix: thin shells over the machines of `leaseway_engine`. What leaves this folder is handles with `async
//! fn`s.
//!
//! | actor | one per | owns | mailbox | when full | on panic | on stop |
//! |---|---|---|---|---|---|---|
//! | [`node_actor`] | process | this peer's role, the directory of resources, the configuration in force, the uplink | [`node_actor::MAILBOX`] | the sender waits | the process ends | what the peers have stored stays; all else is forgotten |
//! | [`resource_actor`] | resource | its engine: claims, leases, division | the [combiner](resource_actor): `Limits::queue` requests, and 64 commands beside them | requests: RESOURCE_EXHAUSTED; ticks: the next one is heard | the node builds it anew: from its promises, or learning | retired: no holder has anything |
//! | [`uplink_actor`] | reign of a node with a parent | the engine of the uplink, with the session | 4 | the sender waits; there is one | the node builds it anew with its next tick, without leases | the parent's leases end by themselves |
//!
//! actix does not restart an actor that panicked, its timers starve under load, and `do_send` drops silently. So the
//! node supervises: it is told when a resource ends ([`on_end`]), and looks after the uplink with its ticks. Ticks are
//! messages. What must not be lost to a full mailbox is no message but a list or a number beside a wake-up
//! ([`notices`], [`commit`]).

pub(crate) mod assignment_store;
pub(crate) mod children;
mod commit;
mod config_in_force;
mod directory;
mod node_actor;
mod note_turns;
mod notices;
mod on_end;
pub(crate) mod peer_endpoints;
pub(crate) mod plan;
mod reply_queue;
mod resource_actor;
pub(crate) mod server_info;
pub(crate) mod subscribers;
#[cfg(test)]
mod tests;
mod threads;
mod uplink_actor;
pub(crate) mod watchers;

pub(crate) use config_in_force::ConfigInForce;
pub(crate) use directory::NotMaster;
pub use node_actor::Handover;
pub(crate) use node_actor::{Gone, Membership, NodeHandle, NodeStart, Refused};
pub(crate) use resource_actor::Status;
pub use threads::block_on;
pub(crate) use threads::{Threads, spawn};
pub(crate) use uplink_actor::{Parent, UplinkReport};
