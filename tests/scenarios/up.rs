//! `leaseway up`: what is refused before anything is started, and what does not outlive it.

use std::net::TcpListener;

use crate::harness::{
    config::ConfigFile,
    process::{Process, leaseway},
    server::ANYWHERE,
    wait::eventually,
};

#[test]
fn a_server_that_was_started_by_up_does_not_outlive_it() {
    let flags = ["serve", "--listen", ANYWHERE, "--http", ANYWHERE];
    let mut tied = Process::start_reading(&flags, &[("LEASEWAY_UP_TETHER", "stdin")]);
    eventually("it serves", || tied.stdout().contains("serving gRPC").then_some(()));
    assert!(tied.ended().is_none(), "the other end of the pipe is there");
    tied.close_input();
    assert_eq!(tied.finish().code, Some(0), "it has stopped as if asked to");
}

#[test]
fn the_commands_can_be_looked_at_and_run_by_hand() {
    let said = leaseway(&["up", "--print", "--data", "/tmp/somewhere"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let lines: Vec<_> = said.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{said:?}");
    for (line, name) in lines.iter().zip(["a", "b", "c"]) {
        assert!(line.contains(&format!("serve --id {name} ")) && line.contains("--bootstrap"), "{line}");
        assert!(line.contains(&format!("--data /tmp/somewhere/root/{name} ")), "{line}");
    }
    assert!(!std::path::Path::new("/tmp/somewhere").exists(), "nothing is made");
}

#[test]
fn the_example_is_what_runs_without_a_file() {
    let example = ConfigFile::new(&leaseway(&["up", "--example"]).stdout);
    let commands = |arguments: &[&str]| {
        let said = leaseway(&[&["up", "--print", "--data", "d"], arguments].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout
    };
    assert_eq!(commands(&[example.path()]), commands(&[]));
}

#[test]
fn mistakes_are_told_with_their_places_and_nothing_is_started() {
    let file = ConfigFile::new("nodes:\n  root:\n    options: {timing: never}\n    peers: {a: {grpc: x}}\n");
    let said = leaseway(&["up", file.path()]);
    assert_eq!(said.code, Some(78), "{said:?}");
    for place in ["3:15", "4:13", "4:23"] {
        assert!(said.stderr.contains(&format!("{}:{place}: ", file.path())), "{place} is not in {}", said.stderr);
    }
    assert_eq!(said.stdout, "");
    assert_eq!(leaseway(&["up", "/no/such/file"]).code, Some(78));
}

#[test]
fn a_port_that_is_taken_is_named_before_anything_is_made() {
    let taken = TcpListener::bind(ANYWHERE).unwrap();
    let address = taken.local_addr().unwrap();
    let text = format!(
        "nodes: {{root: {{peers: {{a: {{grpc: '{ANYWHERE}', http: '{ANYWHERE}', admin: '{ANYWHERE}', peer: '{address}'}}}}}}}}"
    );
    let file = ConfigFile::new(&text);
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().join("data");
    let said = leaseway(&["up", file.path(), "--data", directory.to_str().unwrap()]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains(&format!("peer of a: {address}: ")), "{said:?}");
    assert!(!directory.exists());
}
