//! `leaseway shell`, with commands from a pipe.

use crate::harness::{
    process::{Said, leaseway_reading},
    server::Server,
};

fn shell(server: &Server, commands: &str) -> Said {
    leaseway_reading(&["shell", "--server", &server.grpc().to_string()], commands)
}

/// Without the lines that say when leases end, of which there are as many.
fn without_ends(said: &Said) -> String {
    let is_end = |line: &&str| line.starts_with("ends in: ") && line.ends_with(" s");
    let ends = said.stdout.lines().filter(is_end).count();
    assert_eq!(ends, said.stdout.matches("capacity: ").count(), "{said:?}");
    said.stdout.lines().filter(|line| !is_end(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn several_clients_are_played_and_give_everything_back_at_the_end() {
    let server = Server::development();
    let said = shell(&server, "get alice mysql 40\nget bob mysql 1000\nshow\nmaster\n");
    let address = server.grpc();
    let expected = format!(
        "client: \"alice\"\nresource: \"mysql\"\ncapacity: 40\n\n\
         client: \"bob\"\nresource: \"mysql\"\ncapacity: 60\n\nalice: {address}\nbob: {address}\n"
    );
    assert_eq!((without_ends(&said), said.stderr, said.code), (expected, String::new(), Some(0)));
    assert_eq!(server.status(&["mysql"])["resources"][0]["holders"], 0);
}

#[test]
fn released_capacity_is_there_for_others_and_wants_can_be_changed() {
    let server = Server::development();
    let said = shell(&server, "get alice mysql 90\nrelease alice mysql\nget bob mysql 70\nget bob mysql 100\nshow\n");
    assert_eq!(without_ends(&said), "client: \"bob\"\nresource: \"mysql\"\ncapacity: 100\n\n", "{said:?}");
}

#[test]
fn watch_shows_a_resource_once_without_a_terminal() {
    let server = Server::development();
    let said = shell(&server, "get alice mysql 40\nwatch mysql\n");
    let rows: Vec<_> = said.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(rows[0], ["AFTER", "CAPACITY", "WANTS", "GRANTED", "HELD", "CLIENTS", "LEARNING"]);
    assert_eq!(rows[1][2..], ["100", "40", "40", "40", "1", "no"]);
}

#[test]
fn what_cannot_be_done_is_named_by_its_line_and_the_rest_is_done() {
    let server = Server::development();
    let said = shell(&server, "gte alice mysql 40\nrelease carol x\nget alice mysql -1\nget alice mysql 40\nshow\n");
    assert_eq!(said.code, Some(1));
    for part in ["line 1: there is no command `gte`", "line 2: carol has asked for no `x`", "line 3: a capacity of -1"]
    {
        assert!(said.stderr.contains(part), "`{part}` is not in {}", said.stderr);
    }
    assert!(said.stdout.contains("capacity: 40"), "{said:?}");
}

#[test]
fn without_a_server_the_shell_says_why_there_is_no_lease() {
    let said = leaseway_reading(&["shell", "--server", "127.0.0.1:1"], "get alice mysql 40\n");
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("line 1: there is no lease yet: 127.0.0.1:1"), "{said:?}");
}
