//! `/metrics`, as Prometheus reads it and Doorman's dashboards expect it. The parser fails if a metric has no HELP.

use crate::harness::{
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
fn requests_errors_and_durations_are_counted_under_doormans_metric_names() {
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
fn resources_with_any_id_have_gauges() {
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
fn peers_and_data_directories_have_gauges() {
    let mut peers = peers::shared();
    let master = peers.master();
    let page = |peer: usize| Scrape::parse(&http::get(peers.http(peer), "/metrics").body);
    let names = ["a", "b", "c"];
    eventually("no peer lags", || {
        let metrics = page(master);
        names.iter().all(|name| metrics.find("leaseway_peer_lag_entries", "peer", name) == Some(0.0)).then_some(())
    });
    for peer in 0..3 {
        let metrics = page(peer);
        assert_eq!(metrics.only("leaseway_peers"), 3.0);
        assert_eq!(metrics.only("leaseway_data_failed"), 0.0);
        assert!(metrics.only("leaseway_data_free_bytes") > 0.0);
        assert_eq!(metrics.only("leaseway_raft_is_master"), f64::from(u8::from(peer == master)));
        let heard = metrics.series("leaseway_peer_last_contact_seconds").len();
        assert!(peer != master || heard == 2, "the master has a series for each follower: {heard}");
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
