//! What a file may say, what is wrong with others, and the commands that come of it.

use std::fs;

use super::{
    file::{Configuration, parse},
    plan::plan,
    *,
};

/// A node with one peer, at these ports.
fn peer(name: &str, first: u16) -> String {
    let [grpc, http, admin, peer] = [first, first + 1, first + 2, first + 3].map(|port| format!("127.0.0.1:{port}"));
    format!("{name}: {{grpc: '{grpc}', http: '{http}', admin: '{admin}', peer: '{peer}'}}")
}

fn refused(text: &str) -> Vec<String> {
    let error = parse("f", text.as_bytes(), Path::new("")).expect_err(text).to_string();
    error.lines().map(|line| line.strip_prefix("f:").unwrap_or(line).to_owned()).collect()
}

fn script(text: &str, only: Option<&str>) -> Result<String, CliError> {
    let set = parse("f", text.as_bytes(), Path::new("base"))?;
    let only = only.map(|only| only.split(',').map(str::to_owned).collect::<Vec<_>>());
    let plan = plan(&set, &Path::new("base").join(&set.data), Path::new("base"), only.as_deref(), false)?;
    Ok(plan.as_script("leaseway"))
}

impl From<leaseway_server::config::ConfigError> for CliError {
    fn from(error: leaseway_server::config::ConfigError) -> CliError {
        CliError::NodeSet(error)
    }
}

#[test]
fn the_set_that_comes_along_is_three_peers_where_the_other_commands_look() {
    let set = parse("three.yaml", THREE.as_bytes(), Path::new("")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((set.data.to_str(), set.nodes.len()), (Some("./leaseway-data"), 1));
    let node = &set.nodes[0];
    assert_eq!((node.name.as_str(), &node.configuration), ("root", &Configuration::Example));
    let addresses: Vec<_> =
        node.peers.iter().map(|peer| (&*peer.name, peer.grpc, peer.http, peer.admin, peer.peer)).collect();
    let at = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let expected: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .zip(0..)
        .map(|(name, n)| (name, at(5100 + n), at(5150 + n), at(5160 + n), at(5120 + n)))
        .collect();
    assert_eq!(addresses, expected);
}

#[test]
fn print_shows_what_would_be_started() {
    let expected = "\
leaseway serve --id a --listen 127.0.0.1:5100 --http 127.0.0.1:5150 --admin 127.0.0.1:5160 \
--peers 'a=127.0.0.1:5120,b=127.0.0.1:5121,c=127.0.0.1:5122' --data base/./leaseway-data/root/a \
--handover promises --timing one-site --bootstrap &
leaseway serve --id c --listen 127.0.0.1:5102 --http 127.0.0.1:5152 --admin 127.0.0.1:5162 \
--peers 'a=127.0.0.1:5120,b=127.0.0.1:5121,c=127.0.0.1:5122' --data base/./leaseway-data/root/c \
--handover promises --timing one-site --bootstrap &";
    assert_eq!(script(THREE, Some("a,c")).expect("a good file"), expected);
}

#[test]
fn print_writes_what_the_commands_need() {
    let text = format!(
        "data: my data\nnodes:\n  root:\n    resources:\n    - identifier_glob: '*'\n      capacity: 5 # all\n      \
         algorithm: {{kind: STATIC}}\n    options: {{threads: 1}}\n    peers: {{ {} }}\n",
        peer("a", 10)
    );
    let expected = "\
mkdir -p 'base/my data/root'
cat > 'base/my data/root/resources.yaml' <<'END'
resources:
  -
    identifier_glob: \"*\"
    capacity: 5
    algorithm:
      kind: STATIC
END
leaseway serve --id a --listen 127.0.0.1:10 --http 127.0.0.1:11 --admin 127.0.0.1:12 --peers 'a=127.0.0.1:13' \
--data 'base/my data/root/a' --config 'base/my data/root/resources.yaml' --threads 1 --bootstrap &";
    assert_eq!(script(&text, None).expect("a good file"), expected);
}

#[test]
fn with_several_nodes_peers_are_named_with_theirs() {
    let text = format!("nodes: {{x: {{peers: {{ {} }} }}, y: {{peers: {{ {} }} }} }}", peer("a", 10), peer("a", 20));
    let script_of_one = script(&text, Some("y/a")).expect("a good file");
    assert!(script_of_one.contains("leaseway-data/y/a") && !script_of_one.contains("leaseway-data/x/a"));
    let error = script(&text, Some("y/a,a")).expect_err("which a?").to_string();
    assert_eq!(error, "there is no peer `a` to start; there are: x/a, y/a");
}

#[test]
fn a_configuration_is_looked_for_beside_the_file_and_checked_before_anything_starts() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = format!("nodes: {{root: {{config: mine.yaml, peers: {{ {} }} }} }}", peer("a", 10));
    let set = parse("f", text.as_bytes(), directory.path()).expect("a good file");
    let attempt =
        || plan(&set, Path::new("data"), directory.path(), None, false).map(|plan| plan.as_script("leaseway"));
    let file = directory.path().join("mine.yaml");
    let missing = attempt().expect_err("there is none").to_string();
    assert!(missing.contains(&file.display().to_string()), "{missing}");
    fs::write(&file, "resources: []").expect("written");
    let wrong = attempt().expect_err("it is wrong").to_string();
    assert!(wrong.contains("mine.yaml:1:12: `resources` has no templates"), "{wrong}");
    fs::write(&file, config::DEVELOPMENT).expect("written");
    assert!(attempt().expect("it is fine").contains(&format!("--config {}", file.display())));
}

#[test]
fn every_mistake_is_told_with_its_place() {
    let text = "\
dta: x
nodes:
  a/b:
    parent: other
    config: x.yaml
    resources: []
    options: {thread: 1, threads: many, listen: '1:1'}
    peers:
      a: {grpc: here, http: '127.0.0.1:1', admin: '127.0.0.1:1', peer: '127.0.0.1:0'}
      '.b': {grpc: '127.0.0.1:0', http: '127.0.0.1:0', admin: '127.0.0.1:0', pear: 1}
  empty: {peers: {}}
  none: {}
  word: up
";
    let refused = refused(text);
    let expected = [
        "1:1: unknown key `dta` (did you mean `data`?)",
        "3:3: `a/b` cannot be the name of a node",
        "4:5: `parent`: nodes that get their capacity from other nodes cannot be run yet",
        "6:5: both `config` and `resources`",
        "7:15: unknown option `thread` (did you mean `threads`?)",
        "7:26: invalid value 'many'",
        "7:41: `listen` is no option",
        "9:17: `grpc` is `here`, expected an address like 127.0.0.1:5100",
        "9:51: `admin` is `\"127.0.0.1:1\"`: `http` of `a`, line 9, has it already",
        "9:72: `peer` is `\"127.0.0.1:0\"`: the others must know the port",
        "10:7: `.b` cannot be the name of a peer",
        "10:7: peer `.b` has no `peer`",
        "10:78: unknown key `pear`",
        "11:11: node `empty` has no peers",
        "12:3: node `none` has no `peers`",
        "13:9: `word` is `up`, expected a map",
    ];
    for (found, expected) in refused.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\ninstead of\n{expected}");
    }
    assert_eq!(refused.len(), expected.len(), "{refused:#?}");
}

#[test]
fn what_is_no_file_at_all_is_told_what_to_start_from() {
    for text in ["", "# nothing", "data: x", "nodes: {}", "nodes:", "nodes: []"] {
        let refused = refused(text);
        assert!(refused.len() == 1 && refused[0].contains("--example"), "{text}: {refused:?}");
    }
    assert_eq!(refused("a: b: c").len(), 1);
    assert!(refused("just text")[0].contains("expected a map with the keys data, nodes"));
}

#[test]
fn templates_right_in_the_file_are_checked_there() {
    let text = format!(
        "nodes:\n  root:\n    resources:\n    - {{identifier_glob: a, capacity: -1, algorithm: {{kind: STATIC}}}}\n    peers: {{ {} }}",
        peer("a", 10)
    );
    assert_eq!(refused(&text), ["4:38: `capacity` is `-1`: must not be negative"]);
}
