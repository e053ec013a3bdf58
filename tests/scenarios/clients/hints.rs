//! Push hints.

use rustix::process::Signal;
use tonic::Code;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, assert_refused},
    prometheus::Scrape,
    push::watch,
    server::Server,
};

/// `min_request_interval` is half an hour: without a hint, a second request is too soon.
#[test]
fn hints_alone_move_capacity_and_streams_end_with_the_server() {
    let template = Template { refresh: 3599, min_request_interval: 1800, ..Template::fair("*", 100.0) };
    let server = Server::with_config(&ConfigFile::of(&[template]));
    let (mut alice, mut bob) = (server.client("alice"), server.client("bob"));
    let (mut hints_alice, mut hints_bob) = (watch(&server, "alice"), watch(&server, "bob"));
    assert_eq!(alice.ask("mysql", 100.0), 100.0);
    assert_eq!(bob.ask("mysql", 100.0), 0.0);
    hints_alice.followed_by(&mut alice, "mysql", 100.0, 50.0);
    // Alice has not confirmed her smaller lease yet, so another hint follows.
    hints_alice.is_told_of("mysql");
    alice.try_ask("mysql", 100.0).unwrap();
    hints_bob.followed_by(&mut bob, "mysql", 100.0, 50.0);
    let metrics = Scrape::parse(&server.page("/metrics"));
    for reason in ["shrink", "grow"] {
        let count = metrics.find("leaseway_hints_total", "reason", reason);
        assert!(count.is_some_and(|count| count >= 1.0), "{reason}: {count:?}");
    }
    assert_eq!(metrics.only("leaseway_watchers"), 2.0);

    server.signal(Signal::TERM);
    let ended = std::iter::repeat_with(|| hints_alice.next()).find(Result::is_err).unwrap();
    assert_refused(ended, Code::Unavailable, &["shutting down"]);
    // The server does not wait for the connections of the streams, which are still open.
    let output = server.finish();
    assert!(output.code == Some(0) && !output.stderr.contains("panicked"), "{output:?}");
}
