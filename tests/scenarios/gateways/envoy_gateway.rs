//! Envoy Gateway, with a Leaseway gateway in place of envoyproxy/ratelimit and Redis.

use std::net::{SocketAddr, TcpStream};

use crate::harness::{
    backend::Backend,
    config::{ConfigFile, Template},
    envoy_gateway::{EnvoyGateway, HOSTS, LISTENER, RATE_LIMIT, RateLimit, source},
    http, machine,
    peers::Peers,
    wait::eventually,
};

/// The deployment that Envoy Gateway makes for the rate limit service.
const DEPLOYMENT: &str = "gateway/internal/infrastructure/kubernetes/ratelimit/testdata/deployments/default.yaml";

/// Envoy Gateway's example for this mode, with the address of the backend, and a policy for its route.
fn resources(backend: SocketAddr, rules: &str, more: &str) -> String {
    let example = source("gateway/examples/standalone/quickstart.yaml");
    let gateway = "gatewayClassName: eg";
    let class = "controllerName: gateway.envoyproxy.io/gatewayclass-controller";
    let parameters = "parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: host, namespace: default}";
    assert!(example.contains("port: 3000") && example.contains(gateway) && example.contains(class), "{example}");
    let example = example.replace("address: 0.0.0.0", "address: 127.0.0.1");
    let example = example.replace("port: 3000", &format!("port: {}", backend.port()));
    let example = example.replace(class, &format!("{class}\n  {parameters}"));
    format!(
        "{example}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {{name: limits}}
spec:
  targetRefs: [{{group: gateway.networking.k8s.io, kind: HTTPRoute, name: backend}}]
  rateLimit:
    type: Global
    global:
      rules:
{rules}
{more}"
    )
}

/// A cluster, and a gateway that takes the place of envoyproxy/ratelimit in its deployment.
fn replaced() -> (Peers, RateLimit) {
    let peers = Peers::start(1, ConfigFile::of(&[Template::fair("*", 100.0)]), &[]);
    let (server, admin) = (peers.grpc(0).to_string(), peers.admin(0).to_string());
    let own = [("LEASEWAY_SERVER", &*server), ("LEASEWAY_DECLARE_ADMIN", &admin), ("LEASEWAY_FIRST_WAIT_MS", "15000")];
    let gateway = RateLimit::start(&source(DEPLOYMENT), &own);
    (peers, gateway)
}

fn ask(headers: &str) -> http::Response {
    http::send(LISTENER, "GET", "/", &format!("Host: www.example.com\r\n{headers}"), "")
}

fn count(headers: &str, requests: usize) -> usize {
    (0..requests).filter(|_| ask(headers).status == 200).count()
}

/// Waits until the gateway has rules with this text, and the cluster their limits. `version` counts the rules so far.
fn await_rules(text: &str, version: u32) {
    eventually("the changed rules are in force", || RateLimit::page("/rlconfig").contains(text).then_some(()));
    let accepted = format!("\nleaseway_rls_declarations_total{{outcome=\"accepted\"}} {version}\n");
    eventually("the cluster has their limits", || RateLimit::page("/metrics").contains(&accepted).then_some(()));
}

/// A limit for one user, and one for each user.
fn per_user(one: u32, each: u32) -> String {
    format!(
        "      - clientSelectors: [{{headers: [{{name: x-user-id, value: one}}]}}]
        limit: {{requests: {one}, unit: Hour}}
      - clientSelectors: [{{headers: [{{name: x-user-id, type: Distinct}}]}}]
        limit: {{requests: {each}, unit: Month}}"
    )
}

/// A limit for each user, and one for all requests together.
const NESTED: &str = "      - clientSelectors: [{headers: [{name: x-user-id, type: Distinct}]}]
        limit: {requests: 2, unit: Day}
      - limit: {requests: 6, unit: Day}";

/// A limit for each tenant that comes from metadata of the request.
const FROM_METADATA: &str = "      - clientSelectors: [{headers: [{name: x-tenant, type: Distinct}]}]
        limit: {requests: 3, unit: Hour, fromMetadata: {namespace: tenants, key: limit}}";

/// Sets that metadata, as an authentication service would.
const TENANTS: &str = "---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
metadata: {name: tenants}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: backend}]
  lua:
  - type: Inline
    inline: |
      function envoy_on_request(request)
        local limit = request:headers():get(\"x-limit\")
        if limit then
          local value = {requests_per_unit = tonumber(limit), unit = \"HOUR\"}
          request:streamInfo():dynamicMetadata():set(\"tenants\", \"limit\", value)
        end
      end
";

const TEST: &str = "scenarios::gateways::envoy_gateway::envoy_gateway_limits_requests_without_ratelimit_and_redis";

#[test]
#[cfg_attr(not(all(control_planes, envoy, namespaces)), ignore = "needs LEASEWAY_TEST_CONTROL_PLANES")]
fn envoy_gateway_limits_requests_without_ratelimit_and_redis() {
    if !machine::is_own(TEST, &[HOSTS], &[RATE_LIMIT]) {
        return;
    }
    let backend = Backend::start();
    let envoy_gateway = EnvoyGateway::start(&resources(backend.address, &per_user(3, 5), ""));
    let (_peers, gateway) = replaced();
    eventually("the deployment's probe is answered", || RateLimit::probe().filter(|page| page.status == 200));
    await_rules("requests_per_unit=5", 1);
    eventually("Envoy serves", || TcpStream::connect(LISTENER).ok());
    let first =
        eventually("Envoy has the route", || Some(ask("x-user-id: one\r\n")).filter(|first| first.status == 200));
    assert_eq!(first.header("x-ratelimit-limit"), Some("3, 3;w=3600, 5;w=2592000"), "{first:?}");
    assert_eq!((count("x-user-id: one\r\n", 8), count("x-user-id: bob\r\n", 9)), (2, 5));
    assert_eq!((backend.count("x-user-id: one"), backend.count("x-user-id: bob")), (3, 5));

    envoy_gateway.apply(&resources(backend.address, &per_user(3, 7), ""));
    await_rules("requests_per_unit=7", 2);
    assert_eq!((count("x-user-id: eve\r\n", 9), backend.count("x-user-id: eve")), (7, 7));

    // ratelimit#185 and #435: what one limit refuses takes nothing of the others.
    envoy_gateway.apply(&resources(backend.address, NESTED, ""));
    await_rules("requests_per_unit=6", 3);
    eventually("Envoy has the new descriptors", || ask("").header("x-ratelimit-limit").map(|_| ()));
    assert_eq!(count("x-user-id: two\r\n", 9), 2);
    assert_eq!(count("", 9), 3, "of 6 requests, one was to see the new descriptors, and two were of the user");

    // gateway#9212: the limit of a tenant comes with its requests.
    envoy_gateway.apply(&resources(backend.address, FROM_METADATA, TENANTS));
    eventually("the limits of tenants are in force", || {
        let limited = ask("x-tenant: probe\r\nx-limit: 1000\r\n");
        limited.header("x-ratelimit-limit").filter(|limit| limit.starts_with("1000")).map(|_| ())
    });
    for (tenant, limit, passes) in [("a", "x-limit: 2\r\n", 2), ("b", "x-limit: 4\r\n", 4), ("c", "", 3)] {
        assert_eq!(count(&format!("x-tenant: {tenant}\r\n{limit}"), 6), passes, "tenant {tenant}: {}", gateway.log());
        assert_eq!(backend.count(&format!("x-tenant: {tenant}")), passes);
    }
}
