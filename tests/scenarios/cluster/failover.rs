//! Failover: redirects, newcomers, and a lost majority. `chaos` shows that no promise is broken meanwhile.

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{entry, node_request, request},
    http,
    peers::Peers,
    wait::eventually,
};

fn peers(capacity: f64) -> Peers {
    Peers::start(3, ConfigFile::of(&[Template::fair("*", capacity)]), &[])
}

#[test]
fn followers_redirect_every_request_to_the_master() {
    let peers = peers(100.0);
    let master = peers.master();
    for peer in peers.all().filter(|peer| *peer != master) {
        let expected = Some(peers.grpc(master).to_string());
        let named = eventually("the follower knows the master", || {
            let answer = peers.doorman(peer).discovery();
            assert_eq!(answer.is_master, Some(false));
            answer.mastership.and_then(|mastership| mastership.master_address)
        });
        assert_eq!(Some(named), expected);
        let got = peers.doorman(peer).get(request("alice", vec![entry("r", 1.0)])).unwrap();
        assert_eq!((got.response.len(), got.mastership.unwrap().master_address), (0, expected.clone()));
        let got = peers.doorman(peer).get_server(node_request("child", "r", &[(1, 1.0)])).unwrap();
        assert_eq!((got.response.len(), got.mastership.unwrap().master_address), (0, expected.clone()));
        let released = peers.doorman(peer).try_release("alice", &["r"], false).unwrap();
        assert_eq!(released.mastership.unwrap().master_address, expected);
        eventually("the peer is ready", || (http::get(peers.http(peer), "/readyz").status == 200).then_some(()));
    }
}

#[test]
fn a_new_master_serves_newcomers_immediately_and_keeps_existing_leases() {
    let mut peers = peers(100.0);
    let (mut alice, mut bob) = (peers.client("alice"), peers.client("bob"));
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
    peers.kill(peers.master());
    // Bob immediately gets capacity that alice cannot hold.
    let first = bob.ask(&peers, "r", 1000.0);
    assert!((45.0..=60.0).contains(&first), "bob got {first}, and alice left 60");
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
    alice.ask(&peers, "r", 10.0);
    alice.ask(&peers, "r", 10.0);
    let then = bob.ask(&peers, "r", 1000.0);
    assert!((first + 30.0..=90.0).contains(&then), "bob got {then} after alice confirmed a smaller lease");
}

#[test]
fn no_peer_decides_without_a_majority() {
    let peers = peers(100.0);
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
    peers.all().for_each(|peer| peers.cut(peer));
    eventually("no peer is master", || {
        let masters = peers.all().filter(|peer| peers.doorman(*peer).discovery().is_master == Some(true));
        (masters.count() == 0).then_some(())
    });
    for peer in peers.all() {
        eventually("the peer names no master", || {
            let answer = alice.try_ask(peers.doorman(peer), "r", 40.0).unwrap();
            assert_eq!(answer.response, [], "no peer decides");
            answer.mastership.unwrap().master_address.is_none().then_some(())
        });
    }
    peers.all().for_each(|peer| peers.heal(peer));
    assert_eq!(alice.ask(&peers, "r", 40.0), 40.0);
}
