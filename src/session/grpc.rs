//! What carries a session out over gRPC.

mod clock;
mod driver;
mod failure;
mod push;
mod token;
mod transport;
pub mod wire;

pub use clock::{Moment, Suspensions};
pub use driver::{Asker, Call, Driver, Ended, Outcome, Reply, Step};
pub use failure::{explain, tls_error};
pub use push::{Hints, Listener};
pub use token::{BadToken, Bearer, Token};
pub use transport::{Channel, Connection, NoConnection, Transport, is_here};
