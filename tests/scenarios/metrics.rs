//! `/metrics`, as Prometheus reads it and Doorman's dashboards expect it. The parser fails if a metric has no HELP.

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template, text},
    doorman::{Asks as _, entry, node_request, request},
    http, peers,
    prometheus::Scrape,
    server::Server,
    wait::eventually,
};

fn scrape(server: &Server) -> Scrape {
    Scrape::parse(&server.page("/metrics"))
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
fn resources_have_gauges_under_any_id() {
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

/// Ten resources without competition, and two with the most pressure, which come last by name.
fn ask_for_twelve(server: &Server) {
    let mut client = server.client("alice");
    for number in 0..10 {
        client.ask(&format!("r{number}"), 1.0);
    }
    client.ask("z-contended", 500.0);
    client.ask("z-cut", 80.0);
}

#[test]
fn the_resources_under_most_pressure_have_series_and_a_history_and_the_rest_is_summed() {
    let templates = |cut: f64| [Template::fair("z-cut", cut), Template::fair("*", 100.0)];
    let config = ConfigFile::of(&templates(100.0));
    let flags = ["--config", config.path(), "--metrics-resources", "2", "--history-resources", "2"];
    let server = Server::with_flags(&flags);
    ask_for_twelve(&server);
    config.rewrite(&text(&templates(40.0)));
    let has_series =
        |metrics: &Scrape, resource| metrics.find("leaseway_resource_held", "resource", resource).is_some();
    let metrics = eventually("both have series", || {
        let metrics = scrape(&server);
        (has_series(&metrics, "z-contended") && has_series(&metrics, "z-cut")).then_some(metrics)
    });
    assert_eq!(metrics.series("leaseway_resource_held").len(), 2);
    let metrics = eventually("it is over its capacity", || {
        let metrics = scrape(&server);
        (metrics.only("leaseway_resources_over_capacity") == 1.0).then_some(metrics)
    });
    assert_eq!(metrics.find("leaseway_resource_held", "resource", "z-cut"), Some(80.0), "alerts name the resource");
    assert_eq!(metrics.find("leaseway_resource_capacity", "resource", "z-cut"), Some(40.0), "alerts name the resource");
    for (name, sum) in [
        ("leaseway_metrics_resources_left_out", 10.0),
        ("leaseway_left_out_capacity", 1000.0),
        ("leaseway_left_out_wants", 10.0),
        ("leaseway_left_out_has", 10.0),
        ("leaseway_left_out_held", 10.0),
        ("leaseway_left_out_subclients", 10.0),
    ] {
        assert_eq!(metrics.only(name), sum, "{name}");
    }
    let samples = |resource: &str| {
        let answer: Value =
            serde_json::from_str(&server.page(&format!("/api/v1/history?resource={resource}"))).unwrap();
        answer["samples"].as_array().unwrap().len()
    };
    eventually("both have a history", || (samples("z-contended") > 0 && samples("z-cut") > 0).then_some(()));
    eventually("no more than two have one", || {
        let with = (0..10).filter(|number| samples(&format!("r{number}")) > 0).count();
        (with == 0).then_some(())
    });
    let told = server.cli(&["check"]).stdout;
    for part in ["12 resources, but --metrics-resources allows 2", "12 resources, but --history-resources allows 2"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(server.log().matches("raise --metrics-resources").count(), 1, "{}", server.log());
}

#[test]
fn peers_and_their_data_have_gauges() {
    let mut peers = peers::shared();
    let master = peers.master();
    let page = |peer: usize| Scrape::parse(&http::get(peers.http(peer), "/metrics").body);
    let names = ["a", "b", "c"];
    eventually("all peers have everything", || {
        let metrics = page(master);
        names.iter().all(|name| metrics.find("leaseway_peer_lag_entries", "peer", name) == Some(0.0)).then_some(())
    });
    for peer in 0..3 {
        let metrics = page(peer);
        assert_eq!(metrics.only("leaseway_peers"), 3.0);
        assert_eq!(metrics.only("leaseway_data_failed"), 0.0);
        assert!(metrics.only("leaseway_data_free_bytes") > 0.0);
        assert_eq!(metrics.only("leaseway_quorum_is_master"), f64::from(u8::from(peer == master)));
        let heard = metrics.series("leaseway_peer_last_contact_seconds").len();
        assert!(peer != master || heard == 2, "the master hears from all others: {heard}");
    }
    let lost = peers.follower();
    peers.kill(lost);
    let page = |peer: usize| Scrape::parse(&http::get(peers.http(peer), "/metrics").body);
    let mut requests = 0;
    eventually("the lost peer lags", || {
        requests += 1;
        peers.doorman(master).get(request("alice", vec![entry(&format!("metrics {requests}"), 1.0)])).ok();
        let metrics = page(master);
        let lag = metrics.find("leaseway_peer_lag_entries", "peer", names[lost]).unwrap();
        let silent = metrics.find("leaseway_peer_last_contact_seconds", "peer", names[lost]).unwrap();
        (lag > 0.0 && silent > 0.0).then_some(())
    });
}
