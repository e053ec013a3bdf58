//! Access control at an HTTP gateway: tokens, certificates and policies.

use leaseway_client::Files;
use serde_json::{Value, json};

use crate::harness::{
    authority::Authority,
    bearer::TokenFiles,
    config::ConfigFile,
    gateway::Gateway,
    http::Response,
    server::Server,
    tls::{self, Stranger},
};

const POLICY: &str = "\
access:
- name: web asks
  who: \"web-*\"
  may: [ask, read]
  resources: \"db/*\"
  clients: [\"{identity}\", \"{identity}/*\"]
  max_priority: 3
- name: operators
  who: ops
  may: [read, configure]
";

fn ask(gateway: &Gateway, token: Option<&str>, method: &str, path: &str, body: &Value) -> Response {
    let header = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    gateway.connect().request_with(method, path, &header, body)
}

#[test]
fn the_gateway_enforces_the_policy_and_denials_name_the_rule() {
    let server = Server::development();
    let tokens = TokenFiles::of(&["web-1", "ops"]);
    let policy = ConfigFile::new(POLICY);
    let gateway =
        Gateway::for_http(&server.grpc().to_string(), &["--config", policy.path(), "--tokens", &tokens.server()]);
    let [web, ops] = ["web-1", "ops"].map(|identity| tokens.token(identity));
    let [web, ops] = [Some(&*web), Some(&*ops)];
    let acquire = |token, resource: &str| {
        ask(&gateway, token, "POST", &format!("/v1/resources/{resource}/acquire"), &json!({ "wait": 5 }))
    };
    assert_eq!(acquire(web, "db%2Fmain").status, 200);
    let elsewhere = acquire(web, "mysql");
    assert_eq!((elsewhere.status, elsewhere.problem().0), (403, "denied".to_owned()));
    assert!(elsewhere.problem().1.contains("`web asks`, does not cover this resource"), "{elsewhere:?}");
    let unknown = acquire(Some("nonsense"), "db%2Fmain");
    assert_eq!((unknown.status, unknown.problem().0), (401, "unauthenticated".to_owned()));
    assert_eq!(unknown.header("www-authenticate"), Some("Bearer"));
    assert!(matches!(acquire(None, "db%2Fmain").status, 401 | 403));
    assert_eq!(acquire(ops, "db%2Fmain").status, 403, "`ops` may only read");

    let lease = |client: &str, priority: i64| {
        let body = json!({ "client": client, "resource": "db/main", "wants": 1, "priority": priority });
        ask(&gateway, web, "POST", "/v1/leases", &body)
    };
    let own = lease("web-1/a", 2);
    assert_eq!((own.status, own.json()["priority"].as_i64()), (200, Some(2)), "{own:?}");
    let eager = lease("web-1", 9);
    assert!(eager.status == 403 && eager.problem().1.contains("allows only lower priorities"), "{eager:?}");
    let other = lease("web-2", 0);
    assert_eq!(other.status, 403, "{other:?}");
    assert!(other.problem().1.contains("does not cover this client"), "{other:?}");

    let standing = "/v1/resources/db%2Fmain";
    assert_eq!(ask(&gateway, ops, "GET", standing, &Value::Null).status, 200);
    assert_eq!(ask(&gateway, ops, "GET", "/metrics", &Value::Null).status, 200);
    assert_eq!(ask(&gateway, web, "GET", "/metrics", &Value::Null).status, 403, "`web-1` may not read everything");
    for page in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(ask(&gateway, None, "GET", page, &Value::Null).status, 200, "{page}");
    }
}

#[test]
fn a_denied_caller_learns_nothing_of_the_price_table() {
    let server = Server::development();
    let tokens = TokenFiles::of(&["web-1"]);
    let policy = ConfigFile::new(POLICY);
    let directory = tempfile::tempdir().unwrap();
    let prices = directory.path().join("prices.json");
    std::fs::write(&prices, json!({ "secret-model": { "input": 1 } }).to_string()).unwrap();
    let flags = ["--config", policy.path(), "--tokens", &tokens.server(), "--prices", prices.to_str().unwrap()];
    let gateway = Gateway::for_http(&server.grpc().to_string(), &flags);
    let web = tokens.token("web-1");
    let told = |path: &str, usage: Value| ask(&gateway, Some(&web), "POST", path, &usage);
    let usage = json!({ "model": "secret-modell", "usage": { "input": 1 } });
    let limits = json!({ "limits": [{ "resource": "mysql", "model": "secret-modell", "usage": { "input": 1 } }] });
    for (path, usage) in [
        ("/v1/resources/mysql/spend", &usage),
        ("/v1/resources/mysql/charge", &usage),
        ("/v1/resources/mysql/reservations", &usage),
        ("/v1/acquire", &limits),
        ("/v1/reserve", &limits),
    ] {
        let denied = told(path, usage.clone());
        assert_eq!(denied.status, 403, "{path}: {denied:?}");
        assert!(!denied.problem().1.contains("secret-model"), "{denied:?}");
    }
    let nobody = "0".repeat(32);
    assert_eq!(told(&format!("/v1/reservations/{nobody}/settle"), usage.clone()).status, 404);
    assert!(told("/v1/resources/db%2Fmain/spend", usage).problem().1.contains("secret-model"));
}

#[test]
fn certificates_identify_http_callers_and_probes_need_none() {
    let authority = Authority::with_node_and_alice();
    let tls = tls::flags(&authority.issued("node"));
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    let server = Server::with_flags(&tls);
    let policy = ConfigFile::new(&POLICY.replace("\"web-*\"", "alice"));
    let gateway = Gateway::for_http(&server.grpc().to_string(), &[&tls[..], &["--config", policy.path()]].concat());
    let (trust, alice) = (authority.trust(), authority.issued("alice"));
    let acquire = |files: &Files, resource: &str| {
        let head = format!("POST /v1/resources/{resource}/acquire HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = Stranger::new(files, b"http/1.1").ask(gateway.http(), head.as_bytes()).expect("an answer");
        String::from_utf8(answer).unwrap()
    };
    assert!(acquire(&alice, "db%2Fmain").starts_with("HTTP/1.1 200"));
    let denied = acquire(&alice, "mysql");
    assert!(denied.starts_with("HTTP/1.1 403") && denied.contains("`web asks`"), "{denied}");
    assert!(acquire(&trust, "db%2Fmain").starts_with("HTTP/1.1 401"), "without a certificate");
    for page in ["/healthz", "/readyz"] {
        assert_eq!(
            Stranger::new(&trust, b"http/1.1").page(gateway.http(), page).expect("probes need no certificate").0,
            200
        );
    }
}
