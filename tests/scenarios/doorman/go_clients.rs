//! The Go client of 2016 survives every answer, and never mistakes a small capacity for no limit.

use crate::harness::{
    doorman::{Asks as _, entry, request},
    http,
    legacy_client::{LegacyClient, UnknownFields},
    server::Server,
};

/// The Go library keeps unknown fields, and asks for all of its resources in one request.
fn client(server: &Server, id: &str) -> LegacyClient {
    server.legacy_client(id, UnknownFields::Kept)
}

#[test]
fn invalid_wants_do_not_keep_other_resources_from_being_refreshed() {
    let server = Server::shared();
    for wants in [f64::NAN, f64::INFINITY, 2e15] {
        let mut alice = client(server, "alice");
        alice.refresh(&[("go a", 10.0), ("go b", 20.0)]).unwrap();
        let before = alice.lease("go b").clone();
        alice.refresh(&[("go a", 11.0), ("go b", wants)]).unwrap();
        assert_eq!(alice.capacity("go a"), Some(11.0), "beside wants of {wants}");
        assert_eq!(alice.capacity("go b"), Some(20.0), "the server keeps the former wants instead of {wants}");
        assert_ne!(*alice.lease("go b"), before, "the lease is refreshed");
        alice.refresh(&[("go a", 11.0), ("go b", 25.0)]).unwrap();
        assert_eq!(alice.capacity("go b"), Some(25.0), "valid wants are in force again");
        alice.close().unwrap();
    }
    let status = server.status(&["go b"]);
    assert_eq!((&status["resources"][0]["wants"], &status["resources"][0]["held"]), (&0.0.into(), &0.0.into()));
    server.assert_alive();
}

#[test]
fn invalid_wants_of_an_unknown_client_are_left_out_and_valid_ones_answered() {
    let server = Server::development();
    for wants in [f64::NAN, f64::NEG_INFINITY, -1.0] {
        let mut alice = client(&server, "alice");
        alice.refresh(&[("alone", wants)]).unwrap();
        assert_eq!(alice.capacity("alone"), None);
        alice.refresh(&[("alone", wants), ("other", 5.0)]).unwrap();
        assert_eq!((alice.capacity("other"), alice.capacity("alone")), (Some(5.0), None));
        alice.refresh(&[("alone", 7.0), ("other", 5.0)]).unwrap();
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
fn resources_beyond_the_request_limit_are_served_in_turn() {
    let server = Server::with_flags(&["--max-resources-per-request", "10"]);
    let mut alice = client(&server, "alice");
    let names: Vec<String> = (0..25).map(|n| format!("resource {n}")).collect();
    let wants: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
    for leases in [10, 20, 25] {
        alice.refresh(&wants).unwrap();
        assert_eq!(alice.leases(), leases);
    }
    // The release succeeds, although leases beyond the limit stay until they expire.
    alice.close().unwrap();
    let many = (0..200).map(|n| entry(&format!("resource {n}"), 1.0)).collect();
    let answer = server.doorman().get(request("bob", many)).unwrap();
    assert_eq!((answer.response.len(), answer.problem.len()), (10, 100), "the number of problems is bounded");
    assert!(answer.problem.iter().all(|problem| problem.reason() == "too_many_in_request"));
}

#[test]
fn a_full_table_fails_no_request() {
    let server = Server::with_flags(&["--max-clients-per-resource", "1", "--max-resources", "2"]);
    let (mut alice, mut bob) = (client(&server, "alice"), client(&server, "bob"));
    alice.refresh(&[("a", 1.0), ("b", 1.0)]).unwrap();
    bob.refresh(&[("a", 1.0), ("c", 1.0)]).unwrap();
    assert_eq!(bob.capacity("a"), None, "the table of clients is full");
    assert_eq!(bob.capacity("c"), None, "the table of resources is full");
    alice.close().unwrap();
    bob.refresh(&[("a", 1.0)]).unwrap();
    assert_eq!(bob.capacity("a"), Some(1.0));
}

#[derive(Debug, PartialEq)]
enum Pace {
    Unlimited,
    Blocked,
    /// Number of calls, and the interval in nanoseconds.
    Every(i64, i64),
}

/// The library converts a capacity to an interval in whole milliseconds, as an `int64` of nanoseconds that may wrap.
fn pace(capacity: f64) -> Pace {
    /// Converts as Go does on amd64: NaN and out-of-range numbers become the minimum.
    fn int(value: f64) -> i64 {
        let bound = 2f64.powi(63);
        if (-bound..bound).contains(&value) { value as i64 } else { i64::MIN }
    }
    let (permits, millis) = match capacity {
        c if c < 0.0 => return Pace::Unlimited,
        0.0 => return Pace::Blocked,
        c if c <= 10.0 => (1, int(1000.0 / c)),
        c => {
            let r = int(c);
            let permits = r / r.min(50);
            (permits, permits * 1000 / r)
        }
    };
    match millis.wrapping_mul(1_000_000) {
        // An expired timer fires immediately.
        nanos if nanos <= 0 => Pace::Unlimited,
        nanos => Pace::Every(permits, nanos),
    }
}

#[test]
fn the_limiter_of_the_go_library_takes_a_tiny_capacity_for_no_limit() {
    assert_eq!(pace(0.5), Pace::Every(1, 2_000_000_000));
    assert_eq!(pace(100.0), Pace::Every(2, 20_000_000));
    assert_eq!((pace(-15.0), pace(0.0)), (Pace::Unlimited, Pace::Blocked));
    assert_eq!(pace(1e-9), Pace::Every(1, 999_999_999_999_000_000), "one call in 31 years");
    // An interval of more than 2^63 ns wraps.
    let longest = 1e9 / 2f64.powi(63);
    assert!(matches!(pace(longest * 1.001), Pace::Every(1, _)));
    assert_eq!(pace(longest * 0.999), Pace::Unlimited);
}

#[test]
fn no_client_is_granted_a_capacity_that_its_limiter_takes_for_no_limit() {
    let server = Server::shared();
    let mut clients: Vec<_> = (0..10).map(|n| server.client(&format!("client {n}"))).collect();
    for round in 0..8 {
        for (n, client) in clients.iter_mut().enumerate() {
            let granted = client.ask("limiter", 7.0 + 3.1 * n as f64);
            assert_ne!(pace(granted), Pace::Unlimited, "{granted} in round {round} to client {n}");
        }
    }
    assert_eq!(server.client("tiny").ask("tiny", 1e-12), 0.0);
}
