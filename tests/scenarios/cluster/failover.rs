//! Masters that die, pause or are cut off: another takes over, and no client is promised what another holds.

use std::thread;

use rustix::process::Signal;

use crate::harness::{
    config::{ConfigFile, Template},
    crowd::Crowd,
    doorman::{entry, node_request, request, unix_now},
    http,
    peers::{Peers, granted},
    wait::eventually,
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
        let released = peers.doorman(peer).try_release("alice", &["r"], false).unwrap();
        assert_eq!(released.mastership.unwrap().master_address, expected);
        eventually("it counts", || (http::get(peers.http(peer), "/readyz").status == 200).then_some(()));
    }
}

#[test]
fn a_new_master_serves_newcomers_at_once_and_takes_nothing_from_others() {
    let mut peers = peers(100.0);
    let (mut alice, mut bob) = (peers.client("alice"), peers.client("bob"));
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
    peers.kill(peers.master());
    // The first answer gives bob the capacity that alice cannot hold.
    let first = bob.ask(&peers, "r", 1000.0);
    assert!((45.0..=60.0).contains(&first), "{first} of what alice has left");
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
    alice.ask(&peers, "r", 10.0);
    alice.ask(&peers, "r", 10.0);
    let then = bob.ask(&peers, "r", 1000.0);
    assert!((first + 30.0..=90.0).contains(&then), "{then}: she has confirmed, and what she gave up is free at once");
}

const CAPACITY: f64 = 100.0;

/// Lease length in seconds.
const LEASE: u64 = 4;

fn short_leases() -> Peers {
    let config = ConfigFile::of(&[Template { lease: LEASE, refresh: 1, ..Template::fair("*", CAPACITY) }]);
    Peers::start(3, config, &[])
}

#[test]
fn leases_stay_within_the_capacity_while_masters_are_killed() {
    let mut peers = short_leases();
    let mut crowd = Crowd::of(20, peers.endpoints());
    crowd.wait_until_all_is_out(CAPACITY);
    for _ in 0..3 {
        crowd.stir(50);
        let master = peers.master();
        peers.kill(master);
        crowd.stir(50);
        peers.run(master, &[]);
        crowd.stir(100);
    }
    crowd.wait_until_all_is_out(CAPACITY);
    crowd.assert_never_too_much(CAPACITY);
}

#[test]
fn a_paused_master_decides_nothing_when_it_wakes() {
    let peers = short_leases();
    let mut crowd = Crowd::of(20, peers.endpoints());
    crowd.wait_until_all_is_out(CAPACITY);
    for _ in 0..2 {
        let master = peers.master();
        peers.signal(master, Signal::STOP);
        let paused = unix_now();
        // This request arrives while it is paused and another master decides.
        let (doorman, late) = (peers.doorman(master).clone(), peers.client("late"));
        let asked = thread::spawn(move || late.try_ask(&doorman, "r", 5.0));
        crowd.stir(20);
        peers.master_but(&[master]);
        crowd.stir(50);
        peers.signal(master, Signal::CONT);
        // A thread may have decided this before the signal reached it.
        let late = granted(asked.join().unwrap()).map(|lease| lease.expiry_time() - LEASE as i64);
        assert!(late.is_none_or(|decided| decided <= paused), "another was master when this was decided: {late:?}");
        crowd.stir(100);
    }
    crowd.wait_until_all_is_out(CAPACITY);
    crowd.assert_never_too_much(CAPACITY);
}

#[test]
fn a_master_that_is_cut_off_stops_before_another_begins() {
    let peers = short_leases();
    let mut crowd = Crowd::of(20, peers.endpoints());
    crowd.wait_until_all_is_out(CAPACITY);
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
    crowd.wait_until_all_is_out(CAPACITY);
    crowd.assert_never_too_much(CAPACITY);
}

#[test]
fn without_a_majority_no_peer_decides_and_with_one_it_goes_on() {
    let peers = peers(100.0);
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
    peers.all().for_each(|peer| peers.cut(peer));
    eventually("all have stopped", || {
        let masters = peers.all().filter(|peer| peers.doorman(*peer).discovery().is_master == Some(true));
        (masters.count() == 0).then_some(())
    });
    for peer in peers.all() {
        eventually("no master is named", || {
            let answer = alice.try_ask(peers.doorman(peer), "r", 40.0).unwrap();
            assert_eq!(answer.response, [], "no peer decides");
            answer.mastership.unwrap().master_address.is_none().then_some(())
        });
    }
    peers.all().for_each(|peer| peers.heal(peer));
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
}
