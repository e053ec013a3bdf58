//! All of actix. Thin shells over the core's state machines; what leaves this folder is handles with `async fn`s.
//!
//! | actor | one per | owns | mailbox | when full | on panic | on stop |
//! |---|---|---|---|---|---|---|
//! | [`node`] | process | where this peer stands, the directory of resources, the configuration in force | [`node::MAILBOX`] | caller waits | process exits | what the peers keep stays; all else is forgotten |
//! | [`resource`] | resource, on one of the arbiters | claims, leases, division, which whoever asks may use | 64, and `Limits::queue` requests beside it | the next tick is heard; requests: RESOURCE_EXHAUSTED | the node builds it anew: from its promises, or learning | retired: nobody held anything |
//! | [`uplink`] | reign of a node with a parent | the session with the parent | 4 | caller waits; there is one | built anew after a second, without leases | the parent's leases end by themselves |
//!
//! actix does not restart a panicked actor, its timers starve under load, and `do_send` drops silently. So: the node
//! notices when a resource is gone and builds another; ticks are messages; everything enters through bounded `try_send`
//! or `send`, but for requests, which are counted, and decided on the thread that they come from.

mod commit;
mod config_in_force;
mod directory;
mod node;
mod note_turns;
mod notices;
mod on_end;
mod promise_writer;
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
