//! `leaseway shell`, with commands from a pipe.

use crate::harness::{
    process::{Output, leaseway_reading},
    server::Server,
};

fn shell(server: &Server, commands: &str) -> Output {
    leaseway_reading(&["shell", "--server", &server.grpc().to_string()], commands)
}

/// The output without the remaining times of leases.
fn without_ends(output: &Output) -> String {
    let is_end = |line: &&str| line.starts_with("ends in: ") && line.ends_with(" s");
    output.stdout.lines().filter(|line| !is_end(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_shell_runs_several_clients_and_releases_their_leases() {
    let server = Server::shared();
    let output = shell(server, "get alice shell 40\nget bob shell 1000\nshow\nmaster\n");
    let address = server.grpc();
    let expected = format!(
        "client: \"alice\"\nresource: \"shell\"\ncapacity: 40\n\n\
         client: \"bob\"\nresource: \"shell\"\ncapacity: 60\n\nalice: {address}\nbob: {address}\n"
    );
    assert_eq!((without_ends(&output), output.stderr, output.code), (expected, String::new(), Some(0)));
    assert_eq!(server.status(&["shell"])["resources"][0]["holders"], 0);
}

#[test]
fn a_failed_shell_command_names_its_line_and_the_rest_runs() {
    let commands = "gte alice fails 40\nrelease carol x\nget alice fails -1\nget alice fails 40\nshow\nwatch fails\n";
    let output = shell(Server::shared(), commands);
    assert_eq!(output.code, Some(1));
    for part in ["line 1: unknown command `gte`", "line 2: carol has not requested `x`", "line 3: a capacity of -1"] {
        assert!(output.stderr.contains(part), "`{part}` is not in {}", output.stderr);
    }
    assert!(output.stdout.contains("capacity: 40") && output.stdout.contains("AFTER"), "{output:?}");
}
