//! Defects of the Go server that requests set off. Each test is named after the defect, and shows that we do not have
//! it.

use leaseway_proto::doorman::{Lease, ReleaseCapacityRequest, ResourceRequest};
use tonic::Code;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, assert_left_out, assert_problem, assert_refused, capacity, entry, node_request, request},
    server::Server,
    wait::{block_on, runtime},
};

#[test]
fn doorman_fault_1_a_resource_id_with_a_slash_kills_the_server() {
    let config =
        ConfigFile::of(&[Template::fair("a/*", 10.0), Template::fair("fair*", 10.0), Template::fair("*", 50.0)]);
    let server = Server::with_config(&config);
    for (id, capacity) in [("fair/x", 50.0), ("a/b/c", 50.0), ("/", 50.0), ("a/b", 10.0)] {
        assert_eq!(server.client("alice").ask(id, 60.0), capacity, "{id}");
    }
    server.assert_alive();
}

#[test]
fn a_resource_that_no_template_matches_is_honoured_and_counted() {
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("fair*", 10.0)]));
    assert_eq!(server.client("alice").ask("other/thing", 60.0), 60.0);
    let status = server.status(&["other/thing"]);
    assert_eq!(
        (&status["resources"][0]["template"], &status["resources"][0]["algorithm"]),
        (&"".into(), &"NO_ALGORITHM".into())
    );
    assert!(server.log().contains("no template matches"), "{}", server.log());
}

#[test]
fn doorman_fault_2_a_release_that_meets_a_decision_kills_the_server() {
    const TASKS: usize = 32;
    const ROUNDS: usize = 60;
    let config = ConfigFile::of(&[Template::fair("*", 100.0)]);
    let server = Server::with_config(&config);
    let connections: Vec<_> = (0..4).map(|_| server.doorman().inner()).collect();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let mut doorman = connections[task % connections.len()].clone();
            runtime().spawn(async move {
                let (client, resource) = (format!("client {}", task / 2), format!("resource {}", task % 3));
                for round in 0..ROUNDS {
                    let answer = doorman.get_capacity(request(&client, vec![entry(&resource, round as f64)])).await;
                    let granted = capacity(answer.unwrap().into_inner().response[0].gets);
                    assert!((0.0..=round as f64).contains(&granted), "{granted} of {round}");
                    let (client_id, resource_id) = (Some(client.clone()), vec![resource.clone()]);
                    let release =
                        ReleaseCapacityRequest { client_id, resource_id, ..ReleaseCapacityRequest::default() };
                    doorman.release_capacity(release).await.unwrap();
                }
            })
        })
        .collect();
    block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    for resource in 0..3 {
        let status = &server.status(&[&format!("resource {resource}")])["resources"][0];
        assert_eq!((&status["held"], &status["wants"]), (&0.0.into(), &0.0.into()), "all is given back: {status}");
    }
    server.assert_alive();
}

#[test]
fn doorman_fault_4_nan_poisons_a_resource_for_ever() {
    let config = ConfigFile::of(&[Template { kind: "PROPORTIONAL_SHARE", ..Template::fair("*", 120.0) }]);
    let server = Server::with_config(&config);
    let mut clients: Vec<_> = (0..4).map(|n| server.client(&format!("client {n}"))).collect();
    for number in [f64::NAN, f64::INFINITY] {
        let answer = server.doorman().get(request("mallory", vec![entry("mysql", number)]));
        assert_left_out(answer, "bad_value", &["resource[0].wants"]);
    }
    // A child without bands: Doorman divided zero by zero clients, which gave NaN.
    let answer = server.doorman().get_server(node_request("mallory", "mysql", &[])).unwrap();
    assert_eq!(capacity(answer.response[0].gets), 0.0);

    let mut last = Vec::new();
    for _ in 0..4 {
        last = clients.iter_mut().map(|client| client.ask("mysql", 100.0)).collect();
        assert!(last.iter().sum::<f64>() <= 120.0, "{last:?}");
    }
    assert_eq!(last, [30.0; 4]);
    let status = server.status(&["mysql"]);
    assert_eq!(status["resources"][0]["wants"], 400.0, "the sums are sums");
}

#[test]
fn doorman_fault_4_negative_wants_free_capacity_that_is_not_there() {
    let server = Server::development();
    let answer = server.doorman().get(request("mallory", vec![entry("mysql", -1000.0)]));
    assert_left_out(answer, "bad_value", &["resource[0].wants", "must not be negative"]);
    assert_eq!(server.client("alice").ask("mysql", 1000.0), 100.0);
    assert_eq!(server.client("bob").ask("mysql", 1000.0), 0.0);
}

#[test]
fn a_doorman_in_learning_mode_grants_what_clients_say_they_have() {
    let config = ConfigFile::of(&[Template { learning: 3600, ..Template::fair("*", 120.0) }]);
    let server = Server::with_config(&config);
    let has = |capacity| {
        let lease = Lease {
            capacity: Some(capacity),
            expiry_time: Some(i64::MAX),
            refresh_interval: Some(1),
            ..Default::default()
        };
        ResourceRequest { has: Some(lease), ..entry("mysql", 10.0) }
    };
    let doorman = server.doorman();
    let answer = doorman.get(request("mallory", vec![has(-5.0)])).unwrap();
    assert_problem(&answer.problem, "bad_value", &["has.capacity"]);
    assert_eq!(capacity(answer.response[0].gets), 0.0);
    let mut sum = 0.0;
    for client in ["greedy", "greedier"] {
        let answer = doorman.get(request(client, vec![has(5000.0)])).unwrap();
        sum += capacity(answer.response[0].gets);
        assert!(sum <= 120.0, "{client} makes it {sum} of 120");
    }
}

#[test]
fn doorman_grows_without_bound_by_invented_resources() {
    let server = Server::with_flags(&["--max-resources", "3"]);
    let doorman = server.doorman();
    let ask = |resource: &str| doorman.get(request("alice", vec![entry(resource, 1.0)]));
    for resource in ["a", "b", "c"] {
        ask(resource).unwrap();
    }
    for n in 0..100 {
        let says = ["(3)", "--max-resources"];
        assert_left_out(ask(&format!("invented {n}")), "too_many_resources", &says);
    }
    ask("a").expect("who is there already is served");
    let answer = doorman.get(request("alice", vec![entry("d", 1.0), entry("b", 1.0)])).unwrap();
    assert_eq!(answer.response.iter().map(|response| response.resource_id()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(server.status(&[])["resources_total"], 3);
}

#[test]
fn doorman_grows_without_bound_by_invented_clients() {
    let server = Server::with_flags(&["--max-clients-per-resource", "2", "--max-clients", "3"]);
    let doorman = server.doorman();
    let ask = |client: &str, resource: &str| doorman.get(request(client, vec![entry(resource, 1.0)]));
    ask("1", "a").unwrap();
    ask("2", "a").unwrap();
    let says = ["--max-clients-per-resource"];
    for n in 0..100 {
        assert_left_out(ask(&format!("invented {n}"), "a"), "too_many_clients", &says);
    }
    ask("1", "a").expect("who is there already is served");
    ask("1", "b").unwrap();
    assert_left_out(ask("2", "b"), "too_many_clients", &["--max-clients"]);
    doorman.release("1", &["a"]).unwrap();
    ask("2", "b").expect("there is room again");
}

#[test]
fn requests_beyond_the_queue_are_refused_and_the_others_answered() {
    const TASKS: usize = 64;
    let server = Server::with_flags(&["--max-queue", "1"]);
    let doorman = server.doorman().inner();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let mut doorman = doorman.clone();
            let ask = request(&format!("client {task}"), vec![entry("mysql", 1.0)]);
            runtime().spawn(async move { doorman.get_capacity(ask).await.map(tonic::Response::into_inner) })
        })
        .collect();
    let mut answered = 0;
    for task in tasks {
        match block_on(task).unwrap() {
            Ok(answer) => answered += answer.response.len(),
            refused => assert_refused(refused, Code::ResourceExhausted, &["resource `mysql`", "ask again later"]),
        }
    }
    assert!(answered > 0);
    server.assert_alive();
}
