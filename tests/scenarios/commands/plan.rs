//! `leaseway config plan` predicts the effect of a configuration.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};

use leaseway_client::{Client, Resource};
use serde_json::Value;

use crate::harness::{
    config::ConfigFile,
    peers::Peers,
    process::leaseway,
    wait::{eventually, runtime},
};

/// Relative tolerance of predictions.
const OFF: f64 = 0.01;

/// A configuration of these templates.
fn file(template: &str) -> ConfigFile {
    ConfigFile::new(&format!("resources:\n{template}"))
}

fn template(glob: &str, capacity: f64, kind: &str, parameters: &str) -> String {
    format!(
        "- identifier_glob: '{glob}'
  capacity: {capacity}
  algorithm:
    kind: {kind}
    lease_length: 10
    refresh_interval: 1
    learning_mode_duration: 0
    parameters: {{min_request_interval: 0{parameters}}}\n"
    )
}

/// Real clients, some at the root and some at a leaf.
struct Fleet {
    members: Vec<(Client, Resource)>,
}

impl Fleet {
    fn join(&mut self, at: &Peers, id: &str, wants: f64, priority: i64) {
        let _inside = runtime().enter();
        let client = Client::builder().endpoints(at.endpoints()).id(id).build().unwrap();
        let resource = client.resource("r").wants(wants).priority(priority).open().unwrap();
        self.members.push((client, resource));
    }

    fn usable(&self, id: &str) -> f64 {
        let member = self.members.iter().find(|(client, _)| client.id() == id);
        member.expect("a member of the fleet").1.capacity().get()
    }
}

/// A field of each holder of `r` at the root, from `leaseway status`.
fn holders(root: &Peers, field: &str) -> BTreeMap<String, f64> {
    let output = leaseway(&["status", "r", "--all", "--json", "--server", &root.endpoints().join(",")]);
    // Fails until the first request has created the resource.
    let status: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
    let holders = status["resources"][0]["holder"].as_array().cloned().unwrap_or_default();
    holders.iter().map(|one| (one["id"].as_str().unwrap().to_owned(), one[field].as_f64().unwrap())).collect()
}

fn plan(root: &Peers, file: &ConfigFile) -> Value {
    let arguments = ["config", "plan", file.path(), "--json", "--holders", "1000"];
    serde_json::from_str(&root.operated(root.master(), &arguments)).unwrap()
}

/// The predicted due of each holder.
fn predicted(root: &Peers, file: &ConfigFile) -> BTreeMap<String, f64> {
    let mut due = holders(root, "due");
    let plan = plan(root, file);
    let forecast = &plan["resources"][0]["forecast"];
    for change in forecast["changes"].as_array().into_iter().flatten() {
        let before = due.insert(change["id"].as_str().unwrap().to_owned(), change["due_after"].as_f64().unwrap());
        assert!(close(before.unwrap(), change["due_before"].as_f64().unwrap()), "{change}");
    }
    if let Some(after) = forecast["due_after"].as_f64() {
        assert!(close(due.values().sum(), after), "`due_after` is the sum over all holders: {forecast}");
    }
    due
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= one.max(other) * OFF
}

#[test]
fn clients_of_a_tree_get_the_planned_capacity() {
    let root = Peers::start(3, file(&template("*", 300.0, "FAIR_SHARE", "")), &[]);
    let leaf = root.child("leaf", 1);
    let mut fleet = Fleet { members: Vec::new() };
    let wants = [5.0, 20.0, 40.0, 80.0, 160.0];
    for (n, wants) in wants.into_iter().enumerate() {
        fleet.join(&root, &format!("root-{n}"), wants, n as i64 % 3);
        fleet.join(&leaf, &format!("leaf-{n}"), wants + 3.0, n as i64 % 3);
    }
    let all: f64 = wants.iter().map(|wants| 2.0 * wants + 3.0).sum();
    let changes = [
        template("*", 150.0, "FAIR_SHARE", ""),
        template("*", 900.0, "FAIR_SHARE", ""),
        template("*", 200.0, "PROPORTIONAL_SHARE", ""),
        template("*", 30.0, "STATIC", ""),
        template("*", 250.0, "FAIR_SHARE", ", priority: strict"),
        template("*", 250.0, "FAIR_SHARE", ", priority: strict, reserve: 0.5"),
        template("r", 220.0, "FAIR_SHARE", "") + &template("*", 1.0, "FAIR_SHARE", ""),
        template("*", 1.0, "NO_ALGORITHM", ""),
        // Last, because forecasts of other modes are inexact once the leaf has reported weights.
        template("*", 250.0, "FAIR_SHARE", ", priority: weighted"),
    ];
    for change in &changes {
        let file = file(change);
        eventually("the root knows the wants of all clients", || {
            let clients: f64 = holders(&root, "subclients").values().sum();
            (clients == 10.0 && close(holders(&root, "wants").values().sum(), all)).then_some(())
        });
        let predicted = predicted(&root, &file);
        root.operated(root.master(), &["config", "apply", file.path(), "--yes"]);
        let mut last = BTreeMap::new();
        let reached = catch_unwind(AssertUnwindSafe(|| {
            eventually("each client has the planned capacity", || {
                thread::sleep(Duration::from_millis(50));
                last = holders(&root, "granted");
                let same = predicted.iter().all(|(id, due)| last.get(id).is_some_and(|has| close(*has, *due)));
                let at_root = predicted.keys().filter(|id| id.starts_with("root-"));
                let believed = at_root.clone().all(|id| close(fleet.usable(id), predicted[id]));
                let below: f64 = (0..wants.len()).map(|n| fleet.usable(&format!("leaf-{n}"))).sum();
                (same && believed && close(below, predicted["leaf"])).then_some(())
            });
        }));
        assert!(reached.is_ok(), "{change}\nplanned {predicted:?}\nreached {last:?}");
    }
}

#[test]
fn a_plan_lists_losing_clients_and_leases_that_must_expire() {
    let root = Peers::start(1, file(&template("*", 100.0, "FAIR_SHARE", "")), &[]);
    for (id, wants) in [("alice", 40.0), ("bob", 70.0)] {
        root.client(id).ask(&root, "r", wants);
    }
    let lower = file(&template("*", 60.0, "FAIR_SHARE", ""));
    let output = root.operated(0, &["config", "plan", lower.path()]);
    for part in [
        "*: capacity 100 → 60",
        "r         100 → 60  100 → 60        2        40 (2)               40",
        "clients hold 40 more than the new capacity",
        "70    60       60        30",
        "1 of 1 resources would change; 0 clients would gain, 2 clients would lose",
    ] {
        assert!(output.contains(part), "`{part}` is not in\n{output}");
    }
    let same = root.operated(0, &["config", "plan", file(&template("*", 100.0, "FAIR_SHARE", "")).path()]);
    assert_eq!(same, "no difference\nnone of 1 resources would change\n");
}
