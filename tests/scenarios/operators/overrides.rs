//! `leaseway capacity`: an operator overrides a capacity or the rule of a group for some time.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template, text},
    http,
    peers::{Caller, Peers},
    process::leaseway,
    wait::eventually,
};

/// Leases shorter than the test.
fn config() -> ConfigFile {
    ConfigFile::of(&[Template { lease: 3, refresh: 1, learning: 0, ..Template::fair("*", 100.0) }])
}

fn listed(peers: &Peers, peer: usize) -> Value {
    serde_json::from_str(&peers.operated(peer, &["capacity", "--json"])).unwrap()
}

fn capacity(peers: &Peers, peer: usize, resource: &str) -> Option<f64> {
    peers.status(peer, &[resource])["resources"][0]["capacity"].as_f64()
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn an_override_survives_a_failover_and_expires() {
    let audit = tempfile::tempdir().unwrap();
    let log = audit.path().join("audit");
    let mut peers = Peers::start(3, config(), &["--audit", log.to_str().unwrap()]);
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "db1", 1000.0), 100.0);

    let set = ["capacity", "db*", "50%", "--for", "15s", "--why", "a replica is down"];
    let output = peers.operated(peers.follower(), &set);
    let expected_end = unix_ms() + 15_000;
    assert!(output.contains("db* has 50% until 2"), "{output}");
    assert!(output.contains("db1            100        50\n"), "{output}");
    let one = &listed(&peers, peers.follower())["overrides"][0];
    assert_eq!((&one["pattern"], &one["factor"]), (&"db*".into(), &0.5.into()), "{one}");
    assert_eq!((&one["by"], &one["why"]), (&"anonymous".into(), &"a replica is down".into()), "{one}");
    let until = one["until_unix_ms"].as_u64().unwrap();
    assert!(until.abs_diff(expected_end) < 5_000, "{one}");
    eventually("alice gets a smaller lease", || (alice.ask(&peers, "db1", 1000.0) == 50.0).then_some(()));

    let master = peers.master();
    for (path, says) in [
        ("/", "a replica is down"),
        ("/resource?resource=db1", "anonymous has set `db*` to 50 %"),
        ("/changes?kind=override", "`db*` is set to 50 % by anonymous: a replica is down"),
        ("/api/v1/status", r#""set_to":"50 %""#),
        ("/api/v1/resource?resource=db1", r#""template_capacity":100"#),
    ] {
        let page = http::get(peers.http(master), path).body;
        assert!(page.contains(says), "{path}: {page}");
    }
    let metrics = http::get(peers.http(master), "/metrics").body;
    assert!(metrics.contains("leaseway_resource_override_seconds{resource=\"db1\"}"), "{metrics}");
    assert!(metrics.contains("\nleaseway_overrides 1\n"), "{metrics}");
    let line = std::fs::read_to_string(&log).unwrap();
    assert!(line.contains(r#""what":"capacity_overridden","#) && line.contains("a replica is down"), "{line}");

    peers.kill(master);
    let next = peers.master();
    eventually("the next master knows the override, unless it has expired", || {
        (alice.ask(&peers, "db1", 1000.0) == 50.0 || unix_ms() >= until).then_some(())
    });
    eventually("the override has expired", || (alice.ask(&peers, "db1", 1000.0) == 100.0).then_some(()));
    assert!(unix_ms() >= until, "the override expired too early");
    assert_eq!(capacity(&peers, next, "db1"), Some(100.0));
    assert_eq!(listed(&peers, next)["overrides"].as_array().map(Vec::len), Some(0));
}

/// A capacity of 100 between teams, with short leases.
fn grouped() -> ConfigFile {
    let template = Template { lease: 3, refresh: 1, learning: 0, ..Template::fair("api*", 100.0) };
    let groups = "  groups: {from: \"{team}/*\", rules: [{group: prod, minimum: 40}]}\n";
    let flat = text(&[Template::fair("flat", 10.0)]).replace("resources:\n", "");
    ConfigFile::new(&format!("{}{groups}{flat}", text(&[template])))
}

/// Clients of the teams `a`, `b` and `prod`.
fn teams(peers: &Peers) -> [Caller; 3] {
    ["a/1", "b/1", "prod/1"].map(|id| peers.client(id))
}

/// Waits until each client has what it is due, or until `otherwise`.
fn settle(peers: &Peers, clients: &mut [Caller], dues: &[f64], otherwise: impl Fn() -> bool) {
    eventually(&format!("the clients have {dues:?}"), || {
        let has: Vec<f64> = clients.iter_mut().map(|client| client.ask(peers, "api1", 1000.0)).collect();
        let is_settled = has.iter().zip(dues).all(|(has, due)| (has - due).abs() <= due * 1e-3);
        (is_settled || otherwise()).then_some(())
    });
}

#[test]
fn an_override_of_a_group_survives_a_failover_and_expires() {
    let audit = tempfile::tempdir().unwrap();
    let log = audit.path().join("audit");
    let mut peers = Peers::start(3, grouped(), &["--audit", log.to_str().unwrap()]);
    let mut clients = teams(&peers);
    settle(&peers, &mut clients, &[30.0, 30.0, 40.0], || false);

    let set = ["capacity", "api*", "--group", "a", "--maximum", "10", "--for", "30s", "--why", "a runaway job"];
    let output = peers.operated(peers.follower(), &set);
    assert!(output.contains("the group a of api* has maximum 10 until 2"), "{output}");
    assert!(output.contains("RESOURCE") && output.contains("api1"), "{output}");
    assert!(output.contains("api1       1000     10\n"), "{output}");
    let one = &listed(&peers, peers.follower())["overrides"][0];
    assert_eq!((&one["group"], &one["maximum"], &one["weight"]), (&"a".into(), &10.0.into(), &Value::Null), "{one}");
    let until = one["until_unix_ms"].as_u64().unwrap();
    settle(&peers, &mut clients, &[10.0, 45.0, 45.0], || false);

    let master = peers.master();
    let said = leaseway(&["explain", "--server", &peers.grpc(master).to_string(), "a/1", "api1"]).stdout;
    for says in
        ["its maximum is 10", "has a maximum of 10 in place of none: anonymous has overridden its rule for `api*`"]
    {
        assert!(said.contains(says), "{said}");
    }
    for (path, says) in [
        ("/", "group a"),
        ("/resource?resource=api1", "The group a has a maximum of 10 in place of none"),
        ("/changes?kind=override", "the group a of `api*` is set to maximum 10 by anonymous: a runaway job"),
        ("/api/v1/status", r#""group":"a""#),
        ("/api/v1/resource?resource=api1", r#""overridden_groups":[{"#),
    ] {
        let page = http::get(peers.http(master), path).body;
        assert!(page.contains(says), "{path}: {page}");
    }
    let metrics = http::get(peers.http(master), "/metrics").body;
    assert!(metrics.contains("leaseway_group_override_seconds{resource=\"api1\",group=\"a\"} "), "{metrics}");
    let line = std::fs::read_to_string(&log).unwrap();
    assert!(line.contains(r#""what":"group_overridden","#) && line.contains("a runaway job"), "{line}");

    peers.kill(master);
    let next = peers.master();
    settle(&peers, &mut clients, &[10.0, 45.0, 45.0], || unix_ms() >= until);
    settle(&peers, &mut clients, &[30.0, 30.0, 40.0], || false);
    assert!(unix_ms() >= until, "the override expired too early");
    assert_eq!(listed(&peers, next)["overrides"].as_array().map(Vec::len), Some(0));
}

#[test]
fn an_override_of_a_group_at_the_root_binds_its_clients_below() {
    let root = Peers::start(1, grouped(), &[]);
    let leaf = root.child("leaf", 1);
    let (mut above, mut below) = (teams(&root), teams(&leaf));
    let mut settle = |dues: [f64; 2]| {
        eventually("the clients of both nodes have what they are due", || {
            let has = |peers: &Peers, clients: &mut [Caller]| -> Vec<f64> {
                clients[..2].iter_mut().map(|client| client.ask(peers, "api1", 1000.0)).collect()
            };
            let all = [has(&root, &mut above), has(&leaf, &mut below)];
            let is_settled = |has: &Vec<f64>| has.iter().zip(&dues).all(|(has, due)| (has - due).abs() <= due * 0.01);
            all.iter().all(is_settled).then_some(())
        });
    };
    settle([25.0, 25.0]);
    let set =
        ["capacity", "api1", "--group", "a", "--maximum", "10", "--weight", "2", "--for", "1h", "--why", "a test"];
    root.operated(0, &set);
    settle([5.0, 45.0]);
    let said = leaseway(&["explain", "--server", &leaf.grpc(0).to_string(), "a/1", "api1"]).stdout;
    assert!(said.contains("due 10 of the 2000 that its clients want in the whole tree"), "{said}");
    assert!(
        said.contains("The group a has a maximum of 10 in place of none and a weight of 2 in place of 1"),
        "{said}"
    );
    let refused = leaf.operate(0, &set);
    assert!(refused.stderr.contains("the root of the tree divides `api1` between groups"), "{refused:?}");
    root.operated(0, &["capacity", "api1", "--group", "a", "--clear"]);
    settle([25.0, 25.0]);
}

#[test]
fn an_impossible_override_of_a_group_is_refused_with_its_field() {
    let peers = Peers::start(1, grouped(), &[]);
    peers.client("a/1").ask(&peers, "api1", 1.0);
    let refused = |arguments: &[&str]| {
        let why = ["--for", "1h", "--why", "a test"];
        let output = peers.operate(0, &[&["capacity"], arguments, &why].concat());
        assert_ne!(output.code, Some(0), "{output:?}");
        output.stderr
    };
    for (arguments, says) in [
        (
            &["api1", "--group", "prod", "--maximum", "10"][..],
            "maximum: is 10, less than the minimum of prod in `api1` (40)",
        ),
        (
            &["api*", "--group", "prod", "--maximum", "10"],
            "maximum: is 10, less than the minimum of prod in `api1` (40)",
        ),
        (&["api1", "--group", "a", "--minimum", "101"], "minimum: is 101, more than the capacity in `api1` (100)"),
        (&["api1", "--group", "a", "--minimum", "61"], "minimum: raises the sum of the minimums in `api1` to 101"),
        (&["api1", "--group", "a", "--minimum", "5", "--maximum", "4"], "minimum: is 5, more than its `maximum`"),
        (&["api1", "--group", "a/b", "--maximum", "4"], "group: has 2 parts, but the groups of `api1` have only 1"),
        (&["api1", "--group", "a*", "--maximum", "4"], "group: is the pattern `a*`"),
        (&["api1", "--group", "a//b", "--maximum", "4"], "group: is `a//b`"),
        (&["flat", "--group", "a", "--maximum", "4"], "the clients of `flat` are not grouped"),
        (&["api1", "--group", "a", "--weight", "0"], "--weight"),
        (&["api1", "--group", "a", "--maximum", "x"], "--maximum"),
        (&["api1", "--group", "a"], "required"),
        (&["api1", "--maximum", "4"], "--group"),
        (&["api1", "40", "--group", "a"], "--group"),
    ] {
        let error = refused(arguments);
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
    let unknown = peers.operate(0, &["capacity", "api1", "--group", "a", "--clear"]);
    assert!(unknown.stderr.contains("no override for the group a of `api1`"), "{unknown:?}");
    // The capacity and each group have overrides of their own.
    peers.operated(0, &["capacity", "api1", "50%", "--for", "1h", "--why", "a test"]);
    peers.operated(0, &["capacity", "api1", "--group", "a", "--weight", "2", "--for", "1h", "--why", "a test"]);
    peers.operated(0, &["capacity", "api1", "--group", "b", "--weight", "3", "--for", "1h", "--why", "a test"]);
    peers.operated(0, &["capacity", "api1", "--group", "a", "--clear"]);
    let list = peers.operated(0, &["capacity"]);
    assert!(list.contains("api1          -       50%") && list.contains("b  weight 3"), "{list}");
    assert!(!list.contains("weight 2"), "{list}");
}
