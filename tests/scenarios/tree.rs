//! A node with a parent: what its clients get of what the root has, what comes down with it, and what goes up.

use std::time::{Duration, Instant};

use leaseway_proto::doorman::{ResourceRequest, ResourceResponse};

use crate::harness::{
    config::{ConfigFile, Template, text},
    doorman::{Asks as _, Client, capacity, entry, node_request, request},
    peers::Peers,
    process::leaseway,
    server::Server,
    tree::Tree,
    wait::eventually,
};

/// A root of one peer with so much of everything.
fn root(capacity: f64) -> Peers {
    Peers::start(1, ConfigFile::of(&[Template { refresh: 1, ..Template::fair("*", capacity) }]), &[])
}

fn client(of: &Peers, id: &str) -> Client {
    Client::new(of.doorman(0).clone(), id)
}

/// They ask on until each has what it is due.
#[track_caller]
fn settle(clients: &mut [(&mut Client, f64)], resource: &str, due: &[f64]) {
    eventually("all have what they are due", || {
        let mut all = true;
        for ((client, wants), due) in clients.iter_mut().zip(due) {
            all &= (client.ask(resource, *wants) - due).abs() <= due * 0.01;
        }
        all.then_some(())
    });
}

#[test]
fn clients_of_different_leaves_share_as_if_one_server_knew_them_all() {
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
        assert_eq!(client(&tree.leaves[0], "ann").ask(&resource, 40.0), 40.0, "{resource}, through three levels");
    }
}

#[test]
fn another_client_of_a_leaf_is_answered_with_what_the_root_has_and_not_with_zero() {
    let tree = Tree::start(1, 1, ConfigFile::of(&[Template::fair("*", 120.0)]));
    let (mut ann, mut ben) = (client(&tree.leaves[0], "ann"), client(&tree.leaves[0], "ben"));
    let mut resources = 0;
    // A request waits for a second at most. On a busy machine that may be too short: then for another resource.
    eventually("the first request is granted all that it wants", || {
        resources += 1;
        let resource = format!("r-{resources}");
        assert_eq!(ann.ask(&resource, 8.0), 8.0);
        (ben.ask(&resource, 20.0) == 20.0).then_some(())
    });
}

#[test]
fn while_the_parent_is_away_leases_run_to_their_end_and_when_it_is_back_all_is_as_before() {
    let lease = Duration::from_secs(10);
    let template = Template { lease: lease.as_secs(), refresh: 1, ..Template::fair("*", 100.0) };
    let mut root = Peers::start(1, ConfigFile::of(&[template]), &[]);
    let leaf = root.child("leaf", 1);
    let mut ann = client(&leaf, "ann");
    assert_eq!(ann.ask("r", 40.0), 40.0);
    root.kill(0);
    // All that it was lent, it was lent before; the thousandth is for clocks that run fast.
    let most = Instant::now() + lease + lease / 1000;
    assert_eq!(ann.ask("r", 40.0), 40.0, "the node still has it");
    eventually("the node's lease ends", || {
        let asked = Instant::now();
        let granted = ann.ask("r", 40.0);
        let end = asked + Duration::from_millis(ann.lease("r").remaining_ms.unwrap().try_into().unwrap());
        assert!(granted == 0.0 || end <= most, "{granted} for longer than the node has it");
        (granted == 0.0).then_some(())
    });
    root.run(0, &[]);
    settle(&mut [(&mut ann, 40.0)], "r", &[40.0]);
}

#[test]
fn a_leaf_with_its_data_goes_on_where_it_was() {
    let root = root(100.0);
    let mut leaf = root.child("leaf", 1);
    let mut ann = leaf.client("ann");
    assert_eq!(ann.ask(&leaf, "r", 60.0), 60.0);
    leaf.kill(0);
    leaf.run(0, &[]);
    let mut ben = leaf.client("ben");
    let first = ben.ask(&leaf, "r", 100.0);
    assert!(first <= 40.0, "{first} of what ann has left");
    // What was promised beyond what ann had, an eighth of that, is free when her lease from before has ended.
    let shared = |of: f64| (42.0..=50.5).contains(&of);
    eventually("they share", || (shared(ann.ask(&leaf, "r", 60.0)) & shared(ben.ask(&leaf, "r", 100.0))).then_some(()));
}

#[test]
fn a_leaf_that_remembers_nothing_takes_nothing_from_others() {
    let learning = Template { lease: 8, refresh: 1, learning: 4, ..Template::fair("*", 100.0) };
    let root = Peers::start(1, ConfigFile::of(&[learning]), &[]);
    let parent = root.endpoints().join(",");
    let leaf = || Server::with_flags(&["--parent", &parent, "--node", "leaf"]);
    let before = leaf();
    let mut ann = before.client("ann");
    settle(&mut [(&mut ann, 60.0)], "r", &[60.0]);
    before.stop();
    let after = leaf();
    ann.moves_to(after.doorman());
    let mut ben = after.client("ben");
    settle(&mut [(&mut ann, 60.0)], "r", &[60.0]);
    let first = ben.ask("r", 40.0);
    assert!(first <= 40.0, "{first} of what ann has left");
    settle(&mut [(&mut ann, 60.0), (&mut ben, 40.0)], "r", &[60.0, 40.0]);
}

#[test]
fn what_a_client_gives_back_is_free_for_others_elsewhere() {
    let root = root(100.0);
    let (x, y) = (root.child("x", 1), root.child("y", 1));
    let mut ann = client(&x, "ann");
    assert_eq!(ann.ask("r", 100.0), 100.0);
    // Leases last for an hour: nothing else sets it free.
    x.doorman(0).release("ann", &["r"]).unwrap();
    settle(&mut [(&mut client(&y, "ben"), 100.0)], "r", &[100.0]);
}

#[test]
fn what_clients_below_may_still_use_is_given_to_no_other() {
    let root = root(100.0);
    let (x, y) = (root.child("x", 1), root.child("y", 1));
    let (mut ann, mut ben) = (client(&x, "ann"), client(&y, "ben"));
    assert_eq!(ann.ask("r", 100.0), 100.0);
    // The node has heard, and said so, when its lease has been made anew a few times; ann has not.
    let (mut renewed, mut left) = (0, 0);
    eventually("the node has confirmed that it has less", || {
        assert_eq!(ben.ask("r", 100.0), 0.0, "ann has it all, for an hour");
        let status = root.status(0, &["r"]);
        let holder = status["resources"][0]["holder"].as_array().unwrap().iter().find(|holder| holder["id"] == "x")?;
        let now_left = holder["remaining_ms"].as_u64().unwrap();
        renewed += u32::from(holder["granted"] == 50.0 && now_left > left);
        left = now_left;
        (renewed > 3).then_some(())
    });
    settle(&mut [(&mut ann, 100.0), (&mut ben, 100.0)], "r", &[50.0, 50.0]);
}

#[test]
fn a_leaf_that_remembers_nothing_gives_nothing_of_its_clients_away() {
    let lease = Duration::from_secs(8);
    let template = Template { lease: 8, refresh: 1, learning: 8, ..Template::fair("*", 100.0) };
    let root = Peers::start(1, ConfigFile::of(&[template]), &[]);
    let (parent, y) = (root.endpoints().join(","), root.child("y", 1));
    let leaf = || Server::with_flags(&["--parent", &parent, "--node", "x"]);
    let before = leaf();
    let mut ann = before.client("ann");
    let mut asked = Instant::now();
    eventually("ann has what she wants", || {
        asked = Instant::now();
        (ann.ask("r", 60.0) == 60.0).then_some(())
    });
    before.stop();
    let after = leaf();
    // Ann says nothing, but may use what she has; ben may have the rest, and more only when her lease has ended.
    let mut zed = after.client("zed");
    let mut ben = client(&y, "ben");
    eventually("what she had is free", || {
        zed.ask("r", 1.0);
        let more = ben.ask("r", 100.0) > 40.0;
        assert!(!more || asked.elapsed() >= lease * 99 / 100, "after {:?}", asked.elapsed());
        more.then_some(())
    });
}

#[test]
fn a_resource_without_wants_is_given_back_to_the_parent() {
    let root = root(100.0);
    let leaf = Peers::below(&root.endpoints().join(","), "leaf", 1, &["--idle-secs", "1"]);
    assert_eq!(client(&leaf, "ann").ask("r", 100.0), 100.0);
    leaf.doorman(0).release("ann", &["r"]).unwrap();
    eventually("the node holds nothing any more", || {
        let status = root.status(0, &["r"]);
        status["resources"][0]["holder"].as_array().is_none_or(Vec::is_empty).then_some(())
    });
}

/// Puts this configuration into force.
fn apply(root: &Peers, text: &str) {
    let file = ConfigFile::new(text);
    root.operated(0, &["config", "apply", file.path()]);
}

#[test]
fn a_configuration_of_the_root_reaches_the_leaves() {
    let root = root(100.0);
    let region = root.child("region", 1);
    let leaf = region.child("leaf", 1);
    let mut ann = client(&leaf, "ann");
    assert_eq!(ann.ask("r", 40.0), 40.0);
    let template = Template { kind: "PROPORTIONAL_SHARE", lease: 40, refresh: 28, ..Template::fair("*", 100.0) };
    apply(&root, &(text(&[template]) + "  safe_capacity: 4.5\n"));
    let answer = eventually("it has come down", || {
        let answer = ann.try_ask("r", 40.0).unwrap().unwrap();
        (answer.gets.unwrap().refresh_interval == Some(7) && answer.safe_capacity == Some(4.5)).then_some(answer)
    });
    assert!(answer.gets.unwrap().remaining_ms.unwrap() <= 40_000);
    assert_eq!(leaf.status(0, &[])["resources"][0]["algorithm"], "PROPORTIONAL_SHARE");
}

#[test]
fn clients_ask_a_node_twice_as_often_as_the_node_asks_its_parent() {
    let root = Peers::start(1, ConfigFile::of(&[Template { refresh: 16, ..Template::fair("*", 100.0) }]), &[]);
    let region = root.child("region", 1);
    let leaf = region.child("leaf", 1);
    for (node, expected) in [(&leaf, 4), (&region, 8), (&root, 16)] {
        // While it waits for its capacity a holder that hears no hints is told to ask again sooner.
        let mut ann = client(node, "ann");
        let of_client = eventually("the client has what it wants", || {
            let lease = ann.try_ask("r", 1.0).unwrap()?.gets.unwrap();
            (lease.capacity == Some(1.0)).then_some(lease.refresh_interval)
        });
        let of_node = eventually("the node has what it wants", || {
            let answer =
                node.doorman(0).get_server(node_request("another", "r", &[(1, 1.0)])).unwrap().response.pop()?;
            (answer.gets.unwrap().capacity == Some(1.0)).then_some(answer)
        });
        // A node that does not know of the decay tells its own clients what it reads in the algorithm.
        let told = [of_client, of_node.gets.unwrap().refresh_interval, of_node.algorithm.unwrap().refresh_interval];
        assert_eq!(told, [Some(expected); 3]);
    }
}

#[test]
fn less_at_the_root_is_less_at_the_leaves_and_more_is_more() {
    let root = root(100.0);
    let region = root.child("region", 1);
    let (x, y) = (region.child("x", 1), root.child("y", 1));
    let (mut ann, mut ben) = (client(&x, "ann"), client(&y, "ben"));
    settle(&mut [(&mut ann, 80.0), (&mut ben, 80.0)], "r", &[50.0, 50.0]);
    for capacity in [40.0, 120.0] {
        apply(&root, &text(&[Template { refresh: 1, ..Template::fair("*", capacity) }]));
        settle(&mut [(&mut ann, 80.0), (&mut ben, 80.0)], "r", &[capacity / 2.0; 2]);
    }
}

#[test]
fn strict_priorities_hold_through_the_tree() {
    let strict = "    - {name: priority, value: strict}\n";
    let template = text(&[Template { refresh: 1, ..Template::fair("*", 100.0) }]) + strict;
    let root = Peers::start(1, ConfigFile::new(&template), &[]);
    let region = root.child("region", 1);
    let (x, y) = (region.child("x", 1), region.child("y", 1));
    let ask = |leaf: &Peers, id: &str, priority: i64, has: &mut Option<ResourceResponse>| {
        let has_been = has.as_ref().and_then(|answer| answer.gets);
        let asked = ResourceRequest { priority: Some(priority), has: has_been, ..entry("r", 80.0) };
        let answer = leaf.doorman(0).get(request(id, vec![asked])).unwrap().response.remove(0);
        let granted = capacity(answer.gets);
        *has = Some(answer);
        granted
    };
    let (mut low, mut lower, mut high) = (None, None, None);
    eventually("those above are served first, wherever they ask", || {
        let granted = [ask(&x, "low", 1, &mut low), ask(&x, "lower", 0, &mut lower), ask(&y, "high", 2, &mut high)];
        (granted == [20.0, 0.0, 80.0]).then_some(())
    });
}

#[test]
fn a_node_with_a_parent_has_no_configuration_of_its_own() {
    let config = ConfigFile::of(&[Template::fair("*", 1.0)]);
    let flags = ["serve", "--parent", "127.0.0.1:1", "--node", "leaf", "--config", config.path()];
    let said = leaseway(&flags);
    assert!(said.code != Some(0) && said.stderr.contains("parent"), "{said:?}");
}
