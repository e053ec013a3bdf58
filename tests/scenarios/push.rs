//! Push hints.

use rustix::process::Signal;
use tonic::Code;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, assert_refused},
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
