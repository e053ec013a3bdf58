//! How a client or a child node asks for leases, as a machine without clock or I/O.
//!
//! A [`Session`] decides when to ask, what to send, which answer still counts, and what an ended lease means. The
//! client, the uplink of a child node and the simulator run the same one. What it asks for is a [`Demand`]: a client's
//! [`Wants`], or what the holders of a child node want together.
//!
//! With the feature `grpc` there is also what carries a session out over the network, in `grpc`: connections, messages,
//! the stream of hints, and the driver that client and uplink share.

mod capacity;
pub mod endpoint;
mod entry;
mod first;
#[cfg(feature = "grpc")]
pub mod grpc;
mod lease;
mod messages;
mod pace;
pub mod pool;
mod route;
mod session;
#[cfg(test)]
mod tests;
mod wants;

pub use capacity::Capacity;
pub use lease::{Lease, Mode, Wire};
pub use messages::{Ask, Basis, Body, Demand, Given, Outgoing, Release, Usable};
pub use pace::Pace;
pub use session::{Session, Settings};
pub use wants::Wants;
