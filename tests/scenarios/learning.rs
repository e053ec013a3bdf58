//! Learning mode of a restarted server.

use rustix::process::Signal;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, Client},
    server::Server,
};

/// Alice has 60 and bob 30 of the 90 of `mysql`; then the server crashes. The clients, and a server that takes its
/// place.
fn crash(learning: u64) -> (Client, Client, Server) {
    let before = ConfigFile::of(&[Template::fair("*", 90.0)]);
    let server = Server::with_config(&before);
    let (mut alice, mut bob) = (server.client("alice"), server.client("bob"));
    assert_eq!((alice.ask("mysql", 60.0), bob.ask("mysql", 30.0)), (60.0, 30.0));
    server.signal(Signal::KILL);
    assert_eq!(server.finish().code, None, "the signal ended it");

    let after = ConfigFile::of(&[Template { learning, ..Template::fair("*", 90.0) }]);
    let server = Server::with_config(&after);
    alice.moves_to(server.doorman());
    bob.moves_to(server.doorman());
    (alice, bob, server)
}

#[test]
fn while_it_learns_clients_get_back_what_they_have_and_new_ones_what_others_give_up() {
    let (mut alice, mut bob, server) = crash(3600);
    let mut carol = server.client("carol");
    assert_eq!(alice.ask("mysql", 60.0), 60.0);
    assert_eq!(carol.ask("mysql", 10.0), 0.0);
    assert_eq!(bob.ask("mysql", 90.0), 30.0, "what it has, not what it wants");
    assert_eq!(carol.ask("mysql", 10.0), 0.0);
    assert_eq!(alice.ask("mysql", 60.0), 40.0, "now it is known what all want");
    alice.ask("mysql", 60.0);
    assert_eq!((carol.ask("mysql", 10.0), bob.ask("mysql", 90.0)), (10.0, 40.0));

    let status = server.status(&["mysql"]);
    let mysql = &status["resources"][0];
    assert!(mysql["learning_ms"].as_u64().unwrap() > 0, "{mysql}");
    assert_eq!((&mysql["held"], &mysql["wants"]), (&90.0.into(), &160.0.into()), "{mysql}");
    let row = server.cli(&["status"]).stdout;
    assert!(row.lines().any(|line| line.starts_with("mysql") && !line.contains(" no ")), "{row}");
}

#[test]
fn a_server_that_remembers_nothing_says_what_it_does_and_so_does_get() {
    let config = ConfigFile::of(&[Template { learning: 3600, ..Template::fair("*", 90.0) }]);
    let server = Server::with_config(&config);
    for part in ["without --data this server remembers nothing", "learning until ", "for 3600 s", "--data DIRECTORY"] {
        assert!(server.log().contains(part), "`{part}` is not in {}", server.log());
    }
    let said = server.cli(&["get", "carol", "mysql", "10"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains("carol has nothing of `mysql` yet (wanted 10): it is learning until "), "{said:?}");
    assert!(!said.stdout.contains("may use"), "{said:?}");
    let json: serde_json::Value =
        serde_json::from_str(&server.cli(&["get", "dan", "mysql", "10", "--json"]).stdout).unwrap();
    assert!(json["capacity"] == 0.0 && json["learning_ms"].as_u64().unwrap() > 0, "{json}");
    let quiet = Server::with_config(&ConfigFile::of(&[Template::fair("*", 90.0)]));
    assert!(!quiet.log().contains("learning until"), "{}", quiet.log());
}
