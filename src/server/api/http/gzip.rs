//! Compresses pages for clients that accept gzip.

use std::io::Write as _;

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, HeaderValue, header},
    middleware::Next,
    response::Response,
};
use flate2::{Compression, write::GzEncoder};

use super::serving::Streamed;
use crate::runtime::background::{in_background, in_parts};

/// What is shorter fits a packet anyway.
const WORTH_IT: usize = 1400;

/// What takes some hundred microseconds.
const PART: usize = 16 << 10;

/// Compresses what the rest answers, if the request says that it may be.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    let accepted = accepts_gzip(request.headers());
    let response = next.run(request).await;
    if response.extensions().get::<Streamed>().is_some() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if !accepted {
        return Response::from_parts(parts, body);
    }
    // All other pages are made whole in memory, so that this neither waits nor fails.
    let Ok(plain) = to_bytes(body, usize::MAX).await else { return Response::from_parts(parts, Body::empty()) };
    if plain.len() < WORTH_IT {
        return Response::from_parts(parts, Body::from(plain));
    }
    // A large page takes a while.
    let text = plain.clone();
    match in_background(move || gzip(&text)).await {
        Some(Ok(compressed)) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            Response::from_parts(parts, Body::from(compressed))
        }
        _ => Response::from_parts(parts, Body::from(plain)),
    }
}

fn gzip(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut written = Ok(());
    in_parts(plain.chunks(PART), |part| {
        if written.is_ok() {
            written = encoder.write_all(part);
        }
    });
    written?;
    encoder.finish()
}

/// `gzip`, or anything, unless its weight is 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for coding in lists.flat_map(|list| list.split(',')) {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok()).unwrap_or(1.0_f32);
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") => return weight > 0.0,
            "*" => any = weight > 0.0,
            _ => {}
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_that_accept_it_get_gzip() {
        for (said, accepted) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5, br", true),
            ("*", true),
            ("*, gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("identity", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(said))]);
            assert_eq!(accepts_gzip(&headers), accepted, "{said}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
