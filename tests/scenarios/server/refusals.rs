//! Invalid requests are refused with the right code, name the invalid field, and harm no other client.

use leaseway_proto::doorman::{Lease, ResourceRequest};
use tonic::Code;

use crate::harness::{
    doorman::{Asks as _, assert_left_out, assert_problem, assert_refused, entry, node_request, request},
    process::leaseway,
    server::{Server, babble},
    wait::{block_on, eventually},
};

#[test]
fn invalid_amounts_are_refused_by_field() {
    let server = Server::shared();
    let doorman = server.doorman();
    for (number, why) in [
        (f64::NAN, "finite"),
        (f64::INFINITY, "finite"),
        (-1.0, "negative"),
        (-f64::MIN_POSITIVE, "negative"),
        (1.1e15, "1e15"),
    ] {
        let answer = doorman.get(request("alice", vec![entry("no amount", number)]));
        assert_left_out(answer, "bad_value", &["resource[0].wants", why]);
        let answer = doorman.get_server(node_request("child", "no amount", &[(1, number)]));
        assert_left_out(answer, "bad_value", &["resource[0].wants[0].wants", why]);
        assert_eq!(server.cli(&["status", "no amount"]).code, Some(1), "an invalid entry creates no resource");
        let has = Lease {
            capacity: Some(number),
            expiry_time: Some(i64::MAX),
            refresh_interval: Some(1),
            ..Default::default()
        };
        let has = ResourceRequest { has: Some(has), ..entry("an amount", 1.0) };
        let outstanding = ResourceRequest { outstanding: Some(number), ..entry("an amount", 1.0) };
        for (asks, field) in [(has, "resource[0].has.capacity"), (outstanding, "resource[0].outstanding")] {
            let answer = doorman.get(request("alice", vec![asks])).unwrap();
            assert_problem(&answer.problem, "bad_value", &[field, why]);
            assert_eq!(answer.response.len(), 1, "the entry is answered with a valid lease");
        }
    }
    server.assert_alive();
}

#[test]
fn entries_beyond_a_limit_are_left_out_and_the_flag_is_named() {
    let flags = ["--max-resources-per-request", "3", "--max-bands", "2", "--max-clients-per-resource", "2"];
    let server = Server::with_flags(&flags);
    let doorman = server.doorman();
    let entries = |n: usize| (0..n).map(|at| entry(&at.to_string(), 1.0)).collect();
    assert_eq!(doorman.get(request("alice", entries(3))).unwrap().response.len(), 3);
    let says = ["resource: 4 entries", "3 at a time", "--max-resources-per-request"];
    let answer = doorman.get(request("bob", entries(4))).unwrap();
    assert_eq!(answer.response.len(), 3);
    assert_problem(&answer.problem, "too_many_in_request", &says);
    let released = doorman.try_release("alice", &["0", "1", "2", "3"], false).unwrap();
    let says = ["resource_id: 4 entries", "at most 3", "--max-resources-per-request"];
    assert_problem(&released.problem, "too_many_in_request", &says);
    let says = ["resource[0].wants: 3 entries", "at most 2", "--max-bands"];
    let answer = doorman.get_server(node_request("child", "mysql", &[(1, 1.0); 3]));
    assert_left_out(answer, "too_many_bands", &says);

    let get = |client: &str, resource: &str| server.cli(&["get", client, resource, "1"]);
    assert!(["alice", "carol"].iter().all(|client| get(client, "full").code == Some(0)));
    for (resource, why) in
        [("full", "--max-clients-per-resource"), (&*"i".repeat(257), "resource[0].resource_id: is 257 bytes")]
    {
        let output = get("bob", resource);
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        assert!(output.stderr.contains("no lease for") && output.stderr.contains(why), "{}", output.stderr);
    }
    let page = server.page("/resource?resource=full");
    let refused = page.split_once("Refused requests of the last hour").expect("they are listed").1;
    assert!(refused.contains("bob") && refused.contains("too_many_clients"), "{refused}");
}

#[test]
fn compressed_messages_are_refused() {
    let server = Server::shared();
    let call = |encoding: &'static str| {
        let mut call = tonic::Request::new(request("alice", vec![entry("encoded", 40.0)]));
        call.metadata_mut().insert("grpc-encoding", encoding.parse().unwrap());
        block_on(server.doorman().inner().get_capacity(call))
    };
    let answer = call("identity").unwrap().into_inner();
    assert_eq!(answer.response[0].resource_id(), "encoded");
    assert_refused(call("gzip").map(tonic::Response::into_inner), Code::Unimplemented, &["gzip"]);
}

#[test]
fn malformed_messages_and_bytes_that_are_not_http_harm_no_other_client() {
    let server = Server::shared();
    let raw = server.raw();
    for nonsense in [&[0xff; 40][..], &[0x0a, 200, 1], &[0x0a, 2, 0xff, 0xfe]] {
        for method in ["GetCapacity", "GetServerCapacity", "ReleaseCapacity"] {
            let status = raw.call(method, nonsense.to_vec()).expect_err("not a message");
            assert_ne!(status.code(), Code::Unavailable, "answered, not dropped: {status:?}");
        }
    }
    let status = raw.call("Unknown", Vec::new()).expect_err("no such method");
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
    assert_eq!(leaseway(&["get", "", "mysql", "1", "--server", &server.grpc().to_string()]).code, Some(1));
}

#[test]
fn a_client_that_asks_too_soon_is_named_in_the_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.jsonl");
    let server = Server::with_flags(&["--audit", audit.to_str().unwrap()]);
    let mut hasty = server.client("hasty");
    hasty.ask("mysql", 40.0);
    assert!(hasty.try_ask("mysql", 40.0).unwrap().is_none(), "the second request is too soon");
    let entries = ["mysql", "other"].map(|resource| {
        let has = (resource == "mysql").then(|| hasty.lease(resource));
        ResourceRequest { has, ..entry(resource, 40.0) }
    });
    let answer = server.doorman().get(request("hasty", entries.into())).unwrap();
    assert_eq!(answer.response.iter().map(|response| response.resource_id()).collect::<Vec<_>>(), ["other"]);
    let line = eventually("the audit log names the client", || {
        let text = std::fs::read_to_string(&audit).unwrap();
        text.lines().find(|line| line.contains("asked_too_soon")).map(str::to_owned)
    });
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["client"], &line["resource"]), (&"hasty".into(), &"mysql".into()), "{line}");
    assert_eq!(line["address"], "127.0.0.1", "{line}");
    assert!(!server.log().contains("too_soon"), "it is part of normal operation");
}
