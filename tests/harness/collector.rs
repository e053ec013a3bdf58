//! A collector of traces (OTLP over gRPC).

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use http::{HeaderMap, HeaderValue, Request, Response};
use prost::{Message, bytes::Bytes};
use tokio::net::{TcpListener, TcpStream};

use super::wait::{block_on, runtime};

/// `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(int32, tag = "6")]
    pub(crate) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(crate) start: u64,
    #[prost(fixed64, tag = "8")]
    pub(crate) end: u64,
}

/// `KeyValue`.
#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, tag = "1")]
    text: String,
}

pub(crate) struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Vec<ResourceSpans>>>,
}

impl Collector {
    pub(crate) fn start() -> Collector {
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let collector = Collector { address: listener.local_addr().unwrap(), received: Arc::default() };
        let received = Arc::clone(&collector.received);
        runtime().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&received)));
            }
        });
        collector
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let received = self.received.lock().unwrap();
        received.iter().flat_map(|spans| &spans.scopes).flat_map(|scope| scope.spans.clone()).collect()
    }

    /// An attribute of the resource of the first spans.
    pub(crate) fn attribute(&self, key: &str) -> Option<String> {
        let received = self.received.lock().unwrap();
        let mut attributes = received.first()?.resource.iter().flat_map(|resource| &resource.attributes);
        attributes.find(|attribute| attribute.key == key)?.value.clone().map(|value| value.text)
    }
}

async fn serve(stream: TcpStream, received: Arc<Mutex<Vec<ResourceSpans>>>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(export(request, respond, Arc::clone(&received)));
    }
}

/// Treats every method as `Export`, and accepts everything with an empty answer.
async fn export(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    received: Arc<Mutex<Vec<ResourceSpans>>>,
) {
    let (mut body, mut bytes) = (request.into_body(), Vec::new());
    while let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).unwrap();
        bytes.extend_from_slice(&data);
    }
    // The message follows the five bytes of its gRPC prefix.
    let export = Export::decode(&bytes[5..]).expect("the body is an export request");
    received.lock().unwrap().extend(export.resource_spans);
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut stream = respond.send_response(head, false).unwrap();
    stream.send_data(Bytes::from_static(&[0; 5]), false).unwrap();
    stream
        .send_trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]))
        .unwrap();
}
