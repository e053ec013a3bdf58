//! An open connection.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use leaseway_tls::ServerStream;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    net::TcpStream,
};
use tonic::transport::server::Connected;

use super::{caller::Caller, protocol_detection::PREFACE};
use crate::{
    listen::open_connections::{ConnectionPermit, Ending},
    runtime::coop::CoopBudget,
};

/// The transport. TLS is boxed because it is large.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<ServerStream<TcpStream>>),
    InProcess(Box<DuplexStream>),
}

/// A connection that is ready to be served. It counts as open until it is dropped.
pub(crate) struct Connection {
    stream: Stream,
    /// The number of bytes of the HTTP/2 preface still to be replayed to the reader.
    preface_left: u8,
    coop: CoopBudget,
    caller: Caller,
    /// Completes when the connection is asked to close. From then on, reads return the end of the stream.
    ending: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _permit: ConnectionPermit,
}

impl Connection {
    /// `has_preface`: the HTTP/2 preface was read from it.
    pub(super) fn new(stream: Stream, has_preface: bool, caller: Caller, permit: ConnectionPermit) -> Connection {
        let preface_left = if has_preface { PREFACE.len() as u8 } else { 0 };
        Connection { stream, preface_left, coop: CoopBudget::default(), caller, ending: None, _permit: permit }
    }

    /// Makes reads return the end of the stream when the connection is asked to close, for services that do not watch
    /// for that themselves.
    pub(super) fn ending_by_itself(mut self) -> Connection {
        let connection = Arc::clone(&self.caller.connection);
        self.ending = Some(Box::pin(async move {
            if connection.wait_for_ending().await == Ending::WhenDone {
                std::future::pending::<()>().await;
            }
        }));
        self
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::InProcess(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.preface_left > 0 {
            let rest = &PREFACE[PREFACE.len() - usize::from(self.preface_left)..];
            let read = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..read]);
            self.preface_left -= read as u8;
            return Poll::Ready(Ok(()));
        }
        if self.ending.as_mut().is_some_and(|ending| ending.as_mut().poll(cx).is_ready()) {
            // A completed future must not be polled again.
            self.ending = Some(Box::pin(std::future::ready(())));
            return Poll::Ready(Ok(()));
        }
        if self.coop.is_over(cx) {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        match &read {
            Poll::Ready(_) => self.coop.takes(buf.filled().len() - before),
            Poll::Pending => self.coop.ends(),
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::InProcess(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Stream::InProcess(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::InProcess(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::InProcess(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
            Stream::InProcess(stream) => stream.is_write_vectored(),
        }
    }
}
