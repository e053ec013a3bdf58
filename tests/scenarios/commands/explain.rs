//! `leaseway explain`: checks its predictions in each situation of docs/guide/why-throttled.md.

use std::{thread::sleep, time::Duration};

use leaseway_proto::doorman::Lease;
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{
    config::ConfigFile,
    doorman::{Doorman, capacity, one_of_ours},
    peers::Peers,
    process::leaseway,
    server::Server,
    wait::eventually,
};

/// A template with leases of 6 s, refreshed each second, without learning. `more` precedes the algorithm.
fn template(glob: &str, amount: f64, kind: &str, parameters: &str, more: &str) -> String {
    format!(
        "- identifier_glob: '{glob}'
  capacity: {amount}
{more}  algorithm: {{kind: {kind}, lease_length: 6, refresh_interval: 1, learning_mode_duration: 0,
    parameters: {{min_request_interval: 0{parameters}}}}}
"
    )
}

fn fair(glob: &str, amount: f64) -> String {
    template(glob, amount, "FAIR_SHARE", "", "")
}

fn file(templates: &[String]) -> ConfigFile {
    ConfigFile::new(&format!("resources:\n{}", templates.concat()))
}

#[test]
fn a_resource_without_a_limit_and_one_that_nobody_uses_are_named_as_such() {
    let server = Server::with_config(&file(&[fair("limited", 100.0)]));
    let got = server.cli(&["get", "alice", "limits", "1000"]);
    assert!(got.stdout.contains("may use 1000 of `limits`") && got.stdout.contains("has no limit"), "{got:?}");
    assert!(!server.cli(&["get", "alice", "limited", "10"]).stdout.contains("has no limit"));
    let json = |resource: &str| -> Value {
        serde_json::from_str(&server.cli(&["get", "bob", resource, "1", "--json"]).stdout).expect("JSON")
    };
    assert_eq!((&json("limits")["unlimited"], &json("limited")["unlimited"]), (&true.into(), &false.into()));
    let unknown = server.cli(&["explain", "alice", "nothing"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("there is no resource `nothing`"), "{unknown:?}");
    let holder = server.cli(&["explain", "carol", "limited"]);
    assert!(holder.code == Some(1) && holder.stderr.contains("knows no client `carol`"), "{holder:?}");
}

/// A client of one resource that names its lease.
struct Asker<'a> {
    doorman: Doorman,
    id: &'a str,
    resource: &'a str,
    priority: i64,
    wants: f64,
    has: Option<Lease>,
}

impl<'a> Asker<'a> {
    fn new(doorman: &Doorman, resource: &'a str, id: &'a str, wants: f64) -> Asker<'a> {
        Asker { doorman: doorman.clone(), id, resource, priority: 0, wants, has: None }
    }

    fn ask(&mut self) -> f64 {
        let mut request = one_of_ours(self.id, self.resource, self.wants, self.has);
        request.resource[0].priority = Some(self.priority);
        let lease = eventually("the request is answered", || {
            self.doorman.get(request.clone()).ok()?.response.into_iter().next()?.gets
        });
        self.has = Some(lease);
        capacity(Some(lease))
    }

    fn release(&mut self) {
        self.doorman.release(self.id, &[self.resource]).unwrap();
        self.has = None;
    }
}

/// The explanation at one level of a tree.
#[derive(Debug)]
struct Level {
    rule: String,
    blocks: Vec<String>,
    due: f64,
    latest: Option<Duration>,
    text: String,
}

fn levels(server: &str, resource: &str, client: &str) -> Vec<Level> {
    let output = leaseway(&["explain", client, resource, "--json", "--timeout", "2", "--server", server]);
    let read: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let texts = |value: &Value| value.as_array().unwrap().iter().map(text).collect::<Vec<_>>();
    let told = |level: &Value| Level {
        rule: text(&level["rule"]),
        blocks: texts(&level["blocks"]),
        due: level["standing"]["due"].as_f64().unwrap(),
        latest: level["latest_ms"].as_u64().map(Duration::from_millis),
        text: texts(&level["sentences"]).join(" "),
    };
    read["levels"].as_array().unwrap().iter().map(told).collect()
}

/// The explanation at the lowest level.
fn told(server: &str, resource: &str, client: &str) -> Level {
    levels(server, resource, client).swap_remove(0)
}

/// Checks rule, blocks, and parts of the text.
#[track_caller]
fn says(told: &Level, rule: &str, blocks: &[&str], parts: &[&str]) {
    assert_eq!(
        (told.rule.as_str(), told.blocks.iter().map(String::as_str).collect()),
        (rule, blocks.to_vec()),
        "{told:?}"
    );
    for part in parts {
        assert!(told.text.contains(part), "`{part}` is not in: {}", told.text);
    }
}

#[test]
fn each_client_gets_what_the_explained_rule_allows() {
    let strict = ", priority: strict";
    let server = Server::with_config(&file(&[
        fair("satisfied", 100.0),
        fair("level", 100.0),
        template("max", 100.0, "FAIR_SHARE", "", "  clients: [{glob: ann, max: 20}]\n"),
        template("min", 100.0, "FAIR_SHARE", "", "  clients: [{glob: ann, min: 70}]\n"),
        template("minimums", 100.0, "FAIR_SHARE", "", "  clients: [{glob: '*', min: 80}]\n"),
        template("band", 100.0, "FAIR_SHARE", strict, ""),
        template("reserve", 100.0, "FAIR_SHARE", ", priority: strict, reserve: 0.5", ""),
        template("share", 100.0, "PROPORTIONAL_SHARE", "", ""),
        template("each", 10.0, "STATIC", "", ""),
        template("unlimited", 10.0, "NO_ALGORITHM", "", ""),
    ]));
    // Resource, ann's wants, bob's wants and priority, the expected rule, and a part of the text.
    for (resource, ann, bob, priority, rule, part) in [
        ("satisfied", 40.0, 10.0, 0, "wants", "ann is due 40: all that it wants."),
        ("level", 80.0, 80.0, 0, "level", "every client that wants more than 50 is due 50"),
        ("max", 80.0, 80.0, 0, "max", "a client rule limits it to 20"),
        ("min", 80.0, 80.0, 0, "min", "a client rule guarantees it 70, more than its share"),
        ("minimums", 80.0, 80.0, 0, "minimums", "exceeds the capacity, so each minimum counts for at most 50"),
        ("band", 50.0, 100.0, 1, "band", "clients of a priority above 0 go first, and want 100"),
        ("reserve", 50.0, 100.0, 1, "level", "every client that wants more than 25 is due 25"),
        ("share", 80.0, 120.0, 0, "share", "an equal share of 50"),
        ("each", 40.0, 40.0, 0, "each", "no client is due more than 10"),
        ("unlimited", 40.0, 40.0, 0, "unlimited", "all that it wants, because this resource is not shared"),
    ] {
        let mut ann = Asker::new(&server.doorman(), resource, "ann", ann);
        let mut bob = Asker { priority, ..Asker::new(&server.doorman(), resource, "bob", bob) };
        ann.ask();
        bob.ask();
        let told = told(&server.grpc().to_string(), resource, "ann");
        assert_eq!(told.rule, rule, "{told:?}");
        assert!(told.text.contains(part), "`{part}` is not in: {}", told.text);
        // After these requests both clients have confirmed their newest lease.
        for _ in 0..3 {
            ann.ask();
            bob.ask();
        }
        assert_eq!(ann.ask(), told.due, "{told:?}");
        if resource == "band" {
            bob.release();
            assert_eq!(ann.ask(), 50.0, "the client of higher priority is gone");
        }
    }
}

#[test]
fn capacity_becomes_free_at_the_predicted_time() {
    let config = file(&[fair("newcomer", 100.0), fair("cut", 100.0), fair("own", 100.0)]);
    let server = Server::with_config(&config);
    let (at, doorman) = (server.grpc().to_string(), server.doorman());
    Asker::new(&doorman, "newcomer", "greedy", 100.0).ask();
    let mut ann = Asker::new(&doorman, "newcomer", "ann", 30.0);
    assert_eq!(ann.ask(), 0.0);
    let newcomer = told(&at, "newcomer", "ann");
    says(&newcomer, "wants", &["others"], &["Another holder has 30 beyond what is due: greedy 30 (for "]);

    Asker::new(&doorman, "cut", "greedy", 90.0).ask();
    config.rewrite(&format!("resources:\n{}{}{}", fair("newcomer", 100.0), fair("cut", 40.0), fair("own", 100.0)));
    server.signal(Signal::HUP);
    eventually("the cut is in force", || (server.status(&["cut"])["resources"][0]["capacity"] == 40.0).then_some(()));
    let mut bob = Asker::new(&doorman, "cut", "bob", 20.0);
    assert_eq!(bob.ask(), 0.0);
    let cut = told(&at, "cut", "bob");
    says(&cut, "wants", &["over", "others"], &["The capacity was cut, and holders still have 50 more than it"]);

    let mut eve = Asker::new(&doorman, "own", "eve", 80.0);
    eve.ask();
    eve.wants = 10.0;
    assert_eq!(eve.ask(), 10.0);
    let own = told(&at, "own", "eve");
    says(&own, "wants", &["unconfirmed"], &["80 is held for it: an older lease counts until a request shows"]);
    eve.ask();
    assert_eq!(told(&at, "own", "eve").blocks, [""; 0], "the request has confirmed the smaller lease");

    sleep(newcomer.latest.unwrap().max(cut.latest.unwrap()));
    assert_eq!((ann.ask(), bob.ask()), (newcomer.due, cut.due));
}

#[test]
fn a_learning_server_explains_when_learning_ends() {
    let learning = fair("*", 100.0).replace("learning_mode_duration: 0", "learning_mode_duration: 4");
    let server = Server::with_config(&file(&[learning]));
    let mut ann = Asker::new(&server.doorman(), "r", "ann", 40.0);
    assert_eq!(ann.ask(), 0.0);
    let told = told(&server.grpc().to_string(), "r", "ann");
    says(
        &told,
        "wants",
        &["learning"],
        &["does not know earlier leases", "it only restores the leases that holders report"],
    );
    sleep(told.latest.unwrap());
    assert_eq!(ann.ask(), told.due);
}

#[test]
fn whole_units_rotate_and_a_waiting_client_gets_a_free_pool_slot() {
    let units = template("units", 2.0, "FAIR_SHARE", ", whole_units: true, rotation_period: 3", "");
    let pool = template("pool", 20.0, "PRIORITY_POOL", ", min_capacity: 10, free_key: client_id", "");
    let server = Server::with_config(&file(&[units, pool]));
    let (at, doorman) = (server.grpc().to_string(), server.doorman());
    let mut three = ["ann", "bob", "eve"].map(|id| Asker::new(&doorman, "units", id, 1.0));
    for one in [0, 1, 2].repeat(3) {
        three[one].ask();
    }
    let without = three.iter_mut().position(|one| one.ask() == 0.0).expect("two units for three clients");
    let told_units = told(&at, "units", three[without].id);
    says(&told_units, "units", &[], &["only whole units are given; left-over units move to other holders in"]);
    eventually("the unit rotates to the client", || {
        let has: Vec<f64> = three.iter_mut().map(Asker::ask).collect();
        (has[without] == 1.0).then_some(())
    });

    let mut guests = ["tom", "tim", "kim"].map(|id| Asker::new(&doorman, "pool", id, 10.0));
    assert_eq!(guests.each_mut().map(Asker::ask), [10.0, 10.0, 0.0]);
    says(&told(&at, "pool", "tom"), "pool", &[], &["this is what a client without an assignment gets"]);
    says(&told(&at, "pool", "kim"), "pool", &[], &["it waits for a place in the pool", "`leaseway pool set`"]);
    guests[0].release();
    eventually("kim gets the free slot", || (guests[2].ask() == 10.0).then_some(()));
}

#[test]
fn inherited_promises_count_until_the_predicted_end_after_a_failover() {
    let mut peers = Peers::start(3, file(&[fair("*", 100.0)]), &[]);
    let first = peers.master();
    assert_eq!(Asker::new(peers.doorman(first), "r", "gone", 80.0).ask(), 80.0);
    peers.kill(first);
    let next = peers.master();
    let mut ann = Asker::new(peers.doorman(next), "r", "ann", 50.0);
    // The stored promise may exceed the 80 that were held.
    assert!(ann.ask() <= 20.0);
    let told = told(&peers.grpc(next).to_string(), "r", "ann");
    says(&told, "wants", &["unclaimed"], &["to holders that have not claimed it yet: this amount counts as held for"]);
    sleep(told.latest.unwrap());
    assert_eq!(ann.ask(), told.due);
}

#[test]
fn an_override_is_explained_and_limits_until_it_is_cleared() {
    let peers = Peers::start(1, file(&[fair("*", 100.0)]), &[]);
    peers.operated(0, &["capacity", "r", "50%", "--for", "1h", "--why", "a replica is down"]);
    let mut ann = Asker::new(peers.doorman(0), "r", "ann", 80.0);
    eventually("the override is in force", || (ann.ask() == 50.0).then_some(()));
    let told = told(&peers.grpc(0).to_string(), "r", "ann");
    says(&told, "level", &[], &["more than 50", "has set `r` to 50 %", "a replica is down"]);
    assert_eq!(ann.ask(), told.due);
    peers.operated(0, &["capacity", "r", "--clear"]);
    eventually("the template's capacity is in force", || (ann.ask() == 80.0).then_some(()));
}

#[test]
fn a_leaf_explains_its_parents_lease_and_a_missing_parent() {
    let mut root = Peers::start(1, file(&[fair("*", 120.0)]), &[]);
    let leaf = root.child("leaf", 1);
    let mut beside = Asker::new(root.doorman(0), "r", "beside", 100.0);
    let mut ann = Asker::new(leaf.doorman(0), "r", "ann", 100.0);
    let at = leaf.grpc(0).to_string();
    let both = eventually("the root knows the leaf's wants", || {
        beside.ask();
        ann.ask();
        let both = levels(&at, "r", "ann");
        (both.len() == 2 && both[1].due == 60.0).then_some(both)
    });
    says(
        &both[1],
        "level",
        &both[1].blocks.iter().map(String::as_str).collect::<Vec<_>>(),
        &["leaf, a node with one client, wants 100, is due 60"],
    );
    eventually("ann has the amount that was explained at the root", || {
        beside.ask();
        (ann.ask() == 60.0).then_some(())
    });
    assert_eq!(told(&at, "r", "ann").rule, "level", "within the parent's lease");

    root.kill(0);
    let words = leaseway(&["explain", "ann", "r", "--server", &at, "--timeout", "1"]);
    assert_eq!(words.code, Some(0), "{words:?}");
    assert!(words.stdout.contains("ann wants 100") && words.stdout.contains("does not answer:"), "{words:?}");
    let ended = eventually("the parent's lease has expired", || {
        let told = told(&at, "r", "ann");
        (told.rule == "loan_ended").then_some(told)
    });
    says(
        &ended,
        "loan_ended",
        &ended.blocks.iter().map(String::as_str).collect::<Vec<_>>(),
        &["the lease from the parent has ended and was not renewed"],
    );
    assert_eq!(ann.ask(), ended.due);
}
