//! Push hints: a listener is told when to ask, and need not wait for its refresh.
//!
//! Refresh intervals are longer than any test: what happens here happens by hints, or not at all.

use rustix::process::Signal;
use tonic::Code;

use crate::harness::{
    config::{self, ConfigFile, Template},
    doorman::{Asks as _, assert_refused, node_request},
    prometheus::Scrape,
    push::{try_watch, watch},
    server::Server,
    wait::eventually,
};

/// A request within half an hour is too soon, unless it was hinted.
fn strict(capacity: f64) -> ConfigFile {
    ConfigFile::of(&[Template { refresh: 3599, min_request_interval: 1800, ..Template::fair("*", capacity) }])
}

fn scrape(server: &Server) -> Scrape {
    Scrape::parse(&server.page("/metrics"))
}

#[test]
fn a_share_changes_hands_by_hints_alone() {
    let server = Server::with_config(&strict(100.0));
    let (mut alice, mut bob) = (server.client("alice"), server.client("bob"));
    let (mut tells_alice, mut tells_bob) = (watch(&server, "alice"), watch(&server, "bob"));
    assert_eq!(alice.ask("mysql", 100.0), 100.0);
    assert_eq!(bob.ask("mysql", 100.0), 0.0);
    // Without a hint a request so soon is ignored.
    tells_alice.followed_by(&mut alice, "mysql", 100.0, 50.0);
    // Its answer may have been lost: it is told to show that it knows.
    tells_alice.is_told_of("mysql");
    alice.try_ask("mysql", 100.0).unwrap();
    tells_bob.followed_by(&mut bob, "mysql", 100.0, 50.0);
    let metrics = scrape(&server);
    for reason in ["shrink", "grow"] {
        let count = metrics.find("leaseway_hints_total", "reason", reason);
        assert!(count.is_some_and(|count| count >= 1.0), "{reason}: {count:?}");
    }
    assert_eq!(metrics.only("leaseway_watchers"), 2.0);
}

#[test]
fn what_is_given_back_is_offered_to_those_who_wait() {
    let server = Server::with_config(&strict(100.0));
    server.client("alice").ask("mysql", 100.0);
    let mut bob = server.client("bob");
    assert_eq!(bob.ask("mysql", 70.0), 0.0);
    // It listens only now, and the resource hears of it in time.
    let mut tells_bob = watch(&server, "bob");
    server.doorman().release("alice", &["mysql"]).unwrap();
    tells_bob.followed_by(&mut bob, "mysql", 70.0, 70.0);
}

#[test]
fn a_child_node_is_hinted_by_its_own_name() {
    let server = Server::with_config(&strict(100.0));
    let mut child = try_watch(&server, None, Some("alice")).unwrap();
    assert!(child.next().unwrap().is_some());
    let _namesake = watch(&server, "alice");
    server.doorman().get_server(node_request("alice", "mysql", &[(4, 100.0)])).unwrap();
    server.client("alice").ask("other", 100.0);
    server.client("bob").ask("mysql", 100.0);
    child.is_told_of("mysql");
}

#[test]
fn a_new_configuration_is_a_reason_to_ask() {
    let file = ConfigFile::of(&[Template { kind: "STATIC", ..Template::fair("*", 40.0) }]);
    let server = Server::with_config(&file);
    let mut tells_alice = watch(&server, "alice");
    let mut alice = server.client("alice");
    assert_eq!(alice.ask("mysql", 100.0), 40.0);
    file.replace(&config::text(&[Template { kind: "STATIC", ..Template::fair("*", 70.0) }]));
    tells_alice.followed_by(&mut alice, "mysql", 100.0, 70.0);
    file.replace(&config::text(&[Template { kind: "STATIC", ..Template::fair("*", 30.0) }]));
    tells_alice.followed_by(&mut alice, "mysql", 100.0, 30.0);
}

#[test]
fn a_newer_stream_takes_the_place_of_the_older() {
    let server = Server::with_config(&strict(100.0));
    let mut older = watch(&server, "alice");
    let mut newer = watch(&server, "alice");
    assert_refused(older.next(), Code::Aborted, &["another stream for the same id"]);
    server.client("alice").ask("mysql", 100.0);
    server.client("bob").ask("mysql", 100.0);
    newer.is_told_of("mysql");
    assert_eq!(scrape(&server).only("leaseway_watchers"), 1.0);
}

#[test]
fn a_watch_for_nobody_or_for_two_or_for_a_name_too_long_is_refused_by_its_field() {
    let server = Server::development();
    let long = "x".repeat(257);
    for (client, node, says) in [
        (None, None, ["client_id", "one of them is required"]),
        (Some("a"), Some("b"), ["server_id", "together with client_id"]),
        (Some(""), None, ["client_id", "must not be empty"]),
        (Some(long.as_str()), None, ["client_id", "at most 256"]),
        (None, Some(long.as_str()), ["server_id", "at most 256"]),
    ] {
        let refused = try_watch(&server, client, node).map(|_| ());
        assert_refused(refused, Code::InvalidArgument, &says);
    }
    assert_eq!(scrape(&server).only("leaseway_watchers"), 0.0);
}

#[test]
fn watchers_beyond_the_limit_are_refused_until_others_leave() {
    let server = Server::with_flags(&["--max-watchers", "2"]);
    let alice = watch(&server, "alice");
    let _bob = watch(&server, "bob");
    let refused = || try_watch(&server, Some("carol"), None).map(|_| ());
    assert_refused(refused(), Code::ResourceExhausted, &["(2)", "--max-watchers"]);
    let _bob_again = watch(&server, "bob");
    let metrics = scrape(&server);
    assert_eq!((metrics.only("leaseway_watchers"), metrics.only("leaseway_watchers_refused_total")), (2.0, 1.0));
    drop(alice);
    eventually("the server notices that alice has gone", || refused().ok());
}

#[test]
fn a_server_that_stops_ends_its_streams_and_waits_for_none() {
    let server = Server::with_config(&strict(100.0));
    let mut streams = [watch(&server, "alice"), watch(&server, "bob")];
    server.signal(Signal::TERM);
    for stream in &mut streams {
        assert_refused(stream.next(), Code::Unavailable, &["shutting down"]);
    }
    // Connections that stay open would be waited for: they are the streams' own, and clients do not close them.
    let said = server.finish();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.stderr.contains("panicked"), "{said:?}");
    drop(streams);
}
