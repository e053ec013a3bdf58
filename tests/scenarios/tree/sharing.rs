//! Clients of a node with a parent.

use std::time::{Duration, Instant};

use crate::harness::{
    config::{ConfigFile, Template, text},
    doorman::{Asks as _, Client},
    peers::Peers,
    tree::Tree,
    wait::eventually,
};

/// A root of one peer with this capacity.
fn root(capacity: f64) -> Peers {
    Peers::start(1, ConfigFile::of(&[Template { refresh: 1, ..Template::fair("*", capacity) }]), &[])
}

fn client(of: &Peers, id: &str) -> Client {
    Client::new(of.doorman(0).clone(), id)
}

/// Asks until each client is granted its due.
#[track_caller]
fn settle(clients: &mut [(&mut Client, f64)], resource: &str, due: &[f64]) {
    eventually("granted == due for all clients", || {
        let mut all = true;
        for ((client, wants), due) in clients.iter_mut().zip(due) {
            all &= (client.ask(resource, *wants) - due).abs() <= due * 0.01;
        }
        all.then_some(())
    });
}

#[test]
fn clients_of_different_leaves_share_as_on_one_server() {
    let root = root(120.0);
    let (x, y) = (root.child("x", 1), root.child("y", 1));
    let (mut ann, mut ben, mut cid) = (client(&x, "ann"), client(&x, "ben"), client(&y, "cid"));
    settle(&mut [(&mut ann, 100.0), (&mut ben, 10.0), (&mut cid, 100.0)], "r", &[55.0, 10.0, 55.0]);
    let mut dan = client(&y, "dan");
    let mut all = [(&mut ann, 100.0), (&mut ben, 10.0), (&mut cid, 100.0), (&mut dan, 20.0)];
    settle(&mut all, "r", &[45.0, 10.0, 45.0, 20.0]);
}

#[test]
fn the_first_request_of_a_new_resource_is_answered_with_a_grant() {
    let tree = Tree::start(1, 1, ConfigFile::of(&[Template::fair("*", 100.0)]));
    for n in 0..3 {
        let resource = format!("new-{n}");
        assert_eq!(client(&tree.leaves[0], "ann").ask(&resource, 40.0), 40.0, "{resource}, over three levels");
    }
}

#[test]
fn leases_expire_during_a_parent_outage_and_recover_after_it() {
    let lease = Duration::from_secs(10);
    let template = Template { lease: lease.as_secs(), refresh: 1, ..Template::fair("*", 100.0) };
    let mut root = Peers::start(1, ConfigFile::of(&[template]), &[]);
    let leaf = root.child("leaf", 1);
    let mut ann = client(&leaf, "ann");
    assert_eq!(ann.ask("r", 40.0), 40.0);
    root.kill(0);
    // The parent's last lease began before the kill. Allows for clocks that are a thousandth fast.
    let most = Instant::now() + lease + lease / 1000;
    assert_eq!(ann.ask("r", 40.0), 40.0, "the node still has its lease");
    eventually("the node's lease expires", || {
        let asked = Instant::now();
        let granted = ann.ask("r", 40.0);
        let end = asked + Duration::from_millis(ann.lease("r").remaining_ms.unwrap().try_into().unwrap());
        assert!(granted == 0.0 || end <= most, "the lease of {granted} ends after the node's own lease");
        (granted == 0.0).then_some(())
    });
    root.run(0, &[]);
    settle(&mut [(&mut ann, 40.0)], "r", &[40.0]);
}

#[test]
fn a_restarted_leaf_continues_from_its_data_directory() {
    let root = root(100.0);
    let mut leaf = root.child("leaf", 1);
    let mut ann = leaf.client("ann");
    assert_eq!(ann.ask(&leaf, "r", 60.0), 60.0);
    leaf.kill(0);
    leaf.run(0, &[]);
    let mut ben = leaf.client("ben");
    let first = ben.ask(&leaf, "r", 100.0);
    assert!(first <= 40.0, "ben got {first}, and ann left 40");
    // The stored promise exceeds ann's lease by an eighth. That becomes free when her former lease has expired.
    let shared = |of: f64| (42.0..=50.5).contains(&of);
    eventually("both clients have about half", || {
        (shared(ann.ask(&leaf, "r", 60.0)) & shared(ben.ask(&leaf, "r", 100.0))).then_some(())
    });
}

/// Applies a configuration at the root.
fn apply(root: &Peers, text: &str) {
    let file = ConfigFile::new(text);
    root.operated(0, &["config", "apply", file.path(), "--yes"]);
}

#[test]
fn the_roots_configuration_reaches_the_leaves() {
    let root = root(100.0);
    let region = root.child("region", 1);
    let leaf = region.child("leaf", 1);
    let mut ann = client(&leaf, "ann");
    assert_eq!(ann.ask("r", 40.0), 40.0);
    let template = Template { kind: "PROPORTIONAL_SHARE", lease: 40, refresh: 28, ..Template::fair("*", 100.0) };
    apply(&root, &(text(&[template]) + "  safe_capacity: 4.5\n"));
    let answer = eventually("the new lengths and the safe capacity arrive", || {
        let answer = ann.try_ask("r", 40.0).unwrap().unwrap();
        (answer.gets.unwrap().refresh_interval == Some(7) && answer.safe_capacity == Some(4.5)).then_some(answer)
    });
    assert!(answer.gets.unwrap().remaining_ms.unwrap() <= 40_000);
    assert_eq!(leaf.status(0, &[])["resources"][0]["algorithm"], "PROPORTIONAL_SHARE");
}
