//! `--log-format json`: each line of the log is an object.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    process::Process,
    server::{ANYWHERE, Server},
    wait::eventually,
};

/// Clears a screen, begins a line, ends a string of JSON, turns what follows around.
const HOSTILE: &str = "a\u{1b}[2J\n{\"level\":\"ERROR\"}\",\"\u{9b}\u{202e}";

#[track_caller]
fn objects(log: &str) -> Vec<Value> {
    let wild = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(!log.contains(wild), "{log:?}");
    let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let objects: Vec<Value> = log.lines().map(read).collect();
    assert!(!objects.is_empty());
    for object in &objects {
        let names: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["fields", "level", "message", "target", "time"], "{object}");
        assert!(object["fields"].is_object() && object["message"].is_string(), "{object}");
        assert!(object["time"].as_str().unwrap().ends_with('Z'), "{object}");
    }
    objects
}

#[test]
fn every_line_of_a_servers_log_is_an_object_and_ids_stay_within_their_field() {
    let config = ConfigFile::of(&[Template::fair("other", 100.0)]);
    let flags = ["--config", config.path(), "--log-format", "json", "--log", "debug"];
    let server = Server::with_flags(&flags);
    let said = server.cli(&["get", "alice", HOSTILE, "40"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let log = server.stop().stderr;
    let found = objects(&log);
    let of_resource = found.iter().find(|object| object["fields"]["resource"] == HOSTILE);
    let object = of_resource.unwrap_or_else(|| panic!("no event has the id as it is: {log}"));
    assert_ne!(object["level"], "ERROR");
}

#[test]
fn a_gateway_writes_objects_where_its_variable_says_so() {
    let variables = [("LEASEWAY_LOG_FORMAT", "json"), ("LEASEWAY_LOG", "debug")];
    let gateway = Process::start(&["gateway", "--http", ANYWHERE, "--server", "127.0.0.1:1"], &variables);
    eventually("the gateway serves", || gateway.stdout().contains("serving").then_some(()));
    gateway.signal(Signal::TERM);
    objects(&gateway.finish().stderr);
}
