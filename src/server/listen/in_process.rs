//! Connections within this process: a gateway inside a server is an ordinary client, without a port in between.
//!
//! Everything is allowed on such a connection, because its client checks its own callers by the same policy.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    task::{Context, Poll},
};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc,
};
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use super::listener::{Accepted, ListenerSettings};

/// Maximum number of bytes in flight per direction.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum number of connections that wait to be accepted.
const BACKLOG: usize = 16;

/// Connects to a server in this process.
#[derive(Debug, Clone)]
pub struct InProcess {
    connections: mpsc::Sender<DuplexStream>,
}

/// The server's end.
pub(crate) struct LocalConnections {
    connections: mpsc::Receiver<DuplexStream>,
    settings: ListenerSettings,
}

impl InProcess {
    pub(crate) fn new(settings: ListenerSettings) -> (InProcess, LocalConnections) {
        let (sender, connections) = mpsc::channel(BACKLOG);
        (InProcess { connections: sender }, LocalConnections { connections, settings })
    }

    /// A channel that connects when it is first used, and again when its connection has ended.
    pub fn channel(&self) -> Channel {
        Endpoint::from_static("http://in-process").connect_with_connector_lazy(self.clone())
    }
}

impl LocalConnections {
    /// The next connection within the limits.
    pub(super) async fn accept(&mut self) -> Accepted {
        loop {
            let Some(stream) = self.connections.recv().await else { return std::future::pending().await };
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            if let Some(permit) = self.settings.open.admit(address) {
                return Accepted::in_process(stream, self.settings.service, permit);
            }
        }
    }
}

impl Service<Uri> for InProcess {
    type Response = TokioIo<DuplexStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connections = self.connections.clone();
        Box::pin(async move {
            let (client, server) = duplex(BUFFER_BYTES);
            let sent = connections.send(server).await;
            sent.map_err(|_| {
                io::Error::new(io::ErrorKind::ConnectionRefused, "the server in this process has stopped")
            })?;
            Ok(TokioIo::new(client))
        })
    }
}
