//! What the client library reports while servers are down.

use std::{
    fmt::Write as _,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use leaseway_client::{Basis, Client};
use rustix::process::Signal;
use tracing::{Event, Level, Metadata, Subscriber, field::Field, span};

use crate::harness::{
    config::{ConfigFile, Template},
    server::{Server, addresses_of_its_own},
    wait::{eventually, runtime},
};

/// What clients say in the log, with what it is about.
static LOG: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

struct Recorder;

impl Subscriber for Recorder {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target().starts_with("leaseway_client") && *of.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &Field, value: &dyn std::fmt::Debug| write!(line, "{field}={value:?} ").unwrap());
        LOG.lock().unwrap().push((*event.metadata().level(), line));
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn said_of(client: &str, level: Level) -> Vec<String> {
    let about = format!("client={client} ");
    let log = LOG.lock().unwrap();
    log.iter().filter(|(at, line)| *at == level && line.contains(&about)).map(|(_, line)| line.clone()).collect()
}

#[test]
fn an_outage_is_told_in_words_after_the_third_failure_and_when_it_is_over() {
    tracing::subscriber::set_global_default(Recorder).unwrap();
    let [listen, http] = addresses_of_its_own();
    let other = addresses_of_its_own()[0].clone();
    let start = || Server::start(&["--listen", &listen, "--http", &http], &[]);
    let builder = Client::builder().endpoints([&listen, &other]).id("dave").backoff_max(Duration::from_millis(200));
    let client = build(builder);
    let resource = client.resource("r").wants(40.0).open().unwrap();
    eventually("it has tried often", || (client.health().failures >= 10).then_some(()));
    let told = said_of("dave", Level::WARN);
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [
        "no server has answered the last 3 requests",
        &format!("{listen}: "),
        &format!("{other}: "),
        "Connection refused",
        "meanwhile `r` may use 0 (mode safe)",
    ] {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
    let server = start();
    eventually("it has a lease", || (resource.capacity().get() == 40.0).then_some(()));
    let over = said_of("dave", Level::INFO);
    assert!(over.len() == 1 && over[0].contains(&format!("{listen} has answered, after ")), "{over:?}");
    drop(server);
    resource.set_wants(50.0).unwrap();
    eventually("it is told again", || (said_of("dave", Level::WARN).len() == 2).then_some(()));
    let told = said_of("dave", Level::WARN);
    assert!(told[1].contains("`r` may use its lease of 40 for another "), "{told:?}");
}

fn build(builder: leaseway_client::Builder) -> Client {
    let _inside = runtime().enter();
    builder.build().unwrap()
}

/// No refresh is due within the test: shares move by hints, or not at all.
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

/// Pauses that go on growing need more than two minutes for so many attempts.
#[test]
fn a_client_tries_about_once_in_a_refresh_interval_however_long_an_outage_lasts() {
    let file = ConfigFile::of(&[Template { refresh: 1, ..Template::fair("*", 100.0) }]);
    let [listen, http] = addresses_of_its_own();
    let start = || Server::start(&["--listen", &listen, "--http", &http, "--config", file.path()], &[]);
    let server = start();
    let client = build(Client::builder().endpoint(&listen).id("erin"));
    let resource = client.resource("r").wants(40.0).open().unwrap();
    eventually("it has a lease", || (resource.capacity().get() == 40.0).then_some(()));
    server.signal(Signal::KILL);
    server.finish();
    eventually("it has tried often", || (client.health().failures >= 25).then_some(()));
    let _server = start();
    let back = Instant::now();
    eventually("it has been answered", || (client.health().failures == 0).then_some(()));
    eprintln!("answered {:?} after the server was back", back.elapsed());
}
