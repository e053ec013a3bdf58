//! One listener; its connections are dealt out to the arbiters, each to the one that has fewest.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_stream::{Stream, StreamExt as _, wrappers::UnboundedReceiverStream};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::metrics;

/// After an error of `accept` (out of file descriptors, mostly) it is tried again so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How many connections are open, in all and for each arbiter.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenConnections(Arc<AtomicUsize>);

impl OpenConnections {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn one_more(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.0))
    }
}

/// Counts for as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection on its way to an arbiter, detached from the runtime that accepted it.
struct OnItsWay {
    stream: std::net::TcpStream,
    counted: [Counted; 2],
}

/// An arbiter's end of the deal.
pub(crate) struct Hand {
    connections: mpsc::UnboundedSender<OnItsWay>,
    open: OpenConnections,
}

/// A hand, and the stream of connections dealt to it. The channel's length is bounded by the limit on open connections.
pub(crate) fn hand() -> (Hand, impl Stream<Item = std::io::Result<Dealt>> + Send + 'static) {
    let (connections, dealt) = mpsc::unbounded_channel();
    let hand = Hand { connections, open: OpenConnections::default() };
    (hand, UnboundedReceiverStream::new(dealt).map(Dealt::attach))
}

/// Accepts for ever. Beyond `most` open connections new ones are closed at once.
pub(crate) async fn deal(listener: TcpListener, hands: Vec<Hand>, open: OpenConnections, most: usize) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if open.count() >= most {
            metrics::connection_refused();
            continue;
        }
        let Some(hand) = hands.iter().min_by_key(|hand| hand.open.count()) else { return };
        let counted = [open.one_more(), hand.open.one_more()];
        match stream.set_nodelay(true).and_then(|()| stream.into_std()) {
            // An arbiter that is gone takes no connections; the client tries again.
            Ok(stream) => drop(hand.connections.send(OnItsWay { stream, counted })),
            Err(error) => tracing::debug!(%error, "connection lost while it was dealt"),
        }
    }
}

/// A connection at its arbiter.
pub(crate) struct Dealt {
    stream: TcpStream,
    _counted: [Counted; 2],
}

impl Dealt {
    fn attach(on_its_way: OnItsWay) -> std::io::Result<Dealt> {
        Ok(Dealt { stream: TcpStream::from_std(on_its_way.stream)?, _counted: on_its_way.counted })
    }
}

impl Connected for Dealt {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Dealt {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Dealt {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
