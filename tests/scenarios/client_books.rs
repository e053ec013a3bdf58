//! What clients write into their own books, added up: together they never may use more than there is, whatever happens to the
//! server and the network. No server is asked.

use std::{collections::HashMap, thread, time::Duration};

use leaseway_bench::link::Link;
use leaseway_client::{Basis, Book, Client, Entry, Resource};

use crate::harness::{
    config::{self, ConfigFile, Template},
    server::{Server, addresses_of_its_own},
    wait::{eventually, runtime},
};

const CAPACITY: f64 = 100.0;

/// The most that all could use together at any moment.
fn peak(entries: &[Entry]) -> f64 {
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|entry| entry.at);
    let (mut usable, mut peak) = (HashMap::new(), 0.0f64);
    for entry in entries {
        usable.insert(&entry.client, entry.capacity);
        peak = peak.max(usable.values().sum());
    }
    peak
}

struct Crowd {
    book: Book,
    clients: Vec<(Client, Resource)>,
    random: fastrand::Rng,
}

impl Crowd {
    fn of(number: usize, endpoint: &str) -> Crowd {
        let _inside = runtime().enter();
        let book = Book::new();
        let mut random = fastrand::Rng::with_seed(1);
        let clients = (0..number).map(|n| {
            let builder = Client::builder().endpoint(endpoint).id(format!("client {n}")).book(&book);
            let client =
                builder.deadline(Duration::from_millis(500)).backoff_max(Duration::from_secs(1)).build().unwrap();
            let resource = client.resource("r").wants(random.f64() * 20.0).open().unwrap();
            (client, resource)
        });
        Crowd { clients: clients.collect(), book, random: fastrand::Rng::with_seed(2) }
    }

    /// For a while everybody keeps changing what it wants.
    fn stir(&mut self, times: usize) {
        for _ in 0..times {
            let (_, resource) = self.random.choice(&self.clients).unwrap();
            resource.set_wants(self.random.f64() * 30.0).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn leased(&self) -> f64 {
        let leases = self.clients.iter().map(|(_, resource)| resource.usable());
        leases.filter(|usable| usable.basis == Basis::Lease).map(|usable| usable.capacity.get()).sum()
    }

    fn assert_never_too_much(self) {
        let entries = self.book.take();
        let peak = peak(&entries);
        assert!(entries.len() > self.clients.len() * 3, "{} entries show little", entries.len());
        assert!(peak <= CAPACITY * (1.0 + 1e-9), "{peak} of {CAPACITY} could be used at once");
        assert!(peak > CAPACITY * 0.9, "only {peak} of {CAPACITY} was ever used");
    }
}

/// Learning lasts for a lease, as it does without a word about it.
fn file() -> ConfigFile {
    let template = Template { lease: 3, refresh: 1, ..Template::fair("*", CAPACITY) };
    ConfigFile::new(&config::text(&[template]).replace("    learning_mode_duration: 0\n", ""))
}

#[test]
fn books_stay_within_the_capacity_while_a_server_is_killed_and_learns() {
    let file = file();
    let [listen, http] = addresses_of_its_own();
    let start = || Server::start(&["--listen", &listen, "--http", &http, "--config", file.path()], &[]);
    let server = start();
    let mut crowd = Crowd::of(20, &listen);
    let full = |crowd: &Crowd| eventually("all of it is out", || (crowd.leased() > CAPACITY * 0.99).then_some(()));
    full(&crowd);
    crowd.stir(100);
    server.signal(rustix::process::Signal::KILL);
    server.finish();
    crowd.stir(100);
    let _server = start();
    crowd.stir(300);
    full(&crowd);
    crowd.assert_never_too_much();
}

#[test]
fn books_stay_within_the_capacity_on_links_that_delay_and_go_silent() {
    let file = file();
    let server = Server::with_config(&file);
    let link = Link::to(server.grpc(), runtime().handle()).unwrap();
    let mut crowd = Crowd::of(20, &link.address());
    eventually("all of it is out", || (crowd.leased() > CAPACITY * 0.99).then_some(()));
    for delay in [0, 20, 100] {
        link.delay(Duration::from_millis(delay));
        crowd.stir(100);
        if delay == 20 {
            link.silence()
        } else {
            link.silence_towards()
        }
        crowd.stir(100);
    }
    eventually("all of it is out again", || (crowd.leased() > CAPACITY * 0.99).then_some(()));
    crowd.assert_never_too_much();
}
