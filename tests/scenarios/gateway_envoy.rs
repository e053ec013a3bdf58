//! A real Envoy with a gateway.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
};

use crate::harness::{
    config::{ConfigFile, Template},
    envoy::{self, Envoy, cluster, socket},
    gateway::Gateway,
    http,
    server::Server,
    wait::eventually,
};

/// A backend that says "hello" to everything, for as long as the test runs.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            std::thread::spawn(move || {
                let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    seen.extend_from_slice(&buffer[..read]);
                    if seen.ends_with(b"\r\n\r\n") {
                        seen.clear();
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";
                        if stream.write_all(answer).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

/// The header `user` of a request is its descriptor.
fn config(listener: SocketAddr, backend: SocketAddr, gateway: SocketAddr) -> String {
    let (backend, gateway) = (cluster("backend", backend, false), cluster("gateway", gateway, true));
    format!(
        "static_resources:
  listeners:
  - address: {}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: shop
              timeout: 20s
              failure_mode_deny: true
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {{envoy_grpc: {{cluster_name: gateway}}}}
          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
          route_config:
            virtual_hosts:
            - name: all
              domains: [\"*\"]
              routes:
              - match: {{prefix: /}}
                route:
                  cluster: backend
                  rate_limits:
                  - actions: [{{request_headers: {{header_name: user, descriptor_key: user}}}}]
  clusters:
{backend}{gateway}",
        socket(listener)
    )
}

#[test]
fn envoy_lets_pass_what_the_gateway_does_and_tells_callers_the_limit() {
    let Some(binary) = envoy::binary() else { return };
    // A day is long: within a test nothing comes back.
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", 5.0 / 86_400.0)]));
    let rules =
        ConfigFile::new("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5}}]\n");
    let gateway = Gateway::for_requests(&[server.grpc().to_string()], &rules, &[]);
    let backend = backend();
    let envoy = Envoy::start(&binary, |listener| config(listener, backend, gateway.rls()));
    eventually("Envoy serves", || (http::get(envoy.listener, "/").status == 200).then_some(()));
    let ask = |user: &str| http::get_with(envoy.listener, "/", &format!("user: {user}\r\n"));
    for left in (0..5).rev() {
        let answer = ask("ann");
        assert_eq!((answer.status, answer.body.as_str()), (200, "hello\n"), "{answer:?}");
        assert_eq!(answer.header("x-ratelimit-limit"), Some("5, 5;w=86400"), "{answer:?}");
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left.to_string().as_str()), "{answer:?}");
        let reset: u64 = answer.header("x-ratelimit-reset").and_then(|reset| reset.parse().ok()).unwrap();
        assert!((1..=86_400).contains(&reset), "{answer:?}");
    }
    for _ in 0..3 {
        let answer = ask("ann");
        assert_eq!(answer.status, 429, "{answer:?}");
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"), "{answer:?}");
    }
    assert_eq!(ask("bob").status, 200);
    assert_eq!(http::get(envoy.listener, "/").status, 200, "without a descriptor there is no limit");
}
