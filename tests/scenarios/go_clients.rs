//! The Go client of 2016 is never sent an answer that it would not survive or would take for no limit.

use crate::harness::{
    doorman::{Asks as _, entry, request},
    go_client::{GoClient, Pace, pace},
    http,
    server::Server,
};

fn client(server: &Server, id: &str) -> GoClient {
    GoClient::new(server.grpc(), id)
}

#[test]
fn an_invalid_entry_keeps_no_other_from_being_refreshed() {
    let server = Server::shared();
    for wants in [f64::NAN, f64::INFINITY, 2e15] {
        let mut alice = client(server, "alice");
        alice.take_on([("go a".into(), 10.0), ("go b".into(), 20.0)]).unwrap();
        let before = alice.lease("go b");
        alice.ask("go a", 11.0);
        alice.ask("go b", wants);
        alice.refresh().unwrap();
        assert_eq!(alice.capacity("go a"), Some(11.0), "beside wants of {wants}");
        assert_eq!(alice.capacity("go b"), Some(20.0), "the wants before count instead of {wants}");
        assert_ne!(alice.lease("go b"), before, "it is refreshed");
        alice.ask("go b", 25.0);
        alice.refresh().unwrap();
        assert_eq!(alice.capacity("go b"), Some(25.0), "valid wants count again");
        alice.close().unwrap();
    }
    let status = server.status(&["go b"]);
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
fn beyond_the_limit_all_resources_are_served_in_turn() {
    let server = Server::with_flags(&["--max-resources-per-request", "10"]);
    let mut alice = client(&server, "alice");
    alice.take_on((0..25).map(|n| (format!("resource {n}"), 1.0))).unwrap();
    assert_eq!(alice.leases(), 10);
    alice.refresh().unwrap();
    assert_eq!(alice.leases(), 20);
    alice.refresh().unwrap();
    assert_eq!(alice.leases(), 25);
    // Leases beyond the limit stay until they expire; the call succeeds.
    alice.close().unwrap();
    let many = (0..200).map(|n| entry(&format!("resource {n}"), 1.0)).collect();
    let answer = server.doorman().get(request("bob", many)).unwrap();
    assert_eq!((answer.response.len(), answer.problem.len()), (10, 100), "the number of problems is bounded");
    assert!(answer.problem.iter().all(|problem| problem.reason() == "too_many_in_request"));
}

#[test]
fn a_full_table_does_not_hold_a_client_up() {
    let server = Server::with_flags(&["--max-clients-per-resource", "1", "--max-resources", "2"]);
    let mut alice = client(&server, "alice");
    alice.take_on([("a".into(), 1.0), ("b".into(), 1.0)]).unwrap();
    let mut bob = client(&server, "bob");
    bob.resource("a", 1.0).unwrap();
    assert_eq!(bob.capacity("a"), None, "the table of clients is full");
    bob.resource("c", 1.0).unwrap();
    assert_eq!(bob.capacity("c"), None, "the table of resources is full");
    bob.close().unwrap();
    let mut bob = client(&server, "bob");
    bob.resource("a", 1.0).unwrap();
    alice.close().unwrap();
    bob.refresh().unwrap();
    assert_eq!(bob.capacity("a"), Some(1.0));
}

#[test]
fn no_client_is_ever_given_what_its_limiter_takes_for_no_limit() {
    let server = Server::shared();
    let mut clients: Vec<_> = (0..10).map(|n| server.client(&format!("client {n}"))).collect();
    for round in 0..8 {
        for (n, client) in clients.iter_mut().enumerate() {
            let given = client.ask("limiter", 7.0 + 3.1 * n as f64);
            assert_ne!(pace(given), Pace::Unlimited, "{given} in round {round} to client {n}");
        }
    }
    let given = server.client("tiny").ask("tiny", 1e-12);
    assert_eq!(given, 0.0);
}
