//! Runs a session over gRPC: connections, messages, hints, and the [`Driver`] that ties them together.
//!
//! The client library and the uplink of a child node both have a [`Driver`]. What differs, the requests and the owner
//! of the session, is their [`Asker`].

mod clock;
mod connection;
mod driver;
pub mod endpoint;
mod failure;
mod master;
mod push;
mod token;
pub mod wire;

pub use clock::{BootInstant, SuspendedTime};
pub use connection::{Channel, Connection, NoConnection, Transport, is_loopback};
pub use driver::{Asker, Call, Driver, Ended, Outcome, Reply, Step};
pub use failure::{explain, quoted, tls_error};
pub use master::{MasterReply, follow_redirects};
pub use push::{Hints, Listener};
pub use token::{BadToken, Bearer, Token};
