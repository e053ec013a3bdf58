//! `leaseway limits` and `/api/v1/limits`: capacities of single resources.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    bearer::TokenFiles,
    config::{self, ConfigFile, Template},
    http::{Connection, Response, get},
    peers::Peers,
    wait::eventually,
};

/// Leases shorter than the test.
fn short(glob: &str) -> Template<'_> {
    Template { lease: 3, refresh: 1, ..Template::fair(glob, 100.0) }
}

fn listed(peers: &Peers, peer: usize) -> Vec<(String, f64)> {
    let output: Value = serde_json::from_str(&peers.operated(peer, &["limits", "list", "--json"])).unwrap();
    let limits = output["limits"].as_array().unwrap().iter();
    limits.map(|one| (one["resource"].as_str().unwrap().to_owned(), one["capacity"].as_f64().unwrap())).collect()
}

fn put(peers: &Peers, peer: usize, resource: &str, capacity: &Value) -> Response {
    let path = format!("/api/v1/limits/{resource}");
    Connection::open(peers.http(peer)).request("PUT", &path, &json!({ "capacity": capacity }))
}

#[test]
fn a_limit_reaches_its_clients_and_survives_a_failover() {
    let mut peers = Peers::start(3, ConfigFile::of(&[short("tenant/*")]), &[]);
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "tenant/acme", 1000.0), 100.0);
    let output = peers.operated(peers.follower(), &["limits", "set", "tenant/acme", "--capacity", "24000/min"]);
    assert!(output.contains("tenant/acme has the limit 400"), "{output}");
    assert_eq!(alice.ask(&peers, "tenant/acme", 1000.0), 400.0, "an active resource follows at once");
    peers.operated(peers.follower(), &["limits", "set", "alone", "--capacity", "7"]);
    let mut bob = peers.client("bob");
    assert_eq!(bob.ask(&peers, "alone", 1000.0), 7.0, "a limit needs no template");
    assert_eq!(
        peers.client("carol").ask(&peers, "tenant/other", 1000.0),
        100.0,
        "others have the capacity of the template"
    );

    let master = peers.master();
    let explained = get(peers.http(master), "/resource?resource=tenant/acme").body;
    assert!(explained.contains("400 in place of the capacity of template `tenant/*`: anonymous set it"), "{explained}");
    let redirected = put(&peers, peers.follower(), "tenant/acme", &json!(50));
    let location = format!("http://{}/api/v1/limits/tenant/acme", peers.http(master));
    assert_eq!((redirected.status, redirected.header("location")), (307, Some(&*location)));
    assert_eq!(put(&peers, master, "tenant/acme", &json!("3000/min")).json()["replaced"], 1);
    eventually("alice gets the smaller limit", || (alice.ask(&peers, "tenant/acme", 1000.0) == 50.0).then_some(()));

    peers.kill(master);
    let next = peers.master();
    eventually("the next master keeps the limits", || {
        let has = [alice.ask(&peers, "tenant/acme", 1000.0), bob.ask(&peers, "alone", 1000.0)];
        (has == [50.0, 7.0]).then_some(())
    });
    assert_eq!(listed(&peers, next), [("alone".to_owned(), 7.0), ("tenant/acme".to_owned(), 50.0)]);
    peers.operated(next, &["limits", "delete", "tenant/acme", "alone"]);
    eventually("the template's capacity applies again", || {
        (alice.ask(&peers, "tenant/acme", 1000.0) == 100.0).then_some(())
    });
    assert_eq!(bob.ask(&peers, "alone", 1000.0), 1000.0, "without template and limit, all requests are granted");
}

#[test]
fn many_limits_are_imported_exported_and_pruned() {
    let peers =
        Peers::start(1, ConfigFile::of(&[Template { kind: "NO_ALGORITHM", ..short("free/*") }, short("*")]), &[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("limits.csv");
    let path = file.to_str().unwrap();
    let many: String = (0..12_000).map(|n| format!("key/{n:05},{}\n", n % 50)).collect();
    fs::write(&file, format!("resource,capacity\n{many}\"a,b\",0.5\n")).unwrap();
    assert!(peers.operated(0, &["limits", "import", path]).contains("12001 limits added, 0 replaced, 0 deleted"));
    let mut alice = peers.client("alice");
    assert_eq!(alice.ask(&peers, "key/00049", 1000.0), 49.0);
    let exported = peers.operated(0, &["limits", "export"]);
    assert_eq!(exported.lines().count(), 12_002);
    fs::write(&file, exported.lines().take(4).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let output = peers.operated(0, &["limits", "import", path, "--prune"]);
    assert!(output.contains("0 limits added, 3 replaced, 11998 deleted"), "{output}");
    let left = [("a,b", 0.5), ("key/00000", 0.0), ("key/00001", 1.0)].map(|(id, capacity)| (id.to_owned(), capacity));
    assert_eq!(listed(&peers, 0), left);

    fs::write(&file, "key/1,5\nkey/2,lots\nkey/1,6\n").unwrap();
    let refused = peers.operate(0, &["limits", "import", path]);
    let errors =
        "line 2: `lots`: expected a number like 40 or a rate like 60000/min\nline 3: `key/1` is also in line 1";
    assert!(refused.code == Some(78) && refused.stderr.contains(errors), "{refused:?}");
    let undivided = peers.operate(0, &["limits", "set", "free/x", "--capacity", "3"]);
    assert!(undivided.code == Some(1) && undivided.stderr.contains("divides nothing"), "{undivided:?}");
    let unknown = peers.operate(0, &["limits", "delete", "nix"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("nix has no limit of its own"), "{unknown:?}");
    assert_eq!(listed(&peers, 0), left, "refused changes change nothing");
}

const RULES: &str = "\
access:
- {name: probe, who: anonymous, may: ask, resources: probe, clients: probe}
- {name: billing, who: billing, may: limits, resources: 'tenant/*'}
- {name: ops, who: ops, may: [read, limits]}
- {name: reader, who: reader, may: read, resources: 'team/*'}
";

#[test]
fn limits_have_a_right_of_their_own() {
    let tokens = TokenFiles::of(&["billing", "ops", "reader"]);
    let config = ConfigFile::new(&format!("{}{RULES}", config::text(&[short("*")])));
    let peers = Peers::start(1, config, &["--tokens", &tokens.server()]);
    let call = |identity: &str, method: &str, path: &str, body: &Value| {
        let header = match identity {
            "" => String::new(),
            identity => format!("Authorization: Bearer {}\r\n", tokens.token(identity)),
        };
        Connection::open(peers.http(0)).request_with(method, &format!("/api/v1/limits{path}"), &header, body)
    };
    let five = json!({ "capacity": 5 });
    for (identity, resource, expected) in [
        ("billing", "/tenant/a", 200),
        ("billing", "/team/a", 403),
        ("ops", "/team/a", 200),
        ("reader", "/team/a", 403),
        ("", "/team/a", 401),
    ] {
        assert_eq!(call(identity, "PUT", resource, &five).status, expected, "{identity} {resource}");
    }
    let both =
        json!({ "changes": [{ "resource": "tenant/b", "capacity": 1 }, { "resource": "team/b", "capacity": 1 }] });
    assert_eq!(call("billing", "POST", "", &both).status, 403, "all or nothing");
    for (identity, expected) in
        [("billing", vec!["tenant/a"]), ("reader", vec!["team/a"]), ("ops", vec!["team/a", "tenant/a"])]
    {
        let page = call(identity, "GET", "", &Value::Null).json();
        let shown: Vec<_> =
            page["limits"].as_array().unwrap().iter().map(|one| one["resource"].as_str().unwrap()).collect();
        assert_eq!(shown, expected, "{identity}");
    }
    assert_eq!(call("reader", "GET", "/tenant/a", &Value::Null).status, 404, "what it may not read does not exist");
    let listed = call("ops", "GET", "/tenant/a", &Value::Null).json();
    assert_eq!((&listed["capacity"], &listed["by"]), (&json!(5.0), &json!("billing")));
    assert_eq!(call("billing", "DELETE", "/team/a", &Value::Null).status, 403);
    assert_eq!(call("billing", "DELETE", "/tenant/a", &Value::Null).json()["removed"], 1);
}

#[test]
fn bad_requests_name_what_is_wrong() {
    let peers = Peers::start(1, ConfigFile::of(&[short("*")]), &[]);
    let call = |method: &str, path: &str, headers: &str, body: &Value| {
        Connection::open(peers.http(0)).request_with(method, &format!("/api/v1/limits{path}"), headers, body)
    };
    let many: Vec<Value> = (0..10_001).map(|n| json!({ "resource": format!("r{n}"), "capacity": 1 })).collect();
    for (method, path, body, status, says) in [
        ("PUT", "/a", json!({ "capacity": "much" }), 400, "capacity: is `much`"),
        ("PUT", "/a", json!({ "capacity": -1 }), 400, "change[0].capacity: is -1, must not be negative"),
        ("PUT", "/a", json!({ "size": 1 }), 400, "unknown field `size`"),
        ("PUT", "/a", json!({ "capacity": null }), 400, "body"),
        ("PUT", &format!("/{}", "x".repeat(9000)), json!({ "capacity": 1 }), 400, "resource_id: is 9000 bytes long"),
        (
            "POST",
            "",
            json!({ "changes": [{ "resource": "a", "capacity": 1 }, { "resource": "a", "capacity": 2 }] }),
            400,
            "`a` appears twice",
        ),
        ("POST", "", json!({ "changes": [{ "resource": "a" }] }), 400, "missing field `capacity`"),
        ("POST", "", json!({ "changes": many }), 400, "too many limits in one request (10001)"),
        ("DELETE", "/a", Value::Null, 404, "`a` has no limit"),
        ("GET", "?page=2", Value::Null, 400, "unknown field `page`"),
    ] {
        let answer = call(method, path, "", &body);
        assert!(
            answer.status == status && answer.body.contains(says),
            "{method} {path}: {} {}",
            answer.status,
            answer.body
        );
    }
    let other_site = call("PUT", "/a", "Sec-Fetch-Site: cross-site\r\n", &json!({ "capacity": 1 }));
    assert_eq!(other_site.status, 403);
    assert_eq!(call("PUT", "/a", "", &Value::Null).status, 415, "a form cannot set a limit");
    assert_eq!(call("GET", "", "", &Value::Null).json()["total"], 0);
}
