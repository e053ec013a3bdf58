//! All of actix: thin shells over the machines of `leaseway_core::engine`. What leaves this folder is handles with `async
//! fn`s.
//!
//! | actor | one per | owns | mailbox | when full | on panic | on stop |
//! |---|---|---|---|---|---|---|
//! | [`node`] | process | this peer's role, the directory of resources, the configuration in force, the uplink | [`node::MAILBOX`] | the sender waits | the process ends | what the peers have stored stays; all else is forgotten |
//! | [`resource`] | resource | its engine: claims, leases, division | the [combiner](resource): `Limits::queue` requests, and 64 commands beside them | requests: RESOURCE_EXHAUSTED; ticks: the next one is heard | the node builds it anew: from its promises, or learning | retired: no holder has anything |
//! | [`uplink`] | reign of a node with a parent | the engine of the uplink, with the session | 4 | the sender waits; there is one | the node builds it anew with its next tick, without leases | the parent's leases end by themselves |
//!
//! actix does not restart an actor that panicked, its timers starve under load, and `do_send` drops silently. So the
//! node supervises: it is told when a resource ends ([`on_end`]), and looks after the uplink with its ticks. Ticks are
//! messages. What must not be lost to a full mailbox is no message but a list or a number beside a wake-up
//! ([`notices`], [`commit`]).

mod commit;
mod config_in_force;
mod directory;
mod node;
mod note_turns;
mod notices;
mod on_end;
mod postbox;
mod resource;
#[cfg(test)]
mod tests;
mod threads;
mod uplink;

pub use config_in_force::ConfigInForce;
pub use directory::NotMaster;
pub use node::{Gone, Handover, Membership, NodeHandle, NodeStart, Refused};
pub use resource::Status;
pub use threads::{Threads, block_on, spawn};
pub use uplink::{Parent, UplinkReport};
