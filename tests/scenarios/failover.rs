//! Masters that die, pause or are cut off: another goes on as if nothing had happened, and nobody is ever promised what is somebody
//! else's.

use std::{collections::HashMap, thread, time::Duration};

use leaseway_client::{Basis, Book, Client, Entry, Resource};
use rustix::process::Signal;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{entry, node_request, request},
    http,
    peers::{Peers, granted},
    wait::{eventually, runtime},
};

fn peers(capacity: f64) -> Peers {
    Peers::start(3, ConfigFile::of(&[Template::fair("*", capacity)]), &[])
}

#[test]
fn peers_that_are_not_the_master_name_it_in_every_answer() {
    let peers = peers(100.0);
    let master = peers.master();
    for peer in peers.all().filter(|peer| *peer != master) {
        let expected = Some(peers.grpc(master).to_string());
        let named = eventually("it knows the master", || {
            let said = peers.doorman(peer).discovery();
            assert_eq!(said.is_master, Some(false));
            said.mastership.and_then(|mastership| mastership.master_address)
        });
        assert_eq!(Some(named), expected);
        let got = peers.doorman(peer).get(request("alice", vec![entry("r", 1.0)])).unwrap();
        assert_eq!((got.response.len(), got.mastership.unwrap().master_address), (0, expected.clone()));
        let got = peers.doorman(peer).get_server(node_request("child", "r", &[(1, 1.0)])).unwrap();
        assert_eq!((got.response.len(), got.mastership.unwrap().master_address), (0, expected.clone()));
        let released = peers.doorman(peer).try_release("alice", &["r"]).unwrap();
        assert_eq!(released.mastership.unwrap().master_address, expected);
        assert_eq!(http::get(peers.http(peer), "/readyz").status, 200);
    }
}

#[test]
fn a_new_master_serves_newcomers_at_once_and_takes_nothing_from_anybody() {
    let mut peers = peers(100.0);
    let (mut alice, mut bob) = (peers.client("alice"), peers.client("bob"));
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
    peers.kill(peers.master());
    // What alice may believe in is not given away, and the rest is, in the first answer.
    let first = bob.ask(&peers, "r", 1000.0);
    assert!((50.0..=60.0).contains(&first), "{first} of what alice has left");
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
    alice.ask(&peers, "r", 40.0);
    assert_eq!(bob.ask(&peers, "r", 1000.0), 60.0, "she has confirmed, and nothing is reserved any more");
}

/// Clients whose books are kept, at all peers of a node.
struct Crowd {
    book: Book,
    clients: Vec<(Client, Resource)>,
    random: fastrand::Rng,
}

impl Crowd {
    fn of(number: usize, peers: &Peers) -> Crowd {
        let _inside = runtime().enter();
        let book = Book::new();
        let mut random = fastrand::Rng::with_seed(1);
        let client = |n: usize| {
            let builder = Client::builder().endpoints(peers.endpoints()).id(format!("client {n}")).book(&book);
            let client =
                builder.deadline(Duration::from_millis(500)).backoff_max(Duration::from_millis(300)).build().unwrap();
            let resource = client.resource("r").wants(random.f64() * 20.0).open().unwrap();
            (client, resource)
        };
        Crowd { clients: (0..number).map(client).collect(), book, random: fastrand::Rng::with_seed(2) }
    }

    /// For a while everybody keeps changing what it wants.
    fn stir(&mut self, times: usize) {
        for _ in 0..times {
            let (_, resource) = self.random.choice(&self.clients).unwrap();
            resource.set_wants(self.random.f64() * 30.0).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn wait_until_full(&self, capacity: f64) {
        eventually("all of it is out", || {
            let leases = self.clients.iter().map(|(_, resource)| resource.usable());
            let leases = leases.filter(|usable| usable.basis == Basis::Lease);
            let sum: f64 = leases.map(|usable| usable.capacity.get()).sum();
            (sum > capacity * 0.99).then_some(())
        });
    }

    fn assert_never_too_much(self, capacity: f64) {
        let mut entries: Vec<Entry> = self.book.take();
        entries.sort_by_key(|entry| entry.at);
        let (mut usable, mut peak) = (HashMap::new(), 0.0f64);
        for entry in &entries {
            usable.insert(&entry.client, entry.capacity);
            peak = peak.max(usable.values().sum());
        }
        assert!(peak <= capacity * (1.0 + 1e-9), "{peak} of {capacity} could be used at once");
        assert!(peak > capacity * 0.9, "only {peak} of {capacity} was ever used");
    }
}

const CAPACITY: f64 = 100.0;

fn short_leases() -> Peers {
    let config = ConfigFile::of(&[Template { lease: 4, refresh: 1, ..Template::fair("*", CAPACITY) }]);
    Peers::start(3, config, &[])
}

#[test]
fn books_stay_within_the_capacity_while_one_master_after_the_other_is_killed() {
    let mut peers = short_leases();
    let mut crowd = Crowd::of(20, &peers);
    crowd.wait_until_full(CAPACITY);
    for _ in 0..3 {
        crowd.stir(50);
        let master = peers.master();
        peers.kill(master);
        crowd.stir(50);
        peers.run(master, &[]);
        crowd.stir(100);
    }
    crowd.wait_until_full(CAPACITY);
    crowd.assert_never_too_much(CAPACITY);
}

#[test]
fn a_paused_master_decides_nothing_when_it_wakes() {
    let peers = short_leases();
    let mut crowd = Crowd::of(20, &peers);
    crowd.wait_until_full(CAPACITY);
    for _ in 0..2 {
        let master = peers.master();
        peers.signal(master, Signal::STOP);
        // Asked before it paused, as far as it knows; and while another decides.
        let (doorman, late) = (peers.doorman(master).clone(), peers.client("late"));
        let asked = thread::spawn(move || late.try_ask(&doorman, "r", 5.0));
        crowd.stir(20);
        peers.master_but(&[master]);
        crowd.stir(50);
        peers.signal(master, Signal::CONT);
        assert_eq!(granted(asked.join().unwrap()), None, "another was master when this was decided");
        crowd.stir(100);
    }
    crowd.wait_until_full(CAPACITY);
    crowd.assert_never_too_much(CAPACITY);
}

#[test]
fn a_master_that_is_cut_off_stops_before_another_begins() {
    let peers = short_leases();
    let mut crowd = Crowd::of(20, &peers);
    crowd.wait_until_full(CAPACITY);
    for _ in 0..2 {
        let master = peers.master();
        // Its clients still reach it.
        peers.cut(master);
        crowd.stir(50);
        peers.master_but(&[master]);
        let asked = peers.client("still here").try_ask(peers.doorman(master), "r", 5.0);
        assert!(asked.as_ref().is_ok_and(|answer| answer.mastership.is_some()), "{asked:?}");
        crowd.stir(50);
        peers.heal(master);
        crowd.stir(50);
    }
    crowd.wait_until_full(CAPACITY);
    crowd.assert_never_too_much(CAPACITY);
}

#[test]
fn without_a_majority_nobody_decides_and_with_one_it_goes_on() {
    let peers = peers(100.0);
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
    peers.all().for_each(|peer| peers.cut(peer));
    eventually("all have stopped", || {
        let masters = peers.all().filter(|peer| peers.doorman(*peer).discovery().is_master == Some(true));
        (masters.count() == 0).then_some(())
    });
    for peer in peers.all() {
        eventually("nobody is said to be master", || {
            let answer = alice.try_ask(peers.doorman(peer), "r", 40.0).unwrap();
            assert_eq!(answer.response, [], "nobody decides");
            answer.mastership.unwrap().master_address.is_none().then_some(())
        });
    }
    peers.all().for_each(|peer| peers.heal(peer));
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
}
