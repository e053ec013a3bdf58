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
    script_of(text, only, None)
}

fn script_of(text: &str, only: Option<&str>, take_over: Option<&str>) -> Result<String, CliError> {
    let set = parse("f", text.as_bytes(), Path::new("base"))?;
    let only = only.map(|only| only.split(',').map(str::to_owned).collect::<Vec<_>>());
    let start = Start {
        only: only.as_deref(),
        take_over: take_over.map(|text| text.parse().expect("a length")),
        ..Start::default()
    };
    let plan = plan(&set, &Path::new("base").join(&set.data), Path::new("base"), &start)?;
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
fn with_tls_certificates_are_made_for_all_addresses_and_every_peer_gets_them() {
    let set = parse("f", THREE.as_bytes(), Path::new("")).expect("a good file");
    let start = Start { tls: true, ..Start::default() };
    let plan = plan(&set, Path::new("data"), Path::new(""), &start).expect("a plan");
    let script = plan.as_script("leaseway");
    let lines: Vec<_> = script.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "leaseway certs init --name 'leaseway up' --dir data/certs",
            "leaseway certs issue peer --host 'localhost,127.0.0.1' --dir data/certs",
            "leaseway certs issue client --dir data/certs",
        ]
    );
    let flags = "--tls-cert data/certs/peer.pem --tls-key data/certs/peer.key --tls-ca data/certs/ca.pem";
    assert_eq!((lines.len(), script.matches(flags).count()), (6, 3), "{script}");
    let called_so = format!("nodes: {{certs: {{peers: {{ {} }} }} }}", peer("a", 10));
    let set = parse("f", called_so.as_bytes(), Path::new("")).expect("a good file");
    let error = super::plan::plan(&set, Path::new("data"), Path::new(""), &start).map(|_| ()).expect_err("a clash");
    assert!(error.to_string().contains("no node can be called `certs`"), "{error}");
}

#[test]
fn what_takes_over_is_told_so_instead_of_bootstrapped_and_a_tree_only_at_its_root() {
    let commands = |seconds| script_of(THREE, None, Some(seconds)).expect("a good file");
    for (seconds, flag) in
        [("longest", "'--take-over=longest' &"), ("90", "'--take-over=90' &"), ("1.5", "'--take-over=1.5' &")]
    {
        let said = commands(seconds);
        assert!(said.matches(flag).count() == 3 && !said.contains("--bootstrap"), "{said}");
    }
    let tree = script_of(include_str!("../../../../cluster/tree.yaml"), None, Some("90")).expect("a good file");
    assert_eq!((tree.matches("--take-over=90").count(), tree.matches("--bootstrap").count()), (3, 10), "{tree}");
    for wrong in ["0", "-1", "soon", "NaN", "inf", "1e9", ""] {
        assert!(wrong.parse::<TakeOverFlag>().is_err(), "{wrong}");
    }
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
cat > 'base/my data/root/config.yaml' <<'END'
resources:
  -
    identifier_glob: \"*\"
    capacity: 5
    algorithm:
      kind: STATIC
END
leaseway serve --id a --listen 127.0.0.1:10 --http 127.0.0.1:11 --admin 127.0.0.1:12 --peers 'a=127.0.0.1:13' \
--data 'base/my data/root/a' --config 'base/my data/root/config.yaml' --threads 1 --bootstrap &";
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
        || plan(&set, Path::new("data"), directory.path(), &Start::default()).map(|plan| plan.as_script("leaseway"));
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
        "4:13: unknown node `other`; known: a/b, empty, none, word",
        "6:5: both `parent` and `resources`: a node with a parent takes its templates from there",
        "6:5: both `config` and `resources`: one of them says what the node shares",
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
fn what_a_node_shares_is_said_once() {
    let text = "nodes:\n  root:\n    config: x.yaml\n    resources: []\n    peers: {}\n";
    let refused = refused(text);
    assert!(refused[0].starts_with("4:5: both `config` and `resources`: one of them says"), "{refused:?}");
}

/// Nodes with one peer each, and perhaps a parent.
fn family(nodes: &[(&str, Option<&str>)]) -> String {
    let mut text = "nodes:\n".to_owned();
    for ((name, parent), port) in nodes.iter().zip((10..).step_by(10)) {
        let parent = parent.map_or_else(String::new, |parent| format!("parent: {parent}, "));
        text += &format!("  {name}: {{{parent}peers: {{ {} }}}}\n", peer("a", port));
    }
    text
}

#[test]
fn a_node_with_a_parent_is_told_where_its_peers_are_and_its_own_name() {
    let text = family(&[("leaf", Some("root")), ("root", None)]);
    let expected = "\
leaseway serve --id a --listen 127.0.0.1:10 --http 127.0.0.1:11 --admin 127.0.0.1:12 --peers 'a=127.0.0.1:13' \
--data base/leaseway-data/leaf/a --parent 127.0.0.1:20 --node leaf --bootstrap &
leaseway serve --id a --listen 127.0.0.1:20 --http 127.0.0.1:21 --admin 127.0.0.1:22 --peers 'a=127.0.0.1:23' \
--data base/leaseway-data/root/a --bootstrap &";
    assert_eq!(script(&text, None).expect("a good file"), expected);
    assert_eq!(script(&text, Some("leaf/a")).expect("a good file"), expected.lines().next().expect("the first"));
}

#[test]
fn the_tree_that_comes_along_is_a_root_two_regions_and_four_leaves() {
    let tree = include_str!("../../../../cluster/tree.yaml");
    let set = parse("tree.yaml", tree.as_bytes(), Path::new("")).unwrap_or_else(|error| panic!("{error}"));
    let nodes: Vec<_> = set.nodes.iter().map(|node| (&*node.name, node.parent.as_deref(), node.peers.len())).collect();
    let expected = [
        ("root", None, 3),
        ("east", Some("root"), 3),
        ("west", Some("root"), 3),
        ("east-1", Some("east"), 1),
        ("east-2", Some("east"), 1),
        ("west-1", Some("west"), 1),
        ("west-2", Some("west"), 1),
    ];
    assert_eq!(nodes, expected);
    let script = script(tree, Some("west-2/a")).expect("a good file");
    assert!(script.contains("--parent '127.0.0.1:5300,127.0.0.1:5301,127.0.0.1:5302' --node west-2 "), "{script}");
    // As cluster/README.md has it.
    assert!(script.contains("--listen 127.0.0.1:5403 "), "{script}");
}

const RULE: &str = "access: [{who: a, may: [ask, configure]}]";

#[test]
fn who_may_do_what_stands_beside_what_is_shared_or_beside_the_parent() {
    let resources = "resources: [{identifier_glob: '*', capacity: 5, algorithm: {kind: STATIC}}]";
    let text = format!(
        "nodes:\n  root: {{{resources}, {RULE}, peers: {{ {} }}}}\n  leaf: {{parent: root, {RULE}, peers: {{ {} }}}}\n",
        peer("a", 10),
        peer("a", 20)
    );
    let script = script(&text, None).expect("a good file");
    let rule = "access:\n  -\n    who: a\n    may:\n      - ask\n      - configure\nEND";
    let of_leaf = format!("cat > base/leaseway-data/leaf/config.yaml <<'END'\n{rule}");
    assert!(script.contains(&of_leaf), "{script}");
    assert!(script.contains(&format!("      kind: STATIC\n{rule}")), "{script}");
    assert!(
        script.contains("--parent 127.0.0.1:10 --node leaf --config base/leaseway-data/leaf/config.yaml"),
        "{script}"
    );
}

#[test]
fn who_may_do_what_is_checked_where_it_is_and_not_said_twice_or_alone() {
    let said = |keys: &str| refused(&format!("nodes:\n  x:\n    {keys}\n    peers: {{ {} }}\n", peer("a", 10)));
    let says = [
        (RULE.to_owned(), "3:5: `access` alone, for a node without a parent"),
        (format!("config: x.yaml\n    {RULE}"), "4:5: both `config` and `access`: who may do what is written into"),
        ("access: []".to_owned(), "3:13: `access` has no rules"),
        ("access: [{who: a, may: fly}]".to_owned(), "3:"),
    ];
    for (keys, expected) in says {
        let found = said(&keys);
        assert!(found.iter().any(|line| line.starts_with(expected)), "{keys}: {found:?}");
    }
}

#[test]
fn the_file_of_a_node_with_a_parent_says_only_who_may_do_what() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("mine.yaml");
    let text =
        family(&[("root", None), ("leaf", Some("root"))]).replace("parent: root", "parent: root, config: mine.yaml");
    let set = parse("f", text.as_bytes(), directory.path()).expect("a good file");
    let attempt =
        || plan(&set, Path::new("data"), directory.path(), &Start::default()).map(|plan| plan.as_script("leaseway"));
    fs::write(&file, RULE).expect("written");
    assert!(attempt().expect("it is fine").contains(&format!("--node leaf --config {}", file.display())));
    fs::write(&file, config::DEVELOPMENT).expect("written");
    let wrong = attempt().expect_err("it has templates").to_string();
    assert!(wrong.contains("leave out `resources` here"), "{wrong}");
}

#[test]
fn a_parent_must_be_another_node_and_capacity_cannot_go_round() {
    let circle = family(&[("root", None), ("x", Some("z")), ("y", Some("x")), ("z", Some("y")), ("leaf", Some("y"))]);
    let message =
        "`parent` goes round in a circle (x, z, y, x): one of them must be without it, and have a `config` of its own";
    assert_eq!(refused(&circle), [format!("3:15: {message}")]);
    let own = refused(&family(&[("root", Some("root"))]));
    assert!(own.len() == 1 && own[0].starts_with("2:18: `parent` goes round in a circle (root, root)"), "{own:?}");
    let misspelt = refused(&family(&[("root", None), ("leaf", Some("rot"))]));
    assert_eq!(misspelt, ["3:18: unknown node `rot` (did you mean `root`?); known: root, leaf"]);
}

#[test]
fn a_parent_serves_where_its_children_can_know_it() {
    let anywhere = |of: &str| family(&[("root", None), ("leaf", Some("root"))]).replace(of, "127.0.0.1:0");
    let message = "`grpc` of `root` needs a port: `leaf`, whose parent it is, must know it beforehand";
    assert_eq!(refused(&anywhere("127.0.0.1:10")), [format!("2:29: {message}")]);
    assert!(script(&anywhere("127.0.0.1:20"), None).is_ok(), "nothing is below the leaf");
}

#[test]
fn names_are_given_once() {
    let twice = refused(&family(&[("root", None), ("root", None)]));
    assert!(twice[0].starts_with("3:3: duplicate key `root`"), "{twice:?}");
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
