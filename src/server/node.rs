//! The actors of a server. They are the only code that uses actix; other modules call handles with `async fn`s.
//!
//! | actor | one per | owns | mailbox | when full | on panic | on stop |
//! |---|---|---|---|---|---|---|
//! | [`NodeActor`](node_actor) | process | this peer's role, the directory of resources, the configuration in force, the uplink | [`node_actor::MAILBOX`] | the sender waits | the process exits | only data stored by the peers survives |
//! | [`ResourceActor`](resource_actor) | resource | its engine: claims, leases, division | the [combiner](resource_actor): `Limits::queue` requests and 64 other messages | requests: RESOURCE_EXHAUSTED; ticks: dropped, the next one follows | the node restarts it from its promises, or in learning mode | it had no holders |
//! | [`UplinkActor`](uplink_actor) | term of a master with a parent | the uplink's engine, with the session | 4 | the sender waits; there is only one | the node restarts it with its next tick, without leases | the parent's leases expire |
//!
//! actix does not restart an actor that panicked, its timers starve under load, and `do_send` drops messages silently.
//! So the node supervises: a [`DropGuard`](crate::runtime::drop_guard::DropGuard) reports the end of a resource, and
//! the node's ticks check the uplink. Ticks are messages instead of timers. Data that a full mailbox must not lose is
//! kept outside it and announced by a wake-up: notices to the uplink in a list, the progress of proposals in an atomic
//! number.
//!
//! Modules: [`handle`] submits requests and reads reports; [`directory`] maps ids to resources; [`streams`] pushes
//! hints and pool events to clients; [`assignment_store`] keeps what operators assign.

pub(crate) mod addresses;
pub(crate) mod assignment_store;
mod config_in_force;
mod handle;
mod node_actor;
mod request_error;
mod resource_actor;
mod resource_directory;
pub(crate) mod streams;
#[cfg(test)]
mod tests;
mod threads;
mod uplink_actor;

pub(crate) use config_in_force::{ConfigInForce, override_of};
pub(crate) use handle::{Gone, NodeHandle, declarations, limits, plan};
pub use node_actor::Handover;
pub(crate) use node_actor::{Membership, NodeStart};
pub(crate) use request_error::{NotMaster, RequestError};
pub(crate) use resource_actor::{Status, WeakResourceHandle};
pub use threads::block_on;
pub(crate) use threads::{Threads, spawn};
pub(crate) use uplink_actor::{Parent, UplinkReport};
