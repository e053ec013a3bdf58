//! What users of the client library see of servers that go away and come back.

use std::{
    thread,
    time::{Duration, Instant},
};

use leaseway_client::{Basis, Client};
use rustix::process::Signal;

use crate::harness::{
    config::{ConfigFile, Template},
    server::{Server, addresses_of_its_own},
    wait::{eventually, runtime},
};

fn build(builder: leaseway_client::Builder) -> Client {
    let _inside = runtime().enter();
    builder.build().unwrap()
}

/// Nobody refreshes within the test: shares move by hints, or not at all.
#[test]
fn hints_are_heard_again_as_soon_as_the_server_that_is_back_has_answered() {
    let file = ConfigFile::of(&[Template { refresh: 3599, ..Template::fair("*", 100.0) }]);
    let [listen, http] = addresses_of_its_own();
    let start = || Server::start(&["--listen", &listen, "--http", &http, "--config", file.path()], &[]);
    let server = start();
    let clients = ["alice", "bob"].map(|id| build(Client::builder().endpoint(&listen).id(id)));
    let [alice, bob] = clients.each_ref().map(|client| client.resource("r").wants(90.0).open().unwrap());
    let halves = |what: &str| {
        eventually(what, || [&alice, &bob].iter().all(|one| one.capacity().get() == 50.0).then_some(()));
    };
    halves("both have a half");
    server.signal(Signal::KILL);
    server.finish();
    // Long enough for several streams to be asked for in vain: each pause is twice the one before.
    thread::sleep(Duration::from_secs(6));
    let _server = start();
    let back = Instant::now();
    alice.set_wants(200.0).unwrap();
    eventually("the first to ask gets everything", || (alice.capacity().get() == 100.0).then_some(()));
    bob.set_wants(200.0).unwrap();
    eventually("the server has answered", || (bob.capacity().get() != 50.0).then_some(()));
    halves("both have a half again");
    eprintln!("both have a half again {:?} after the server was back", back.elapsed());
    assert!([&alice, &bob].iter().all(|one| one.usable().basis == Basis::Lease));
}
