//! A collector of traces (OTLP over gRPC).

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use prost::Message;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{BoxFuture, Service, http},
    server::{Grpc, NamedService},
    transport::Server,
};

use super::{
    raw::Bytes,
    wait::{block_on, runtime},
};

/// `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    of_resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Described>,
    #[prost(message, repeated, tag = "2")]
    of_scopes: Vec<ScopeSpans>,
}

/// `Resource`.
#[derive(Clone, PartialEq, Message)]
struct Described {
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

#[derive(Clone)]
pub(crate) struct Collector {
    address: SocketAddr,
    taken: Arc<Mutex<Vec<ResourceSpans>>>,
}

impl Collector {
    pub(crate) fn start() -> Collector {
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let collector = Collector { address: listener.local_addr().unwrap(), taken: Arc::default() };
        let serve =
            Server::builder().add_service(collector.clone()).serve_with_incoming(TcpListenerStream::new(listener));
        runtime().spawn(serve);
        collector
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let taken = self.taken.lock().unwrap();
        taken.iter().flat_map(|of| &of.of_scopes).flat_map(|scope| scope.spans.clone()).collect()
    }

    /// An attribute of the resource of the first spans.
    pub(crate) fn attribute(&self, key: &str) -> Option<String> {
        let taken = self.taken.lock().unwrap();
        let mut attributes = taken.first()?.resource.iter().flat_map(|resource| &resource.attributes);
        attributes.find(|attribute| attribute.key == key)?.value.clone().map(|value| value.text)
    }
}

impl NamedService for Collector {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl Service<http::Request<Body>> for Collector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let export = ExportMethod(Arc::clone(&self.taken));
        Box::pin(async move { Ok(Grpc::new(Bytes).unary(export, request).await) })
    }
}

struct ExportMethod(Arc<Mutex<Vec<ResourceSpans>>>);

impl Service<Request<Vec<u8>>> for ExportMethod {
    type Response = Response<Vec<u8>>;
    type Error = Status;
    type Future = BoxFuture<Self::Response, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        let export = Export::decode(request.into_inner().as_slice()).expect("it is one");
        self.0.lock().unwrap().extend(export.of_resources);
        // An empty answer accepts everything.
        Box::pin(async { Ok(Response::new(Vec::new())) })
    }
}
