//! `leaseway shell`, with commands from a pipe.

use crate::harness::{
    process::{Said, leaseway_reading},
    server::Server,
};

fn shell(server: &Server, commands: &str) -> Said {
    leaseway_reading(&["shell", "--server", &server.grpc().to_string()], commands)
}

/// The output without the lines that say when leases end.
fn without_ends(said: &Said) -> String {
    let is_end = |line: &&str| line.starts_with("ends in: ") && line.ends_with(" s");
    said.stdout.lines().filter(|line| !is_end(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn several_clients_have_leases_and_release_everything_at_the_end() {
    let server = Server::shared();
    let said = shell(server, "get alice shell 40\nget bob shell 1000\nshow\nmaster\n");
    let address = server.grpc();
    let expected = format!(
        "client: \"alice\"\nresource: \"shell\"\ncapacity: 40\n\n\
         client: \"bob\"\nresource: \"shell\"\ncapacity: 60\n\nalice: {address}\nbob: {address}\n"
    );
    assert_eq!((without_ends(&said), said.stderr, said.code), (expected, String::new(), Some(0)));
    assert_eq!(server.status(&["shell"])["resources"][0]["holders"], 0);
}

#[test]
fn a_failed_command_is_named_by_its_line_and_the_rest_is_done() {
    let commands = "gte alice fails 40\nrelease carol x\nget alice fails -1\nget alice fails 40\nshow\nwatch fails\n";
    let said = shell(Server::shared(), commands);
    assert_eq!(said.code, Some(1));
    for part in ["line 1: unknown command `gte`", "line 2: carol has not requested `x`", "line 3: a capacity of -1"] {
        assert!(said.stderr.contains(part), "`{part}` is not in {}", said.stderr);
    }
    assert!(said.stdout.contains("capacity: 40") && said.stdout.contains("AFTER"), "{said:?}");
}
