//! An accepted connection, and its caller.

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

use leaseway_tls::Names;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use crate::{
    settings::{PeerConnection, Transport},
    transport::proof::Challenge,
};

/// The other side of a connection.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) address: IpAddr,
    /// The names of its certificate.
    pub(crate) names: Option<Arc<Names>>,
    /// Proofs of its requests have to include this challenge.
    pub(crate) challenge: Challenge,
    /// Whether its certificate was found to be a peer's.
    is_peer: AtomicBool,
}

impl Caller {
    /// Whether its certificate is a peer's. Calls `is_host_of_peer` until it returns true.
    pub(crate) fn is_peer(&self, is_host_of_peer: impl FnOnce(&Names) -> bool) -> bool {
        if self.is_peer.load(Ordering::Relaxed) {
            return true;
        }
        let is_peer = self.names.as_deref().is_some_and(is_host_of_peer);
        self.is_peer.store(is_peer, Ordering::Relaxed);
        is_peer
    }
}

pub(crate) struct ChallengedConnection {
    transport: Pin<Box<dyn Transport>>,
    caller: Arc<Caller>,
}

impl From<PeerConnection> for ChallengedConnection {
    fn from(PeerConnection { transport, address, names }: PeerConnection) -> ChallengedConnection {
        let caller = Caller { address, names, challenge: Challenge::new(), is_peer: AtomicBool::new(false) };
        ChallengedConnection { transport, caller: Arc::new(caller) }
    }
}

impl Connected for ChallengedConnection {
    type ConnectInfo = Arc<Caller>;

    fn connect_info(&self) -> Arc<Caller> {
        Arc::clone(&self.caller)
    }
}

impl AsyncRead for ChallengedConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.transport.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for ChallengedConnection {
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
