//! The dispatcher and tonic receive the same bytes, and give the same answers. The fuzz target `capacity` compares
//! their parsing of random bodies.

use std::net::SocketAddr;

use bytes::Bytes;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use leaseway_proto::doorman::{
    GetCapacityRequest, GetCapacityResponse, ResourceRequest, capacity_server::CapacityServer,
};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use super::*;
use crate::{
    api::grpc::start_node,
    auth::Authorizer,
    config,
    listen::open_connections::OpenConnections,
    node::{NodeHandle, Threads, addresses::ServerInfo, block_on},
};

const MAX_BYTES: usize = 1000;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A configuration in which clients may repeat requests immediately.
const NO_MIN_INTERVAL: &str = "
resources:
- identifier_glob: '*'
  capacity: 100
  algorithm:
    {kind: NO_ALGORITHM, lease_length: 60, refresh_interval: 5, parameters: {min_request_interval: 0}}
";

#[test]
fn timeouts_are_parsed() {
    let parsed = |text: &str| timeout(&text.parse().expect("a header"));
    for (text, millis) in [("1H", 3_600_000), ("2M", 120_000), ("3S", 3_000), ("4m", 4), ("5000u", 5)] {
        assert_eq!(parsed(text), Some(Duration::from_millis(millis)), "{text}");
    }
    assert_eq!(parsed("7n"), Some(Duration::from_nanos(7)));
    assert_eq!(parsed("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
    for wrong in ["", "S", "1", "-1S", "1.5S", "1s", "123456789S", "1 S"] {
        assert_eq!(parsed(wrong), None, "{wrong:?}");
    }
}

/// Serves the same service with the dispatcher, and with tonic's own server.
async fn serve_both(service: CapacityService, node: NodeHandle) -> [SocketAddr; 2] {
    let listen = async || TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let (dispatchers, tonics) = (listen().await, listen().await);
    let addresses = [&dispatchers, &tonics].map(|listener| listener.local_addr().expect("it is bound"));
    let capacity = CapacityServer::new(service.clone()).max_decoding_message_size(MAX_BYTES);
    let limits = BodyLimits { message_bytes: MAX_BYTES, timeout: ANSWER_TIMEOUT };
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let authorizer = Arc::new(Authorizer::open());
    let clients = HotServices { capacity: service, push: PushService::new(node, stopped), authorizer };
    let dispatcher = Arc::new(Dispatcher::new(Some(clients), limits, Routes::new(capacity.clone())));
    let open = OpenConnections::at_most(100);
    tokio::spawn(async move {
        while let Ok((stream, from)) = dispatchers.accept().await {
            let permit = open.admit(from.ip()).expect("there is room");
            let caller = Caller {
                address: from.ip(),
                names: None,
                is_in_process: false,
                connection: Arc::clone(&permit.connection),
            };
            let gateway = ConnectionService::new(Arc::clone(&dispatcher), caller, Arc::clone(&permit.connection));
            let served = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), gateway);
            tokio::spawn(async move {
                let _permit = permit;
                served.await
            });
        }
    });
    tokio::spawn(Server::builder().add_service(capacity).serve_with_incoming(TcpListenerStream::new(tonics)));
    addresses
}

/// A call on the wire.
#[derive(Clone, Debug)]
struct Call {
    name: &'static str,
    method: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    frames: Vec<Bytes>,
    end: End,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    WithMessage,
    WithTrailers,
    /// The request stays open.
    Never,
}

/// An answer, without the text of errors.
#[derive(Debug, PartialEq)]
struct Reply {
    http: u16,
    content_type: Option<String>,
    grpc: Option<String>,
    in_trailers: bool,
    /// The capacity granted for each resource.
    granted: Option<Vec<f64>>,
}

async fn ask(address: SocketAddr, call: &Call) -> Result<Reply, h2::Error> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (client, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    let mut client = client.ready().await.expect("it is ready");
    let uri = format!("http://{address}{GET_CAPACITY}");
    let mut request = Request::builder().method(call.method).uri(uri);
    for (name, value) in &call.headers {
        request = request.header(*name, *value);
    }
    let (response, mut body) = client.send_request(request.body(()).expect("a request"), false).expect("it is sent");
    for frame in &call.frames {
        // The server may have refused the call and closed the stream.
        if body.send_data(frame.clone(), false).is_err() {
            break;
        }
    }
    match call.end {
        End::WithMessage => drop(body.send_data(Bytes::new(), true)),
        End::WithTrailers => {
            let trailers = [(http::HeaderName::from_static("x-checksum"), http::HeaderValue::from_static("1"))];
            drop(body.send_trailers(trailers.into_iter().collect()));
        }
        End::Never => {}
    }
    let (head, mut body) = response.await?.into_parts();
    let mut framed = Vec::new();
    while let Some(data) = body.data().await {
        framed.extend_from_slice(&data?);
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    let text = |headers: &http::HeaderMap, name: &str| {
        headers.get(name).map(|value| value.to_str().expect("a text").to_owned())
    };
    let message = framed.get(5..).map(|message| GetCapacityResponse::decode(message).expect("a message"));
    let leases = |answer: GetCapacityResponse| {
        answer
            .response
            .into_iter()
            .map(|entry| entry.gets.and_then(|lease| lease.capacity).unwrap_or_default())
            .collect()
    };
    Ok(Reply {
        http: head.status.as_u16(),
        content_type: text(&head.headers, "content-type"),
        grpc: text(&trailers, "grpc-status").or_else(|| text(&head.headers, "grpc-status")),
        in_trailers: trailers.contains_key("grpc-status"),
        granted: message.map(leases),
    })
}

fn message() -> Bytes {
    let resource = |id: &str| ResourceRequest {
        resource_id: Some(id.into()),
        priority: Some(0),
        wants: Some(1.0),
        ..ResourceRequest::default()
    };
    let request = GetCapacityRequest {
        client_id: Some("c".into()),
        resource: vec![resource("r"), resource("s")],
        drops_late: None,
        is_gateway: None,
    };
    let mut framed = vec![0, 0, 0, 0, u8::try_from(request.encoded_len()).expect("short")];
    request.encode(&mut framed).expect("a vector grows");
    framed.into()
}

/// A message of this length with an unknown field, which decoding skips.
fn long(bytes: u32) -> Bytes {
    let mut framed = vec![0];
    framed.extend_from_slice(&bytes.to_be_bytes());
    framed.extend_from_slice(&[0xfa, 0x7f]);
    prost::encoding::encode_varint(u64::from(bytes) - 4, &mut framed);
    framed.resize(5 + bytes as usize, b'x');
    framed.into()
}

fn calls() -> Vec<Call> {
    const GRPC: (&str, &str) = ("content-type", "application/grpc");
    let plain = Call {
        name: "plain",
        method: "POST",
        headers: vec![GRPC, ("te", "trailers")],
        frames: vec![message()],
        end: End::WithMessage,
    };
    let mut calls = vec![plain.clone()];
    let mut with = |name, change: &dyn Fn(&mut Call)| {
        let mut call = Call { name, ..plain.clone() };
        change(&mut call);
        calls.push(call);
    };
    for method in ["GET", "PUT", "HEAD", "OPTIONS"] {
        with(method, &|call| call.method = method);
    }
    for kind in ["application/grpc+proto", "application/grpc+json", "application/json", "text/plain"] {
        with(kind, &|call| call.headers[0].1 = kind);
    }
    with("no content-type", &|call| call.headers.clear());
    with("no te", &|call| call.headers.truncate(1));
    for encoding in ["identity", "gzip", "snappy"] {
        with(encoding, &|call| call.headers.push(("grpc-encoding", encoding)));
    }
    with("gzip would be accepted", &|call| call.headers.push(("grpc-accept-encoding", "gzip")));
    for timeout in ["10S", "1x", "123456789S", ""] {
        with(timeout, &|call| call.headers.push(("grpc-timeout", timeout)));
    }
    let good = message();
    let frames = |frames: Vec<Bytes>| move |call: &mut Call| call.frames.clone_from(&frames);
    with("no frame", &frames(vec![]));
    with("an empty message", &frames(vec![Bytes::from_static(&[0; 5])]));
    with("a prefix that breaks off", &frames(vec![good.slice(..4)]));
    with("a message that breaks off", &frames(vec![good.slice(..good.len() - 1)]));
    with("in two frames", &frames(vec![good.slice(..7), good.slice(7..)]));
    with("a byte a frame", &frames((0..good.len()).map(|at| good.slice(at..=at)).collect()));
    with("two messages", &frames(vec![good.clone(), good.clone()]));
    with("two messages in one frame", &frames(vec![[&good[..], &good[..]].concat().into()]));
    with("a message and no protobuf", &frames(vec![good.clone(), Bytes::from_static(&[0, 0, 0, 0, 1, 0xff])]));
    with("a message and half a message", &frames(vec![good.clone(), good.slice(..9)]));
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = byte;
        frames(vec![bytes.into()])
    };
    with("marked as compressed", &changed(0, 1));
    with("an invalid compression flag", &changed(0, 2));
    with("a length beyond the body", &changed(1, 1));
    with("no protobuf", &changed(5, 0xff));
    with("of the maximum length", &frames(vec![long(MAX_BYTES as u32)]));
    with("a byte too long", &frames(vec![long(MAX_BYTES as u32 + 1)]));
    with("much too long", &frames(vec![long(60_000)]));
    with("with trailers", &|call| call.end = End::WithTrailers);
    with("an expired deadline", &|call| {
        call.end = End::Never;
        call.headers.push(("grpc-timeout", "20m"));
    });
    calls
}

#[test]
fn the_dispatcher_answers_as_tonic_does() {
    block_on(async {
        let threads = Threads::start(1);
        let repository = config::parse("test", NO_MIN_INTERVAL).expect("valid").repository;
        let node = start_node(repository, &threads);
        let info = ServerInfo { id: "a".into(), advertise: "127.0.0.1:1".into(), admin: "".into(), http: "".into() };
        let [dispatcher, tonic] = serve_both(CapacityService::new(node.clone(), info, None), node).await;
        let mut differ = Vec::new();
        for call in calls() {
            let reply = async |from| format!("{:?}", tokio::time::timeout(ANSWER_TIMEOUT, ask(from, &call)).await);
            let (ours, theirs) = (reply(dispatcher).await, reply(tonic).await);
            if ours != theirs {
                differ.push(format!("{}, {call:?}:\n  dispatcher {ours}\n  tonic {theirs}", call.name));
            }
        }
        assert!(differ.is_empty(), "{}", differ.join("\n"));
        threads.stop();
    });
}
