//! Requests of Doorman's clients and child servers, and the contents of the answers.

use leaseway_proto::doorman::algorithm::Kind;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, capacity, node_request},
    server::Server,
};

#[test]
fn every_answer_has_a_lease_and_a_safe_capacity() {
    let config = ConfigFile::of(&[
        Template { lease: 300, refresh: 16, ..Template::fair("shared", 90.0) },
        Template { kind: "STATIC", ..Template::fair("each", 8.0) },
        Template { kind: "NO_ALGORITHM", ..Template::fair("free", 8.0) },
        Template::fair("*", 1.0),
    ]);
    let server = Server::with_config(&config);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let mut alice = server.client("alice");
    let response = alice.try_ask("shared", 30.0).unwrap().unwrap();
    let lease = response.gets.unwrap();
    assert_eq!((lease.capacity, lease.refresh_interval), (Some(30.0), Some(16)));
    assert!(lease.expiry_time.unwrap() >= now + 300, "the lease has the length of its template");
    assert_eq!(response.safe_capacity, Some(90.0), "the capacity divided by the number of clients");
    let response = server.client("bob").try_ask("shared", 30.0).unwrap().unwrap();
    assert_eq!(response.safe_capacity, Some(45.0));
    for name in ["alice", "bob"] {
        assert_eq!(server.client(name).ask("each", 50.0), 8.0);
        assert_eq!(server.client(name).ask("free", 50.0), 50.0);
    }
}

#[test]
fn a_child_node_gets_capacity_and_the_algorithm_to_divide_it() {
    let text = "resources:
- identifier_glob: fair*
  capacity: 120
  safe_capacity: 7.5
  algorithm:
    kind: FAIR_SHARE
    lease_length: 60
    refresh_interval: 5
    learning_mode_duration: 0
    parameters: [{name: priority, value: strict}, {name: reuse, value: prompt}]
";
    let server = Server::with_config(&ConfigFile::new(text));
    let answer = server.doorman().get_server(node_request("child", "fair one", &[(3, 30.0), (2, 20.0)])).unwrap();
    assert_eq!(answer.mastership, None);
    let [response] = answer.response.as_slice() else { panic!("{answer:?}") };
    assert_eq!(response.resource_id.as_deref(), Some("fair one"));
    assert_eq!(capacity(response.gets), 50.0);
    assert_eq!(response.safe_capacity, Some(7.5));
    let algorithm = response.algorithm.as_ref().expect("a child node gets its algorithm");
    assert_eq!(algorithm.kind, Some(Kind::FairShare as i32));
    assert_eq!((algorithm.lease_length, algorithm.refresh_interval), (Some(60), Some(5)));
    assert_eq!(algorithm.learning_mode_duration, Some(0));
    let parameters: Vec<_> = algorithm.parameters.iter().map(|p| (p.name(), p.value())).collect();
    assert_eq!(parameters, [("priority", "strict"), ("reuse", "prompt")]);
    assert_eq!(server.status(&["fair one"])["resources"][0]["subclients"], 5);
}

#[test]
fn a_release_of_the_go_client_frees_the_capacity() {
    let server = Server::shared();
    let doorman = server.doorman();
    server.client("go").ask("released by go", 100.0);
    assert_eq!(server.client("bob").ask("released by go", 100.0), 0.0);
    // The Go client sends an empty id for each resource before the ids.
    doorman.release("go", &["", "released by go"]).unwrap();
    assert_eq!(server.client("bob").ask("released by go", 100.0), 100.0);
    for nothing in [&[][..], &[""], &["unknown"], &["released by go"]] {
        doorman.release("go", nothing).unwrap();
    }
    assert_eq!(server.cli(&["status", "unknown"]).code, Some(1), "a release creates no resource");
}
