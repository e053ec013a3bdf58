//! The client library and servers that are down, hang, fail, or redirect it.

use std::{
    thread,
    time::{Duration, Instant},
};

use leaseway_client::{Basis, Client, Mode, Resource, Transport};
use leaseway_process::link::Link;

use crate::harness::{
    config::{self, ConfigFile, Template},
    fake::{Fake, Manner},
    process::Said,
    server::{Server, addresses_of_its_own},
    wait::{block_on, eventually, runtime},
};

const GIVES: Manner = Manner::Gives { capacity: 7.0, seconds: 60 };

fn build(builder: leaseway_client::Builder) -> Client {
    let _inside = runtime().enter();
    builder.build().unwrap()
}

fn client(endpoints: &[String]) -> Client {
    build(Client::builder().endpoints(endpoints).deadline(Duration::from_millis(300)))
}

fn has_lease(resource: &Resource, capacity: f64) {
    eventually("it has the lease", || {
        let usable = resource.usable();
        (usable.basis == Basis::Lease && usable.capacity.get() == capacity).then_some(())
    });
}

#[test]
fn a_server_that_hangs_is_given_up_and_another_asked() {
    let (hangs, gives) = (Fake::new(Manner::Hangs), Fake::new(GIVES));
    // Whichever of the two it begins with.
    for endpoints in [[hangs.address(), gives.address()], [gives.address(), hangs.address()]] {
        let client = client(&endpoints);
        has_lease(&client.resource("r").wants(10.0).open().unwrap(), 7.0);
    }
}

#[test]
fn it_follows_to_the_master_and_stays_there() {
    let master = Fake::new(GIVES);
    let other = Fake::new(Manner::Names(master.address()));
    let client = client(&[other.address()]);
    let resource = client.resource("r").wants(10.0).open().unwrap();
    has_lease(&resource, 7.0);
    eventually("it refreshes", || (master.asked().len() >= 3).then_some(()));
    assert_eq!((other.asked().len(), client.health().server), (1, master.address()));
}

/// How many requests come in two seconds. Doorman's client sends 580 a second.
fn requests_in_two_seconds(fakes: &[&Fake]) -> usize {
    let client = client(&[fakes[0].address()]);
    let _resource = client.resource("r").wants(10.0).open().unwrap();
    thread::sleep(Duration::from_secs(2));
    fakes.iter().map(|fake| fake.asked().len()).sum()
}

#[test]
fn a_server_that_names_itself_is_not_hammered() {
    let fake = Fake::new(Manner::Hangs);
    fake.now(Manner::Names(fake.address()));
    let requests = requests_in_two_seconds(&[&fake]);
    assert!((2..=12).contains(&requests), "{requests}");
}

#[test]
fn servers_that_name_each_other_are_not_hammered() {
    let a = Fake::new(Manner::Hangs);
    let b = Fake::new(Manner::Names(a.address()));
    a.now(Manner::Names(b.address()));
    let requests = requests_in_two_seconds(&[&a, &b]);
    assert!((2..=60).contains(&requests), "{requests}");
    a.now(GIVES);
    let client = client(&[b.address()]);
    has_lease(&client.resource("r").wants(10.0).open().unwrap(), 7.0);
}

#[test]
fn a_lease_of_the_original_protocol_is_echoed_kept_and_given_back() {
    let fake = Fake::new(GIVES);
    let client = client(&[fake.address()]);
    let resource = client.resource("r").wants(10.0).priority(3).open().unwrap();
    has_lease(&resource, 7.0);
    eventually("it refreshes", || (fake.asked().len() >= 3).then_some(()));
    let asked = fake.asked();
    assert!(asked.iter().all(|request| request.drops_late()), "{asked:?}");
    let (first, second) = (&asked[0].resource[0], &asked[1].resource[0]);
    assert_eq!((first.wants, first.priority, first.has), (Some(10.0), Some(3), None));
    assert_eq!(second.has.unwrap().capacity, Some(7.0));
    drop(resource);
    eventually("it gives back", || (!fake.released().is_empty()).then_some(()));
    assert_eq!(fake.released()[0].resource_id, ["r"]);
}

#[test]
fn a_connection_that_has_died_without_a_word_is_replaced() {
    for towards_only in [false, true] {
        let server = Server::development();
        let link = Link::to(server.grpc(), runtime().handle()).unwrap();
        let client = client(&[link.address()]);
        let resource = client.resource("r").wants(10.0).open().unwrap();
        has_lease(&resource, 10.0);
        if towards_only {
            link.stall_towards()
        } else {
            link.stall()
        }
        resource.set_wants(20.0).unwrap();
        has_lease(&resource, 20.0);
        assert!(link.connections() >= 2, "it can only have come over a new one");
    }
}

#[test]
fn a_slow_link_shortens_leases_and_never_lengthens_them() {
    let file = ConfigFile::new(&config::text(&[Template { lease: 3, refresh: 1, ..Template::fair("*", 90.0) }]));
    let server = Server::with_config(&file);
    let link = Link::to(server.grpc(), runtime().handle()).unwrap();
    link.delay(Duration::from_millis(300));
    let client = build(Client::builder().endpoint(link.address()).refresh_min(Duration::from_secs(600)));
    let resource = client.resource("r").wants(10.0).open().unwrap();
    has_lease(&resource, 10.0);
    let (_, left) = resource.lease().unwrap();
    // Request, answer, and before them the opening of the connection, each way 300 ms. Only the first two are counted
    // with certainty: from when the request was handed over.
    assert!(left <= Duration::from_millis(3_000 - 600), "{left:?} are left of a lease of 3 s");
}

/// A client that would not ask again by itself.
fn patient(fake: &Fake) -> leaseway_client::Builder {
    let builder = Client::builder().endpoint(fake.address()).deadline(Duration::from_millis(300));
    builder.refresh_min(Duration::from_secs(600))
}

#[test]
fn clients_that_share_a_transport_share_a_connection() {
    let fake = Fake::with_hints(GIVES);
    let transport = Transport::new();
    let clients = [(); 3].map(|()| build(Client::builder().endpoint(fake.address()).transport(&transport)));
    let resources = clients.each_ref().map(|client| client.resource("r").wants(10.0).open().unwrap());
    for resource in &resources {
        has_lease(resource, 7.0);
    }
    eventually("all listen", || (fake.listeners() == 3).then_some(()));
    assert_eq!(fake.connected(), 1);
}

#[test]
fn hints_come_from_the_server_that_answers_as_master() {
    let [first, second] = [(); 2].map(|()| Fake::with_hints(GIVES));
    let client = client(&[first.address()]);
    let resource = client.resource("r").wants(10.0).open().unwrap();
    has_lease(&resource, 7.0);
    eventually("it listens", || (first.listeners() == 1).then_some(()));
    first.now(Manner::Names(second.address()));
    eventually("it listens there", || (second.listeners() == 1).then_some(()));
    eventually("and here no more", || (first.listeners() == 0).then_some(()));
    second.now(Manner::Hangs);
    eventually("no master is known", || (second.listeners() == 0).then_some(()));
    second.now(GIVES);
    eventually("and then there is one", || (second.listeners() == 1).then_some(()));
}

#[test]
fn releases_follow_to_the_master() {
    let (first, second) = (Fake::new(GIVES), Fake::new(GIVES));
    let client = build(patient(&first));
    let resource = client.resource("r").wants(10.0).open().unwrap();
    has_lease(&resource, 7.0);
    first.now(Manner::Names(second.address()));
    block_on(client.close());
    assert_eq!((first.released().len(), second.released().len()), (1, 1));
}

struct Watched {
    mode: &'static str,
    client: Client,
    resource: Resource,
}

/// What one mode shows of a server that is killed, stays away longer than the leases last, and comes back.
#[test]
fn the_three_modes_while_a_server_is_killed_and_comes_back() {
    let text = config::text(&[Template { lease: 3, refresh: 1, ..Template::fair("*", 90.0) }])
        .replace("  capacity: 90\n", "  capacity: 90\n  safe_capacity: 5\n");
    let file = ConfigFile::new(&text);
    let [listen, http] = addresses_of_its_own();
    let start = || Server::start(&["--listen", &listen, "--http", &http, "--config", file.path()], &[]);
    let server = start();
    let modes =
        [("safe", Mode::Safe, 5.0), ("pessimistic", Mode::Pessimistic, 0.0), ("optimistic", Mode::Optimistic, 40.0)];
    let watched = modes.map(|(mode, how, _)| {
        let client = build(Client::builder().endpoint(&listen).id(mode).mode(how).backoff_max(Duration::from_secs(1)));
        let resource = client.resource("r").wants(40.0).open().unwrap();
        Watched { mode, client, resource }
    });
    let origin = Instant::now();
    let timeline = |what: &str| {
        let shown = watched.each_ref().map(|Watched { mode, resource, .. }| {
            let usable = resource.usable();
            format!("{mode} {} ({:?})", usable.capacity.get(), usable.basis)
        });
        eprintln!("{:5.1} s  {what:<24} {}", origin.elapsed().as_secs_f64(), shown.join("   "));
    };
    eventually("all have what they are due", || {
        watched.iter().all(|one| one.resource.capacity().get() == 30.0).then_some(())
    });
    timeline("all have leases");
    server.signal(rustix::process::Signal::KILL);
    let killed = Instant::now();
    let Said { code, .. } = server.finish();
    assert_eq!(code, None);
    timeline("the server is killed");
    for (one, (_, _, ended)) in watched.iter().zip(modes) {
        eventually("the lease ends", || (one.resource.usable().basis == Basis::Fallback).then_some(()));
        assert_eq!(one.resource.capacity().get(), ended, "{}", one.mode);
    }
    // The last refresh may have been a second and a bit before.
    assert!(killed.elapsed() >= Duration::from_millis(1_500), "{:?}", killed.elapsed());
    timeline("the leases have ended");
    let _server = start();
    timeline("the server is back");
    eventually("all have leases again", || {
        watched.iter().all(|one| one.resource.usable().basis == Basis::Lease).then_some(())
    });
    timeline("all have leases again");
    for one in &watched {
        block_on(one.client.close());
    }
}
