//! Services of another crate in a server's process: at a listener of their own, under the server's policy, certificates
//! and bounds.

use std::{fmt, future::Future, net::SocketAddr, pin::Pin};

use tonic::service::Routes;

/// Starts guests, or says why not.
pub type StartGuests = Box<dyn FnOnce(Host<'_>) -> Result<GuestServices, String>>;

/// What is to be served besides.
pub struct Guests {
    /// The flag that says where.
    pub flag: &'static str,
    pub listen: SocketAddr,
    /// Makes the services, within the server's runtime, once it is known what the server calls itself.
    pub start: StartGuests,
}

/// The server, as its guests know it.
#[derive(Debug, Clone, Copy)]
pub struct Host<'h> {
    /// What it calls itself.
    pub id: &'h str,
    /// Where clients reach it, as `host:port`.
    pub address: &'h str,
}

pub struct GuestServices {
    /// The services. Requests carry a [`GrpcGuest`](crate::GrpcGuest).
    pub routes: Routes,
    /// What they have to do before the server stops.
    pub farewell: Pin<Box<dyn Future<Output = ()>>>,
}

impl fmt::Debug for Guests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guests").field("flag", &self.flag).field("listen", &self.listen).finish_non_exhaustive()
    }
}
