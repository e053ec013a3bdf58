//! A gateway that decides about each request (RLS), like envoyproxy/ratelimit.

use leaseway_proto::envoy::ratelimit::{
    RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride, rate_limit_response::rate_limit::Unit,
};
use tonic::Code;

use crate::harness::{
    config::{ConfigFile, Template},
    gateway::Gateway,
    http,
    rls::{Answered as _, Entries, descriptor, request},
    server::{ANYWHERE, Server},
    wait::{block_on, eventually},
};

/// Five permits per day, as a rate per second.
const FIVE: f64 = 5.0 / 86_400.0;

fn server(capacity: f64) -> Server {
    Server::with_config(&ConfigFile::of(&[Template::fair("*", capacity)]))
}

fn gateway(server: &Server, rules: &ConfigFile, flags: &[&str]) -> Gateway {
    Gateway::for_requests(&[server.grpc().to_string()], rules, flags)
}

/// Limits per day, so that no permits are refilled during a test.
fn rules() -> ConfigFile {
    ConfigFile::new(
        "domain: shop
descriptors:
- key: user
  rate_limit: {unit: day, requests_per_unit: 5}
- key: user
  value: root
  rate_limit: {unlimited: true}
- key: user
  value: banned
  rate_limit: {unit: day, requests_per_unit: 0}
- key: shy
  rate_limit: {unit: day, requests_per_unit: 5}
  shadow_mode: true
- key: group
  value: g*
  rate_limit: {unit: day, requests_per_unit: 5, name: group}
  share_threshold: true
- key: vip
  rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: group}]}
",
    )
}

const ANN: Entries<'static> = &[("user", "ann")];

#[test]
fn each_descriptor_value_has_its_own_limit_and_status_fields() {
    let server = server(FIVE);
    let gateway = gateway(&server, &rules(), &["--id", "the-gateway"]);
    let envoy = gateway.caller();
    let first = envoy.ask(request("shop", &[descriptor(ANN)]));
    let [status] = &first.statuses[..] else { panic!("{first:?}") };
    let limit = status.current_limit.as_ref().expect("a limit applies");
    assert_eq!((limit.requests_per_unit, limit.unit(), status.limit_remaining), (5, Unit::Day, 4));
    let reset = status.duration_until_reset.as_ref().expect("the status has the time of the reset").seconds;
    assert!((86_000..=86_400).contains(&reset), "the permit comes back after a day: {reset}");
    assert_eq!(envoy.count("shop", ANN, 10), 4);
    assert_eq!(envoy.count("shop", &[("user", "bob")], 10), 5, "each value has its own limit");
    assert_eq!(envoy.count("shop", &[("user", "banned")], 3), 0);
    for free in [&[("user", "root")][..], &[("other", "x")], &[("user", "ann"), ("more", "x")]] {
        assert_eq!(envoy.count("shop", free, 20), 20, "{free:?}");
    }
    assert_eq!(envoy.count("elsewhere", ANN, 20), 20);
    let root = envoy.ask(request("shop", &[descriptor(&[("user", "root")]), descriptor(&[("x", "y")])]));
    assert_eq!(root.statuses.iter().map(|status| status.limit_remaining).collect::<Vec<_>>(), [u32::MAX, 0]);
    assert!(root.statuses.iter().all(|status| status.current_limit.is_none()));
    let held = server.status(&["shop/user=ann"]);
    assert_eq!(held["resources"][0]["holder"][0]["id"], "the-gateway", "{held}");
    let holds: serde_json::Value = serde_json::from_str(&gateway.page("/debug/resources")).unwrap();
    assert_eq!((&holds["client"], &holds["open"]), (&"the-gateway".into(), &2.into()), "{holds}");
    let ann = &holds["resources"][0];
    assert_eq!((&ann["resource"], &ann["basis"]), (&"shop/user=ann".into(), &"lease".into()), "{holds}");
    assert!(ann["lease_expires_in"].as_f64().unwrap() > 0.0 && ann["remaining"] == 0.0, "{holds}");
}

#[test]
fn a_denied_request_takes_no_permits() {
    let server = server(FIVE);
    let gateway = gateway(&server, &rules(), &[]);
    let envoy = gateway.caller();
    assert_eq!(envoy.count("shop", ANN, 5), 5);
    let both = request("shop", &[descriptor(&[("user", "bob")]), descriptor(ANN)]);
    for _ in 0..20 {
        let answer = envoy.ask(both.clone());
        assert!(!answer.passes());
        assert_eq!(answer.all_pass(), [true, false], "in the order of the descriptors");
    }
    assert_eq!(envoy.count("shop", &[("user", "bob")], 10), 5, "denied requests took no permits");
}

#[test]
fn hits_are_given_back_even_by_a_denied_request() {
    let server = server(FIVE);
    let gateway = gateway(&server, &rules(), &[]);
    let envoy = gateway.caller();
    assert_eq!(envoy.count("shop", ANN, 10), 5);
    assert_eq!(envoy.count("shop", &[("user", "bob")], 3), 3);
    let given_back =
        |entries| RateLimitDescriptor { hits_addend: Some(2), is_negative_hits: true, ..descriptor(entries) };
    let answer = envoy.ask(request("shop", &[given_back(&[("user", "bob")]), descriptor(ANN)]));
    assert_eq!(answer.all_pass(), [true, false]);
    assert_eq!(envoy.count("shop", &[("user", "bob")], 10), 4, "two were left, and two were given back");
    assert!(envoy.ask(request("shop", &[given_back(&[("user", "banned")])])).passes(), "it takes nothing");
}

#[test]
fn changed_rules_are_reloaded_and_invalid_ones_are_ignored() {
    let server = server(FIVE);
    let rules = rules();
    let gateway = gateway(&server, &rules, &[]);
    let envoy = gateway.caller();
    let new = &[("new", "x")][..];
    assert_eq!(envoy.count("shop", new, 9), 9);
    rules.replace("domain: shop\ndescriptors: [{key: new, rate_limit: {unit: fortnight, requests_per_unit: 5}}]\n");
    eventually("the log reports the error", || gateway.log().contains("unknown unit `fortnight`").then_some(()));
    assert!(gateway.log().contains(":2:45:"), "with line and column: {}", gateway.log());
    assert_eq!((envoy.count("shop", new, 9), envoy.count("shop", ANN, 9)), (9, 5));
    rules.replace("domain: shop\ndescriptors: [{key: new, rate_limit: {unit: day, requests_per_unit: 5}}]\n");
    eventually("the new limit is in force", || (!envoy.passes("shop", new)).then_some(()));
    assert!(envoy.passes("shop", ANN), "no rule applies any more");
}

#[test]
fn without_a_cluster_the_flag_decides_whether_requests_pass() {
    let nowhere = ["127.0.0.1:1".to_owned()];
    for (flag, passed) in [("deny", 0), ("allow", 9)] {
        let flags = ["--without-lease", flag, "--first-wait-ms", "10"];
        let gateway = Gateway::for_requests(&nowhere, &rules(), &flags);
        assert_eq!(gateway.caller().count("shop", ANN, 9), passed, "{flag}");
        assert_eq!(gateway.caller().count("shop", &[("user", "root")], 9), 9);
        let metrics = gateway.metrics();
        assert!(
            metrics.contains("leaseway_rls_decisions_total{rule=\"shop.user\",result=\"no_lease\"} 9"),
            "{metrics}"
        );
    }
}

fn with_limit(entries: Entries<'_>, requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    RateLimitDescriptor { limit: Some(RateLimitOverride { requests_per_unit, unit }), ..descriptor(entries) }
}

#[test]
fn a_limit_in_a_request_is_counted_apart() {
    let own = "shop/~limit=3-per-day*";
    let server =
        Server::with_config(&ConfigFile::of(&[Template::fair(own, 3.0 / 86_400.0), Template::fair("*", FIVE)]));
    let gateway = gateway(&server, &rules(), &[]);
    let envoy = gateway.caller();
    let day = Unit::Day.into();
    let passes = |descriptor| envoy.ask(request("shop", &[descriptor])).passes();
    let three = (0..9).filter(|_| passes(with_limit(ANN, 3, day))).count();
    assert_eq!((three, envoy.count("shop", ANN, 9)), (3, 5), "the limit of the rule is not used");
    let other = with_limit(&[("no", "rule"), ("for", "it")], 3, day);
    assert_eq!((0..9).filter(|_| passes(other.clone())).count(), 3);
    let answer = envoy.ask(request("shop", &[with_limit(&[("user", "root")], 3, day)]));
    let limit = answer.statuses[0].current_limit.as_ref().expect("its own limit");
    assert_eq!((limit.requests_per_unit, limit.unit(), answer.statuses[0].limit_remaining), (3, Unit::Day, 2));
    assert!(!passes(with_limit(ANN, 0, day)), "0 lets nothing pass");
    let unknown = request("shop", &[descriptor(ANN), with_limit(ANN, 3, 0)]);
    let refused = block_on(envoy.should_rate_limit(unknown)).expect_err("no unit");
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("`descriptors[1].limit.unit`"));
    let templates = gateway.page("/rlconfig/resources");
    assert!(templates.contains("- identifier_glob: \"shop/~limit=3-per-day*\""), "{templates}");
}

#[test]
fn a_request_is_refused_if_all_its_quotas_are_over() {
    let server = server(FIVE);
    let rules = ConfigFile::new(
        "domain: shop
descriptors:
- {key: own, quota_mode: true, metadata: {pays: own, of: {one: 1}}, rate_limit: {unit: day, requests_per_unit: 5}}
- {key: pool, quota_mode: true, metadata: {pays: pool, of: {two: 2}}, rate_limit: {unit: day, requests_per_unit: 5}}
- {key: user, rate_limit: {unit: day, requests_per_unit: 5}}
",
    );
    let gateway = gateway(&server, &rules, &["--rls-dynamic-metadata"]);
    let envoy = gateway.caller();
    let of_both = request("shop", &[descriptor(&[("own", "x")]), descriptor(&[("pool", "all")])]);
    assert_eq!(envoy.count("shop", &[("own", "x")], 9), 5, "one quota is a limit");
    let paid = envoy.ask(of_both.clone());
    assert_eq!((paid.passes(), paid.all_pass()), (true, vec![false, true]), "the other has some left");
    let metadata = format!("{:?}", paid.dynamic_metadata.as_ref().expect("asked for").fields["metadata"]);
    assert!(metadata.contains("\"pool\"") && metadata.contains("two") && !metadata.contains("own"), "{metadata}");
    assert_eq!((0..9).filter(|_| envoy.ask(of_both.clone()).passes()).count(), 4, "until both are over");
    let with_user = [&of_both.descriptors[..], &[descriptor(ANN)]].concat();
    assert!(!envoy.ask(request("shop", &with_user)).passes());
    assert_eq!(envoy.count("shop", ANN, 9), 5, "the refused request took nothing");
    assert!(!envoy.ask(request("shop", &[descriptor(&[("own", "y")]), descriptor(ANN)])).passes(), "a limit refuses");
}

#[test]
fn flags_add_headers_and_let_everything_pass() {
    let server = server(FIVE);
    let names = "--rls-headers=X-Limit,X-Left,X-Reset";
    let gateway = gateway(&server, &rules(), &[names, "--rls-shadow-mode"]);
    let envoy = gateway.caller();
    let both = request("shop", &[descriptor(&[("user", "bob")]), descriptor(ANN)]);
    let headers = || {
        let answer = envoy.ask(both.clone());
        assert!(answer.passes() && answer.dynamic_metadata.is_none(), "{answer:?}");
        let told = answer.response_headers_to_add.iter().map(|header| (header.key.clone(), header.value.clone()));
        (answer.all_pass(), told.collect::<Vec<_>>())
    };
    let told = |left: &str| [("X-Limit", "5"), ("X-Left", left)].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let (passes, first) = headers();
    assert_eq!((passes, &first[..2]), (vec![true; 2], &told("4")[..]));
    assert!(first[2].0 == "X-Reset" && (80_000..=86_400).contains(&first[2].1.parse().unwrap()), "{first:?}");
    assert_eq!(envoy.count("shop", ANN, 9), 9, "all pass");
    let (passes, last) = headers();
    assert_eq!((passes, &last[..2]), (vec![true, false], &told("0")[..]), "the one that is over");
    let metrics = gateway.metrics();
    assert!(metrics.contains("leaseway_rls_requests_total{domain=\"shop\",result=\"shadow\"}"), "{metrics}");
}

#[test]
fn metrics_are_by_value_if_the_rules_ask_for_that() {
    let server = server(FIVE);
    let rules = ConfigFile::new(
        "domain: shop
descriptors: [{key: user, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}]
",
    );
    let gateway = gateway(&server, &rules, &[]);
    assert_eq!(gateway.caller().count("shop", ANN, 9), 5);
    let metrics = gateway.metrics();
    let line = "leaseway_rls_decisions_total{rule=\"shop.user_ann\",result=\"over_limit\"} 4";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn a_request_holds_an_estimate_and_its_real_cost_settles_it() {
    let server = server(FIVE);
    let gateway = gateway(&server, &rules(), &["--rls-dynamic-metadata"]);
    let envoy = gateway.caller();
    let asks = |hits: u64, settles: Option<&str>| {
        let entries = [ANN, &settles.map(|held| ("leaseway.settle", held)).into_iter().collect::<Vec<_>>()].concat();
        let asked = RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&entries) };
        envoy.ask(request("shop", &[descriptor(&[("other", "x")]), asked]))
    };
    let held = asks(4, None);
    let metadata = format!("{:?}", held.dynamic_metadata.as_ref().expect("asked for").fields["held"]);
    assert!(held.passes() && metadata.contains("\"1\": Value") && metadata.contains("\"4\""), "{metadata}");
    let refused = asks(2, None);
    assert!(!refused.passes() && !refused.dynamic_metadata.unwrap().fields.contains_key("held"));
    let settled = asks(1, Some("4"));
    assert_eq!((settled.passes(), settled.statuses[1].limit_remaining), (true, 4), "three are given back");
    assert!(asks(1, None).passes());
    let settled = asks(3, Some("1"));
    assert_eq!((settled.passes(), settled.statuses[1].limit_remaining), (true, 1), "two more were used");
    assert!(asks(1, None).passes() && !asks(1, None).passes());
    assert!(asks(9, Some("1")).passes(), "an end is never refused");
    assert!(!asks(1, None).passes() && asks(0, Some("8")).passes(), "the debt is paid back");
    let wrong = RateLimitDescriptor { ..descriptor(&[("user", "ann"), ("leaseway.settle", "many")]) };
    let wrong = block_on(envoy.should_rate_limit(request("shop", &[wrong]))).expect_err("not a number");
    assert!(wrong.message().contains("`descriptors[0].entries[1].value` of `leaseway.settle`: expected"), "{wrong:?}");
}

#[test]
fn callers_without_grpc_and_dashboards_find_the_paths_and_names_of_the_original() {
    let server = server(FIVE);
    let own = ["--rls-http", ANYWHERE, "--rls-debug", ANYWHERE, "--rls-ratelimit-metrics"];
    let gateway = gateway(&server, &rules(), &own);
    let address = gateway.serving("RLS over HTTP");
    let json = |body: &str| http::post(address, "/json", "", body);
    let ann = r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}"#;
    let first = json(ann);
    assert_eq!(first.status, 200, "{first:?}");
    let answer: serde_json::Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!(
        (&answer["overallCode"], &answer["statuses"][0]["limitRemaining"]),
        (&"OK".into(), &4.into()),
        "{answer}"
    );
    assert_eq!(answer["statuses"][0]["currentLimit"], serde_json::json!({"requestsPerUnit": 5, "unit": "DAY"}));
    let codes: Vec<u16> = (0..6).map(|_| json(ann).status).collect();
    assert_eq!(codes, [200, 200, 200, 200, 429, 429]);
    for bad in ["", "{}", r#"{"domain": "shop"}"#, r#"{"domain": "shop", "descriptions": []}"#] {
        let refused = json(bad);
        assert_eq!((refused.status, &*refused.body), (400, "Bad Request\n"), "{bad}");
    }
    assert_eq!(http::get(address, "/healthcheck").body, "OK");
    let rlconfig = http::get(gateway.serving("RLS debug pages"), "/rlconfig").body;
    assert!(rlconfig.contains("shop.user: unit=DAY requests_per_unit=5"), "{rlconfig}");
    let metrics = gateway.metrics();
    for line in [
        "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"user\"} 7",
        "ratelimit_service_rate_limit_within_limit{domain=\"shop\",key1=\"user\"} 5",
        "ratelimit_service_rate_limit_over_limit{domain=\"shop\",key1=\"user\"} 2",
        "ratelimit_service_rate_limit_near_limit{domain=\"shop\",key1=\"user\"} 1",
        "ratelimit_service_config_load_success 1",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line} in {metrics}");
    }
}
