//! Where a server listens, and how connections come in: one way for clients, pages, operators and peers.
//!
//! A [`Listener`] accepts and bounds the number of connections. Everything that may take as long as a client pleases
//! happens off the accepting loop, on the thread that will serve the connection, under one deadline
//! ([`Accepted::open`]): the TLS handshake, and the preface of HTTP/2.

pub(crate) mod accounts;
mod arbiters;
pub(crate) mod budget;
mod caller;
mod connection;
mod count;
mod in_process;
mod listener;
pub(crate) mod open_connections;
mod opening;
mod pending_handshakes;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

use std::net::SocketAddr;

use tokio::net::TcpListener;

pub use self::in_process::InProcess;
pub(crate) use self::{
    arbiters::{ArbiterConnection, ArbiterQueue, arbiter_queue, distribute},
    caller::Caller,
    connection::Connection,
    listener::{Accepted, Listener, ListenerSettings},
    pending_handshakes::PendingHandshakes,
};
use crate::config::error::ServeError;

/// Where a running server can be reached.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    /// For peers, if there are any.
    pub peers: Option<SocketAddr>,
    /// For operators, if they are served.
    pub admin: Option<SocketAddr>,
}

/// An address to listen on, and the flag that chooses it.
#[derive(Debug, Clone, Copy)]
pub struct ListenOption {
    pub flag: &'static str,
    pub address: SocketAddr,
}

pub(crate) async fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|error| ServeError::Listen { address, error, flag })
}

/// Port 0 means that the system has chosen one.
pub(crate) fn local(listener: &TcpListener, asked: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(asked)
}
