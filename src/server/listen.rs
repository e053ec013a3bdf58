//! Listeners, which accept connections of clients, pages, operators and peers in the same way.
//!
//! A [`Listener`] accepts and bounds the number of connections. The TLS handshake and the HTTP/2 preface depend on the
//! client, so they happen on the thread that will serve the connection, under one deadline ([`Accepted::open`]).

pub(crate) mod accounts;
mod caller;
mod connection;
mod distribution;
mod in_process;
mod listener;
pub(crate) mod open_connections;
mod pending_handshakes;
mod protocol_detection;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
pub(crate) mod waiting_bytes;

use std::net::SocketAddr;

use tokio::net::TcpListener;

pub use self::in_process::InProcess;
pub(crate) use self::{
    caller::Caller,
    connection::Connection,
    distribution::{ArbiterConnection, ArbiterQueue, arbiter_queue, distribute},
    listener::{Accepted, Listener, ListenerSettings},
    pending_handshakes::PendingHandshakes,
};
use crate::config::error::ServeError;

/// The addresses of a running server.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    /// The address for peers, if there are any.
    pub peers: Option<SocketAddr>,
    /// The address for operators, if they are served.
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

/// The bound address, with the port that the system has chosen if port 0 was requested.
pub(crate) fn local(listener: &TcpListener, asked: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(asked)
}
