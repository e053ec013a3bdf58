//! The file of `leaseway up`: which nodes there are, and which peers each of them has. `cluster/three.yaml` shows all of it.
//!
//! All mistakes are told at once, with their places, as for configurations: the reader is the same.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use leaseway_server::config::{
    ConfigError, Position,
    yaml::{self, Field, Fields, Findings},
};

use super::options::{Options, Setting};

const KEYS: [&str; 2] = ["data", "nodes"];
const NODE_KEYS: [&str; 5] = ["config", "resources", "parent", "options", "peers"];
const PEER_KEYS: [&str; 4] = ["grpc", "http", "admin", "peer"];
const EXAMPLE: &str = "`leaseway up --example` prints a file to start from";
const ADDRESS: &str = "an address like 127.0.0.1:5100";
const NAMES: &str = "letters, digits, `-`, `_` and `.`, at most 64, not a `.` first: it names a directory";
const LONGEST_NAME: usize = 64;

/// What is to run.
#[derive(Debug, PartialEq)]
pub(super) struct NodeSet {
    /// As it is written; relative to the file.
    pub(super) data: PathBuf,
    pub(super) nodes: Vec<Node>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) configuration: Configuration,
    pub(super) options: Vec<Setting>,
    pub(super) peers: Vec<Peer>,
}

/// What a node shares when it starts for the first time.
#[derive(Debug, PartialEq)]
pub(super) enum Configuration {
    /// The server's own default.
    Example,
    /// Relative to the file of the node set.
    File(PathBuf),
    /// The text of a configuration, checked.
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

/// Reads a file that is in memory. `file` is what complaints call it; relative paths in it start from `base`.
pub(super) fn parse(file: &str, bytes: &[u8], base: &Path) -> Result<NodeSet, ConfigError> {
    let empty = format!("the file is empty; {EXAMPLE}");
    let mut reader = Reader { options: Options::new(base), taken: HashMap::new() };
    Ok(yaml::read(file, bytes, "the file", &empty, |root, found| reader.set(root, found))?.content)
}

struct Reader {
    options: Options,
    /// Which addresses there are already, and whose they are.
    taken: HashMap<SocketAddr, String>,
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
        set
    }

    fn node(&mut self, name: &str, field: &Field<'_, '_>, found: &mut Findings) -> Option<Node> {
        check_name("node", name, field.key, found);
        let fields = field.map(&NODE_KEYS, found)?;
        if let Some(parent) = fields.get("parent") {
            let message = "`parent`: nodes that get their capacity from other nodes cannot be run yet; leave it out, and each \
                node has its own `config`";
            found.error(parent.key, message);
        }
        let configuration = configuration(&fields, found);
        let options = fields.get("options").map_or_else(Vec::new, |field| self.settings(&field, found));
        let mut peers = Vec::new();
        match fields.get("peers") {
            None => found.error(field.key, format!("node `{name}` has no `peers`; {EXAMPLE}")),
            Some(field) => {
                let entries = field.entries("a map of names to peers, each with grpc, http, admin and peer", found);
                if field.is_empty_map() {
                    found.error(field.key, format!("node `{name}` has no peers; one is the least"));
                }
                peers.extend(entries.iter().filter_map(|(name, field)| self.peer(name, field, found)));
            }
        }
        Some(Node { name: name.to_owned(), configuration, options, peers })
    }

    fn settings(&self, field: &Field<'_, '_>, found: &mut Findings) -> Vec<Setting> {
        let entries = field.entries("a map of flags of `leaseway serve` to their values", found);
        let mut settings = Vec::new();
        for (name, value) in entries {
            // Whether a flag is known is said even if its value cannot be read.
            let text = if value.is_nothing() { Some("") } else { value.text("the value of a flag", found) };
            match text.map(|text| self.options.read(name, text)) {
                None => {}
                Some(Ok(setting)) => settings.extend(setting),
                Some(Err(why)) => found.error(value.key, why),
            }
        }
        settings
    }

    fn peer(&mut self, name: &str, field: &Field<'_, '_>, found: &mut Findings) -> Option<Peer> {
        check_name("peer", name, field.key, found);
        let fields = field.map(&PEER_KEYS, found)?;
        // All four are read before one that is missing counts: all mistakes are told.
        let [grpc, http, admin, peer] = PEER_KEYS.map(|key| self.address(name, key, field, &fields, found));
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
                field.refuse("the others must know the port before it is opened", found);
            }
            return Some(address);
        }
        let owner = format!("`{key}` of `{peer}`, line {}", field.at().line);
        if let Some(owner) = self.taken.insert(address, owner) {
            field.refuse(format!("{owner}, has it already"), found);
        }
        Some(address)
    }
}

fn configuration(fields: &Fields<'_, '_>, found: &mut Findings) -> Configuration {
    match (fields.get("config"), fields.get("resources")) {
        (None, None) => Configuration::Example,
        (Some(_), Some(resources)) => {
            found.error(resources.key, "both `config` and `resources`: one of them says what the node shares");
            Configuration::Example
        }
        (Some(config), None) => match config.text("the path of a configuration", found) {
            Some(path) => Configuration::File(path.into()),
            None => Configuration::Example,
        },
        (None, Some(resources)) => {
            yaml::read_resources(&resources, found);
            Configuration::Inline(resources.document("resources"))
        }
    }
}

fn check_name(what: &str, name: &str, at: Position, found: &mut Findings) {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > LONGEST_NAME || name.starts_with('.') || !name.chars().all(fine) {
        found.error(at, format!("`{name}` cannot be the name of a {what}, expected {NAMES}"));
    }
}
