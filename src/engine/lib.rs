//! What a master does, as machines without clock, I/O, task, lock, channel or actor: inputs go in, effects come out.
//!
//! [`leaseway_core`] decides what is fair and safe; an engine carries it through: it keeps answers until a quorum has
//! stored what they promise, lets requests wait for a parent's first supply, paces hints, and says when it wants to be
//! woken. The server's actors, the simulator and tests drive the same engines, so what is simulated is what ships.

pub mod resource;
pub mod uplink;

pub use resource::{
    Batch, Effects, Ended, Environment, LOOKS_APART, LostMastership, Moment, Predecessor, ResourceEngine, Setup,
};
