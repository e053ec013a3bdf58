//! The first five minutes, with the command line only.

use serde_json::Value;

use crate::harness::{
    process::{Process, leaseway},
    server::Server,
};

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
fn the_answer_can_be_had_as_json() {
    let server = Server::development();
    let said = server.cli(&["get", "--json", "alice", "mysql", "40", "--priority", "-3"]);
    let answer: Value = serde_json::from_str(&said.stdout).unwrap();
    for (key, expected) in [
        ("client", Value::from("alice")),
        ("resource", "mysql".into()),
        ("wants", 40.0.into()),
        ("capacity", 40.0.into()),
        ("refresh_interval", 5.into()),
        ("remaining_ms", 60_000.into()),
        ("safe_capacity", 100.0.into()),
        ("priority", (-3).into()),
    ] {
        assert_eq!(answer[key], expected, "{key} in {answer}");
    }
    assert!(answer["expiry_time"].is_i64() && answer["token"].is_string(), "{answer}");
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
fn what_is_released_is_there_for_others() {
    let server = Server::development();
    server.cli(&["get", "alice", "mysql", "100"]);
    let said = server.cli(&["get", "bob", "mysql", "100"]);
    assert!(said.stdout.starts_with("bob may use 0 of `mysql`"), "all of it is alice's: {said:?}");
    let said = server.cli(&["release", "alice", "mysql", "never asked for"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), "alice gave back mysql\n"));
    let said = server.cli(&["get", "bob", "mysql", "100"]);
    assert!(said.stdout.starts_with("bob may use 100 of `mysql`"), "{said:?}");
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
fn wants_that_are_no_amount_are_refused_by_name() {
    for (wants, why) in [
        ("-1", "must not be negative"),
        ("NaN", "must be a finite number"),
        ("inf", "must be a finite number"),
        ("1e16", "must be at most 1e15"),
        ("much", "expected a number"),
    ] {
        let said = leaseway(&["get", "alice", "mysql", wants]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains("<WANTS>") && said.stderr.contains(why), "{said:?}");
    }
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
fn status_says_whether_there_is_more_than_it_shows() {
    let server = Server::development();
    for (client, resource) in [("alice", "a"), ("alice", "b"), ("bob", "b")] {
        server.cli(&["get", client, resource, "1"]);
    }
    for (arguments, more) in [
        (&["status", "--rows", "1"][..], true),
        (&["status", "--rows", "2"], false),
        (&["status", "b", "--rows", "1"], true),
        (&["status", "b", "--rows", "2"], false),
    ] {
        let said = server.cli(arguments);
        assert_eq!(said.stdout.contains("there are more than"), more, "{arguments:?}: {said:?}");
    }
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
fn the_error_says_which_variable_named_the_address() {
    for (command, variable) in [(&["status"][..], "LEASEWAY_SERVER"), (&["peers", "list"], "LEASEWAY_ADMIN")] {
        let said = Process::start(command, &[(variable, "127.0.0.1:1")]).finish();
        assert_eq!(said.code, Some(69), "{said:?}");
        assert!(said.stderr.contains(&format!("The address is from {variable}")), "{said:?}");
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

#[test]
fn a_release_of_nothing_is_no_success() {
    let server = Server::development();
    server.cli(&["get", "alice", "mysql", "40"]);
    for (client, resource) in [("nosuch", "mysql"), ("alice", "nosuch")] {
        let said = server.cli(&["release", client, resource]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{said:?}");
        assert!(said.stderr.contains(&format!("`{client}` has nothing of {resource}")), "{said:?}");
    }
    let said = server.cli(&["release", "alice", "mysql", "nosuch"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), "alice gave back mysql\n"), "{said:?}");
    let said = server.cli(&["release", "alice", "mysql"]);
    assert_eq!(said.code, Some(1), "it was given back before: {said:?}");
}

#[test]
fn a_port_alone_is_no_address_and_the_error_says_what_to_write() {
    for (flag, text) in [("--listen", "5100"), ("--http", ":5100"), ("--admin", "localhost:5100")] {
        let said = leaseway(&["serve", flag, text]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains("write 127.0.0.1:5100"), "{said:?}");
    }
}
