//! Traces of requests, exported over OTLP if OTEL_EXPORTER_OTLP_ENDPOINT is set. The `traceparent` of a request is the
//! parent of its span.

use std::{env, sync::OnceLock};

use http::{HeaderMap, Request, Response};
use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, TextMapPropagator as _},
    trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _},
};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{SdkTracer, SdkTracerProvider, Span},
};

use crate::config::error::ServeError;

static TRACER: OnceLock<SdkTracer> = OnceLock::new();

pub(crate) struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts the exporter. OpenTelemetry's variables configure it.
    pub(crate) fn start(id: &str) -> Result<Option<Traces>, ServeError> {
        const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
        if ENDPOINTS.iter().all(|name| env::var_os(name).is_none()) {
            return Ok(None);
        }
        let exporter = SpanExporter::builder().with_tonic().build();
        let exporter = exporter.map_err(|error| ServeError::Traces(error.to_string()))?;
        let mut resource = Resource::builder().with_attribute(KeyValue::new("service.instance.id", id.to_owned()));
        if env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("leaseway");
        }
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build());
        let provider = provider.build();
        // A second server in the same process uses the first one's tracer.
        let _ = TRACER.set(provider.tracer("leaseway"));
        Ok(Some(Traces(provider)))
    }

    /// Exports the remaining spans. Waits on another thread, because their connections need this one.
    pub(crate) async fn stop(self) {
        let stopped = tokio::task::spawn_blocking(move || self.0.shutdown()).await;
        if let Ok(Err(error)) = stopped {
            tracing::warn!(%error, "cannot export the last traces");
        }
    }
}

/// The span of a request. Ends when it is dropped.
pub(crate) struct RequestSpan(Option<Span>);

impl RequestSpan {
    /// The span of a gRPC call.
    pub(crate) fn of_call<B>(request: &Request<B>) -> RequestSpan {
        let (service, method) = request.uri().path().trim_start_matches('/').split_once('/').unwrap_or_default();
        RequestSpan::begin(request.headers(), || {
            let attributes = vec![
                KeyValue::new("rpc.system", "grpc"),
                KeyValue::new("rpc.service", service.to_owned()),
                KeyValue::new("rpc.method", method.to_owned()),
            ];
            (format!("{service}/{method}"), attributes)
        })
    }

    /// The span of a page. Its name has no path, because paths contain ids.
    fn of_page<B>(request: &Request<B>) -> RequestSpan {
        RequestSpan::begin(request.headers(), || {
            let attributes = vec![
                KeyValue::new("http.request.method", request.method().to_string()),
                KeyValue::new("url.path", request.uri().path().to_owned()),
            ];
            (request.method().to_string(), attributes)
        })
    }

    fn begin(headers: &HeaderMap, describe: impl FnOnce() -> (String, Vec<KeyValue>)) -> RequestSpan {
        let span = TRACER.get().map(|tracer| {
            let (name, attributes) = describe();
            let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
            let span = tracer.span_builder(name).with_kind(SpanKind::Server).with_attributes(attributes);
            span.start_with_context(tracer, &parent)
        });
        RequestSpan(span)
    }

    /// Adds the status in the headers of the response.
    pub(crate) fn answered<B>(&mut self, response: &Response<B>) {
        let Some(span) = &mut self.0 else { return };
        let code = response.status().as_u16();
        if let Some(status) = response.headers().get("grpc-status").and_then(|status| status.to_str().ok()) {
            span.set_attribute(KeyValue::new("rpc.grpc.status_code", status.to_owned()));
        } else {
            span.set_attribute(KeyValue::new("http.response.status_code", i64::from(code)));
        }
        if code >= 500 {
            span.set_status(Status::error(""));
        }
    }
}

/// Middleware that traces pages.
pub(crate) async fn page(request: axum::extract::Request, next: axum::middleware::Next) -> axum::response::Response {
    let mut span = RequestSpan::of_page(&request);
    let response = next.run(request).await;
    span.answered(&response);
    response
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}
