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

use crate::open_connections::{OpenConnection, OpenConnections, Place};

/// After an error of `accept` (out of file descriptors, mostly) it is tried again so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How many connections an arbiter has.
#[derive(Debug, Clone, Default)]
struct ArbiterCount(Arc<AtomicUsize>);

impl ArbiterCount {
    fn get(&self) -> usize {
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
    place: Place,
    counted: Counted,
}

/// The sending end of an arbiter's queue of connections.
pub(crate) struct ArbiterQueue {
    connections: mpsc::UnboundedSender<DetachedConnection>,
    count: ArbiterCount,
}

/// A queue, and the stream of its connections. The limit on open connections bounds the channel's length.
pub(crate) fn arbiter_queue() -> (ArbiterQueue, impl Stream<Item = std::io::Result<ArbiterConnection>> + Send + 'static)
{
    let (connections, dealt) = mpsc::unbounded_channel();
    let queue = ArbiterQueue { connections, count: ArbiterCount::default() };
    (queue, UnboundedReceiverStream::new(dealt).map(ArbiterConnection::attach))
}

/// Accepts for ever. Connections for which there is no place are closed at once.
pub(crate) async fn distribute(listener: TcpListener, queues: Vec<ArbiterQueue>, open: OpenConnections) {
    loop {
        let (stream, place) = accept(&listener, &open).await;
        let Some(queue) = queues.iter().min_by_key(|queue| queue.count.get()) else { return };
        let counted = queue.count.one_more();
        match stream.into_std() {
            // An arbiter that is gone takes no connections; the client retries.
            Ok(stream) => drop(queue.connections.send(DetachedConnection { stream, place, counted })),
            Err(error) => tracing::debug!(%error, "connection lost while it was distributed"),
        }
    }
}

/// The next connection for which there is a place.
pub(crate) async fn accept(listener: &TcpListener, open: &OpenConnections) -> (TcpStream, Place) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                if let Some(place) = open.admit(from.ip()) {
                    // Of a connection that is gone already, reading will tell.
                    let _ = stream.set_nodelay(true);
                    return (stream, place);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Bytes that a client sends before its first request: the preface, and the head of the first frame.
const GREETING_BYTES: usize = 24 + 9;

/// A connection, served here.
pub(crate) struct ArbiterConnection {
    stream: TcpStream,
    /// How much is still to come until it counts as having greeted.
    ungreeted: usize,
    place: Place,
    _counted: Option<Counted>,
}

impl ArbiterConnection {
    fn attach(detached: DetachedConnection) -> std::io::Result<ArbiterConnection> {
        let DetachedConnection { stream, place, counted } = detached;
        Ok(ArbiterConnection { _counted: Some(counted), ..ArbiterConnection::new(TcpStream::from_std(stream)?, place) })
    }

    pub(crate) fn new(stream: TcpStream, place: Place) -> ArbiterConnection {
        ArbiterConnection { stream, ungreeted: GREETING_BYTES, place, _counted: None }
    }

    /// What is known of it as one of the open connections.
    pub(crate) fn connection(&self) -> Arc<OpenConnection> {
        Arc::clone(&self.place.connection)
    }

    #[cold]
    fn greets(&mut self, bytes: usize) {
        self.ungreeted = self.ungreeted.saturating_sub(bytes);
        if self.ungreeted == 0 {
            self.place.connection.greeted();
        }
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
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.ungreeted > 0 {
            self.greets(buf.filled().len() - before);
        }
        polled
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
