//! Learning mode of a restarted server.

use rustix::process::Signal;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, Client},
    server::Server,
};

/// Alice has 60 and bob 30 of 90. The server crashes and is replaced by a learning one.
fn crash(learning: u64) -> (Client, Client, Server) {
    let before = ConfigFile::of(&[Template::fair("*", 90.0)]);
    let server = Server::with_config(&before);
    let (mut alice, mut bob) = (server.client("alice"), server.client("bob"));
    assert_eq!((alice.ask("mysql", 60.0), bob.ask("mysql", 30.0)), (60.0, 30.0));
    server.signal(Signal::KILL);
    assert_eq!(server.finish().code, None, "the signal kills the server");

    let after = ConfigFile::of(&[Template { learning, ..Template::fair("*", 90.0) }]);
    let server = Server::with_config(&after);
    alice.moves_to(server.doorman());
    bob.moves_to(server.doorman());
    (alice, bob, server)
}

#[test]
fn a_learning_server_restores_leases_and_grants_only_released_capacity() {
    let (mut alice, mut bob, server) = crash(3600);
    let mut carol = server.client("carol");
    assert_eq!(alice.ask("mysql", 60.0), 60.0);
    assert_eq!(carol.ask("mysql", 10.0), 0.0);
    assert_eq!(bob.ask("mysql", 90.0), 30.0, "the current lease, not the wants");
    assert_eq!(carol.ask("mysql", 10.0), 0.0);
    assert_eq!(alice.ask("mysql", 60.0), 40.0, "the wants of all clients are known now");
    alice.ask("mysql", 60.0);
    assert_eq!((carol.ask("mysql", 10.0), bob.ask("mysql", 90.0)), (10.0, 40.0));

    let status = server.status(&["mysql"]);
    let mysql = &status["resources"][0];
    assert!(mysql["learning_ms"].as_u64().unwrap() > 0, "{mysql}");
    assert_eq!((&mysql["held"], &mysql["wants"]), (&90.0.into(), &160.0.into()), "{mysql}");
    let row = server.cli(&["status"]).stdout;
    assert!(row.lines().any(|line| line.starts_with("mysql") && !line.contains(" no ")), "{row}");
}
