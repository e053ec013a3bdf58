//! Invalid requests are refused with the right code and the field by name, and harm no other client.

use leaseway_proto::doorman::{Lease, ResourceRequest};
use tonic::Code;

use crate::harness::{
    doorman::{Asks as _, assert_left_out, assert_problem, assert_refused, entry, node_request, request},
    process::leaseway,
    server::{Server, babble},
    wait::{block_on, eventually},
};

#[test]
fn numbers_that_are_no_amounts_are_named() {
    let server = Server::development();
    let doorman = server.doorman();
    for (number, why) in [
        (f64::NAN, "finite"),
        (f64::INFINITY, "finite"),
        (f64::NEG_INFINITY, "finite"),
        (-1.0, "negative"),
        (-f64::MIN_POSITIVE, "negative"),
        (1.1e15, "1e15"),
    ] {
        let answer = doorman.get(request("alice", vec![entry("mysql", number)]));
        assert_left_out(answer, "bad_value", &["resource[0].wants", why]);
        let answer = doorman.get_server(node_request("child", "mysql", &[(1, number)]));
        assert_left_out(answer, "bad_value", &["resource[0].wants[0].wants", why]);
        assert_eq!(server.status(&[])["resources_total"], 0, "nothing comes to life for that");
    }
    for (number, why) in [(f64::NAN, "finite"), (-1.0, "negative"), (1.1e15, "1e15")] {
        let has = Lease {
            capacity: Some(number),
            expiry_time: Some(i64::MAX),
            refresh_interval: Some(1),
            ..Default::default()
        };
        let has = ResourceRequest { has: Some(has), ..entry("mysql", 1.0) };
        let outstanding = ResourceRequest { outstanding: Some(number), ..entry("mysql", 1.0) };
        for (asks, field) in [(has, "resource[0].has.capacity"), (outstanding, "resource[0].outstanding")] {
            let answer = doorman.get(request("alice", vec![asks])).unwrap();
            assert_problem(&answer.problem, "bad_value", &[field, why]);
            assert_eq!(answer.response.len(), 1, "it is answered: the lease that it gets makes sense");
        }
    }
    server.assert_alive();
}

#[test]
fn too_much_at_once_is_answered_in_part_and_the_flag_named_that_allows_more() {
    let server = Server::with_flags(&["--max-resources-per-request", "3", "--max-bands", "2"]);
    let doorman = server.doorman();
    let entries = |n: usize| (0..n).map(|at| entry(&at.to_string(), 1.0)).collect();
    assert_eq!(doorman.get(request("alice", entries(3))).unwrap().response.len(), 3);
    let says = ["resource: 4 entries", "3 at a time", "--max-resources-per-request"];
    let answer = doorman.get(request("bob", entries(4))).unwrap();
    assert_eq!(answer.response.len(), 3);
    assert_problem(&answer.problem, "too_many_in_request", &says);
    let released = doorman.try_release("alice", &["0", "1", "2", "3"]).unwrap();
    let says = ["resource_id: 4 entries", "at most 3", "--max-resources-per-request"];
    assert_problem(&released.problem, "too_many_in_request", &says);
    let says = ["resource[0].wants: 3 entries", "at most 2", "--max-bands"];
    let answer = doorman.get_server(node_request("child", "mysql", &[(1, 1.0); 3]));
    assert_left_out(answer, "too_many_bands", &says);
    server.assert_alive();
}

#[test]
fn a_message_that_is_too_large_is_refused() {
    let server = Server::with_flags(&["--max-message-bytes", "2000"]);
    let doorman = server.doorman();
    let entries = |n| vec![entry("mysql", 1.0); n];
    let answer = doorman.get(request("alice", entries(1000)));
    assert_refused(answer, Code::OutOfRange, &["2000"]);
    assert_eq!(doorman.get(request("alice", entries(10))).unwrap().response.len(), 10, "the connection goes on");
    server.assert_alive();
}

#[test]
fn a_long_message_comes_and_goes_in_many_pieces() {
    let server = Server::development();
    // A frame of HTTP/2 takes 16 KiB, and this is ten times as much.
    let ids: Vec<String> = (0..800).map(|at| format!("{at}-{}", "r".repeat(200))).collect();
    let entries = ids.iter().map(|id| entry(id, 1.0)).collect();
    let answer = server.doorman().get(request("alice", entries)).unwrap();
    let answered: Vec<_> = answer.response.iter().map(|response| response.resource_id()).collect();
    assert_eq!(answered, ids);
    server.assert_alive();
}

#[test]
fn a_compressed_message_is_answered_with_the_encodings_that_are_understood() {
    let server = Server::development();
    let call = |encoding: &'static str| {
        let mut call = tonic::Request::new(request("alice", vec![entry("mysql", 40.0)]));
        call.metadata_mut().insert("grpc-encoding", encoding.parse().unwrap());
        block_on(server.doorman().inner().get_capacity(call))
    };
    let answer = call("identity").unwrap().into_inner();
    assert_eq!(answer.response[0].resource_id(), "mysql");
    assert_refused(call("gzip").map(tonic::Response::into_inner), Code::Unimplemented, &["gzip"]);
    server.assert_alive();
}

#[test]
fn malformed_messages_and_bytes_that_are_not_http_harm_no_other_client() {
    let server = Server::development();
    let raw = server.raw();
    for nonsense in [&[0xff; 40][..], &[0x0a, 200, 1], &[0x0a, 2, 0xff, 0xfe]] {
        for method in ["GetCapacity", "GetServerCapacity", "ReleaseCapacity"] {
            let status = raw.call(method, nonsense.to_vec()).expect_err("no message");
            assert_ne!(status.code(), Code::Unavailable, "answered, not dropped: {status:?}");
        }
    }
    let status = raw.call("Unheard", Vec::new()).expect_err("no such method");
    assert_eq!(status.code(), Code::Unimplemented);
    for nonsense in [
        &b"hello?\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff",
        &[0; 10_000],
    ] {
        babble(server.grpc(), nonsense);
        babble(server.http(), nonsense);
    }
    server.assert_alive();
}

#[test]
fn people_are_told_why_a_resource_was_left_out() {
    let server = Server::with_flags(&["--max-clients-per-resource", "1"]);
    let address = server.grpc().to_string();
    let get = |client: &str, resource: &str| leaseway(&["get", client, resource, "1", "--server", &address]);
    assert_eq!(get("alice", "mysql").code, Some(0));
    for (client, resource, why) in [
        ("bob", "mysql", "--max-clients-per-resource"),
        ("bob", &"i".repeat(257), "resource[0].resource_id: is 257 bytes"),
    ] {
        let said = get(client, resource);
        assert_eq!(said.code, Some(1), "{}", said.stderr);
        assert!(said.stderr.contains("gave no lease") && said.stderr.contains(why), "{}", said.stderr);
    }
}

#[test]
fn a_client_that_asks_too_soon_is_named_in_log_and_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.jsonl");
    let server = Server::with_flags(&["--audit", audit.to_str().unwrap()]);
    let mut hasty = server.client("hasty");
    hasty.ask("mysql", 40.0);
    assert!(hasty.try_ask("mysql", 40.0).unwrap().is_none(), "nothing has changed since");
    eventually("the log names it", || {
        let log = server.log();
        log.lines().any(|line| line.contains("hasty") && line.contains("too_soon")).then_some(())
    });
    let line = eventually("the audit log names it", || {
        let text = std::fs::read_to_string(&audit).unwrap();
        text.lines().find(|line| line.contains("asked_too_soon")).map(str::to_owned)
    });
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["client"], &line["resource"]), (&"hasty".into(), &"mysql".into()), "{line}");
    assert_eq!(line["address"], "127.0.0.1", "{line}");
}
