//! The configuration of an Envoy, as in docs/guide/envoy.md.

use std::net::SocketAddr;

/// How an Envoy limits requests.
pub(crate) enum Limiting {
    /// By quotas of the first of these gateways that is alive.
    Quotas(Vec<SocketAddr>),
    /// By a local limit per second.
    Even(u32),
    /// By asking a service at this address for each request.
    Counted(SocketAddr),
}

const EXTENSION: &str = "type.googleapis.com/envoy.extensions";

impl Limiting {
    /// The filter, on one line, and the service that it uses.
    fn filter(&self, name: &str) -> (String, Vec<SocketAddr>) {
        match self {
            Limiting::Quotas(gateways) => {
                let bucket = "action: {name: quota, typed_config: {\"@type\": \
                              EXTENSION.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings, \
                              reporting_interval: 5s, bucket_id_builder: {bucket_id_builder: {route: {string_value: \
                              cart}}}, no_assignment_behavior: {fallback_rate_limit: {blanket_rule: DENY_ALL}}, \
                              deny_response_settings: {http_status: {code: 429}, http_body: {value: bm8=}}}}"
                    .replace("EXTENSION", EXTENSION);
                let filter = format!(
                    "{{name: envoy.filters.http.rate_limit_quota, typed_config: {{\"@type\": \
                     {EXTENSION}.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig, domain: shop, \
                     rlqs_server: {{envoy_grpc: {{cluster_name: limiter}}, initial_metadata: [{{key: \
                     leaseway-client, value: {name}}}]}}, bucket_matchers: {{on_no_match: {{{bucket}}}}}}}}}"
                );
                (filter, gateways.clone())
            }
            Limiting::Even(limit) => {
                let always = "{default_value: {numerator: 100, denominator: HUNDRED}}";
                let filter = format!(
                    "{{name: envoy.filters.http.local_ratelimit, typed_config: {{\"@type\": \
                     {EXTENSION}.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: even, token_bucket: \
                     {{max_tokens: {limit}, tokens_per_fill: {limit}, fill_interval: 1s}}, filter_enabled: {always}, \
                     filter_enforced: {always}}}}}"
                );
                (filter, Vec::new())
            }
            Limiting::Counted(service) => {
                let filter = format!(
                    "{{name: envoy.filters.http.ratelimit, typed_config: {{\"@type\": \
                     {EXTENSION}.filters.http.ratelimit.v3.RateLimit, domain: shop, timeout: 1s, failure_mode_deny: \
                     true, rate_limit_service: {{transport_api_version: V3, grpc_service: {{envoy_grpc: \
                     {{cluster_name: limiter}}}}}}}}}}"
                );
                (filter, vec![*service])
            }
        }
    }
}

pub(crate) fn of(name: &str, limiting: &Limiting, listener: SocketAddr, backend: SocketAddr) -> String {
    let (filter, services) = limiting.filter(name);
    let actions = match limiting {
        Limiting::Counted(_) => ", rate_limits: [{actions: [{generic_key: {descriptor_value: cart}}]}]",
        _ => "",
    };
    let backend = cluster("backend", &[backend]);
    let service = if services.is_empty() { String::new() } else { cluster("limiter", &services) };
    format!(
        "static_resources:
  listeners:
  - address: {}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": {EXTENSION}.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          http_filters:
          - {filter}
          - {{name: router, typed_config: {{\"@type\": {EXTENSION}.filters.http.router.v3.Router}}}}
          route_config:
            virtual_hosts:
            - name: all
              domains: [\"*\"]
              routes: [{{match: {{prefix: /}}, route: {{cluster: backend{actions}}}}}]
  clusters:
{backend}{service}",
        socket(listener)
    )
}

fn socket(address: SocketAddr) -> String {
    format!("{{socket_address: {{address: {}, port_value: {}}}}}", address.ip(), address.port())
}

/// The first address is preferred as long as it is healthy.
fn cluster(name: &str, addresses: &[SocketAddr]) -> String {
    let is_limiter = name == "limiter";
    let protocol = if is_limiter {
        "http2_protocol_options: {connection_keepalive: {interval: 5s, timeout: 2s}}"
    } else {
        "http_protocol_options: {}"
    };
    let checks = "health_checks: [{timeout: 1s, interval: 1s, no_traffic_interval: 1s, unhealthy_threshold: 1, \
                  healthy_threshold: 1, grpc_health_check: {}}]\n    ";
    let checks = if addresses.len() > 1 { checks } else { "" };
    let endpoints: Vec<String> = addresses
        .iter()
        .enumerate()
        .map(|(nth, address)| {
            format!("{{priority: {nth}, lb_endpoints: [{{endpoint: {{address: {}}}}}]}}", socket(*address))
        })
        .collect();
    format!(
        "  - name: {name}
    type: STATIC
    connect_timeout: 1s
    {checks}typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": {EXTENSION}.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{{protocol}}}
    load_assignment: {{cluster_name: {name}, endpoints: [{}]}}
",
        endpoints.join(", ")
    )
}
