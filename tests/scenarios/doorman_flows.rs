//! Requests as Doorman's clients and child servers send them.

use leaseway_proto::doorman::algorithm::Kind;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, capacity, entry, node_request, request},
    server::Server,
};

#[test]
fn discovery_names_the_master() {
    let server = Server::development();
    let answer = server.doorman().discovery();
    assert_eq!(answer.is_master, Some(true));
    let mastership = answer.mastership.expect("always there");
    assert_eq!(mastership.master_address, Some(server.grpc().to_string()));
}

#[test]
fn several_resources_are_answered_in_the_order_of_the_request() {
    let server = Server::development();
    let names: Vec<String> = (0..50).rev().map(|n| format!("resource {n}")).collect();
    let entries = names.iter().map(|name| entry(name, 7.0)).collect();
    let answer = server.doorman().get(request("alice", entries)).unwrap();
    let answered: Vec<_> = answer.response.iter().map(|response| response.resource_id.clone().unwrap()).collect();
    assert_eq!(answered, names);
    assert!(answer.response.iter().all(|response| capacity(response.gets) == 7.0));
}

#[test]
fn every_answer_says_how_much_until_when_and_what_without_a_server() {
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
    assert!(lease.expiry_time.unwrap() >= now + 300, "a lease is as long as its template says");
    assert_eq!(response.safe_capacity, Some(90.0), "the capacity by the number of clients");
    let response = server.client("bob").try_ask("shared", 30.0).unwrap().unwrap();
    assert_eq!(response.safe_capacity, Some(45.0));
    for name in ["alice", "bob"] {
        assert_eq!(server.client(name).ask("each", 50.0), 8.0);
        assert_eq!(server.client(name).ask("free", 50.0), 50.0);
    }
}

#[test]
fn a_child_node_is_given_capacity_with_the_algorithm_to_divide_it_by() {
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
    let algorithm = response.algorithm.as_ref().expect("a child needs to know how to divide");
    assert_eq!(algorithm.kind, Some(Kind::FairShare as i32));
    assert_eq!((algorithm.lease_length, algorithm.refresh_interval), (Some(60), Some(5)));
    assert_eq!(algorithm.learning_mode_duration, Some(0));
    let parameters: Vec<_> = algorithm.parameters.iter().map(|p| (p.name(), p.value())).collect();
    assert_eq!(parameters, [("priority", "strict"), ("reuse", "prompt")]);
    assert_eq!(server.status(&["fair one"])["resources"][0]["subclients"], 5);
}

#[test]
fn a_release_as_the_go_client_sends_it_frees_the_capacity() {
    let server = Server::development();
    let doorman = server.doorman();
    server.client("go").ask("mysql", 100.0);
    assert_eq!(server.client("bob").ask("mysql", 100.0), 0.0);
    // On closing it sends an empty id for each resource in front of the real ones.
    doorman.release("go", &["", "mysql"]).unwrap();
    assert_eq!(server.client("bob").ask("mysql", 100.0), 100.0);
    for nothing in [&[][..], &[""], &["never heard of"], &["mysql"]] {
        doorman.release("go", nothing).unwrap();
    }
    assert_eq!(server.status(&[])["resources_total"], 1, "nothing comes to life to be released");
}
