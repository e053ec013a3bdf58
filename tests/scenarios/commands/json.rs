//! The JSON output of commands has exactly the fields in docs/reference/json.md.

use std::{collections::BTreeMap, collections::BTreeSet, fs, path::Path};

use leaseway_client::Client;
use serde_json::Value;

use crate::harness::{
    config::ConfigFile,
    gateway::Gateway,
    peers::Peers,
    process::{Output, Process, leaseway},
    wait::{eventually, runtime},
};

/// Fields by command. `a.b` is a field of the object `a`; `a[].b` of the objects in the list `a`.
type Fields = BTreeMap<String, BTreeSet<String>>;

const TEMPLATES: &str = "
resources:
- identifier_glob: \"searches\"
  capacity: 20
  algorithm: {kind: PRIORITY_POOL, lease_length: 60, refresh_interval: 1, learning_mode_duration: 0, parameters: [
    {name: min_capacity, value: 10}, {name: free_key, value: client_id}, {name: capacity_floor, value: 5},
    {name: capacity_ceiling, value: 40}]}
- identifier_glob: \"planned\"
  capacity: 100
  algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 1, learning_mode_duration: 0}
  groups: {from: \"{client}\", rules: [{group: a, weight: 2}]}
- identifier_glob: \"tokens\"
  capacity: 1000
  algorithm: {kind: BUDGET, lease_length: 60, refresh_interval: 1, parameters: {period: month}}
- identifier_glob: \"*\"
  capacity: 100
  algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 1, learning_mode_duration: 0}
";

const RULES: &str = "access:\n- {name: all, who: [alice, \"team/*\"], may: [ask], resources: [mysql]}\n";

/// Collects what commands print.
#[derive(Default)]
struct Printed(Fields);

impl Printed {
    /// Records the fields of each line, which is an object or a list of objects.
    #[track_caller]
    fn note(&mut self, command: &str, output: &Output) -> Vec<Value> {
        let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{command}: {error}: {output:?}"));
        let lines: Vec<Value> = output.stdout.lines().map(read).collect();
        assert!(!lines.is_empty(), "{command}: {output:?}");
        let fields = self.0.entry(command.to_owned()).or_default();
        lines.iter().for_each(|line| collect("", line, fields));
        lines
    }

    /// Runs a command that needs no server.
    #[track_caller]
    fn run(&mut self, command: &str, arguments: &[&str]) -> Value {
        let words: Vec<&str> = command.split(' ').collect();
        let output = leaseway(&[&words, arguments, &["-o", "json"]].concat());
        assert!(output.code == Some(0) || ["access test", "check"].contains(&command), "{command}: {output:?}");
        self.note(command, &output).remove(0)
    }

    /// Runs a command with `--server`.
    #[track_caller]
    fn ask(&mut self, peers: &Peers, command: &str, arguments: &[&str]) -> Value {
        let servers = peers.endpoints().join(",");
        self.run(command, &[arguments, &["--server", &servers]].concat())
    }

    /// Runs a command with `--admin`.
    #[track_caller]
    fn operate(&mut self, peers: &Peers, command: &str, arguments: &[&str]) -> Value {
        let admin = peers.admin(peers.master()).to_string();
        self.run(command, &[arguments, &["--admin", &admin]].concat())
    }
}

fn collect(at: &str, value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                into.insert(path.clone());
                collect(&path, value, into);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(&format!("{at}[]"), value, into)),
        _ => {}
    }
}

/// The fields in the first column of the tables, with the objects that contain them.
fn documented() -> Fields {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/json.md");
    let (mut found, mut commands) = (Fields::new(), Vec::new());
    for line in fs::read_to_string(page).unwrap().lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            commands = heading.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            commands.iter().cloned().for_each(|command: String| _ = found.entry(command).or_default());
        }
        let Some(cell) = line.strip_prefix("| `").and_then(|rest| rest.split('|').next()) else { continue };
        for path in format!("`{cell}").split('`').skip(1).step_by(2) {
            let containers = path.match_indices(['.', '[']).map(|(end, _)| &path[..end]);
            let containers = containers.filter(|path| !path.is_empty() && !path.ends_with(']'));
            let fields: Vec<String> = containers.chain([path]).map(str::to_owned).collect();
            for command in &commands {
                found.entry(command.clone()).or_default().extend(fields.iter().cloned());
            }
        }
    }
    found
}

#[test]
fn the_json_of_every_command_has_exactly_the_documented_fields() {
    let mut printed = Printed::default();
    of_files(&mut printed);
    let mut root = Peers::start(3, ConfigFile::new(TEMPLATES), &[]);
    of_configurations(&mut printed, &root);
    of_limits(&mut printed, &root);
    of_declarations(&mut printed, &root);
    of_overrides(&mut printed, &root);
    of_pools(&mut printed, &root);
    of_budgets(&mut printed, &root);
    of_a_tree(&mut printed, &root);
    of_maintenance(&mut printed, &root);
    of_members(&mut printed, &mut root);
    let documented = documented();
    let named = |fields: &Fields| fields.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(named(&printed.0), named(&documented), "commands");
    for (command, fields) in printed.0 {
        let documented = &documented[&command];
        let unknown: Vec<_> = fields.difference(documented).collect();
        let missing: Vec<_> = documented.difference(&fields).collect();
        assert!(
            unknown.is_empty() && missing.is_empty(),
            "{command}: only printed {unknown:?}, only documented {missing:?}"
        );
    }
}

fn of_files(printed: &mut Printed) {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).display().to_string();
    let certs = place("certs");
    printed.run("certs init", &["--dir", &certs]);
    printed.run("certs issue", &["alice", "--dir", &certs]);
    let shown = printed.run("certs show", &[&certs]);
    assert_eq!(shown.as_array().map(Vec::len), Some(2));
    printed.run("token new", &["alice"]);
    let written = printed.run("token new", &["bob", "--out", &place("bob.token")]);
    assert!(written["token"].is_null() && written["file"] == place("bob.token").as_str(), "{written}");
    let clients = "  clients: [{glob: 'web-*', weight: 3, min: 7, max: 70}]\n";
    let config = ConfigFile::new(&format!("{TEMPLATES}{clients}{RULES}"));
    let checked = printed.run("config check", &[config.path()]);
    assert_eq!(checked["rules"][0]["who"][1], "team/*", "{checked}");
    for (who, allowed) in [("alice", true), ("bob", false)] {
        let tested = printed.run("access test", &[who, "mysql", "--config", config.path()]);
        assert_eq!(tested["allowed"], allowed, "{tested}");
    }
    let open = ConfigFile::new(TEMPLATES);
    let tested = printed.run("access test", &["bob", "mysql", "--config", open.path()]);
    assert!(tested["allowed"] == true && tested["rule"].is_null(), "{tested}");
}

fn of_configurations(printed: &mut Printed, peers: &Peers) {
    let more = ConfigFile::new(&TEMPLATES.replace("capacity: 100", "capacity: 90"));
    assert_eq!(printed.operate(peers, "config diff", &[more.path()])["differences"][0]["field"], "capacity");
    printed.ask(peers, "get", &["greedy", "planned", "1000"]);
    assert_eq!(printed.ask(peers, "status", &["planned"])["resources"][0]["group"][0]["path"], "greedy");
    assert_eq!(printed.operate(peers, "config plan", &[more.path()])["resources"][0]["forecast"]["losing"], 1);
    assert_eq!(printed.operate(peers, "config apply", &[more.path(), "--yes"])["changed"], true);
    assert_eq!(printed.operate(peers, "config apply", &[more.path(), "--yes"])["changed"], false);
    let back = printed.operate(peers, "config rollback", &["1", "--yes"]);
    assert_eq!((&back["version"], &back["differences"][0]["to"]), (&3.into(), &"100".into()));
    assert_eq!(printed.operate(peers, "config show", &[])["version"], 3);
    assert_eq!(printed.operate(peers, "config history", &[])["versions"].as_array().map(Vec::len), Some(3));
}

fn of_limits(printed: &mut Printed, peers: &Peers) {
    printed.ask(peers, "get", &["alice", "mysql", "10"]);
    assert_eq!(printed.operate(peers, "limits set", &["mysql", "--capacity", "60/min"])["replaced"], false);
    assert_eq!(printed.operate(peers, "limits get", &["mysql"])["by"], "anonymous");
    assert_eq!(printed.operate(peers, "limits list", &[])["limits"][0]["resource"], "mysql");
    assert_eq!(printed.ask(peers, "status", &["mysql"])["resources"][0]["limit"]["capacity"], 1.0);
    assert_eq!(printed.ask(peers, "explain", &["alice", "mysql"])["levels"][0]["limit"]["by"], "anonymous");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("limits.csv");
    fs::write(&file, "tenant/a,1\n").unwrap();
    let imported = printed.operate(peers, "limits import", &[file.to_str().unwrap(), "--prune"]);
    assert_eq!(imported, serde_json::json!({ "added": 1, "replaced": 0, "removed": 1 }));
    assert_eq!(printed.operate(peers, "limits delete", &["tenant/a", "mysql"])["unknown"], 1);
    printed.ask(peers, "release", &["alice", "mysql"]);
}

fn of_declarations(printed: &mut Printed, peers: &Peers) {
    let rules = "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5}}]\n";
    let gateway = Gateway::declaring(peers, &ConfigFile::new(rules));
    assert_eq!(printed.operate(peers, "declarations list", &[])["declarations"][0]["name"], "rls/shop");
    assert_eq!(printed.operate(peers, "declarations show", &["rls/shop"])["templates"], 1);
    assert_eq!(printed.operate(peers, "config show", &[])["declarations"][0], "rls/shop");
    assert_eq!(printed.operate(peers, "declarations delete", &["rls/shop"])["name"], "rls/shop");
    drop(gateway);
}

fn of_overrides(printed: &mut Printed, peers: &Peers) {
    printed.ask(peers, "get", &["alice", "mysql", "10"]);
    let half = ["mysql", "50%", "--for", "10m", "--why", "a test"];
    assert_eq!(printed.operate(peers, "capacity", &half)["resources"][0]["capacity"], 50.0);
    assert_eq!(printed.operate(peers, "capacity", &[])["overrides"][0]["factor"], 0.5);
    assert_eq!(printed.ask(peers, "status", &["mysql"])["resources"][0]["overridden"]["set_to"], "50 %");
    let explained = printed.ask(peers, "explain", &["alice", "mysql"]);
    assert_eq!(explained["levels"][0]["overridden"]["why"], "a test");
    assert!(printed.operate(peers, "capacity", &["mysql", "--clear"])["override"].is_null());
    printed.ask(peers, "release", &["alice", "mysql"]);
    printed.ask(peers, "get", &["a", "planned", "10"]);
    let maximum = ["planned", "--group", "a", "--maximum", "30", "--for", "10m", "--why", "a test"];
    assert_eq!(printed.operate(peers, "capacity", &maximum)["override"]["maximum"], 30.0);
    let explained = printed.ask(peers, "explain", &["a", "planned"]);
    assert_eq!(explained["levels"][0]["overridden_groups"][0]["group"], "a");
    printed.ask(peers, "status", &["planned"]);
    printed.operate(peers, "capacity", &["planned", "--group", "a", "--clear"]);
    printed.ask(peers, "release", &["a", "planned"]);
}

fn of_pools(printed: &mut Printed, peers: &Peers) {
    let admin = peers.admin(peers.master()).to_string();
    let events = ["pool", "watch", "searches", "--events", "2", "--json", "--admin", &admin];
    let watch = Process::start(&events, &[]);
    eventually("the watch begins", || watch.stdout().contains("begin").then_some(()));
    for capacity in ["50%", "10", "10"] {
        printed.operate(peers, "pool set", &["acme", "searches", capacity]);
        printed.operate(peers, "pool get", &["acme", "searches"]);
        if capacity == "50%" {
            printed.ask(peers, "get", &["acme", "searches", "10"]);
            printed.operate(peers, "pool get", &["acme", "searches"]);
        }
        printed.operate(peers, "pool clients", &["searches"]);
    }
    printed.note("pool watch", &watch.finish());
    assert_eq!(printed.operate(peers, "pool show", &["searches"])["memory"], "quorum");
    assert_eq!(printed.operate(peers, "pool load", &["searches", "80%"])["capacity"], 16.0);
    assert_eq!(printed.operate(peers, "pool alarm", &["acme", "searches", "1000"])["mark"], 1000.0);
    printed.ask(peers, "status", &["searches"]);
}

fn of_budgets(printed: &mut Printed, peers: &Peers) {
    let client = {
        let _inside = runtime().enter();
        Client::builder().endpoints(peers.endpoints()).build().unwrap()
    };
    runtime().block_on(client.budget("tokens").unwrap().spend(10.0)).unwrap();
    assert_eq!(printed.ask(peers, "budget show", &["tokens"])["amount"], 1000.0);
    let reset = printed.ask(peers, "budget reset", &["tokens", "--why", "a test"])["amount"].as_f64();
    assert!(reset >= Some(1010.0), "{reset:?}");
    let adjusted = printed.ask(peers, "budget adjust", &["tokens", "-200", "--why", "a test"])["amount"].as_f64();
    assert_eq!(adjusted, reset.map(|reset| reset - 200.0));
    runtime().block_on(client.close());
}

fn of_a_tree(printed: &mut Printed, root: &Peers) {
    let leaf = root.child("east", 1);
    eventually("the parent's lease has terms", || {
        for client in ["alice", "bob"] {
            leaseway(&["get", client, "mysql", "90", "--server", &leaf.endpoints()[0]]);
        }
        let status = printed.ask(&leaf, "status", &["mysql"]);
        let terms = status["resources"][0]["supply"]["terms"].as_array();
        terms.is_some_and(|terms| !terms.is_empty()).then_some(())
    });
    printed.ask(&leaf, "check", &[]);
    let explained = printed.ask(&leaf, "explain", &["alice", "mysql"]);
    assert_eq!(explained["levels"].as_array().map(Vec::len), Some(2), "{explained}");
    printed.ask(&leaf, "release", &["alice", "mysql"]);
}

fn of_maintenance(printed: &mut Printed, peers: &Peers) {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).display().to_string();
    assert_eq!(printed.operate(peers, "backup", &[&place("backup")])["overrides"], 1, "of the budget");
    let restored = printed.run("restore", &[&place("backup"), "--data", &place("data")]);
    assert_eq!(restored["version"], 3, "{restored}");
    let bundle = printed.ask(peers, "debug bundle", &[&place("bundle.tar.gz")]);
    assert_eq!(bundle["missing"].as_array().map(Vec::len), Some(0), "{bundle}");
    printed.operate(peers, "transfer", &[]);
}

fn of_members(printed: &mut Printed, peers: &mut Peers) {
    let (removed, master) = (peers.follower(), peers.master());
    let name = ["a", "b", "c"][removed];
    let list = printed.operate(peers, "peers list", &[]);
    let listed = list["peers"].as_array().unwrap().iter().find(|peer| peer["name"] == name).unwrap();
    let address = listed["peer_address"].as_str().unwrap().to_owned();
    printed.operate(peers, "peers remove", &[name, "--yes"]);
    eventually("the removed peer reports that it is ineligible", || {
        let status = peers.status(removed, &[]);
        let output = leaseway(&["status", "--here", "-o", "json", "--server", &peers.grpc(removed).to_string()]);
        printed.note("status", &output);
        (status["ineligible"]["reason"] == "removed").then_some(())
    });
    peers.kill(removed);
    fs::remove_dir_all(peers.data(removed)).unwrap();
    peers.run(removed, &[]);
    let admin = peers.admin(master).to_string();
    eventually("the peer is added", || {
        let output = leaseway(&["peers", "add", name, &address, "-o", "json", "--admin", &admin]);
        (output.code == Some(0)).then(|| printed.note("peers add", &output))
    });
}
