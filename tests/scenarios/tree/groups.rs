//! Groups of clients below different nodes of a tree.

use crate::harness::{
    config::{ConfigFile, Template, text},
    doorman::{Asks as _, Client},
    http,
    peers::Peers,
    process::leaseway,
    wait::eventually,
};

/// A capacity of 120 between teams.
fn config() -> ConfigFile {
    let template = Template { refresh: 1, ..Template::fair("*", 120.0) };
    let groups = "  groups:
    from: \"{team}/*\"
    rules:
    - {group: small, maximum: 6}
    - {group: heavy, weight: 2}
";
    ConfigFile::new(&format!("{}{groups}", text(&[template])))
}

fn client(of: &Peers, id: &str) -> Client {
    Client::new(of.doorman(of.master()).clone(), id)
}

#[track_caller]
fn settle(clients: &mut [(&mut Client, f64, f64)]) {
    eventually("granted == due for all clients", || {
        let mut all = true;
        for (client, wants, due) in clients.iter_mut() {
            all &= (client.ask("r", *wants) - *due).abs() <= *due * 0.01;
        }
        all.then_some(())
    });
}

#[test]
fn teams_share_as_on_one_server_wherever_their_clients_are() {
    let root = Peers::start(1, config(), &[]);
    let region = root.child("region", 1);
    let (x, y) = (region.child("x", 1), region.child("y", 1));
    let (mut a1, mut a2, mut a3) = (client(&x, "a/1"), client(&x, "a/2"), client(&y, "a/3"));
    let (mut b, mut heavy, mut small) = (client(&y, "b/1"), client(&root, "heavy/1"), client(&x, "small/1"));
    let mut other = client(&x, "nobody");
    settle(&mut [
        (&mut a1, 100.0, 7.6),
        (&mut a2, 100.0, 7.6),
        (&mut a3, 100.0, 7.6),
        (&mut b, 100.0, 22.8),
        (&mut heavy, 100.0, 45.6),
        (&mut small, 100.0, 6.0),
        (&mut other, 100.0, 22.8),
    ]);

    let status = root.status(0, &["r"]);
    let group = |path: &str| {
        let groups = status["resources"][0]["group"].as_array().unwrap();
        let group = groups.iter().find(|group| group["path"] == path).unwrap();
        ["wants", "share", "held", "members"].map(|field| group[field].as_f64().unwrap())
    };
    assert_eq!((group("a")[0], group("a")[3]), (300.0, 3.0), "{status}");
    assert!((group("a")[1] - 22.8).abs() < 1e-6 && group("a")[2] > 15.0, "{status}");
    assert_eq!((group("small")[0], group("small")[1]), (100.0, 6.0), "{status}");
    let metrics = http::get(root.http(0), "/metrics").body;
    assert!(metrics.contains("leaseway_group_share{resource=\"r\",group=\"small\"} 6\n"), "{metrics}");
    let page = http::get(root.http(0), "/resource?resource=r").body;
    assert!(page.contains("<h2>Groups</h2>") && page.contains("small"), "{page}");

    let explained = |node: &Peers, id: &str| {
        let address = node.grpc(0).to_string();
        leaseway(&["explain", "--server", &address, id, "r"]).stdout
    };
    let said = explained(&x, "small/1");
    assert!(said.contains("its group small is due 6 of the 100 that its clients want in the whole tree"), "{said}");
    assert!(said.contains("its maximum is 6"), "{said}");
    let said = explained(&x, "a/1");
    assert!(said.contains("of the 300 that its clients want in the whole tree, and 15.2 of 200 here"), "{said}");
    assert!(said.contains("The limiting level is the group a"), "{said}");

    // A new team at one node takes from all others.
    let mut c = client(&x, "c/1");
    settle(&mut [
        (&mut a1, 100.0, 6.333),
        (&mut a2, 100.0, 6.333),
        (&mut a3, 100.0, 6.333),
        (&mut b, 100.0, 19.0),
        (&mut heavy, 100.0, 38.0),
        (&mut small, 100.0, 6.0),
        (&mut other, 100.0, 19.0),
        (&mut c, 100.0, 19.0),
    ]);
}

/// The parent keeps the last demand of the team below the node, although the new master does not know it yet.
#[test]
fn teams_keep_their_shares_when_the_master_of_a_node_dies() {
    let root = Peers::start(1, config(), &[]);
    let (mut x, y) = (root.child("x", 3), root.child("y", 1));
    let master = x.master();
    let (mut a1, mut a2, mut b) = (client(&x, "a/1"), client(&x, "a/2"), client(&y, "b/1"));
    settle(&mut [(&mut a1, 100.0, 30.0), (&mut a2, 100.0, 30.0), (&mut b, 100.0, 60.0)]);
    x.kill(master);
    let next = x.master_but(&[master]);
    a1.moves_to(x.doorman(next).clone());
    a2.moves_to(x.doorman(next).clone());
    eventually("the next master answers", || a1.try_ask("r", 100.0).ok().flatten());
    for _ in 0..5 {
        assert!((a1.ask("r", 100.0) - 30.0).abs() < 0.01);
        assert!((b.ask("r", 100.0) - 60.0).abs() < 0.01, "the other team gets nothing of it");
    }
    settle(&mut [(&mut a1, 100.0, 30.0), (&mut a2, 100.0, 30.0), (&mut b, 100.0, 60.0)]);
}
