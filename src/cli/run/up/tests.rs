//! Files of `leaseway up`, their mistakes, and the commands they lead to.

use std::fs;

use super::file::parse;
use super::plan::plan;
use super::*;

/// A peer with four ports from `first`.
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
fn with_tls_every_peer_gets_a_certificate_for_all_addresses() {
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
    assert!(error.to_string().contains("no node may have the name `certs`"), "{error}");
}

#[test]
fn a_take_over_replaces_bootstrap_and_only_at_the_root_of_a_tree() {
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
fn print_writes_inline_configurations() {
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
fn with_several_nodes_peers_are_named_with_their_node() {
    let text = format!("nodes: {{x: {{peers: {{ {} }} }}, y: {{peers: {{ {} }} }} }}", peer("a", 10), peer("a", 20));
    let script_of_one = script(&text, Some("y/a")).expect("a good file");
    assert!(script_of_one.contains("leaseway-data/y/a") && !script_of_one.contains("leaseway-data/x/a"));
    let error = script(&text, Some("y/a,a")).expect_err("which a?").to_string();
    assert_eq!(error, "unknown peer `a`; known: x/a, y/a");
}

#[test]
fn a_configuration_is_relative_to_the_file_and_checked_before_anything_starts() {
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
fn every_mistake_is_reported_with_its_position() {
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
        "6:5: both `parent` and `resources`: a node with a parent gets its templates from the parent",
        "6:5: both `config` and `resources`: use only one of them",
        "7:15: unknown option `thread` (did you mean `threads`?)",
        "7:26: invalid value 'many'",
        "7:41: `listen` cannot be set in `options`",
        "9:17: `grpc` is `here`, expected an address like 127.0.0.1:5100",
        "9:51: `admin` is `\"127.0.0.1:1\"`: already used by `http` of `a`, line 9",
        "9:72: `peer` is `\"127.0.0.1:0\"`: write a fixed port",
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
fn a_child_gets_the_addresses_of_its_parent_and_its_own_name() {
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
fn peers_of_the_example_tree_start_with_the_addresses_in_its_guide() {
    let tree = include_str!("../../../../cluster/tree.yaml");
    let script = script(tree, Some("west-2/a")).expect("a good file");
    assert!(script.contains("--parent '127.0.0.1:5300,127.0.0.1:5301,127.0.0.1:5302' --node west-2 "), "{script}");
    // docs/guide/regions.md uses this address.
    assert!(script.contains("--listen 127.0.0.1:5403 "), "{script}");
}

const RULE: &str = "access: [{who: a, may: [ask, configure]}]";

#[test]
fn access_is_written_beside_resources_or_parent() {
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
fn access_is_checked_and_neither_repeated_nor_alone() {
    let said = |keys: &str| refused(&format!("nodes:\n  x:\n    {keys}\n    peers: {{ {} }}\n", peer("a", 10)));
    let says = [
        (RULE.to_owned(), "3:5: a node with `access` and without a `parent` also needs `resources`"),
        (format!("config: x.yaml\n    {RULE}"), "4:5: both `config` and `access`: write the access policy into"),
        ("access: []".to_owned(), "3:13: `access` has no rules"),
        ("access: [{who: a, may: fly}]".to_owned(), "3:"),
        (
            "resources: [{identifier_glob: a, capacity: -1, algorithm: {kind: STATIC}}]".to_owned(),
            "3:48: `capacity` is `-1`: must not be negative",
        ),
    ];
    for (keys, expected) in says {
        let found = said(&keys);
        assert!(found.iter().any(|line| line.starts_with(expected)), "{keys}: {found:?}");
    }
}

#[test]
fn the_file_of_a_child_has_only_access() {
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
    assert!(wrong.contains("omit `resources` here"), "{wrong}");
}

#[test]
fn a_parent_must_be_another_node_and_not_below_its_child() {
    let circle = family(&[("root", None), ("x", Some("z")), ("y", Some("x")), ("z", Some("y")), ("leaf", Some("y"))]);
    let cycle = "the parents form a cycle (x, z, y, x)";
    let message = format!("3:15: {cycle}: one of these nodes must have `config` or `resources` instead of `parent`");
    assert_eq!(refused(&circle), [message]);
    let own = refused(&family(&[("root", Some("root"))]));
    assert!(own.len() == 1 && own[0].starts_with("2:18: the parents form a cycle (root, root)"), "{own:?}");
    let misspelt = refused(&family(&[("root", None), ("leaf", Some("rot"))]));
    assert_eq!(misspelt, ["3:18: unknown node `rot` (did you mean `root`?); known: root, leaf"]);
}

#[test]
fn a_parent_needs_fixed_ports() {
    let anywhere = |of: &str| family(&[("root", None), ("leaf", Some("root"))]).replace(of, "127.0.0.1:0");
    let message = "`grpc` of `root` needs a fixed port, because its child `leaf` must know it in advance";
    assert_eq!(refused(&anywhere("127.0.0.1:10")), [format!("2:29: {message}")]);
    assert!(script(&anywhere("127.0.0.1:20"), None).is_ok(), "nothing is below the leaf");
}

#[test]
fn a_file_without_nodes_is_refused_with_advice() {
    for text in ["", "# nothing", "data: x", "nodes: {}", "nodes:", "nodes: []"] {
        let refused = refused(text);
        assert!(refused.len() == 1 && refused[0].contains("--example"), "{text}: {refused:?}");
    }
    assert_eq!(refused("a: b: c").len(), 1);
    assert!(refused("just text")[0].contains("expected a map with the keys data, nodes"));
}
