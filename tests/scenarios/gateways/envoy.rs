//! Real Envoys in front of a backend that counts requests, with a gateway for RLS or RLQS.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::harness::{
    backend::Backend,
    config::{ConfigFile, Template},
    envoy::{Envoy, cluster, cluster_of, socket},
    gateway::Gateway,
    http,
    peers::Peers,
    server::Server,
    wait::eventually,
};

/// A listener with this filter, and a route to the backend with these rate limits.
fn config(listener: SocketAddr, filter: &str, rate_limits: &str, clusters: &str) -> String {
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
{filter}
          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
          route_config:
            virtual_hosts:
            - name: all
              domains: [\"*\"]
              routes:
              - match: {{prefix: /}}
                route: {{cluster: backend{rate_limits}}}
  clusters:
{clusters}",
        socket(listener)
    )
}

/// Uses the header `user` of a request as its descriptor.
const RATE_LIMIT_FILTER: &str = "          - name: envoy.filters.http.ratelimit
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: shop
              timeout: 20s
              failure_mode_deny: true
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {envoy_grpc: {cluster_name: gateway}}";

const USER_HEADER: &str = ", rate_limits: [{actions: [{request_headers: {header_name: user, descriptor_key: user}}]}]";

#[test]
#[cfg_attr(not(envoy), ignore = "needs LEASEWAY_TEST_ENVOY")]
fn envoy_enforces_the_gateways_decisions_and_sends_limit_headers() {
    // A limit per day, so that no permits are refilled during the test.
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", 5.0 / 86_400.0)]));
    let rules =
        ConfigFile::new("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5}}]\n");
    let gateway = Gateway::for_requests(&[server.grpc().to_string()], &rules, &[]);
    let backend = Backend::start();
    let clusters = cluster("backend", backend.address, false) + &cluster("gateway", gateway.rls(), true);
    let envoy = Envoy::start(|listener| config(listener, RATE_LIMIT_FILTER, USER_HEADER, &clusters));
    eventually("Envoy serves requests", || (http::get(envoy.listener, "/").status == 200).then_some(()));
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
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (429, Some("0")), "{answer:?}");
    }
    assert_eq!(ask("bob").status, 200);
    assert_eq!(http::get(envoy.listener, "/").status, 200, "without a descriptor there is no limit");
}

/// Takes the real cost of a request from the header of its response.
const COST_FILTER: &str = "          - name: envoy.filters.http.header_to_metadata
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
              response_rules:
              - header: x-cost
                on_header_present: {metadata_namespace: cost, key: hits, type: NUMBER}
";

/// Holds four hits for each request, and settles them when it has ended. Envoy reads `hits_addend` here only.
const SETTLED: &str = "
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits:
                    - actions: [{request_headers: {header_name: user, descriptor_key: user}}]
                      hits_addend: {number: 4}
                    - actions:
                      - request_headers: {header_name: user, descriptor_key: user}
                      - metadata:
                          descriptor_key: leaseway.settle
                          metadata_key: {key: envoy.filters.http.ratelimit, path: [{key: held}, {key: \"0\"}]}
                          source: DYNAMIC
                      hits_addend: {format: \"%DYNAMIC_METADATA(cost:hits)%\"}
                      apply_on_stream_done: true";

#[test]
#[cfg_attr(not(envoy), ignore = "needs LEASEWAY_TEST_ENVOY")]
fn envoy_holds_an_estimate_and_settles_the_real_cost() {
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", 5.0 / 86_400.0)]));
    let rules =
        ConfigFile::new("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5}}]\n");
    let gateway = Gateway::for_requests(&[server.grpc().to_string()], &rules, &["--rls-dynamic-metadata"]);
    let backend = Backend::start();
    let clusters = cluster("backend", backend.address, false) + &cluster("gateway", gateway.rls(), true);
    let filters = format!("{COST_FILTER}{RATE_LIMIT_FILTER}");
    let route = "route: {cluster: backend}";
    let settled = format!("{route}{SETTLED}");
    let envoy = Envoy::start(|listener| config(listener, &filters, "", &clusters).replace(route, &settled));
    eventually("Envoy serves requests", || (http::get(envoy.listener, "/").status == 200).then_some(()));
    let ask = |user: &str| http::get_with(envoy.listener, "/", &format!("user: {user}\r\n")).status;
    let left = |user: &str| {
        let page: serde_json::Value = serde_json::from_str(&gateway.page("/debug/resources")).unwrap();
        let all = page["resources"].as_array().unwrap();
        all.iter().find(|one| one["resource"] == format!("shop/user={user}")).map(|one| one["remaining"].clone())
    };
    assert_eq!(ask("ann"), 200);
    eventually("four are held, and two were used", || (left("ann") == Some(3.0.into())).then_some(()));
    assert_eq!([ask("ann"), ask("ann")], [429, 429], "too few are left for another estimate");
    assert_eq!(ask("bob"), 200);
    eventually("the next request is settled", || (left("bob") == Some(3.0.into())).then_some(()));
    assert_eq!(left("ann"), Some(3.0.into()), "refused requests settle nothing");
}

/// Sends requests to an Envoy at a rate until it is dropped. A slow machine may send fewer.
struct Driver {
    rate: Arc<AtomicU64>,
    passed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Driver {
    fn start(envoy: SocketAddr, rate: u64) -> Driver {
        let driver = Driver { rate: Arc::new(rate.into()), passed: Arc::default(), stop: Arc::default() };
        let (rate, passed, stop) = (Arc::clone(&driver.rate), Arc::clone(&driver.passed), Arc::clone(&driver.stop));
        thread::spawn(move || {
            let mut stream = TcpStream::connect(envoy).unwrap();
            let mut buffer = [0; 4096];
            while !stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                stream.write_all(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n").unwrap();
                let read = stream.read(&mut buffer).unwrap();
                passed.fetch_add(buffer[..read].starts_with(b"HTTP/1.1 200").into(), Ordering::Relaxed);
                let pause = Duration::from_secs(1) / rate.load(Ordering::Relaxed) as u32;
                thread::sleep(pause.saturating_sub(begun.elapsed()));
            }
        });
        driver
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// An Envoy configured as in docs/guide/envoy.md.
fn quota_envoy(name: &str, backend: &Backend, gateways: &[&Gateway]) -> Envoy {
    let gateways: Vec<SocketAddr> = gateways.iter().map(|gateway| gateway.rlqs()).collect();
    let clusters = cluster("backend", backend.address, false) + &cluster_of("leaseway", &gateways, true);
    let filter = format!(
        "          - name: envoy.filters.http.rate_limit_quota
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig
              domain: shop
              rlqs_server:
                envoy_grpc: {{cluster_name: leaseway}}
                initial_metadata: [{{key: leaseway-client, value: {name}}}]
              bucket_matchers:
                on_no_match:
                  action:
                    name: quota
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings
                      reporting_interval: 5s
                      bucket_id_builder: {{bucket_id_builder: {{route: {{string_value: cart}}}}}}
                      no_assignment_behavior: {{fallback_rate_limit: {{blanket_rule: DENY_ALL}}}}
                      deny_response_settings: {{http_status: {{code: 429}}, http_body: {{value: \"\"}}}}"
    );
    Envoy::start(|listener| config(listener, &filter, "", &clusters))
}

/// Waits until this many more requests have passed each Envoy.
fn pass(what: &str, drivers: &[Driver], more: u64) {
    let before: Vec<u64> = drivers.iter().map(Driver::passed).collect();
    eventually(what, || {
        drivers.iter().zip(&before).all(|(driver, before)| driver.passed() >= before + more).then_some(())
    });
}

/// Leases outlast the test, so that a killed gateway's leases cannot have expired.
#[test]
#[cfg_attr(not(envoy), ignore = "needs LEASEWAY_TEST_ENVOY")]
fn three_envoys_share_a_capacity_while_the_master_and_a_gateway_are_killed() {
    const CAPACITY: f64 = 90.0;
    let template = Template { refresh: 2, ..Template::fair("shop/*", CAPACITY) };
    let mut peers = Peers::start(3, ConfigFile::of(&[template]), &[]);
    let [first, second] = ["gateway-1", "gateway-2"]
        .map(|id| Gateway::for_quotas(&peers.endpoints(), &["--assignment-secs", "4", "--id", id]));
    let backend = Backend::start();
    let envoys = ["envoy-1", "envoy-2", "envoy-3"].map(|name| quota_envoy(name, &backend, &[&first, &second]));
    let offered = envoys.iter().zip([200, 50, 10]);
    let drivers: Vec<Driver> = offered.map(|(envoy, rate)| Driver::start(envoy.listener, rate)).collect();
    pass("each Envoy has a share", &drivers, 30);
    eventually("the wants follow the offered load", || {
        let status = peers.status(peers.master(), &["shop/route=cart"]);
        (status["resources"][0]["wants"].as_f64()? > CAPACITY).then_some(())
    });
    drivers[2].rate.store(200, Ordering::Relaxed);
    drivers[0].rate.store(10, Ordering::Relaxed);
    pass("capacity follows the load", &drivers, 60);
    peers.kill(peers.master());
    pass("leases stay usable without a master", &drivers, 10);
    peers.master();
    pass("the next master renews the leases", &drivers, 60);
    first.kill();
    pass("the other gateway takes over", &drivers, 100);
    drop(drivers);
    let excess = backend.excess(CAPACITY);
    // All token buckets together hold one second of the capacity.
    assert!(excess <= CAPACITY, "{excess} requests above {CAPACITY} per second arrived");
}
