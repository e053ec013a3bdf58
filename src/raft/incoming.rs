//! How connections of other peers come in, and what is known about the other side of one.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::{Stream, StreamExt as _};
use leaseway_tls::Names;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpListener,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::server::Connected;

use crate::challenge::Challenge;

/// Makes connections of a listener: where TLS, bounds and deadlines have their place.
pub type Accept = Arc<dyn Fn(TcpListener) -> Incoming + Send + Sync>;

/// The connections of a listener.
pub type Incoming = Pin<Box<dyn Stream<Item = io::Result<PeerConnection>> + Send>>;

/// Accepts in the clear.
pub(crate) fn in_the_clear() -> Accept {
    Arc::new(|listener| {
        Box::pin(TcpListenerStream::new(listener).map(|accepted| {
            let stream = accepted?;
            stream.set_nodelay(true)?;
            let address = stream.peer_addr()?.ip();
            Ok(PeerConnection::new(stream, address, None))
        }))
    })
}

trait Transport: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Transport for T {}

/// A connection from another peer, or from what says that it is one.
pub struct PeerConnection {
    transport: Pin<Box<dyn Transport>>,
    caller: Arc<Caller>,
}

/// The other side of a connection.
#[derive(Debug)]
pub struct Caller {
    pub(crate) address: IpAddr,
    /// What its certificate proves.
    pub(crate) names: Option<Arc<Names>>,
    /// What its messages have to answer, where a secret proves who it is.
    pub(crate) challenge: Challenge,
    /// Its certificate was found to be that of a peer.
    is_peer: AtomicBool,
}

impl Caller {
    fn new(address: IpAddr, names: Option<Arc<Names>>) -> Caller {
        Caller { address, names, challenge: Challenge::new(), is_peer: AtomicBool::new(false) }
    }

    /// Whether its certificate would do for one of these hosts. Asked until it does.
    pub(crate) fn is_peer(&self, is_host_of_peer: impl FnOnce(&Names) -> bool) -> bool {
        if self.is_peer.load(Ordering::Relaxed) {
            return true;
        }
        let is_peer = self.names.as_deref().is_some_and(is_host_of_peer);
        self.is_peer.store(is_peer, Ordering::Relaxed);
        is_peer
    }
}

impl PeerConnection {
    /// `names`: what the certificate of the other side proves, if it has shown one.
    pub fn new(
        transport: impl AsyncRead + AsyncWrite + Send + 'static,
        address: IpAddr,
        names: Option<Arc<Names>>,
    ) -> PeerConnection {
        PeerConnection { transport: Box::pin(transport), caller: Arc::new(Caller::new(address, names)) }
    }
}

impl Connected for PeerConnection {
    type ConnectInfo = Arc<Caller>;

    fn connect_info(&self) -> Arc<Caller> {
        Arc::clone(&self.caller)
    }
}

impl AsyncRead for PeerConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.transport.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for PeerConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.transport.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.as_mut().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.transport.as_mut().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }
}
