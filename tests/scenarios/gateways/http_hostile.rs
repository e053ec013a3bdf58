//! Hostile input at the HTTP gateway: it answers with an error or closes the connection, and keeps serving.

use serde_json::{Value, json};

use crate::harness::{gateway::Gateway, http::Response, server::Server};

const ACQUIRE: &str = "POST /v1/resources/mysql/acquire HTTP/1.1\r\nHost: localhost\r\n";

fn send(gateway: &Gateway, bytes: &[u8]) -> Option<Response> {
    let mut connection = gateway.connect();
    connection.send(bytes);
    connection.receive()
}

fn with_body(body: &[u8]) -> Vec<u8> {
    let head = format!("{ACQUIRE}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn hostile_bodies_are_refused_with_a_reason() {
    let server = Server::development();
    let gateway = Gateway::for_http(&server.grpc().to_string(), &[]);
    let deep = "[".repeat(4000);
    for (body, status, reason) in [
        (&b"{"[..], 400, "malformed"),
        (b"[]", 400, "malformed"),
        (b"null", 400, "malformed"),
        (b"{\"permits\": 1} 2", 400, "malformed"),
        (b"{\"permits\": 1e999}", 400, "malformed"),
        (b"{\"permits\": NaN}", 400, "malformed"),
        (b"{\"permits\": \xff}", 400, "malformed"),
        (b"\x00\x01\x02", 400, "malformed"),
        (deep.as_bytes(), 400, "malformed"),
        (b"{\"permits\": 1, \"permits\": 2}", 400, "bad_value"),
        (b"{\"permits\": -0.0}", 400, "bad_value"),
        (b"{\"permits\": {\"a\": [1, 2]}}", 400, "bad_value"),
        (b"{\"\": 1}", 400, "unknown_field"),
        (b"{\"\\u001b[2J\": 1}", 400, "unknown_field"),
        (&[b' '; 20_000], 413, "too_large"),
    ] {
        let told = send(&gateway, &with_body(body)).expect("an answer");
        assert_eq!((told.status, told.problem().0), (status, reason.to_owned()), "{told:?}");
        assert!(told.body.len() < 1000 && !told.body.contains('\u{1b}'), "{told:?}");
    }
    gateway.assert_alive();
}

#[test]
fn an_oversized_or_missing_body_is_refused_early() {
    let server = Server::development();
    let gateway = Gateway::for_http(&server.grpc().to_string(), &[]);
    let announced = format!("{ACQUIRE}Content-Type: application/json\r\nContent-Length: 1000000000000\r\n\r\n");
    let told = send(&gateway, announced.as_bytes()).expect("an answer before the body arrives");
    assert_eq!((told.status, told.problem().0), (413, "too_large".to_owned()));
    let chunked = format!("{ACQUIRE}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    let endless = [chunked.as_bytes(), &b"400\r\n"[..], &[b' '; 0x400], b"\r\n"].concat();
    let mut connection = gateway.connect();
    connection.send(&endless);
    for _ in 0..20 {
        connection.send(&[&b"400\r\n"[..], &[b' '; 0x400], b"\r\n"].concat());
    }
    assert_eq!(connection.receive().expect("an answer").status, 413);
    gateway.assert_alive();
}

#[test]
fn cross_site_browser_requests_are_refused() {
    let server = Server::development();
    let gateway = Gateway::for_http(&server.grpc().to_string(), &[]);
    let acquire = "/v1/resources/mysql/acquire";
    let mut connection = gateway.connect();
    let told = connection.request_with("POST", acquire, "Origin: http://evil.example\r\n", &json!({}));
    assert_eq!((told.status, told.problem().0), (403, "foreign_page".to_owned()));
    // A form, which browsers send without a preflight.
    connection.send(format!("{ACQUIRE}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}").as_bytes());
    let form = connection.receive().unwrap();
    assert_eq!((form.status, form.problem().0), (415, "not_json".to_owned()));
    let mut connection = gateway.connect();
    let asks = "Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n";
    let preflight = connection.request_with("OPTIONS", acquire, asks, &Value::Null);
    assert_eq!(preflight.status, 405, "{preflight:?}");
    assert_eq!(preflight.header("access-control-allow-origin"), None);
}
