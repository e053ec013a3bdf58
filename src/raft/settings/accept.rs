//! How a peer accepts connections of the others. The server supplies TLS, limits and deadlines here.

use std::{io, net::IpAddr, pin::Pin, sync::Arc};

use futures_util::{Stream, StreamExt as _};
use leaseway_tls::Names;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_stream::wrappers::TcpListenerStream;

/// Turns a bound listener into a stream of connections.
pub type Accept = Arc<dyn Fn(TcpListener) -> Incoming + Send + Sync>;

pub type Incoming = Pin<Box<dyn Stream<Item = io::Result<PeerConnection>> + Send>>;

pub(crate) trait Transport: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Transport for T {}

/// An accepted connection, perhaps from a peer.
pub struct PeerConnection {
    pub(crate) transport: Pin<Box<dyn Transport>>,
    pub(crate) address: IpAddr,
    pub(crate) names: Option<Arc<Names>>,
}

impl PeerConnection {
    /// `names` are those of the client certificate, if there is one.
    pub fn new(
        transport: impl AsyncRead + AsyncWrite + Send + 'static,
        address: IpAddr,
        names: Option<Arc<Names>>,
    ) -> PeerConnection {
        PeerConnection { transport: Box::pin(transport), address, names }
    }
}

/// Accepts without TLS.
pub(crate) fn plain_text() -> Accept {
    Arc::new(|listener| {
        Box::pin(TcpListenerStream::new(listener).map(|accepted| {
            let stream = accepted?;
            stream.set_nodelay(true)?;
            let address = stream.peer_addr()?.ip();
            Ok(PeerConnection::new(stream, address, None))
        }))
    })
}
