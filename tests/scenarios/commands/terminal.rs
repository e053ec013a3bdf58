//! Output at a terminal: hostile ids, and errors that recognise a wrong port.

use serde_json::Value;

use crate::harness::{
    doorman::Asks as _,
    process::{Output, leaseway, leaseway_reading},
    server::{ANYWHERE, Server},
};

/// Ids that clear the screen, forge a log line, reverse the text direction and contain invisible characters.
const CLIENT: &str = "\u{1b}[2J\n2026-01-01T00:00:00Z ERROR forged\u{202e}";
const RESOURCE: &str = "my\r\nsql\u{9b}31m\u{200b}";

const SEEN: [&str; 2] = ["\\u001b[2J\\n2026-01-01T00:00:00Z ERROR forged\\u202e", "my\\r\\nsql\\u009b31m\\u200b"];

#[track_caller]
fn assert_harmless(text: &str) {
    let harmful = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202e}' | '\u{200b}');
    assert!(!text.contains(harmful), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("2026-01-01")), "a line was forged: {text:?}");
}

#[track_caller]
fn shown(output: &Output, code: i32, seen: &[&str]) {
    assert_eq!(output.code, Some(code), "{output:?}");
    let text = format!("{}{}", output.stdout, output.stderr);
    assert_harmless(&text);
    for part in seen {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
}

#[test]
fn a_hostile_id_is_escaped_in_all_terminal_output() {
    let server = Server::development();
    shown(&server.cli(&["get", CLIENT, RESOURCE, "40"]), 0, &SEEN);
    shown(&server.cli(&["status"]), 0, &SEEN[1..]);
    shown(&server.cli(&["status", RESOURCE]), 0, &SEEN);
    shown(&server.cli(&["status", CLIENT]), 1, &SEEN[..1]);
    let json = server.cli(&["status", RESOURCE, "--json"]);
    shown(&json, 0, &SEEN);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["resources"][0]["resource"], RESOURCE, "JSON has the id unchanged");
    // The shell reads one command per line, so these ids have no line breaks.
    let [client, resource] = [CLIENT, RESOURCE].map(|id| id.replace(['\r', '\n'], ""));
    let output = leaseway_reading(
        &["shell", "--server", &server.grpc().to_string()],
        &format!("get '{client}' '{resource}' 1\nshow\nmaster\n"),
    );
    shown(&output, 0, &["\\u001b[2J2026", "forged\\u202e", "sql\\u009b31m"]);
    let page = server.page("/resources");
    assert_harmless(&page);
    assert!(page.contains(SEEN[1]), "{page}");
    shown(&server.cli(&["release", CLIENT, RESOURCE]), 0, &SEEN);
}

/// No template matches the resource, so the server logs its id.
#[test]
fn a_hostile_id_forges_no_log_line() {
    let config = crate::harness::config::ConfigFile::of(&[crate::harness::config::Template::fair("other", 100.0)]);
    for format in ["text", "json"] {
        let server = Server::with_flags(&["--config", config.path(), "--log-format", format]);
        assert_eq!(server.client(CLIENT).ask(RESOURCE, 40.0), 40.0);
        let log = server.stop().stderr;
        assert_harmless(&log);
        if format == "text" {
            assert!(log.contains(&format!("resource={}", SEEN[1])), "{log}");
            continue;
        }
        let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.iter().any(|line| line["fields"]["resource"] == RESOURCE), "{log}");
    }
}

#[test]
fn errors_about_a_wrong_port_name_the_right_one() {
    let server = Server::with_flags(&["--admin", ANYWHERE]);
    let admin = server.admin();
    let (grpc, http) = (server.grpc().to_string(), server.http().to_string());
    for (at, command, says) in [
        (
            &http,
            &["get", "a", "b", "1"][..],
            "answers HTTP, not gRPC: this is the --http port of a server; clients use --listen, 5100",
        ),
        (&admin, &["get", "a", "b", "1"], "is the --admin port of a server, for operators; clients use --listen, 5100"),
        (&admin, &["status"], "is the --admin port"),
    ] {
        let output = leaseway(&[command, &["--server", at]].concat());
        assert!(output.code == Some(69) && output.stderr.contains(says), "{command:?}: {output:?}");
        assert!(output.stderr.contains(at.as_str()), "{output:?}");
    }
    for (at, says) in [
        (&http, "answers HTTP, not gRPC: this is the --http port of a server; operators use --admin, 5160"),
        (&grpc, "is the --listen port of a server, for clients; operators use --admin, 5160"),
    ] {
        for command in [&["peers", "list"][..], &["config", "show"], &["pool", "show", "x"]] {
            let output = leaseway(&[command, &["--admin", at]].concat());
            assert!(output.code == Some(69) && output.stderr.contains(says), "{command:?}: {output:?}");
        }
    }
}
