//! `/metrics`, as a Prometheus reads it and as Doorman's dashboards expect it.

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, entry, node_request, request},
    http,
    prometheus::Scrape,
    server::Server,
    wait::eventually,
};

fn scrape(server: &Server) -> Scrape {
    Scrape::parse(&server.page("/metrics"))
}

#[test]
fn the_page_is_prometheus_text_and_explains_every_metric() {
    let server = Server::development();
    let response = http::get(server.http(), "/metrics");
    assert!(response.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    // Parsing fails if a metric has no HELP, no TYPE, or breaks any other rule.
    let before = scrape(&server);
    server.client("alice").ask("mysql", 40.0);
    server.doorman().get(request("", Vec::new())).unwrap_err();
    let after = scrape(&server);
    assert!(before.names().all(|name| after.kind(name).is_some()), "nothing vanishes");
    assert!(after.help("doorman_server_requests").contains("method"));
}

#[test]
fn requests_errors_and_durations_are_counted_by_method_under_doormans_names() {
    let server = Server::development();
    let doorman = server.doorman();
    for _ in 0..3 {
        doorman.get(request("alice", vec![entry("mysql", 1.0)])).unwrap();
    }
    doorman.get(request("", Vec::new())).unwrap_err();
    doorman.get_server(node_request("child", "mysql", &[(1, 1.0)])).unwrap();
    doorman.release("alice", &["mysql"]).unwrap();
    doorman.release("", &["mysql"]).unwrap_err();
    doorman.discovery();

    let metrics = scrape(&server);
    for (name, kind) in [
        ("doorman_server_requests", "counter"),
        ("doorman_server_request_errors", "counter"),
        ("doorman_server_request_durations", "histogram"),
        ("doorman_server_has", "gauge"),
        ("doorman_server_wants", "gauge"),
        ("doorman_server_subclients", "gauge"),
    ] {
        assert_eq!(metrics.kind(name), Some(kind), "{name}");
    }
    for (method, requests, errors) in [
        ("GetCapacity", 4.0, 1.0),
        ("GetServerCapacity", 1.0, 0.0),
        ("ReleaseCapacity", 2.0, 1.0),
        ("Discovery", 1.0, 0.0),
    ] {
        let count = |name| metrics.find(name, "method", method);
        assert_eq!(count("doorman_server_requests"), Some(requests), "{method}");
        assert_eq!(count("doorman_server_request_errors"), Some(errors), "{method}");
        assert_eq!(count("doorman_server_request_durations_count"), Some(requests), "{method}");
        let buckets = metrics.series("doorman_server_request_durations_bucket");
        let buckets = buckets.iter().filter(|bucket| bucket.labels["method"] == method);
        let bounds: Vec<&str> = buckets.map(|bucket| bucket.labels["le"].as_str()).collect();
        let doormans = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];
        assert_eq!(bounds, doormans, "{method}");
    }
}

#[test]
fn what_resources_have_done_is_counted_when_somebody_looks() {
    let server = Server::development();
    let counted = || {
        let metrics = scrape(&server);
        ["leaseway_rounds_total", "leaseway_leases_granted_total", "leaseway_requests_too_soon_total"]
            .map(|name| metrics.only(name))
    };
    assert_eq!(counted(), [0.0, 0.0, 0.0]);
    for resource in ["mysql", "redis"] {
        let mut alice = server.client("alice");
        alice.ask(resource, 40.0);
        alice.ask(resource, 80.0);
    }
    assert_eq!(counted(), [4.0, 4.0, 0.0]);
}

#[test]
fn resources_have_gauges_whatever_they_are_called() {
    let server = Server::development();
    let doorman = server.doorman();
    let odd = "we\"ird\\ one\nof <b>many</b> {x=\"y\"}, ü";
    for resource in ["mysql", odd] {
        server.client("alice").ask(resource, 30.0);
        doorman.get_server(node_request("child", resource, &[(4, 100.0)])).unwrap();
    }
    let metrics = scrape(&server);
    for resource in ["mysql", odd] {
        for (name, expected) in [
            ("doorman_server_has", 100.0),
            ("doorman_server_wants", 130.0),
            ("doorman_server_subclients", 5.0),
            ("leaseway_resource_capacity", 100.0),
            ("leaseway_resource_held", 100.0),
            ("leaseway_resource_learning", 0.0),
        ] {
            assert_eq!(metrics.find(name, "resource", resource), Some(expected), "{name} of {resource}");
        }
    }
    assert_eq!((metrics.only("leaseway_is_master"), metrics.only("leaseway_resources")), (1.0, 2.0));
    assert!(metrics.only("leaseway_connections") >= 1.0);
}

#[test]
fn gauges_of_a_retired_resource_vanish() {
    let config = ConfigFile::of(&[
        Template { lease: 1, refresh: 1, ..Template::fair("short", 10.0) },
        Template::fair("*", 10.0),
    ]);
    let server = Server::with_flags(&["--config", config.path(), "--idle-secs", "1"]);
    server.client("alice").ask("long", 5.0);
    // A lease of one second may be over before anybody has looked.
    let seen = |client: &str, wants: f64| {
        eventually("its gauges are there", || {
            let granted = server.client(client).ask("short", wants);
            (scrape(&server).find("doorman_server_has", "resource", "short") == Some(granted)).then_some(granted)
        })
    };
    assert_eq!(seen("alice", 5.0), 5.0);
    eventually("the resource retires", || (server.status(&[])["resources_total"] == 1).then_some(()));
    let metrics = eventually("its gauges vanish", || {
        let metrics = scrape(&server);
        metrics.find("doorman_server_has", "resource", "short").is_none().then_some(metrics)
    });
    assert_eq!(metrics.find("doorman_server_has", "resource", "long"), Some(5.0), "the others stay");
    for name in ["doorman_server_wants", "doorman_server_subclients", "leaseway_resource_held"] {
        assert_eq!(metrics.find(name, "resource", "short"), None, "{name}");
    }
    assert_eq!(seen("bob", 20.0), 10.0, "it comes to life again when somebody asks");
}
