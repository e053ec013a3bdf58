//! The client library against a real server: leases that are kept, moved and released.

use std::{thread, time::Duration};

use leaseway_client::{Basis, BuildError, Client, Resource};

use crate::harness::{
    config::{self, ConfigFile, Template},
    doorman::Asks as _,
    server::Server,
    wait::{eventually, runtime},
};

fn client_of(server: &Server, id: &str) -> Client {
    let _inside = runtime().enter();
    Client::builder().endpoint(server.grpc().to_string()).id(id).build().unwrap()
}

fn holders(server: &Server, resource: &str) -> Vec<String> {
    let status = server.status(&[resource]);
    let Some(holders) = status["resources"][0]["holder"].as_array() else { return Vec::new() };
    holders.iter().map(|holder| holder["id"].as_str().unwrap().to_owned()).collect()
}

fn leased(resource: &Resource) -> f64 {
    eventually("it has a lease", || {
        let usable = resource.usable();
        (usable.basis == Basis::Lease).then_some(usable.capacity.get())
    })
}

#[test]
fn when_the_client_and_its_handles_are_dropped_everything_is_given_back() {
    let server = Server::development();
    let client = client_of(&server, "alice");
    let resource = client.resource("mysql").wants(1.0).open().unwrap();
    leased(&resource);
    drop(client);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(holders(&server, "mysql"), ["alice"], "a handle keeps it alive");
    drop(resource);
    eventually("it is given back", || holders(&server, "mysql").is_empty().then_some(()));
}

#[test]
fn clients_of_a_process_have_different_ids() {
    let server = Server::development();
    let _inside = runtime().enter();
    let clients = [(); 3].map(|()| Client::connect(server.grpc().to_string()).unwrap());
    let resources = clients.each_ref().map(|client| client.resource("mysql").wants(100.0).open().unwrap());
    for resource in &resources {
        leased(resource);
    }
    let mut ids = holders(&server, "mysql");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(ids[0].contains(&format!(":{}:", std::process::id())), "{ids:?}");
}

#[test]
fn hints_move_leases_without_waiting_for_refreshes() {
    let file = ConfigFile::new(&config::text(&[Template::fair("*", 100.0)]));
    let server = Server::with_config(&file);
    let clients = ["alice", "bob", "carol"].map(|id| client_of(&server, id));
    let alice = clients[0].resource("mysql").wants(100.0).open().unwrap();
    assert_eq!(leased(&alice), 100.0);
    let [bob, carol] = [1, 2].map(|n| clients[n].resource("mysql").wants(100.0).open().unwrap());
    // The refresh interval is ten minutes: only hints can do it.
    eventually("all have the same", || {
        [&alice, &bob, &carol].iter().all(|one| (one.capacity().get() - 100.0 / 3.0).abs() < 0.5).then_some(())
    });
    drop((bob, carol));
    eventually("alice has it all again", || (alice.capacity().get() > 99.0).then_some(()));
}

#[test]
fn a_client_without_hints_lives_by_its_refreshes() {
    let file = ConfigFile::new(&config::text(&[Template { refresh: 1, lease: 30, ..Template::fair("*", 100.0) }]));
    let server = Server::with_config(&file);
    let client = {
        let _inside = runtime().enter();
        Client::builder().endpoint(server.grpc().to_string()).id("alice").hints(false).build().unwrap()
    };
    let resource = client.resource("mysql").wants(100.0).open().unwrap();
    assert_eq!(leased(&resource), 100.0);
    assert_eq!(server.client("bob").ask("mysql", 100.0), 0.0);
    eventually("it makes room", || (resource.capacity().get() == 50.0).then_some(()));
}

#[test]
fn a_client_needs_a_runtime_and_says_so() {
    assert_eq!(Client::connect("127.0.0.1:1").unwrap_err(), BuildError::NoRuntime);
}

/// At what priority the server counts the first holder.
fn counted_at(server: &Server) -> i64 {
    server.status(&["r"])["resources"][0]["holder"][0]["priority"].as_i64().unwrap()
}

#[test]
fn the_priority_is_what_the_server_names_and_a_cap_that_is_lifted_is_gone() {
    let template = config::text(&[Template::fair("*", 100.0)]);
    let with = |parameters: &str| {
        let text = template.replace(
            "    parameters:\n",
            &format!("    parameters:\n    - {{name: priority, value: strict}}\n{parameters}"),
        );
        assert_ne!(text, template);
        text
    };
    let file = ConfigFile::new(&with("    - {name: max_priority, value: 3}\n"));
    let server = Server::with_config(&file);
    let client = client_of(&server, "alice");
    let resource = client.resource("r").wants(10.0).priority(7).open().unwrap();
    assert_eq!(resource.priority(), 7, "as claimed, until the server says");
    eventually("the cap counts", || (resource.priority() == 3).then_some(()));
    assert_eq!(counted_at(&server), 3);
    let mut wants = [10.0, 20.0].into_iter().cycle();
    let mut counted = |priority| {
        // Asks at once; the server reads its file a little later.
        resource.set_wants(wants.next().unwrap()).unwrap();
        thread::sleep(Duration::from_millis(50));
        (resource.priority() == priority).then_some(())
    };
    file.replace(&with("    - {name: max_priority, value: 5}\n"));
    eventually("a higher cap counts", || counted(5));
    file.replace(&with(""));
    eventually("without a cap the claim counts", || counted(7));
    assert_eq!(counted_at(&server), 7);
}
