//! The actors of a server. They are the only code that uses actix; other modules call handles with `async fn`s.
//!
//! - [`NodeActor`](node_actor), one per process: this peer's role, the directory of resources, the configuration in
//!   force and the uplink. If its mailbox ([`node_actor::MAILBOX`]) is full, the sender waits. If it panics, the
//!   process exits. When it stops, only data stored by the peers survives.
//! - [`ResourceActor`](resource_actor), one per resource: its engine, with claims, leases and division. Its
//!   [combiner](resource_actor) takes `Limits::queue` requests and 64 other messages; beyond that, requests fail with
//!   RESOURCE_EXHAUSTED, and ticks are dropped, because the next one follows. If it panics, the node restarts it from
//!   its promises, or in learning mode. It stops when it has no holders.
//! - [`UplinkActor`](uplink_actor), one per term of a master with a parent: the uplink's engine, with the session. If
//!   its mailbox of 4 is full, its only sender waits. If it panics, the node restarts it with its next tick, without
//!   leases. When it stops, the parent's leases expire.
//!
//! actix does not restart an actor that panicked, its timers starve under load, and `do_send` drops messages silently.
//! So the node supervises: a [`DropGuard`] reports the end of a resource, and
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

/// Calls a function when it is dropped, including by a panic, unless it was disarmed.
pub(crate) struct DropGuard(Option<Box<dyn FnOnce() + Send + Sync>>);

impl DropGuard {
    pub(crate) fn new(call: impl FnOnce() + Send + Sync + 'static) -> DropGuard {
        DropGuard(Some(Box::new(call)))
    }

    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for DropGuard {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}
