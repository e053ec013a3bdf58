//! Output at a terminal: hostile ids, addresses as people write them, servers that are down, wrong ports.

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::Asks as _,
    process::{Said, leaseway, leaseway_reading},
    server::{ANYWHERE, Server},
};

/// Clears a screen, begins a line of the log, turns what follows around, and cannot be seen.
const CLIENT: &str = "\u{1b}[2J\n2026-01-01T00:00:00Z ERROR forged\u{202e}";
const RESOURCE: &str = "my\r\nsql\u{9b}31m\u{200b}";

const SEEN: [&str; 2] = ["\\u001b[2J\\n2026-01-01T00:00:00Z ERROR forged\\u202e", "my\\r\\nsql\\u009b31m\\u200b"];

#[track_caller]
fn assert_tame(text: &str) {
    let wild = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202e}' | '\u{200b}');
    assert!(!text.contains(wild), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("2026-01-01")), "a line is forged: {text:?}");
}

#[track_caller]
fn shown(said: &Said, code: i32, seen: &[&str]) {
    assert_eq!(said.code, Some(code), "{said:?}");
    let text = format!("{}{}", said.stdout, said.stderr);
    assert_tame(&text);
    for part in seen {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
}

#[test]
fn an_id_moves_no_cursor_and_begins_no_line_wherever_it_is_read() {
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("other", 100.0)]));
    shown(&server.cli(&["get", CLIENT, RESOURCE, "40"]), 0, &SEEN);
    shown(&server.cli(&["status"]), 0, &SEEN[1..]);
    shown(&server.cli(&["status", RESOURCE]), 0, &SEEN);
    shown(&server.cli(&["status", CLIENT]), 1, &SEEN[..1]);
    let json = server.cli(&["status", RESOURCE, "--json"]);
    shown(&json, 0, &SEEN);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["resources"][0]["resource"], RESOURCE, "and it is the same id");
    assert_eq!(json["resources"][0]["holder"][0]["id"], CLIENT);
    let commands = format!("get '{CLIENT}' '{RESOURCE}' 1\nshow\nmaster\n");
    // A line of the shell ends where a line ends.
    let commands = commands.replace('\n', "").replace("1show", "1\nshow").replace("master", "\nmaster\n");
    let said = leaseway_reading(&["shell", "--server", &server.grpc().to_string()], &commands);
    shown(&said, 0, &["\\u001b[2J2026", "forged\\u202e", "sql\\u009b31m"]);
    for path in ["/debug/status", "/debug/resources", "/debug/resources?resource=my%0D%0Asql%C2%9B31m%E2%80%8B"] {
        let page = server.page(path);
        assert_tame(&page);
        assert!(page.contains(SEEN[1]), "{path}: {page}");
    }
    shown(&server.cli(&["release", CLIENT, RESOURCE]), 0, &SEEN);
    let log = server.log();
    assert_tame(&log);
    assert!(log.contains(&format!("resource={}", SEEN[1])), "{log}");
}

#[test]
fn servers_are_named_as_people_name_them_and_a_dead_one_costs_nothing() {
    let server = Server::development();
    let port = server.grpc().port();
    for list in [
        format!("localhost:{port}"),
        format!("http://127.0.0.1:{port}/"),
        format!("127.0.0.1:1,127.0.0.1:{port}"),
        format!("nowhere.invalid:1,localhost:{port}"),
    ] {
        for command in [&["get", "alice", "mysql", "1"][..], &["status"], &["release", "alice", "mysql"]] {
            let said = leaseway(&[command, &["--server", &list]].concat());
            assert_eq!(said.code, Some(0), "{list} {said:?}");
        }
        let said = leaseway_reading(&["shell", "--server", &list], "get bob mysql 2\nwatch mysql\nshow\n");
        assert!(said.code == Some(0) && said.stdout.contains("ends in: "), "{list} {said:?}");
    }
    let said = server.cli(&["get", "alice", "mysql", "1", "--timeout", "0"]);
    assert!(said.code == Some(2) && said.stderr.contains("0 is not in 1..=3600"), "{said:?}");
    for (address, says) in
        [("grpc://localhost:5100", "unknown scheme"), ("localhost:x", "port `x`"), (":1", "no host"), ("", "no host")]
    {
        for flag in [&["status", "--server", address][..], &["peers", "list", "--admin", address]] {
            let said = leaseway(flag);
            assert!(said.code == Some(2) && said.stderr.contains(says), "{said:?}");
        }
    }
}

#[test]
fn the_wrong_port_is_recognised_and_the_right_one_named() {
    let server = Server::with_flags(&["--admin", ANYWHERE]);
    let admin = server.admin();
    let (grpc, http) = (server.grpc().to_string(), server.http().to_string());
    for (at, command, says) in [
        (
            &http,
            &["get", "a", "b", "1"][..],
            "answers HTTP, not gRPC: this is the --http port of a server; clients use --listen, 5100",
        ),
        (&http, &["status"], "this is the --http port"),
        (&admin, &["get", "a", "b", "1"], "is the --admin port of a server, for operators; clients use --listen, 5100"),
        (&admin, &["release", "a", "b"], "is the --admin port"),
        (&admin, &["status"], "is the --admin port"),
    ] {
        let said = leaseway(&[command, &["--server", at]].concat());
        assert!(said.code == Some(69) && said.stderr.contains(says), "{command:?}: {said:?}");
        assert!(said.stderr.contains(at.as_str()), "{said:?}");
    }
    for (at, says) in [
        (&http, "answers HTTP, not gRPC: this is the --http port of a server; operators use --admin, 5160"),
        (&grpc, "is the --listen port of a server, for clients; operators use --admin, 5160"),
    ] {
        for command in [&["peers", "list"][..], &["config", "show"], &["pool", "show", "x"]] {
            let said = leaseway(&[command, &["--admin", at]].concat());
            assert!(said.code == Some(69) && said.stderr.contains(says), "{command:?}: {said:?}");
        }
    }
}

#[test]
fn all_rows_are_had_however_many_there_are() {
    let server = Server::development();
    for n in 0..1001 {
        server.client("alice").ask(&format!("resource {n:04}"), 1.0);
        server.client(&format!("client {n:04}")).ask("resource 0000", 1.0);
    }
    let rows = |arguments: &[&str], list: fn(&Value) -> &Value| {
        let answer = server.status(arguments);
        (list(&answer).as_array().unwrap().len(), answer["next_page_token"] != "")
    };
    let resources: fn(&Value) -> &Value = |answer| &answer["resources"];
    let holders: fn(&Value) -> &Value = |answer| &answer["resources"][0]["holder"];
    assert_eq!(rows(&[], resources), (100, true));
    assert_eq!(rows(&["--rows", "1001"], resources), (1001, false));
    assert_eq!(rows(&["--all"], resources), (1001, false));
    assert_eq!(rows(&["resource 0000", "--all"], holders), (1002, false));
    assert_eq!(rows(&["resource 0000", "--rows", "1001"], holders), (1001, true));
    let said = server.cli(&["status", "--rows", "2"]);
    assert!(said.stdout.contains("2 of 1001 resources") && said.stdout.contains("--all shows all"), "{said:?}");
    let said = server.cli(&["status", "resource 0000", "--rows", "2"]);
    assert!(said.stdout.contains("2 of 1002 holders"), "{said:?}");

    for path in ["/debug/status", "/debug/resources"] {
        let page = server.page(path);
        assert!(page.contains("1000 of 1001 resources shown"), "{path}");
        assert!(!page.contains(">resource 1000<"), "{path}");
        let (_, link) = page.split_once("href=\"/debug/resources?after=").expect("a link to the rest");
        let link = link.split('"').next().unwrap();
        let next = server.page(&format!("/debug/resources?after={link}"));
        assert!(next.contains(">resource 1000<") && !next.contains("more resources"), "{path}: {link}");
    }
}
