//! An HTTP/2 connection for unary gRPC calls, with as little code as possible between a request and the socket, because
//! the load generator shares the machine with the server and takes CPU time from it. There are no deadlines, metadata,
//! compression or load balancing.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{Connection as Driver, SendRequest};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use leaseway_client::{ClientStream, ClientTls};
use leaseway_proto::doorman::{DiscoveryRequest, DiscoveryResponse, Mastership};
use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpSocket, TcpStream, lookup_host},
    time::timeout,
};
use tonic::{Code, Status};

use crate::common::{current_thread, error::Error};

/// The timeout for connecting. A connection over loopback takes no time; a timeout means that a host drops packets.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The flow-control window: large enough that no answer waits for a window update.
const WINDOW: u32 = 1 << 20;

/// The compression flag and the length of a gRPC message.
const PREFIX: usize = 5;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The server answered with this status.
    Status(Code, String),
    /// The stream broke. The connection is intact.
    Stream(String),
    /// The connection broke.
    Connection(String),
    /// The answer is not gRPC.
    Garbage(String),
}

impl Failure {
    /// The kind of failure, under which it is counted.
    pub(crate) fn kind(&self) -> String {
        match self {
            Failure::Status(code, _) => format!("{code:?}"),
            Failure::Stream(_) => "stream broken".into(),
            Failure::Connection(_) => "connection lost".into(),
            Failure::Garbage(_) => "not gRPC".into(),
        }
    }

    pub(crate) fn reason(self) -> String {
        match self {
            Failure::Status(code, message) => format!("{code:?}: {message}"),
            Failure::Stream(reason) | Failure::Connection(reason) | Failure::Garbage(reason) => reason,
        }
    }
}

impl From<h2::Error> for Failure {
    fn from(error: h2::Error) -> Failure {
        let reason = error.to_string();
        if error.is_reset() { Failure::Stream(reason) } else { Failure::Connection(reason) }
    }
}

/// The URI of a method.
#[derive(Clone)]
pub(crate) struct Path(Uri);

impl Path {
    /// A method of the Doorman protocol.
    pub(crate) fn new(dialer: &Dialer, target: SocketAddr, method: &str) -> Path {
        Path::of(dialer, target, &format!("doorman.Capacity/{method}"))
    }

    /// Any method, as `package.Service/Method`.
    pub(crate) fn of(dialer: &Dialer, target: SocketAddr, method: &str) -> Path {
        let uri = format!("{}://{target}/{method}", dialer.scheme());
        Path(uri.parse().expect("a socket address and a method name make a URI"))
    }
}

/// A handle to a connection. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: SendRequest<Bytes>,
}

impl Connection {
    /// Connects. The returned driver does the I/O of the connection, and must be polled until it ends.
    pub(crate) async fn open(
        dialer: &Dialer,
        target: SocketAddr,
    ) -> Result<(Connection, Driver<Socket, Bytes>), String> {
        let attempt = async {
            let stream = dialer.dial(target).await?;
            let handshake = h2::client::Builder::new()
                .initial_window_size(WINDOW)
                .initial_connection_window_size(WINDOW)
                .enable_push(false)
                .handshake(stream);
            handshake.await.map_err(|error| error.to_string())
        };
        let patience = format!("no answer within {} seconds", CONNECT_PATIENCE.as_secs());
        let (requests, driver) = timeout(CONNECT_PATIENCE, attempt).await.map_err(|_| patience)??;
        Ok((Connection { requests }, driver))
    }

    pub(crate) async fn call<A: Message + Default>(&self, path: &Path, ask: &impl Message) -> Result<A, Failure> {
        let mut requests = self.requests.clone().ready().await?;
        let (answer, mut body) = requests.send_request(head(path), false)?;
        body.send_data(framed(ask), true)?;
        let (head, mut body) = answer.await?.into_parts();
        if head.status != http::StatusCode::OK {
            return Err(Failure::Garbage(format!("HTTP status {}", head.status)));
        }
        let mut received = Bytes::new();
        while let Some(chunk) = body.data().await {
            let chunk = chunk?;
            body.flow_control().release_capacity(chunk.len())?;
            received = join(received, chunk);
        }
        let trailers = body.trailers().await?;
        // An answer without a message has its status in the headers.
        status(trailers.as_ref().unwrap_or(&head.headers))?;
        unframe(&received)
    }
}

fn head(path: &Path) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.0.clone();
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    request
}

pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).expect("a request is far below 4 GiB"));
    message.encode(&mut framed).expect("the buffer has the length of the message");
    framed.freeze()
}

fn unframe<A: Message + Default>(received: &[u8]) -> Result<A, Failure> {
    let garbage = |reason: &str| Failure::Garbage(reason.into());
    let (prefix, message) =
        received.split_first_chunk::<PREFIX>().ok_or_else(|| garbage("an answer without message"))?;
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 {
        return Err(garbage("a compressed answer, although the request allowed none"));
    }
    if message.len() != u32::from_be_bytes(length) as usize {
        return Err(garbage("an answer with a wrong length prefix"));
    }
    A::decode(message).map_err(|error| Failure::Garbage(error.to_string()))
}

/// Joins the parts of an answer. It usually arrives in one part, which is not copied.
fn join(received: Bytes, chunk: Bytes) -> Bytes {
    if received.is_empty() { chunk } else { [received, chunk].concat().into() }
}

fn status(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(code) = headers.get("grpc-status") else {
        return Err(Failure::Garbage("an answer without grpc-status".into()));
    };
    match Code::from_bytes(code.as_bytes()) {
        Code::Ok => Ok(()),
        code => {
            // Copy only these, because an invalid header among the others would panic.
            let names = ["grpc-status", "grpc-message"];
            let known =
                names.into_iter().filter_map(|name| Some((HeaderName::from_static(name), headers.get(name)?.clone())));
            let status = Status::from_header_map(&known.collect());
            Err(Failure::Status(code, status.map(|status| status.message().to_owned()).unwrap_or_default()))
        }
    }
}

/// The socket of a connection, with TLS if the server uses it.
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

    /// Connects from this local address, so that the server sees a different client address.
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

/// The reason of a failed connection. The most common one omits the error number of the operating system.
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

/// The maximum number of redirects to follow.
const HOPS_MAX: usize = 8;

/// Fails unless `target` is a Doorman server and the master.
pub(crate) fn find_master(target: SocketAddr, dialer: &Dialer) -> Result<(), Error> {
    current_thread().map_err(Error::io("start a runtime"))?.block_on(master_named_by(target, dialer)).and_then(
        |named| match named {
            Named::Itself => Ok(()),
            Named::Other(mastership) => {
                let master = mastership.master_address;
                let master =
                    master.map_or("it does not know the master".into(), |address| format!("the master is {address}"));
                Err(Error::NotMaster { target, master })
            }
        },
    )
}

/// Starts from the first of `targets` that answers, and follows redirects.
pub(crate) fn follow_to_master(targets: &[SocketAddr], dialer: &Dialer) -> Result<SocketAddr, Error> {
    let runtime = current_thread().map_err(Error::io("start a runtime"))?;
    let mut last = None;
    for &target in targets {
        match runtime.block_on(follow(target, dialer)) {
            Ok(master) => return Ok(master),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("at least one target was named"))
}

async fn follow(target: SocketAddr, dialer: &Dialer) -> Result<SocketAddr, Error> {
    let mut at = target;
    for _ in 0..HOPS_MAX {
        match master_named_by(at, dialer).await? {
            Named::Itself => return Ok(at),
            Named::Other(mastership) => match address_of(&mastership).await {
                Some(master) => at = master,
                None => {
                    return Err(Error::NotMaster { target: at, master: "it does not know the master".into() });
                }
            },
        }
    }
    Err(Error::NotMaster { target, master: format!("and {HOPS_MAX} servers named each other") })
}

pub(crate) async fn address_of(mastership: &Mastership) -> Option<SocketAddr> {
    lookup_host(mastership.master_address.as_deref()?).await.ok()?.next()
}

enum Named {
    Itself,
    Other(Mastership),
}

async fn master_named_by(target: SocketAddr, dialer: &Dialer) -> Result<Named, Error> {
    let (connection, driver) =
        Connection::open(dialer, target).await.map_err(|reason| Error::Unreachable { target, reason })?;
    let path = Path::new(dialer, target, "Discovery");
    let answer = tokio::select! {
        answer = timeout(CONNECT_PATIENCE, connection.call(&path, &DiscoveryRequest {})) => match answer {
            Ok(answer) => answer.map_err(Failure::reason),
            Err(_) => Err("no answer to Discovery".to_owned()),
        },
        ended = driver => Err(ended.err().map_or("it closed the connection".to_owned(), |error| error.to_string())),
    };
    let answer: DiscoveryResponse = answer.map_err(|reason| Error::NotDoorman { target, reason })?;
    Ok(match answer.is_master {
        Some(true) => Named::Itself,
        _ => Named::Other(answer.mastership.unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use leaseway_proto::doorman::DiscoveryResponse;

    use super::*;

    #[test]
    fn frames_survive_a_round_trip_and_broken_ones_are_refused() {
        let message = DiscoveryResponse { is_master: Some(true), ..DiscoveryResponse::default() };
        let bytes = framed(&message);
        assert_eq!(unframe::<DiscoveryResponse>(&bytes).unwrap(), message);
        assert!(unframe::<DiscoveryResponse>(&bytes[..bytes.len() - 1]).is_err());
        assert!(unframe::<DiscoveryResponse>(&bytes[..3]).is_err());
        assert!(unframe::<DiscoveryResponse>(&[1, 0, 0, 0, 0]).is_err());
        assert_eq!(unframe::<DiscoveryResponse>(&[0; 5]).unwrap(), DiscoveryResponse::default());
    }

    #[test]
    fn statuses_are_read() {
        let headers = |status: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", HeaderValue::from_static(status));
            headers
        };
        assert!(status(&headers("0")).is_ok());
        assert_eq!(status(&headers("8")).unwrap_err().kind(), "ResourceExhausted");
        assert!(status(&HeaderMap::new()).is_err());
        let mut refused = headers("8");
        refused.insert("grpc-message", HeaderValue::from_static("50%25 of it%2C no more"));
        assert_eq!(status(&refused).unwrap_err().reason(), "ResourceExhausted: 50% of it, no more");
    }
}
