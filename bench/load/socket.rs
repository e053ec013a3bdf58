//! Sockets, with TLS or without.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
};

use leaseway_client::{ClientStream, ClientTls};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpSocket, TcpStream},
};

/// Only TLS is between a request and the kernel.
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<ClientStream>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Dialer {
    tls: Option<ClientTls>,
    from: Option<IpAddr>,
}

impl Dialer {
    pub(crate) fn new(tls: Option<ClientTls>) -> Dialer {
        Dialer { tls, from: None }
    }

    /// Connects from this address, so that the server sees another client.
    pub(crate) fn from(self, address: IpAddr) -> Dialer {
        Dialer { from: Some(address), ..self }
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub(crate) async fn dial(&self, target: SocketAddr) -> Result<Socket, String> {
        let stream = self.connect(target).await.map_err(|error| connect_reason(&error))?;
        self.over(stream, target).await
    }

    async fn connect(&self, target: SocketAddr) -> io::Result<TcpStream> {
        let Some(from) = self.from else { return TcpStream::connect(target).await };
        let socket = if from.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.bind((from, 0).into())?;
        socket.connect(target).await
    }

    /// Uses an existing connection.
    pub(crate) async fn over(&self, stream: TcpStream, target: SocketAddr) -> Result<Socket, String> {
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        match &self.tls {
            None => Ok(Socket::Plain(stream)),
            Some(tls) => {
                let stream = tls.connect(&target.ip().to_string(), stream).await.map_err(|error| error.to_string())?;
                Ok(Socket::Tls(Box::new(stream)))
            }
        }
    }
}

/// The most common error without the error number of the operating system.
fn connect_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".into(),
        _ => error.to_string(),
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Socket::Plain(stream) => stream.is_write_vectored(),
            Socket::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
