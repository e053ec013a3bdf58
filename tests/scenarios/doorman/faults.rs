//! Defects of the Go server. Each test is named after the defect and shows that this server does not have it.

use leaseway_proto::doorman::ReleaseCapacityRequest;

use crate::harness::{
    config::{self, ConfigFile, Template},
    doorman::{Asks as _, assert_left_out, capacity, entry, node_request, request},
    process::leaseway,
    server::Server,
    wait::{block_on, eventually, runtime},
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
fn doorman_fault_2_a_release_during_a_decision_kills_the_server() {
    const TASKS: usize = 32;
    const ROUNDS: usize = 40;
    let server = Server::shared();
    let connections: Vec<_> = (0..4).map(|_| server.doorman().inner()).collect();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let mut doorman = connections[task % connections.len()].clone();
            runtime().spawn(async move {
                let (client, resource) = (format!("client {}", task / 2), format!("fault 2 {}", task % 3));
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
        let status = &server.status(&[&format!("fault 2 {resource}")])["resources"][0];
        assert_eq!(
            (&status["held"], &status["wants"]),
            (&0.0.into(), &0.0.into()),
            "all leases are released: {status}"
        );
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
    // Doorman divided zero by zero for a child without bands.
    let answer = server.doorman().get_server(node_request("mallory", "mysql", &[])).unwrap();
    assert_eq!(capacity(answer.response[0].gets), 0.0);

    let mut last = Vec::new();
    for _ in 0..4 {
        last = clients.iter_mut().map(|client| client.ask("mysql", 100.0)).collect();
        assert!(last.iter().sum::<f64>() <= 120.0, "{last:?}");
    }
    assert_eq!(last, [30.0; 4]);
    let status = server.status(&["mysql"]);
    assert_eq!(status["resources"][0]["wants"], 400.0, "no sum is NaN");
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
        let says = ["(limit 3)", "--max-resources"];
        assert_left_out(ask(&format!("invented {n}")), "too_many_resources", &says);
    }
    ask("a").expect("a known resource is served");
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
    ask("1", "a").expect("a known client is served");
    ask("1", "b").unwrap();
    assert_left_out(ask("2", "b"), "too_many_clients", &["--max-clients"]);
    doorman.release("1", &["a"]).unwrap();
    ask("2", "b").expect("a slot is free again");
}

/// Asserts that `leaseway config check` and `leaseway serve` refuse the text, and name `place` and `why`.
fn assert_refused(text: &str, place: &str, why: &str) {
    let file = ConfigFile::new(text);
    let check = leaseway(&["config", "check", file.path()]);
    let serve = leaseway(&["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config", file.path()]);
    for output in [check, serve] {
        assert_eq!(output.code, Some(78), "{output:?}");
        let expected = format!("{}:{place}: ", file.path());
        let line = output.stderr.lines().find(|line| line.contains(&expected));
        assert!(line.is_some_and(|line| line.contains(why)), "{expected}…{why}… is not in {}", output.stderr);
        assert!(!output.stdout.contains("serving"), "{output:?}");
    }
}

#[test]
fn doorman_fault_3_a_template_without_capacity_is_accepted_and_kills_the_server() {
    let text = "resources:\n- identifier_glob: a\n  algorithm: {kind: FAIR_SHARE}\n";
    assert_refused(text, "2:20", "needs a `capacity`");
}

#[test]
fn doorman_fault_5_a_capacity_cut_gives_negative_grants() {
    let config = ConfigFile::of(&[Template::fair("*", 50.0)]);
    let server = Server::with_config(&config);
    let (mut alice, mut bob) = (server.client("alice"), server.client("bob"));
    let mut both = || (alice.ask("mysql", 25.0), bob.ask("mysql", 25.0));
    assert_eq!(both(), (25.0, 25.0));
    config.replace(&config::text(&[Template::fair("*", 10.0)]));
    eventually("the new capacity is in force", || {
        (server.status(&["mysql"])["resources"][0]["capacity"] == 10.0).then_some(())
    });
    let mut before = 50.0;
    for _ in 0..4 {
        let (alice, bob) = both();
        assert!(alice >= 0.0 && bob >= 0.0, "{alice} and {bob}");
        assert!(alice + bob <= before, "{alice} + {bob} after {before}");
        before = alice + bob;
    }
    assert_eq!(both(), (5.0, 5.0));
}
