//! The first five minutes at the command line.

use crate::harness::{process::leaseway, server::Server};

#[test]
fn a_first_get_on_a_server_without_a_configuration_is_answered_with_capacity() {
    let server = Server::development();
    let said = server.cli(&["get", "alice", "mysql", "40"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        said.stdout,
        "alice may use 40 of `mysql` (wanted 40) for 60 s; ask again in 5 s; if the server is gone by then: 100\n"
    );
    let said = server.cli(&["get", "bob", "mysql", "1000"]);
    assert!(said.stdout.starts_with("bob may use 60 of `mysql` (wanted 1000)"), "{said:?}");
    assert!(server.log().contains("development server"), "{}", server.log());
}

#[test]
fn status_shows_the_server_its_resources_and_their_holders() {
    let server = Server::development();
    let said = server.cli(&["status"]);
    assert!(said.stdout.contains("no resources yet: the first request for one creates it"), "{said:?}");

    server.cli(&["get", "alice", "mysql", "40"]);
    let said = server.cli(&["status"]);
    assert!(said.stdout.contains(&format!("server {}", server.grpc())), "{said:?}");
    assert!(said.stdout.contains("configuration: development default, version 1"), "{said:?}");
    let row = said.stdout.lines().find(|line| line.starts_with("mysql")).expect("a row for it");
    assert!(row.split_whitespace().eq(["mysql", "100", "40", "40", "40", "1", "no", "FAIR_SHARE", "*"]), "{row}");

    let said = server.cli(&["status", "mysql"]);
    let row = said.stdout.lines().find(|line| line.starts_with("alice")).expect("a row for her");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..7], ["alice", "40", "40", "40", "40", "0", "1"], "{row}");

    let said = server.cli(&["status", "postgres"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("there is no resource `postgres` on this server"), "{said:?}");
    let holders = &server.status(&["mysql"])["resources"][0]["holder"];
    assert_eq!((&holders[0]["id"], &holders[0]["granted"]), (&"alice".into(), &40.0.into()), "{holders}");
}

#[test]
fn every_command_explains_itself() {
    for (command, mentions) in [
        (&["--help"][..], &["serve", "config", "get", "release", "status", "Try it:"][..]),
        (&["serve", "--help"], &["--listen", "LEASEWAY_LISTEN", "--config", "Limits"]),
        (&["config", "--help"], &["check", "example"]),
        (&["config", "check", "--help"], &["FILE"]),
        (&["get", "--help"], &["<CLIENT> <RESOURCE> <WANTS>", "--json", "127.0.0.1:5100"]),
        (&["release", "--help"], &["<RESOURCES>"]),
        (&["status", "--help"], &["--rows", "--json"]),
    ] {
        let said = leaseway(command);
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{command:?}");
        for mention in mentions {
            assert!(said.stdout.contains(mention), "{command:?} does not mention {mention}: {}", said.stdout);
        }
    }
    assert!(leaseway(&["--version"]).stdout.starts_with("leaseway "));
}

#[test]
fn what_the_server_refuses_is_said_with_its_words() {
    let server = Server::development();
    let said = server.cli(&["get", "", "mysql", "1"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    let expected = format!("the server at {} refused: client_id: must not be empty", server.grpc());
    assert!(said.stderr.contains(&expected), "{said:?}");
}

#[test]
fn a_server_that_cannot_be_reached_is_named_with_what_to_do() {
    // Nothing serves gRPC on the port of tcpmux.
    for command in [&["get", "alice", "mysql", "1"][..], &["release", "alice", "mysql"], &["status"]] {
        let said = leaseway(&[command, &["--server", "127.0.0.1:1"]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(69), ""), "{said:?}");
        for part in ["cannot reach a server at 127.0.0.1:1", "refused", "--server takes several addresses"] {
            assert!(said.stderr.contains(part), "`{part}` is not in {}", said.stderr);
        }
        assert!(!said.stderr.contains("leaseway serve"), "a lone server would give away what peers promised: {said:?}");
    }
}

#[test]
fn the_readme_shows_the_quickstart_as_it_is() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let example = std::fs::read_to_string(root.join("src/client/examples/quickstart.rs")).unwrap();
    let (_, code) = example.split_once("use leaseway_client").unwrap();
    assert!(readme.contains(&format!("```rust\nuse leaseway_client{code}```")), "README.md shows another quickstart");
}
