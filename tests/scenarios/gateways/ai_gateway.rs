//! Envoy AI Gateway, whose tokens Leaseway limits in place of envoyproxy/ratelimit and Redis.

use std::net::TcpStream;

use crate::harness::{
    backend::Backend,
    config::{ConfigFile, Template},
    envoy_gateway::{AiGateway, HOSTS, LISTENER, RATE_LIMIT, RateLimit, source},
    http,
    machine::{self, Redirect},
    peers::Peers,
    wait::eventually,
};

/// The names of a backend, of the rate limit service for quotas, and of the controller, in AI Gateway's examples.
const NAMES: [&str; 3] = [
    HOSTS,
    "127.0.0.1 envoy-ai-gateway-token-ratelimit-tesetupstream.default.svc.cluster.local \
     envoy-ai-gateway-quota-ratelimit-testupstream.default.svc.cluster.local",
    "127.0.0.10 envoy-ai-gateway-ratelimit.envoy-gateway-system ai-gateway-controller.envoy-ai-gateway-system.svc.cluster.local",
];

/// In this process of AI Gateway an Envoy Gateway has the same ports.
const REDIRECTS: [Redirect; 3] = [RATE_LIMIT, ("127.0.0.10", 8081, 8082), ("127.0.0.10", 18002, 18003)];

/// The deployment that Envoy Gateway makes for the rate limit service.
const DEPLOYMENT: &str = "gateway/internal/infrastructure/kubernetes/ratelimit/testdata/deployments/default.yaml";

/// A model that says which tokens it has used: those in the headers `input` and `output` of the request.
fn model() -> Backend {
    Backend::answering("127.0.0.1:80", |head| {
        let tokens = |name: &str| {
            let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.map_or(0, |value| value.trim().parse::<u32>().unwrap())
        };
        let (input, output) = (tokens("input"), tokens("output"));
        let usage =
            serde_json::json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output });
        let message = serde_json::json!({ "role": "assistant", "content": "hello" });
        let choice = serde_json::json!({ "index": 0, "finish_reason": "stop", "message": message });
        let answer = serde_json::json!({ "object": "chat.completion", "choices": [choice], "usage": usage });
        ("Content-Type: application/json\r\n".to_owned(), answer.to_string())
    })
}

fn ask(model: &str, headers: &str) -> http::Response {
    let body = serde_json::json!({ "model": model, "messages": [{ "role": "user", "content": "hello" }] });
    let headers = format!("Host: localhost\r\nContent-Type: application/json\r\n{headers}");
    http::send(LISTENER, "POST", "/v1/chat/completions", &headers, &body.to_string())
}

/// The resources of an example, with the Envoy of this machine, and its QuotaPolicies.
fn example(path: &str) -> (String, String) {
    let text = source(path);
    let is = |document: &str, kinds: &[&str]| kinds.iter().any(|kind| document.contains(&format!("\nkind: {kind}\n")));
    let documents = || text.split("\n---\n");
    let quotas: Vec<&str> = documents().filter(|document| is(document, &["QuotaPolicy"])).collect();
    let others = ["QuotaPolicy", "EnvoyProxy", "Deployment", "Service"];
    let resources = documents().filter(|document| !is(document, &others)).map(|document| {
        let infrastructure = document.find("  infrastructure:\n").filter(|_| is(document, &["Gateway"]));
        let own = "  infrastructure: {parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: host}}";
        infrastructure.map_or(document.to_owned(), |at| format!("{}{own}", &document[..at]))
    });
    // The backend has the port of the listener.
    let resources = resources.collect::<Vec<_>>().join("\n---\n");
    (resources.replace("HTTP\n      port: 80\n", "HTTP\n      port: 8888\n"), quotas.join("\n---\n"))
}

/// Leaves out `cost.request.number`: the client that stands for Kubernetes' API in Envoy Gateway's mode without it
/// panics at numbers of its type. A request then counts as one, besides the cost of its response.
fn without_request_costs(resources: &str) -> String {
    let mut parts = resources.split("            request:\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, part| whole + part.split_once("number: 0\n").expect("a number").1)
}

/// A gateway with the variables of this deployment.
fn gateway(peers: &Peers, deployment: &str, more: &[(&str, &str)]) -> RateLimit {
    let (server, admin) = (peers.grpc(0).to_string(), peers.admin(0).to_string());
    let own = [
        ("LEASEWAY_SERVER", &*server),
        ("LEASEWAY_DECLARE_ADMIN", &admin),
        ("LEASEWAY_FIRST_WAIT_MS", "15000"),
        ("LEASEWAY_CHARGE", "*"),
    ];
    RateLimit::start(deployment, &[&own, more].concat())
}

/// The number of requests to the rate limit service so far.
fn asked() -> u64 {
    let page = RateLimit::page("/metrics");
    let requests = page.lines().filter(|line| line.starts_with("leaseway_rls_requests_total{"));
    requests.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Asks until a request is refused, and returns how many passed. Each request waits until the cost of the one before is
/// known.
fn passes(model: &str, headers: &str) -> usize {
    for passed in 0..20 {
        let before = asked();
        let answer = ask(model, headers);
        if answer.status == 429 {
            return passed;
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        eventually("the cost is reported", || (asked() >= before + 2).then_some(()));
    }
    panic!("no request was refused")
}

const TOKENS: &str = "scenarios::gateways::ai_gateway::ai_gateway_limits_tokens_of_tenants_without_ratelimit_and_redis";

#[test]
#[cfg_attr(not(all(control_planes, envoy, namespaces)), ignore = "needs LEASEWAY_TEST_CONTROL_PLANES")]
fn ai_gateway_limits_tokens_of_tenants_without_ratelimit_and_redis() {
    if !machine::is_own(TOKENS, &NAMES, &REDIRECTS) {
        return;
    }
    let backend = model();
    let (resources, _) = example("ai-gateway/examples/token_ratelimit/token_ratelimit.yaml");
    // ai-gateway#2469: a month instead of an hour.
    let resources = resources.replace("unit: Hour", "unit: Month");
    let _ai_gateway = AiGateway::start(&without_request_costs(&resources), "");
    let peers = Peers::start(1, ConfigFile::of(&[Template::fair("*", 100.0)]), &[]);
    let gateway = gateway(&peers, &source(DEPLOYMENT), &[]);
    eventually("the gateway has rules", || RateLimit::page("/rlconfig").contains("unit=MONTH").then_some(()));
    eventually("Envoy serves", || TcpStream::connect(LISTENER).ok());
    let model = "rate-limit-funky-model";
    eventually("Envoy has the route", || (ask(model, "x-tenant-id: first\r\n").status == 200).then_some(()));
    // 10 tokens of input, 100 of output, 1,000 of both, each request one more.
    assert_eq!(passes(model, "x-tenant-id: a\r\ninput: 20\r\noutput: 1\r\n"), 1, "{}", gateway.log());
    assert_eq!(passes(model, "x-tenant-id: b\r\noutput: 30\r\n"), 4);
    assert_eq!(passes(model, "x-tenant-id: c\r\ninput: 2\r\noutput: 1\r\n"), 4);
    // The cost expression of the example: three tokens of input cost 100,000,000.
    assert_eq!(passes(model, "x-tenant-id: d\r\ninput: 3\r\n"), 1);
    assert_eq!(["a", "b", "c", "d"].map(|tenant| backend.count(&format!("x-tenant-id: {tenant}"))), [1, 4, 4, 1]);
}

/// Starts AI Gateway's example of a QuotaPolicy, with `change` made to the policy.
fn quotas(change: impl Fn(&str) -> String) -> (Backend, AiGateway, Peers, RateLimit) {
    let path = "ai-gateway/tests/e2e/testdata/backend_quota_ratelimit.yaml";
    let backend = model();
    let (resources, quotas) = example(path);
    let ai_gateway = AiGateway::start(&resources, &change(&quotas));
    let peers = Peers::start(1, ConfigFile::of(&[Template::fair("*", 100.0)]), &[]);
    let gateway = gateway(&peers, &source(path), &[("USE_PROMETHEUS", "true")]);
    eventually("the gateway has rules", || RateLimit::page("/rlconfig").contains("quota-test-model").then_some(()));
    eventually("Envoy serves", || TcpStream::connect(LISTENER).ok());
    eventually("Envoy has the route", || (ask("quota-test-model", "").status == 200).then_some(()));
    (backend, ai_gateway, peers, gateway)
}

const QUOTA: &str = "scenarios::gateways::ai_gateway::ai_gateway_enforces_a_quota_without_ratelimit_and_redis";

#[test]
#[cfg_attr(not(all(control_planes, envoy, namespaces)), ignore = "needs LEASEWAY_TEST_CONTROL_PLANES")]
fn ai_gateway_enforces_a_quota_without_ratelimit_and_redis() {
    if !machine::is_own(QUOTA, &NAMES, &REDIRECTS) {
        return;
    }
    // More than the 10 tokens of the example, because requests that fail until Envoy is ready count, too.
    let (backend, _ai_gateway, _peers, _gateway) = quotas(|policy| policy.replace("limit: 10\n", "limit: 10000\n"));
    assert_eq!(passes("quota-test-model", "input: 15000\r\noutput: 5000\r\n"), 1);
    assert_eq!(backend.count("input: 15000"), 1);
}

const TENANTS: &str =
    "scenarios::gateways::ai_gateway::ai_gateway_enforces_quotas_of_tenants_without_ratelimit_and_redis";

/// ai-gateway#2460: quotas of tenants that are counted and never enforced.
#[test]
#[cfg_attr(not(all(control_planes, envoy, namespaces)), ignore = "needs LEASEWAY_TEST_CONTROL_PLANES")]
fn ai_gateway_enforces_quotas_of_tenants_without_ratelimit_and_redis() {
    if !machine::is_own(TENANTS, &NAMES, &REDIRECTS) {
        return;
    }
    let (backend, _ai_gateway, _peers, _gateway) = quotas(|policy| {
        let rule = |tenant: &str, limit: u32| {
            format!(
                "        - clientSelectors: [{{headers: [{{name: x-tenant-id, type: Exact, value: {tenant}}}]}}]
          quota: {{limit: {limit}, duration: 1h}}
"
            )
        };
        let before = policy.split_once("        defaultBucket:\n").expect("the policy has a default").0;
        format!("{before}        bucketRules:\n{}{}", rule("a", 10), rule("b", 50))
    });
    let tokens = "input: 15\r\noutput: 5\r\n";
    for (tenant, passing) in [("a", 1), ("b", 3)] {
        assert_eq!(passes("quota-test-model", &format!("x-tenant-id: {tenant}\r\n{tokens}")), passing);
        assert_eq!(backend.count(&format!("x-tenant-id: {tenant}")), passing);
    }
}
