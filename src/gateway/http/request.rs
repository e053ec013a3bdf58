//! Reads and validates requests: origin, path, query and body.

use std::time::Duration;

use axum::{
    RequestPartsExt as _,
    body::{Body, HttpBody as _},
    extract::{Path, Query, Request},
    http::{HeaderMap, header, request::Parts},
};
use leaseway_core::types::escaped;
use leaseway_server::HttpCaller;
use serde_json::Value;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;

use super::{
    fields::{FieldKind, Fields},
    operation::Operation,
    problem::{Problem, ProblemKind},
};

/// The maximum size of a body. Eight ids of the maximum length fit, even with each byte escaped as `\u00xx`.
pub(crate) const MAX_BODY_BYTES: usize = 16_384;

/// The timeout for reading a body.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// A valid request.
pub(super) struct Read {
    pub(super) caller: HttpCaller,
    /// The parameter in the path, or an empty string.
    pub(super) parameter: String,
    pub(super) fields: Fields,
}

pub(super) async fn read(operation: Operation, request: Request) -> Result<Read, Problem> {
    let (mut parts, body) = request.into_parts();
    if parts.headers.contains_key(header::ORIGIN) {
        let why = "requests with an `Origin` header are refused, because any web page could send them: call the gateway from your own backend";
        return Err(Problem::new(ProblemKind::ForeignPage, why));
    }
    let parameter = match operation.parameter() {
        Some(name) => read_parameter(name, &mut parts).await?,
        None => String::new(),
    };
    let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
        .map_err(|error| Problem::new(ProblemKind::Malformed, escaped(&error.to_string())))?;
    let in_query = Fields::of_query(operation.query(), query.0)?;
    let fields = match operation.body() {
        [] => in_query,
        table => Fields::of_body(table, &read_body(&parts.headers, body).await?)?,
    };
    let caller = parts.extensions.remove::<HttpCaller>();
    let caller = caller.ok_or_else(|| Problem::new(ProblemKind::Unauthenticated, "the caller is unknown"))?;
    Ok(Read { caller, parameter, fields })
}

async fn read_parameter(name: &str, parts: &mut Parts) -> Result<String, Problem> {
    let Path(parameter) = parts.extract::<Path<String>>().await.map_err(|error| {
        Problem::of_field(
            ProblemKind::BadValue,
            name,
            &format!("the path has an invalid value: {}", escaped(&error.to_string())),
        )
    })?;
    FieldKind::Id.check(name, &Value::String(parameter.clone()))?;
    Ok(parameter)
}

async fn read_body(headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Problem> {
    if body.is_end_stream() {
        return Ok(Vec::new());
    }
    if !is_json(headers) {
        let why = "set `Content-Type: application/json` (curl: --json instead of -d)";
        return Err(Problem::new(ProblemKind::NotJson, why));
    }
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let read = async {
        let (mut read, mut chunks) = (Vec::new(), body.into_data_stream());
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| {
                Problem::new(ProblemKind::Malformed, format!("the body was cut off: {}", escaped(&error.to_string())))
            })?;
            if read.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(too_large());
            }
            read.extend_from_slice(&chunk);
        }
        Ok(read)
    };
    let late = || Problem::new(ProblemKind::Slow, format!("the body did not arrive in {} s", BODY_PATIENCE.as_secs()));
    timeout(BODY_PATIENCE, read).await.unwrap_or_else(|_| Err(late()))
}

fn too_large() -> Problem {
    Problem::new(ProblemKind::TooLarge, format!("the body is larger than {MAX_BODY_BYTES} bytes"))
}

/// Whether the content type is JSON, with or without a charset.
fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = said.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}
