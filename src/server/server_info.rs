//! What a server calls itself.

use std::{net::SocketAddr, sync::Arc};

/// What a server calls itself, and where it can be reached.
#[derive(Debug, Clone)]
pub(crate) struct ServerInfo {
    pub(crate) id: Arc<str>,
    pub(crate) advertise: Arc<str>,
    /// Where operators reach it; empty without peers.
    pub(crate) admin: Arc<str>,
}

impl ServerInfo {
    /// Of a server at `grpc`, unless it is called something else.
    pub(crate) fn new(id: Option<String>, advertise: Option<String>, grpc: SocketAddr) -> ServerInfo {
        let advertise: Arc<str> = advertise.unwrap_or_else(|| grpc.to_string()).into();
        ServerInfo { id: id.map_or_else(|| Arc::clone(&advertise), Arc::from), advertise, admin: "".into() }
    }
}
