//! One listener, whose connections are distributed to the arbiters, each to the one that has fewest.

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
struct DetachedConnection {
    stream: std::net::TcpStream,
    counted: [Counted; 2],
}

/// The sending end of an arbiter's queue of connections.
pub(crate) struct ArbiterQueue {
    connections: mpsc::UnboundedSender<DetachedConnection>,
    open: OpenConnections,
}

/// A queue, and the stream of its connections. The limit on open connections bounds the channel's length.
pub(crate) fn arbiter_queue() -> (ArbiterQueue, impl Stream<Item = std::io::Result<ArbiterConnection>> + Send + 'static)
{
    let (connections, dealt) = mpsc::unbounded_channel();
    let queue = ArbiterQueue { connections, open: OpenConnections::default() };
    (queue, UnboundedReceiverStream::new(dealt).map(ArbiterConnection::attach))
}

/// Accepts for ever. Beyond `most` open connections new ones are closed at once.
pub(crate) async fn distribute(listener: TcpListener, queues: Vec<ArbiterQueue>, open: OpenConnections, most: usize) {
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
        let Some(queue) = queues.iter().min_by_key(|queue| queue.open.count()) else { return };
        let counted = [open.one_more(), queue.open.one_more()];
        match stream.set_nodelay(true).and_then(|()| stream.into_std()) {
            // An arbiter that is gone takes no connections; the client retries.
            Ok(stream) => drop(queue.connections.send(DetachedConnection { stream, counted })),
            Err(error) => tracing::debug!(%error, "connection lost while it was distributed"),
        }
    }
}

/// A connection at its arbiter.
pub(crate) struct ArbiterConnection {
    stream: TcpStream,
    _counted: [Counted; 2],
}

impl ArbiterConnection {
    fn attach(detached: DetachedConnection) -> std::io::Result<ArbiterConnection> {
        Ok(ArbiterConnection { stream: TcpStream::from_std(detached.stream)?, _counted: detached.counted })
    }
}

impl Connected for ArbiterConnection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for ArbiterConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ArbiterConnection {
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
