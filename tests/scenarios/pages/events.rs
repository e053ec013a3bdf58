//! Thresholds of budgets: as server-sent events, and posted to a webhook.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use leaseway_client::Client;
use ring::hmac;
use serde_json::Value;

use super::status::Live;
use crate::harness::{
    config::ConfigFile,
    http,
    server::Server,
    wait::{PATIENCE, eventually, runtime},
};

const SECRET: &str = "a secret of 16 or more bytes";
const CONFIG: &str = "resources:
- identifier_glob: \"*\"
  capacity: 100
  algorithm:
    kind: BUDGET
    lease_length: 10
    refresh_interval: 1
    learning_mode_duration: 0
    parameters: {period: none, slice_share: 1, thresholds: \"60, 90\"}
";

/// A request to the webhook.
struct Posted {
    id: String,
    body: Value,
}

/// Reads a request, checks its signature, and answers it.
fn receive(listener: &TcpListener, status: u16) -> Posted {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{head}");
    let header = |name: &str| {
        let found =
            head.lines().find_map(|line| line.split_once(": ").filter(|(found, _)| found.eq_ignore_ascii_case(name)));
        found.unwrap_or_else(|| panic!("no {name} in {head}")).1.to_owned()
    };
    let mut body = vec![0; header("content-length").parse().unwrap()];
    lines.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let (id, time) = (header("webhook-id"), header("webhook-timestamp"));
    let signature = BASE64.decode(header("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    hmac::verify(&key, format!("{id}.{time}.{body}").as_bytes(), &signature).unwrap();
    let mut stream: TcpStream = lines.into_inner();
    write!(stream, "HTTP/1.1 {status} Word\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    Posted { id, body: serde_json::from_str(&body).unwrap() }
}

#[test]
fn a_threshold_is_streamed_and_posted_until_it_is_accepted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?a=b", listener.local_addr().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let config = ConfigFile::new(CONFIG);
    let server = Server::with_flags(&[
        "--config",
        config.path(),
        "--webhook",
        &url,
        "--webhook-secret-file",
        &secret.display().to_string(),
    ]);
    let mut all = Live::open(server.http(), "/api/v1/events?kind=budget");
    let mut others = Live::open(server.http(), "/api/v1/events?resource=other");
    let client = {
        let _inside = runtime().enter();
        Client::builder().endpoints([server.grpc().to_string()]).build().unwrap()
    };
    let [tokens, other] = ["tokens", "other"].map(|id| client.budget(id).unwrap());
    runtime().block_on(tokens.spend(70.0)).unwrap();
    let refused = receive(&listener, 500);
    let accepted = receive(&listener, 204);
    assert_eq!((&refused.id, &refused.body), (&accepted.id, &accepted.body));
    assert_eq!(accepted.body["type"], "budget.threshold_reached");
    let data = &accepted.body["data"];
    assert_eq!((&data["resource"], &data["percent"]), (&"tokens".into(), &60.into()));
    assert_eq!((data["spent"].as_f64(), data["amount"].as_f64()), (Some(70.0), Some(100.0)));
    let event = all.next();
    assert_eq!((&event["kind"], &event["resource"]), (&"budget".into(), &"tokens".into()), "{event}");
    runtime().block_on(other.spend(95.0)).unwrap();
    for percent in [60, 90] {
        assert_eq!(receive(&listener, 200).body["data"]["percent"], percent);
        let event = others.next();
        assert_eq!(event["resource"], "other");
        assert!(event["what"].as_str().unwrap().contains(&format!("percent {percent}")), "{event}");
    }
    runtime().block_on(client.close());
    eventually("the metrics tell", || {
        let metrics = http::get(server.http(), "/metrics").body;
        let has = |line: &str| metrics.lines().any(|found| found == line);
        (has("leaseway_webhook_events_total{outcome=\"delivered\"} 3")
            && has("leaseway_webhook_events_total{outcome=\"failed\"} 1")
            && has("leaseway_budget_thresholds_reached_total 3"))
        .then_some(())
    });
    // Open streams do not delay the shutdown.
    assert_eq!(server.stop().code, Some(0));
}
