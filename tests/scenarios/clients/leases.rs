//! The client library against a real server: releases, hints and priorities.

use std::{thread, time::Duration};

use leaseway_client::{Basis, Client, Resource};

use crate::harness::{
    config::{self, ConfigFile, Template},
    server::Server,
    wait::{eventually, runtime},
};

fn client_of(server: &Server, id: &str) -> Client {
    let _inside = runtime().enter();
    Client::builder().endpoint(server.grpc().to_string()).id(id).build().unwrap()
}

fn leased(resource: &Resource) -> f64 {
    eventually("the client has a lease", || {
        let usable = resource.usable();
        (usable.basis == Basis::Lease).then_some(usable.capacity.get())
    })
}

#[test]
fn leases_are_released_when_the_client_and_its_handles_are_dropped() {
    let server = Server::shared();
    let holders = |id: &str| server.status(&[id])["resources"][0]["holders"].clone();
    let client = client_of(server, "alice");
    let [resource, marker] = ["dropped", "dropped first"].map(|id| client.resource(id).wants(1.0).open().unwrap());
    leased(&resource);
    leased(&marker);
    drop(client);
    // Its release is sent after anything that the drop of the client has sent.
    drop(marker);
    eventually("the other lease is released", || (holders("dropped first") == 0).then_some(()));
    assert_eq!(holders("dropped"), 1, "a handle keeps the client alive");
    drop(resource);
    eventually("the lease is released", || (holders("dropped") == 0).then_some(()));
}

/// The refresh interval is ten minutes, so only hints can move capacity within the test.
#[test]
fn hints_move_leases_without_waiting_for_refreshes() {
    let clients = ["alice", "bob", "carol"].map(|id| client_of(Server::shared(), id));
    let alice = clients[0].resource("hinted").wants(100.0).open().unwrap();
    assert_eq!(leased(&alice), 100.0);
    let [bob, carol] = [1, 2].map(|n| clients[n].resource("hinted").wants(100.0).open().unwrap());
    eventually("all have a third", || {
        [&alice, &bob, &carol].iter().all(|one| (one.capacity().get() - 100.0 / 3.0).abs() < 0.5).then_some(())
    });
    drop((bob, carol));
    eventually("alice has everything again", || (alice.capacity().get() > 99.0).then_some(()));
}

/// The priority at which the server counts the first holder.
fn counted_at(server: &Server) -> i64 {
    server.status(&["r"])["resources"][0]["holder"][0]["priority"].as_i64().unwrap()
}

#[test]
fn the_server_caps_the_priority_of_a_client() {
    let template = config::text(&[Template::fair("*", 100.0)]);
    let with = |parameters: &str| {
        let strict = "    parameters:\n    - {name: priority, value: strict}\n";
        template.replace("    parameters:\n", &format!("{strict}{parameters}"))
    };
    let file = ConfigFile::new(&with("    - {name: max_priority, value: 3}\n"));
    let server = Server::with_config(&file);
    let client = client_of(&server, "alice");
    let resource = client.resource("r").wants(10.0).priority(7).open().unwrap();
    assert_eq!(resource.priority(), 7, "before the first answer it is the claimed one");
    eventually("the cap is in force", || (resource.priority() == 3).then_some(()));
    assert_eq!(counted_at(&server), 3);
    let mut wants = [10.0, 20.0].into_iter().cycle();
    let mut counted = |priority| {
        // Changed wants are sent immediately; the server reloads its file a little later.
        resource.set_wants(wants.next().unwrap()).unwrap();
        thread::sleep(Duration::from_millis(50));
        (resource.priority() == priority).then_some(())
    };
    file.replace(&with("    - {name: max_priority, value: 5}\n"));
    eventually("the higher cap is in force", || counted(5));
    file.replace(&with(""));
    eventually("without a cap the claimed priority is in force", || counted(7));
    assert_eq!(counted_at(&server), 7);
}
