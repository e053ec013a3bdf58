//! A raw HTTP/2 client for misbehaviour that client libraries do not offer: calls without an end, unread responses.

use std::{
    future::{Future as _, poll_fn},
    io::{ErrorKind, Read as _},
    net::{IpAddr, SocketAddr, TcpStream},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use h2::{
    RecvStream, SendStream,
    client::{ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request};
use prost::{Message, bytes::Bytes};
use tokio::net::TcpSocket;

use super::wait::{PATIENCE, block_on, runtime};

pub(crate) struct Http2 {
    requests: SendRequest<Bytes>,
    address: SocketAddr,
}

pub(crate) struct Call {
    response: Result<ResponseFuture, Option<Ended>>,
    body: SendStream<Bytes>,
}

/// The gRPC status and message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) message: String,
}

/// Connects from another loopback address, so that the server sees another client.
pub(crate) async fn dial(to: SocketAddr, from: Option<IpAddr>) -> std::io::Result<tokio::net::TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(from) = from {
        socket.bind((from, 0).into())?;
    }
    socket.connect(to).await
}

/// Like [`dial`], as a blocking stream.
pub(crate) fn connect_tcp(to: SocketAddr, from: Option<IpAddr>) -> TcpStream {
    let stream = block_on(async { dial(to, from).await.unwrap().into_std().unwrap() });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server stops reading from a client that does not read its responses.
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    stream
}

/// A gRPC message with its prefix.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(message.encoded_len()).unwrap().to_be_bytes());
    message.encode(&mut framed).unwrap();
    framed.into()
}

impl Http2 {
    /// `window`: the initial flow-control window of each stream, in bytes.
    pub(crate) fn connect(address: SocketAddr, from: Option<IpAddr>, window: u32) -> Http2 {
        block_on(async {
            let stream = dial(address, from).await.unwrap();
            let builder = || {
                let mut builder = h2::client::Builder::new();
                builder.initial_window_size(window).initial_max_send_streams(1000);
                builder
            };
            let (requests, connection) = builder().handshake(stream).await.unwrap();
            runtime().spawn(connection);
            Http2 { requests, address }
        })
    }

    pub(crate) fn begin(&mut self, path: &str, headers: &[(&str, &str)]) -> Call {
        let mut request = Request::post(format!("http://{}{path}", self.address));
        for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")].iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        block_on(async {
            let mut requests = self.requests.clone().ready().await.unwrap();
            let (response, body) = requests.send_request(request, false).unwrap();
            Call { response: Ok(response), body }
        })
    }

    /// A call with its whole message.
    pub(crate) fn call(&mut self, path: &str, message: &impl Message) -> Call {
        let mut call = self.begin(path, &[]);
        call.send(framed(message), true);
        call
    }
}

impl Call {
    pub(crate) fn send(&mut self, part: Bytes, is_end: bool) {
        // Fails if the server has already refused the call.
        let _ = self.body.send_data(part, is_end);
    }

    /// Reads the answer, and returns the status.
    pub(crate) fn ends(self) -> Ended {
        block_on(self.ended())
    }

    async fn ended(self) -> Ended {
        let response = match self.response {
            Ok(response) => response,
            Err(known) => return known.expect("the answer was not read before"),
        };
        let (head, body) = match response.await {
            Ok(response) => response.into_parts(),
            Err(error) => return Ended { code: -1, message: error.to_string() },
        };
        match ended(&head.headers) {
            Some(ended) => ended,
            None => to_the_end(body).await,
        }
    }

    /// The gRPC status, or `None` before the response or without a status in it.
    pub(crate) fn has_ended(&mut self) -> Option<Ended> {
        let waiting = match &mut self.response {
            Ok(waiting) => waiting,
            Err(known) => return known.clone(),
        };
        let come = runtime().block_on(poll_fn(|task| Poll::Ready(Pin::new(&mut *waiting).poll(task))));
        let Poll::Ready(come) = come else { return None };
        let known = match come {
            Ok(response) => ended(response.headers()),
            Err(error) => Some(Ended { code: -1, message: error.to_string() }),
        };
        self.response = Err(known.clone());
        known
    }
}

async fn to_the_end(mut body: RecvStream) -> Ended {
    while let Some(data) = body.data().await {
        match data {
            Ok(data) => drop(body.flow_control().release_capacity(data.len())),
            Err(error) => return Ended { code: -1, message: error.to_string() },
        }
    }
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    ended(&trailers).unwrap()
}

fn ended(headers: &HeaderMap) -> Option<Ended> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let code = text("grpc-status")?.parse().unwrap();
    Some(Ended { code, message: text("grpc-message").unwrap_or_default().replace("%20", " ") })
}

/// Reads until the other side closes the connection. Returns false on an error, such as a timeout.
pub(crate) fn hangs_up(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
            Err(_) => return false,
        }
    }
}
