//! A gateway in the process of a server.

use serde_json::{Value, json};

use crate::harness::{
    bearer::TokenFiles,
    config::{ConfigFile, Template},
    control_plane::{ControlPlane, Service},
    http::{self, Connection},
    peers::channel,
    rls::{Answered as _, RlsCaller, descriptor, request},
    server::{ANYWHERE, Server},
    wait::eventually,
};

#[test]
fn an_in_process_gateway_serves_http_and_rls_with_its_own_leases() {
    let templates = ConfigFile::of(&[Template::fair("*", 100.0)]);
    let rules = ConfigFile::new(
        "domain: shop\ndescriptors:\n- key: user\n  rate_limit: {unit: second, requests_per_unit: 100}\n",
    );
    let flags = ["--config", templates.path(), "--gateway-http", ANYWHERE, "--gateway-rls", ANYWHERE];
    let patient = ["--ratelimit-config", rules.path(), "--first-wait-ms", "20000", "--id", "a"];
    let server = Server::with_flags(&[&flags[..], &patient[..]].concat());
    let acquired =
        Connection::open(server.gateway("HTTP")).request("POST", "/v1/resources/mysql/acquire", &json!({ "wait": 5 }));
    assert_eq!(acquired.status, 200, "{acquired:?}");
    let answer = RlsCaller::on(channel(server.gateway("RLS"))).ask(request("shop", &[descriptor(&[("user", "ann")])]));
    assert!(answer.passes(), "{answer:?}");
    let status = server.status(&["mysql"]);
    assert_eq!(status["resources"][0]["holder"][0]["id"], "a:gateway", "{status}");
    let metrics = Connection::open(server.gateway("HTTP")).request("GET", "/metrics", &Value::Null);
    assert!(metrics.body.contains("leaseway_gateway_resources_opened_total 2"), "{}", metrics.body);
}

#[test]
fn a_server_is_not_ready_before_its_gateway_has_rules() {
    let control_plane = ControlPlane::start(Service::Aggregated);
    let address = control_plane.address.to_string();
    let server = Server::with_flags(&["--gateway-rls", ANYWHERE, "--rls-xds", &address]);
    let early = http::get(server.http(), "/readyz");
    assert_eq!(
        (early.status, &*early.body),
        (503, "not ready: waiting for the first rules from the xDS control plane\n")
    );
    control_plane.set("1", &[]);
    eventually("the server is ready", || (http::get(server.http(), "/readyz").status == 200).then_some(()));
}

#[test]
fn the_servers_policy_applies_to_callers_and_not_to_its_gateway() {
    let config = ConfigFile::new(
        "\
resources:
- identifier_glob: \"*\"
  capacity: 100
  algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5, learning_mode_duration: 0}
access:
- {who: web, may: [ask, read], resources: \"db/*\"}
",
    );
    let tokens = TokenFiles::of(&["web"]);
    let flags = ["--config", config.path(), "--tokens", &tokens.server(), "--gateway-http", ANYWHERE];
    let server = Server::with_flags(&flags);
    let bearer = format!("Authorization: Bearer {}\r\n", tokens.token("web"));
    let acquire = |header: &str, resource: &str| {
        let path = format!("/v1/resources/{resource}/acquire");
        Connection::open(server.gateway("HTTP")).request_with("POST", &path, header, &json!({ "wait": 5 })).status
    };
    assert_eq!(acquire(&bearer, "db%2Fmain"), 200);
    assert_eq!(acquire(&bearer, "mysql"), 403);
    assert_eq!(acquire("", "db%2Fmain"), 403);
}
