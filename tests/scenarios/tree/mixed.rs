//! Trees in which Go Doorman servers are parents or children of our nodes.

use leaseway_proto::doorman::algorithm::Kind;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, Client},
    go_child::GoChild,
    go_parent::{GoParent, ParentState, now},
    legacy_client::field,
    peers::Peers,
    server::Server,
    wait::eventually,
};

fn leaf(parent: &str) -> Peers {
    Peers::below(parent, "leaf", 1, &[])
}

fn client(of: &Peers, id: &str) -> Client {
    Client::new(of.doorman(0).clone(), id)
}

/// Asks until the client is granted `expected`. Below a Go parent, requests that come too soon are not answered.
#[track_caller]
fn gets(client: &mut Client, wants: f64, expected: f64) {
    eventually("granted == due", || {
        let response = client.try_ask("r", wants).unwrap()?;
        (response.gets.unwrap().capacity == Some(expected)).then_some(())
    });
}

#[test]
fn a_node_below_a_go_parent_divides_its_lease() {
    let parent = GoParent::start(ParentState { safe_capacity: 2.5, ..ParentState::sharing(100.0) });
    let leaf = leaf(&parent.address());
    let mut ann = client(&leaf, "ann");
    let answer = ann.try_ask("r", 70.0).unwrap().unwrap();
    let lease = answer.gets.unwrap();
    assert_eq!((lease.capacity, lease.refresh_interval, answer.safe_capacity), (Some(70.0), Some(1), Some(2.5)));
    assert!(lease.remaining_ms.unwrap() <= 20_000, "the lease ends no later than the parent's: {lease:?}");
    let status = leaf.status(0, &["r"]);
    assert_eq!(status["resources"][0]["algorithm"], "PROPORTIONAL_SHARE", "the algorithm comes from the parent");
    gets(&mut client(&leaf, "ben"), 30.0, 30.0);
    gets(&mut ann, 70.0, 70.0);
    let asked = parent.asked();
    assert!(
        asked.iter().all(|request| request.server_id.as_deref() == Some("leaf") && request.drops_late()),
        "{asked:?}"
    );
    let wants = |request: usize| -> f64 {
        let entries = asked[request].resource.iter().filter(|entry| entry.resource_id.as_deref() == Some("r"));
        entries.flat_map(|entry| &entry.wants).filter_map(|band| band.wants).sum()
    };
    assert!(
        (0..asked.len()).any(|request| wants(request) == 100.0),
        "slices add up to the wants of all clients: {asked:?}"
    );
}

/// Under STATIC a Go parent leases the maximum of each client.
#[test]
fn below_a_static_go_parent_the_lease_is_a_maximum_per_client() {
    let parent = GoParent::start(ParentState { kind: Kind::Static, ..ParentState::sharing(50.0) });
    let leaf = leaf(&parent.address());
    let (mut ann, mut ben, mut cid) = (client(&leaf, "ann"), client(&leaf, "ben"), client(&leaf, "cid"));
    gets(&mut ann, 40.0, 40.0);
    gets(&mut ben, 80.0, 50.0);
    gets(&mut cid, 50.0, 50.0);
    gets(&mut ann, 40.0, 40.0);
    parent.now(|standing| standing.capacity = 30.0);
    for client in [&mut ann, &mut ben, &mut cid] {
        gets(client, 50.0, 30.0);
    }
}

#[test]
fn a_node_keeps_its_lease_while_its_go_parent_learns() {
    let parent = GoParent::start(ParentState::sharing(100.0));
    let leaf = leaf(&parent.address());
    let mut ann = client(&leaf, "ann");
    gets(&mut ann, 40.0, 40.0);
    parent.forget();
    parent.now(|standing| standing.learning = true);
    let before = parent.asked().len();
    eventually("the node asks the parent again", || (parent.asked().len() > before + 1).then_some(()));
    let has = parent.asked().last().and_then(|request| request.resource.first()?.has?.capacity);
    assert_eq!(has, Some(40.0), "unlike Go's own children the node sends `has`");
    gets(&mut ann, 40.0, 40.0);
    // Newcomers get nothing while the parent learns.
    let mut ben = client(&leaf, "ben");
    assert_eq!(ben.ask("r", 50.0), 0.0);
    parent.now(|standing| standing.learning = false);
    gets(&mut ben, 50.0, 50.0);
    gets(&mut ann, 40.0, 40.0);
}

fn server(capacity: f64) -> Server {
    Server::with_config(&ConfigFile::of(&[Template { refresh: 2, ..Template::fair("*", capacity) }]))
}

#[test]
fn go_children_share_with_clients_and_with_each_other() {
    let server = server(120.0);
    let (mut east, mut west) = (GoChild::new(server.raw(), "east"), GoChild::new(server.raw(), "west"));
    assert!(east.poll().is_empty(), "a child without clients polls, too");
    assert_eq!(server.status(&[])["resources_total"], 0, "a poll without clients creates no resource");
    east.has_clients("r", &[50.0, 50.0, 50.0]);
    let first = &east.poll()["r"];
    assert_eq!((first.capacity, first.safe_capacity), (120.0, 120.0 / 3.0));
    assert!((1..=2).contains(&first.refresh), "{first:?}");
    let lengths = ["lease_length", "refresh_interval"].map(|name| field(&first.algorithm, name).as_i64());
    assert_eq!(lengths, [Some(3600), Some(2)], "lengths for the child's own clients");
    assert!(first.expiry > now(), "{first:?}");
    west.has_clients("r", &[100.0]);
    // A Go child confirms nothing, so the capacity it gives up is free only when its older lease expires, in an hour.
    eventually("the first child shrinks to its share", || {
        let (east, west) = (east.poll()["r"].capacity, west.poll()["r"].capacity);
        (east == 90.0).then(|| assert_eq!(west, 0.0, "the older, larger lease still counts"))
    });
    server.assert_alive();
}

#[test]
fn capacity_given_up_by_a_go_child_is_free_when_its_lease_expires() {
    let server = Server::with_config(&ConfigFile::of(&[
        Template { lease: 3, refresh: 1, ..Template::fair("r", 120.0) },
        Template::fair("*", 1.0),
    ]));
    let (mut east, mut west) = (GoChild::new(server.raw(), "east"), GoChild::new(server.raw(), "west"));
    east.has_clients("r", &[50.0, 50.0, 50.0]);
    assert_eq!(east.poll()["r"].capacity, 120.0);
    west.has_clients("r", &[100.0]);
    let mut ann = server.client("ann");
    eventually("shares are proportional to the numbers of clients", || {
        let (east, west) = (east.poll()["r"].capacity, west.poll()["r"].capacity);
        let ann = ann.ask("r", 100.0);
        ([east, west, ann] == [72.0, 24.0, 24.0]).then_some(())
    });
}
