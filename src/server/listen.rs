//! Where a server listens.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::error::ServeError;

/// Where a running server can be reached.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// gRPC.
    pub grpc: SocketAddr,
    /// HTTP.
    pub http: SocketAddr,
    /// For peers, if there are any.
    pub peers: Option<SocketAddr>,
    /// For operators, if they are served.
    pub admin: Option<SocketAddr>,
}

pub(crate) async fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|error| ServeError::Listen { address, error, flag })
}

/// Port 0 means that the system has chosen one.
pub(crate) fn local(listener: &TcpListener, asked: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(asked)
}
