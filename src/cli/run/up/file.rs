//! The file of `leaseway up`: nodes and their peers. `cluster/three.yaml` shows all of its keys.
//!
//! As in configurations, all mistakes are reported at once, with their positions.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use leaseway_server::config::{
    self, ConfigError, Position,
    yaml::{self, Field, Fields, Findings},
};

use super::options::{Options, Setting};

const KEYS: [&str; 2] = ["data", "nodes"];
const NODE_KEYS: [&str; 6] = ["config", "resources", "access", "parent", "options", "peers"];
const PEER_KEYS: [&str; 4] = ["grpc", "http", "admin", "peer"];
const EXAMPLE: &str = "`leaseway up --example` prints a file to start from";
const ADDRESS: &str = "an address like 127.0.0.1:5100";
const NAMES: &str =
    "at most 64 letters, digits, `-`, `_` and `.`, not beginning with `.`, because directories get this name";
const LONGEST_NAME: usize = 64;

#[derive(Debug, PartialEq)]
pub(super) struct NodeSet {
    /// As written. Relative paths start from the directory of the file.
    pub(super) data: PathBuf,
    pub(super) nodes: Vec<Node>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    /// The node from which this one gets its capacity and templates.
    pub(super) parent: Option<String>,
    pub(super) configuration: Configuration,
    pub(super) options: Vec<Setting>,
    pub(super) peers: Vec<Peer>,
}

/// The resources and the access policy of a node at its first start.
#[derive(Debug, PartialEq)]
pub(super) enum Configuration {
    /// The default of the server.
    Example,
    /// A path, relative to the file of the node set.
    File(PathBuf),
    /// The text of a valid configuration.
    Inline(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) grpc: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// Parses a node set. `file` names it in errors; its relative paths start from `base`.
pub(super) fn parse(file: &str, bytes: &[u8], base: &Path) -> Result<NodeSet, ConfigError> {
    let empty = format!("the file is empty; {EXAMPLE}");
    let mut reader = Reader { options: Options::new(base), taken: HashMap::new(), tree: Tree::default() };
    Ok(yaml::read(file, bytes, "the file", &empty, |root, found| reader.set(root, found))?.content)
}

struct Reader {
    options: Options,
    /// The addresses used so far, and their owners.
    taken: HashMap<SocketAddr, String>,
    tree: Tree,
}

impl Reader {
    fn set(&mut self, root: &Field<'_, '_>, found: &mut Findings) -> NodeSet {
        let mut set = NodeSet { data: PathBuf::from("leaseway-data"), nodes: Vec::new() };
        let Some(fields) = root.map(&KEYS, found) else { return set };
        if let Some(data) = fields.get("data").and_then(|field| field.text("the path of a directory", found)) {
            set.data = data.into();
        }
        let Some(nodes) = fields.get("nodes") else {
            found.error(root.at(), format!("no `nodes`; {EXAMPLE}"));
            return set;
        };
        if nodes.is_empty_map() {
            found.error(nodes.key, format!("there are no nodes; {EXAMPLE}"));
        }
        let entries = nodes.entries(&format!("a map of names to nodes; {EXAMPLE}"), found);
        set.nodes = entries.iter().filter_map(|(name, field)| self.node(name, field, found)).collect();
        self.tree.check(found);
        set
    }

    fn node(&mut self, name: &str, field: &Field<'_, '_>, found: &mut Findings) -> Option<Node> {
        check_name("node", name, field.key, found);
        self.tree.node(name);
        let fields = field.map(&NODE_KEYS, found)?;
        let parent = self.parent(name, &fields, found);
        let configuration = configuration(&fields, found);
        let options = fields.get("options").map_or_else(Vec::new, |field| self.settings(&field, found));
        let mut peers = Vec::new();
        match fields.get("peers") {
            None => found.error(field.key, format!("node `{name}` has no `peers`; {EXAMPLE}")),
            Some(field) => {
                let entries = field.entries("a map of names to peers, each with grpc, http, admin and peer", found);
                if field.is_empty_map() {
                    found.error(field.key, format!("node `{name}` has no peers; it needs at least one"));
                }
                peers.extend(entries.iter().filter_map(|(peer, field)| self.peer(name, peer, field, found)));
            }
        }
        Some(Node { name: name.to_owned(), parent, configuration, options, peers })
    }

    fn settings(&self, field: &Field<'_, '_>, found: &mut Findings) -> Vec<Setting> {
        let entries = field.entries("a map of flags of `leaseway serve` to their values", found);
        let mut settings = Vec::new();
        for (name, value) in entries {
            // An unknown flag is reported even if its value cannot be read.
            let text = if value.is_nothing() { Some("") } else { value.text("the value of a flag", found) };
            match text.map(|text| self.options.read(name, text)) {
                None => {}
                Some(Ok(setting)) => settings.extend(setting),
                Some(Err(why)) => found.error(value.key, why),
            }
        }
        settings
    }

    fn peer(&mut self, node: &str, name: &str, field: &Field<'_, '_>, found: &mut Findings) -> Option<Peer> {
        check_name("peer", name, field.key, found);
        let fields = field.map(&PEER_KEYS, found)?;
        // Read all four, so that every mistake is reported.
        let [grpc, http, admin, peer] = PEER_KEYS.map(|key| self.address(name, key, field, &fields, found));
        if let (Some(0), Some(field)) = (grpc.map(|grpc| grpc.port()), fields.get("grpc")) {
            self.tree.without_port(node, field.at());
        }
        Some(Peer { name: name.to_owned(), grpc: grpc?, http: http?, admin: admin?, peer: peer? })
    }

    fn address(
        &mut self,
        peer: &str,
        key: &str,
        whole: &Field<'_, '_>,
        fields: &Fields<'_, '_>,
        found: &mut Findings,
    ) -> Option<SocketAddr> {
        let Some(field) = fields.get(key) else {
            found.error(whole.key, format!("peer `{peer}` has no `{key}`, expected {ADDRESS}"));
            return None;
        };
        let Ok(address) = field.text(ADDRESS, found)?.parse::<SocketAddr>() else {
            field.wrong(ADDRESS, found);
            return None;
        };
        if address.port() == 0 {
            if key == "peer" {
                field.refuse("write a fixed port, because the other peers must know it in advance", found);
            }
            return Some(address);
        }
        let owner = format!("`{key}` of `{peer}`, line {}", field.at().line);
        if let Some(owner) = self.taken.insert(address, owner) {
            field.refuse(format!("already used by {owner}"), found);
        }
        Some(address)
    }

    fn parent(&mut self, node: &str, fields: &Fields<'_, '_>, found: &mut Findings) -> Option<String> {
        let parent = fields.get("parent")?;
        let name = parent.text("the name of another node", found)?;
        self.tree.parent(node, name, parent.at());
        Some(name.to_owned())
    }
}

/// A node has either `parent` or `resources`, in a file or inline. `access` is in the same file, or inline.
fn configuration(fields: &Fields<'_, '_>, found: &mut Findings) -> Configuration {
    let [parent, config, resources, access] = ["parent", "config", "resources", "access"].map(|key| fields.get(key));
    if let (Some(_), Some(resources)) = (&parent, &resources) {
        let why = "a node with a parent gets its templates from the parent";
        found.error(resources.key, format!("both `parent` and `resources`: {why}"));
    }
    if let Some(config) = config {
        for (key, other, why) in [
            ("resources", &resources, "use only one of them"),
            ("access", &access, "write the access policy into the file"),
        ] {
            if let Some(other) = other {
                found.error(other.key, format!("both `config` and `{key}`: {why}"));
            }
        }
        let path = config.text("the path of a configuration", found);
        return path.map_or(Configuration::Example, |path| Configuration::File(path.into()));
    }
    if let (Some(access), None, None) = (&access, &parent, &resources) {
        found.error(access.key, "a node with `access` and without a `parent` also needs `resources`");
    }
    let mut text = String::new();
    if let Some(resources) = resources {
        config::read_resources(&resources, found);
        text += &resources.document("resources");
    }
    if let Some(access) = access {
        config::read_access(&access, found);
        text += &access.document("access");
    }
    if text.is_empty() { Configuration::Example } else { Configuration::Inline(text) }
}

fn check_name(what: &str, name: &str, at: Position, found: &mut Findings) {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > LONGEST_NAME || name.starts_with('.') || !name.chars().all(fine) {
        found.error(at, format!("`{name}` cannot be the name of a {what}, expected {NAMES}"));
    }
}

/// Collected while the nodes are read.
#[derive(Default)]
struct Tree {
    nodes: Vec<String>,
    /// Child, parent, and the position of the `parent` key.
    parents: Vec<(String, String, Position)>,
    /// Nodes whose client address has port 0.
    portless: Vec<(String, Position)>,
}

impl Tree {
    fn node(&mut self, name: &str) {
        self.nodes.push(name.to_owned());
    }

    fn parent(&mut self, child: &str, parent: &str, at: Position) {
        self.parents.push((child.to_owned(), parent.to_owned(), at));
    }

    fn without_port(&mut self, node: &str, at: Position) {
        self.portless.push((node.to_owned(), at));
    }

    /// Reports mistakes in the tree as a whole.
    fn check(&self, found: &mut Findings) {
        let known: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        for (child, parent, at) in &self.parents {
            if !known.contains(&parent.as_str()) {
                found.error(*at, yaml::unknown("node", parent, &known));
            } else if let Some(circle) = self.circle(child) {
                let message = format!(
                    "the parents form a cycle ({}): one of these nodes must have `config` or `resources` instead of `parent`",
                    circle.join(", ")
                );
                found.error(*at, message);
            }
        }
        for (node, at) in &self.portless {
            if let Some((child, ..)) = self.parents.iter().find(|(_, parent, _)| parent == node) {
                let message = format!(
                    "`grpc` of `{node}` needs a fixed port, because its child `{child}` must know it in advance"
                );
                found.error(*at, message);
            }
        }
    }

    fn parent_of(&self, node: &str) -> Option<&str> {
        self.parents.iter().find(|(child, ..)| child == node).map(|(_, parent, _)| parent.as_str())
    }

    /// The path from a node to its parents and back to itself. Only for the first node of the cycle in the file, so
    /// that every cycle is reported once.
    fn circle<'t>(&'t self, first: &'t str) -> Option<Vec<&'t str>> {
        let position = |node: &str| self.parents.iter().position(|(child, ..)| child == node);
        let mut way = vec![first];
        while let Some(next) = self.parent_of(way[way.len() - 1]) {
            way.push(next);
            if next == first {
                return Some(way);
            }
            // Longer than the number of nodes: another cycle.
            if position(next) < position(first) || way.len() > self.parents.len() {
                return None;
            }
        }
        None
    }
}
