//! The client library while servers hang, die or are replaced.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use leaseway_client::{Basis, Client, Mode, Resource};
use leaseway_process::link::Link;

use crate::harness::{
    config::{self, ConfigFile, Template},
    peers,
    server::{Server, addresses_of_its_own},
    wait::{block_on, eventually, runtime},
};

fn build(builder: leaseway_client::Builder) -> Client {
    let _inside = runtime().enter();
    builder.build().unwrap()
}

fn client(endpoints: &[String]) -> Client {
    let builder = Client::builder().endpoints(endpoints).deadline(Duration::from_millis(300));
    build(builder.backoff_max(Duration::from_millis(300)))
}

#[track_caller]
fn has_lease(resource: &Resource, capacity: f64) {
    eventually("the client has the lease", || {
        let usable = resource.usable();
        (usable.basis == Basis::Lease && usable.capacity.get() == capacity).then_some(())
    });
}

/// The kernel accepts connections to the listener, but nothing answers.
#[test]
fn a_client_leaves_a_hanging_server_for_another() {
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let (hangs, answers) = (hangs.local_addr().unwrap().to_string(), Server::shared().grpc().to_string());
    for (endpoints, id) in [([hangs.clone(), answers.clone()], "hangs 1"), ([answers, hangs], "hangs 2")] {
        has_lease(&client(&endpoints).resource(id).wants(10.0).open().unwrap(), 10.0);
    }
}

#[test]
fn a_silently_dead_connection_is_replaced() {
    for (towards_only, id) in [(false, "dead 1"), (true, "dead 2")] {
        let link = Link::to(Server::shared().grpc(), runtime().handle()).unwrap();
        let client = client(&[link.address()]);
        let resource = client.resource(id).wants(10.0).open().unwrap();
        has_lease(&resource, 10.0);
        if towards_only {
            link.stall_towards()
        } else {
            link.stall()
        }
        resource.set_wants(20.0).unwrap();
        has_lease(&resource, 20.0);
        assert!(link.connections() >= 2, "the lease arrives over a new connection");
    }
}

#[test]
fn a_client_configured_with_one_peer_discovers_the_others() {
    let mut peers = peers::shared();
    let master = peers.master();
    for (given, id) in [(master, "given master"), (peers.follower(), "given follower")] {
        let client = client(&[peers.grpc(given).to_string()]);
        let resource = client.resource(id).wants(10.0).open().unwrap();
        has_lease(&resource, 10.0);
        eventually("the client discovers the other peers", || (client.health().endpoints.len() == 3).then_some(()));
        assert_eq!(client.health().endpoints[0], peers.grpc(given).to_string(), "the given endpoint comes first");
        peers.kill(given);
        resource.set_wants(20.0).unwrap();
        has_lease(&resource, 20.0);
        peers.run(given, &[]);
    }
}

/// The error of a client that is given another port of a server.
fn error_at(port: &str) -> String {
    let client = client(&[port.to_owned()]);
    let _resource = client.resource("r").wants(10.0).open().unwrap();
    let not_ready = eventually("a request fails", || {
        let not_ready = block_on(client.ready(Duration::from_millis(200))).unwrap_err();
        (client.health().failures > 0).then_some(not_ready)
    });
    assert_eq!(not_ready.resources, ["r"]);
    not_ready.to_string()
}

#[test]
fn errors_about_a_wrong_port_name_the_right_one() {
    let peers = peers::shared();
    let http = peers.http(0).to_string();
    let expected = format!(
        "no lease yet for `r`: {http} speaks HTTP, not gRPC: this looks like the --http port; \
         clients use --listen, 5100 by default"
    );
    assert_eq!(error_at(&http), expected);
    for port in [peers.admin(0).to_string(), peers.peer_address(0)] {
        let error = error_at(&port);
        let expected = format!("{port} has no service doorman.Capacity: this looks like the --admin port");
        assert!(error.contains(&expected), "{error}");
    }
}

/// A server is killed, is down for longer than a lease, and returns.
#[test]
fn the_three_modes_during_and_after_a_server_outage() {
    let text = config::text(&[Template { lease: 3, refresh: 1, ..Template::fair("*", 90.0) }])
        .replace("  capacity: 90\n", "  capacity: 90\n  safe_capacity: 5\n");
    let file = ConfigFile::new(&text);
    let [listen, http] = addresses_of_its_own();
    let start = || Server::start(&["--listen", &listen, "--http", &http, "--config", file.path()], &[]);
    let server = start();
    let modes =
        [("safe", Mode::Safe, 5.0), ("pessimistic", Mode::Pessimistic, 0.0), ("optimistic", Mode::Optimistic, 40.0)];
    let watched = modes.map(|(id, mode, _)| {
        let client = build(Client::builder().endpoint(&listen).id(id).mode(mode).backoff_max(Duration::from_secs(1)));
        let resource = client.resource("r").wants(40.0).open().unwrap();
        (client, resource)
    });
    let origin = Instant::now();
    let show = |what: &str| {
        let shown = watched.each_ref().map(|(client, resource)| {
            let usable = resource.usable();
            format!("{} {} ({:?})", client.id(), usable.capacity.get(), usable.basis)
        });
        eprintln!("{:5.1} s  {what:<24} {}", origin.elapsed().as_secs_f64(), shown.join("   "));
    };
    eventually("each has its share", || {
        watched.iter().all(|(_, resource)| resource.capacity().get() == 30.0).then_some(())
    });
    server.signal(rustix::process::Signal::KILL);
    let killed = Instant::now();
    server.finish();
    show("the server is killed");
    for ((_, resource), (mode, _, after)) in watched.iter().zip(modes) {
        eventually("the lease expires", || (resource.usable().basis == Basis::Fallback).then_some(()));
        assert_eq!(resource.capacity().get(), after, "{mode}");
    }
    // Leases last 3 s and are refreshed each second, so none expires within 1.5 s of the kill.
    assert!(killed.elapsed() >= Duration::from_millis(1_500), "{:?}", killed.elapsed());
    show("the leases have expired");
    let _server = start();
    show("the server is back");
    eventually("all have leases again", || {
        watched.iter().all(|(_, resource)| resource.usable().basis == Basis::Lease).then_some(())
    });
    show("all have leases again");
}
