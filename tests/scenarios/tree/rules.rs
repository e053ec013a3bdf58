//! Rules for client ids, at one server and in a tree.

use crate::harness::{
    config::{ConfigFile, Template, text},
    doorman::{Asks as _, Client},
    peers::Peers,
    process::leaseway,
    wait::eventually,
};

fn ruled(template: &Template<'_>, rules: &str) -> String {
    format!("{}  clients: {rules}\n", text(&[*template]))
}

const RULES: &str = "[{glob: 'web-*', weight: 3, min: 70}, {glob: 'batch-*', max: 10}]";

#[test]
fn minimum_weight_and_maximum_apply_to_clients_of_a_leaf() {
    let template = Template { refresh: 1, ..Template::fair("*", 120.0) };
    let config = ConfigFile::new(&ruled(&template, RULES));
    let root = Peers::start(1, config, &[]);
    let leaf = root.child("leaf", 1);
    let mut beside = Client::new(root.doorman(0).clone(), "beside");
    let mut clients = ["web-1", "batch-1", "other"].map(|id| Client::new(leaf.doorman(0).clone(), id));
    eventually("every client has its due", || {
        let own = beside.ask("r", 100.0);
        let below = clients.each_mut().map(|client| client.ask("r", 100.0));
        // `beside` and `other` share the rest.
        (own == 20.0 && below == [70.0, 10.0, 20.0]).then_some(())
    });
    let output = leaseway(&["explain", "web-1", "r", "--server", &leaf.endpoints().join(",")]);
    assert!(output.stdout.contains("web-*: weight 3, at least 70"), "{}", output.stdout);
}
