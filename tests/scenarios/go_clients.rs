//! Answers that the Go client of 2016 would not survive, or would take for no limit, are never sent.

use leaseway_proto::doorman::{GetServerCapacityRequest, PriorityBandAggregate, ServerCapacityResourceRequest};

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, capacity, entry, node_request, request},
    go_client::{GoClient, Pace, pace},
    http,
    server::Server,
};

fn client(server: &Server, id: &str) -> GoClient {
    GoClient::new(server.grpc(), id)
}

#[test]
fn an_entry_that_makes_no_sense_keeps_no_other_from_being_refreshed() {
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", 100.0)]));
    for wants in [f64::NAN, f64::INFINITY, 2e15] {
        let mut alice = client(&server, "alice");
        alice.take_on([("a".into(), 10.0), ("b".into(), 20.0)]).unwrap();
        let before = alice.lease("b");
        alice.ask("a", 11.0);
        alice.ask("b", wants);
        alice.refresh().unwrap();
        assert_eq!(alice.capacity("a"), Some(11.0), "beside wants of {wants}");
        assert_eq!(alice.capacity("b"), Some(20.0), "what it was known to want, for {wants}");
        assert_ne!(alice.lease("b"), before, "it is refreshed");
        alice.ask("b", 25.0);
        alice.refresh().unwrap();
        assert_eq!(alice.capacity("b"), Some(25.0), "and sense is heard again");
        alice.close().unwrap();
    }
    let status = server.status(&["b"]);
    assert_eq!((&status["resources"][0]["wants"], &status["resources"][0]["held"]), (&0.0.into(), &0.0.into()));
    server.assert_alive();
}

#[test]
fn an_invalid_entry_of_an_unknown_client_is_left_out_and_a_valid_one_answered() {
    let server = Server::development();
    for wants in [f64::NAN, f64::NEG_INFINITY, -1.0] {
        let mut alice = client(&server, "alice");
        alice.resource("alone", wants).unwrap();
        assert_eq!(alice.capacity("alone"), None);
        assert_eq!(alice.sleeps().as_secs(), 5, "it asks again");
        alice.resource("other", 5.0).unwrap();
        assert_eq!((alice.capacity("other"), alice.capacity("alone")), (Some(5.0), None));
        alice.ask("alone", 7.0);
        alice.refresh().unwrap();
        assert_eq!(alice.capacity("alone"), Some(7.0));
        alice.close().unwrap();
    }
    assert!(server.log().contains("resource[0].wants: is NaN, must be a finite number"), "{}", server.log());
    let metrics = http::get(server.http(), "/metrics").body;
    let counted = "leaseway_entry_problems_total{reason=\"bad_value\"} ";
    let counted = metrics.lines().find_map(|line| line.strip_prefix(counted)).unwrap();
    assert!(counted.parse::<u64>().unwrap() >= 6, "{counted}");
}

#[test]
fn a_lease_that_is_no_number_is_replaced_by_one_that_is() {
    // As a Go server gives it after a cut, and its client takes for no limit.
    let server = Server::development();
    let has = |capacity| leaseway_proto::doorman::Lease {
        capacity: Some(capacity),
        expiry_time: Some(i64::MAX),
        refresh_interval: Some(5),
        ..Default::default()
    };
    for unlimited in [-15.0, f64::NAN] {
        let mut asks = entry("mysql", 40.0);
        asks.has = Some(has(unlimited));
        let answer = server.doorman().get(request("alice", vec![asks])).unwrap();
        assert_eq!(capacity(answer.response[0].gets), 40.0);
        assert_eq!(answer.problem[0].reason(), "bad_value");
        assert!(answer.problem[0].message().starts_with("resource[0].has.capacity: is "), "{answer:?}");
    }
}

#[test]
fn a_client_may_have_more_resources_than_used_to_be_answered_at_once() {
    let server = Server::development();
    let mut alice = client(&server, "alice");
    alice.take_on((0..1_100).map(|n| (format!("resource {n}"), 1.0))).unwrap();
    assert_eq!(alice.leases(), 1_100);
    alice.close().unwrap();
}

#[test]
fn beyond_the_limit_all_resources_have_their_turn() {
    let server = Server::with_flags(&["--max-resources-per-request", "10"]);
    let mut alice = client(&server, "alice");
    alice.take_on((0..25).map(|n| (format!("resource {n}"), 1.0))).unwrap();
    assert_eq!(alice.leases(), 10);
    alice.refresh().unwrap();
    assert_eq!(alice.leases(), 20);
    alice.refresh().unwrap();
    assert_eq!(alice.leases(), 25);
    // What does not fit stays until it ends; the call succeeds.
    alice.close().unwrap();
    let many = (0..200).map(|n| entry(&format!("resource {n}"), 1.0)).collect();
    let answer = server.doorman().get(request("bob", many)).unwrap();
    assert_eq!((answer.response.len(), answer.problem.len()), (10, 100), "what is told is bounded");
    assert!(answer.problem.iter().all(|problem| problem.reason() == "too_many_in_request"));
}

#[test]
fn an_id_that_is_not_allowed_is_left_out() {
    let server = Server::development();
    for id in ["", &"i".repeat(257)] {
        let mut alice = client(&server, "alice");
        alice.take_on([(id.to_owned(), 1.0), ("good".into(), 2.0)]).unwrap();
        assert_eq!((alice.capacity(id), alice.capacity("good")), (None, Some(2.0)));
        alice.close().unwrap();
        assert_eq!(server.status(&["good"])["resources"][0]["held"], 0.0, "the good one is given back");
    }
    server.assert_alive();
}

#[test]
fn a_table_that_is_full_does_not_hold_a_client_up() {
    let server = Server::with_flags(&["--max-clients-per-resource", "1", "--max-resources", "2"]);
    let mut alice = client(&server, "alice");
    alice.take_on([("a".into(), 1.0), ("b".into(), 1.0)]).unwrap();
    let mut bob = client(&server, "bob");
    bob.resource("a", 1.0).unwrap();
    assert_eq!(bob.capacity("a"), None, "it has no place");
    bob.resource("c", 1.0).unwrap();
    assert_eq!(bob.capacity("c"), None, "nor has the resource");
    bob.close().unwrap();
    let mut bob = client(&server, "bob");
    bob.resource("a", 1.0).unwrap();
    alice.close().unwrap();
    bob.refresh().unwrap();
    assert_eq!(bob.capacity("a"), Some(1.0));
}

#[test]
fn a_band_that_makes_no_sense_keeps_no_other_resource_of_a_node_from_being_refreshed() {
    let server = Server::development();
    let doorman = server.doorman();
    let band =
        |clients, wants| PriorityBandAggregate { priority: Some(1), num_clients: Some(clients), wants: Some(wants) };
    let asks = |bands: &[(&str, PriorityBandAggregate)]| {
        let entry = |&(id, band): &(&str, _)| ServerCapacityResourceRequest {
            resource_id: Some(id.into()),
            wants: vec![band],
            ..Default::default()
        };
        let resource = bands.iter().map(entry).collect();
        let answer = doorman
            .get_server(GetServerCapacityRequest {
                server_id: Some("child".into()),
                resource,
                ..GetServerCapacityRequest::default()
            })
            .unwrap();
        let got: Vec<_> =
            answer.response.iter().map(|one| (one.resource_id().to_owned(), capacity(one.gets))).collect();
        (got, answer.problem.iter().map(|problem| problem.reason().to_owned()).collect::<Vec<_>>())
    };
    asks(&[("a", band(2, 30.0))]);
    for bad in [band(0, 1.0), band(1, f64::NAN), band(1, -1.0)] {
        let (got, problems) = asks(&[("a", bad), ("b", band(1, 5.0)), ("c", bad)]);
        assert_eq!(got, [("a".to_owned(), 30.0), ("b".to_owned(), 5.0)], "what was known counts; `c` is not known");
        assert_eq!(problems, ["bad_value", "bad_value"]);
    }
    let answer = doorman.get_server(node_request("other", "d", &[(0, 1.0)])).unwrap();
    assert_eq!((answer.response.len(), answer.problem.len()), (0, 1));
    assert_eq!(server.status(&[])["resources_total"], 2, "nothing comes to life for nonsense");
}

#[test]
fn no_client_is_ever_given_what_its_limiter_takes_for_no_limit() {
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", 100.0)]));
    let mut clients: Vec<_> = (0..10).map(|n| server.client(&format!("client {n}"))).collect();
    for round in 0..8 {
        for (n, client) in clients.iter_mut().enumerate() {
            let given = client.ask("mysql", 7.0 + 3.1 * n as f64);
            assert_ne!(pace(given), Pace::Unlimited, "{given} in round {round} to client {n}");
        }
    }
    let given = server.client("tiny").ask("other", 1e-12);
    assert_eq!(given, 0.0);
}
