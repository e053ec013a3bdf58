//! Pools with real clients and operators, while masters are killed.

use std::time::Duration;

use leaseway_client::{Client, PoolStanding, Rate};
use serde_json::Value;

use crate::harness::{
    config::ConfigFile,
    peers::Peers,
    process::{Output, Process, leaseway},
    server::{ANYWHERE, Server},
    wait::{eventually, runtime},
};

/// A configuration of one template with these parameters.
pub(super) fn template(glob: &str, capacity: f64, kind: &str, parameters: &[(&str, &str)]) -> ConfigFile {
    let mut text = format!(
        "resources:
- identifier_glob: \"{glob}\"
  capacity: {capacity}
  algorithm:
    kind: {kind}
    lease_length: 60
    refresh_interval: 1
    learning_mode_duration: 0
    parameters:
    - {{ name: min_request_interval, value: 0 }}
"
    );
    for (name, value) in parameters {
        text.push_str(&format!("    - {{ name: {name}, value: {value} }}\n"));
    }
    ConfigFile::new(&text)
}

/// A pool with two slots for free clients. `free_key` is the id, because all clients have the same address.
pub(super) fn two_places() -> ConfigFile {
    template("searches", 20.0, "PRIORITY_POOL", &[("min_capacity", "10"), ("free_key", "client_id")])
}

pub(super) fn client(endpoints: &[String], id: &str) -> Client {
    let _inside = runtime().enter();
    Client::builder()
        .endpoints(endpoints.iter().cloned())
        .id(id)
        .backoff_max(Duration::from_millis(500))
        .build()
        .unwrap()
}

pub(super) fn rate(client: &Client, resource: &str, wants: f64) -> Rate {
    let _inside = runtime().enter();
    client.resource(resource.to_owned()).wants(wants).rate().unwrap()
}

pub(super) fn gets(rate: &Rate, capacity: f64) {
    eventually("the client has the expected capacity", || (rate.resource().capacity().get() == capacity).then_some(()));
}

pub(super) fn json(output: &str) -> Value {
    serde_json::from_str(output).unwrap()
}

#[test]
fn a_priority_client_displaces_a_free_one_and_keeps_its_assignment_after_a_failover() {
    let mut peers = Peers::start(3, two_places(), &[]);
    let operator = peers.follower();
    let admin = peers.all().map(|peer| peers.admin(peer).to_string()).collect::<Vec<_>>().join(",");
    let watch = Process::start(&["pool", "watch", "searches", "--admin", &admin], &[]);
    let begun = || watch.stdout().matches("all events from here on are printed").count();
    eventually("the watch is connected to a master", || (begun() > 0).then_some(()));
    // The watch misses events during a change of master, which also happens without a kill on a busy machine.
    let seen = |what: &str, before: usize| {
        eventually(what, || (watch.stdout().contains(what) || begun() > before).then_some(()));
    };
    let endpoints = peers.endpoints();
    let (tom, tim, acme) = (client(&endpoints, "tom"), client(&endpoints, "tim"), client(&endpoints, "acme"));
    let tom = rate(&tom, "searches", 10.0);
    gets(&tom, 10.0);
    seen("tom has 10 (free)", 1);
    let tim = rate(&tim, "searches", 10.0);
    gets(&tim, 10.0);
    assert_eq!(tom.resource().pool().unwrap().standing, PoolStanding::Free);

    let set = peers.operated(operator, &["pool", "set", "acme", "searches", "10"]);
    assert!(set.starts_with("acme has 10 of searches assigned"), "{set}");
    let acme = rate(&acme, "searches", 15.0);
    gets(&acme, 10.0);
    let state = acme.resource().pool().unwrap();
    assert_eq!((state.standing, state.assigned, state.min_capacity), (PoolStanding::Priority, 10.0, 10.0));
    seen("acme has 10 (priority", 1);
    let out = eventually("one free client is displaced", || {
        [(&tom, "tom"), (&tim, "tim")].into_iter().find(|(rate, _)| rate.resource().capacity().get() == 0.0)
    });
    eventually("the displaced client knows the reason", || {
        let state = out.0.resource().pool()?;
        (state.standing == PoolStanding::Waiting && state.reason.is_some()).then_some(())
    });
    seen(&format!("{} has 0 (free", out.1), 1);

    let master = peers.master();
    let operator = peers.all().find(|peer| *peer != master).unwrap();
    let before = begun();
    peers.kill(master);
    let shown = || json(&peers.operated(operator, &["pool", "show", "searches", "--json"]));
    eventually("the next master knows the assignment", || (shown()["priority_assigned"] == 10.0).then_some(()));
    assert!(peers.operated(operator, &["pool", "get", "acme", "searches"]).starts_with("10\n"));
    eventually("acme is a priority client of the new master", || {
        (shown()["priority_connected"] == 10.0 && acme.resource().capacity().get() == 10.0).then_some(())
    });
    eventually("the watch follows the new master", || (begun() > before).then_some(()));
    let at_new_master = begun();
    assert!(watch.stderr().contains("looking for the master"));
    peers.operated(operator, &["pool", "set", "acme", "searches", "none"]);
    seen("its assignment has changed", at_new_master);
    let clients = || json(&peers.operated(operator, &["pool", "clients", "searches", "--json"]));
    eventually("all clients have asked the new master", || (clients()["clients"].as_array()?.len() == 3).then_some(()));
    assert!(!watch.stdout().contains("DOWNGRADED"), "{}", watch.stdout());
}

#[test]
fn reported_load_adjusts_the_capacity_and_survives_a_failover() {
    let bounds = [("capacity_floor", "20"), ("capacity_ceiling", "150")];
    let mut peers = Peers::start(3, template("backends", 100.0, "FAIR_SHARE", &bounds), &[]);
    let master = peers.master();
    let alice = client(&peers.endpoints(), "alice");
    let alice = rate(&alice, "backends", 1000.0);
    gets(&alice, 100.0);
    let output = peers.operated(master, &["pool", "load", "backends", "80%"]);
    assert_eq!(output, "backends has 80 now; load reports can set it from 20 to 150\n");
    gets(&alice, 80.0);
    peers.operated(master, &["pool", "load", "backends", "5"]);
    gets(&alice, 20.0);
    peers.operated(master, &["pool", "load", "backends", "1000", "--valid", "1"]);
    gets(&alice, 150.0);
    gets(&alice, 100.0);
    peers.operated(master, &["pool", "load", "backends", "50"]);
    gets(&alice, 50.0);
    peers.operated(master, &["pool", "load", "backends", "none"]);
    gets(&alice, 100.0);
    peers.operated(master, &["pool", "load", "backends", "40"]);
    gets(&alice, 40.0);
    peers.kill(master);
    let next = peers.master();
    peers.client("bob").ask(&peers, "backends", 0.0);
    let capacity = &peers.status(next, &["backends"])["resources"][0]["capacity"];
    assert_eq!(capacity, 40.0, "the next master uses the reported load from the first request on");
    gets(&alice, 40.0);
    peers.operated(next, &["pool", "load", "backends", "30"]);
    gets(&alice, 30.0);
}

/// A server without peers, with an admin address.
struct Managed {
    _server: Server,
    admin: String,
}

impl Managed {
    fn start(config: &ConfigFile, flags: &[&str]) -> Managed {
        let server = Server::with_flags(&[&["--config", config.path(), "--admin", ANYWHERE], flags].concat());
        let admin = server.admin();
        Managed { _server: server, admin }
    }

    fn pool(&self, arguments: &[&str]) -> Output {
        leaseway(&[&["pool"], arguments, &["--admin", &self.admin]].concat())
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.pool(arguments);
        assert_eq!(output.code, Some(0), "{output:?}");
        output.stdout
    }
}

#[test]
fn every_command_in_the_pool_guide_works_with_its_example() {
    let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/pools.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let (_, example) =
        guide.split_once("```yaml\n- identifier_glob: \"rpc/*\"\n").expect("docs/guide/pools.md has the example");
    let example = example.split("```").next().unwrap();
    let config = format!(
        "resources:\n- identifier_glob: \"rpc/*\"\n{example}- identifier_glob: \"*\"\n  capacity: 1\n  algorithm: {{kind: FAIR_SHARE}}\n"
    );
    let config = ConfigFile::new(&config);
    let managed = Managed::start(&config, &[]);
    let pool = |arguments: &[&str]| managed.done(arguments);
    for _ in 0..2 {
        assert_eq!(pool(&["load", "rpc/x", "80"]), "rpc/x has 80 now; load reports can set it from 20 to 100\n");
    }
    assert!(pool(&["load", "rpc/x", "0"]).starts_with("rpc/x has 20 now"));
    assert!(pool(&["load", "rpc/x", "none"]).starts_with("rpc/x has 100 now"));
    for capacity in ["8", "25%", "none"] {
        pool(&["set", "acme", "rpc/x", capacity]);
    }
    pool(&["show", "rpc/x"]);
    pool(&["get", "acme", "rpc/x"]);
    pool(&["clients", "rpc/x"]);
    pool(&["watch", "rpc/x", "--events", "1"]);
    pool(&["alarm", "acme", "rpc/x", "1000"]);
    pool(&["alarm", "acme", "rpc/x", "none"]);
}
