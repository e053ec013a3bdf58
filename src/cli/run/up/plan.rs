//! What `leaseway up` starts: the arguments of one `leaseway serve` per peer.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use leaseway_server::config;

use super::bootstrap_marker;
use super::file::{Configuration, Node, NodeSet, Peer};
use crate::error::CliError;
use crate::output::shell_quoted;
use crate::run::serve::TakeOverFlag;
use crate::setup::certs::LocalSet;

/// The directory of certificates, beside those of the nodes.
const CERTIFICATES: &str = "certs";

/// The file for an inline configuration.
const INLINE: &str = "config.yaml";

/// The processes to start, and the files they need.
pub(super) struct Plan {
    pub(super) nodes: Vec<NodePlan>,
    /// Set if everything runs over TLS.
    pub(super) certificates: Option<LocalSet>,
}

pub(super) struct NodePlan {
    pub(super) name: String,
    /// The node from which this one gets its capacity.
    pub(super) parent: Option<String>,
    /// The directory with the peers' data.
    pub(super) directory: PathBuf,
    /// The path and text of an inline configuration.
    pub(super) inline: Option<(PathBuf, String)>,
    pub(super) peers: Vec<PeerPlan>,
    /// All peers of the node, started here or not.
    pub(super) members: Vec<Peer>,
    /// The flag for a first start (`--bootstrap` or `--take-over`), until the node has had a master.
    pub(super) first: Option<String>,
}

pub(super) struct PeerPlan {
    /// The peer's name, prefixed with its node's if there are several nodes.
    pub(super) label: String,
    pub(super) data: PathBuf,
    pub(super) addresses: Peer,
    pub(super) arguments: Vec<String>,
}

/// The options of a start.
#[derive(Default)]
pub(super) struct Start<'a> {
    /// Start only these peers.
    pub(super) only: Option<&'a [String]>,
    /// Delete the data of the started peers first.
    pub(super) fresh: bool,
    /// On a first start, take over from another server.
    pub(super) take_over: Option<TakeOverFlag>,
    /// Create certificates and use TLS.
    pub(super) tls: bool,
}

/// `data` is the directory of all nodes; relative paths of configurations start from `base`.
pub(super) fn plan(set: &NodeSet, data: &Path, base: &Path, start: &Start<'_>) -> Result<Plan, CliError> {
    let Start { only, fresh, take_over, tls } = *start;
    let certificates = tls.then(|| certificates(set, data)).transpose()?;
    let tls_flags = certificates.iter().flat_map(|set| set.peers().flags()).collect::<Vec<_>>();
    let several = set.nodes.len() > 1;
    let label = |node: &Node, peer: &Peer| match several {
        true => format!("{}/{}", node.name, peer.name),
        false => peer.name.clone(),
    };
    let all: Vec<String> = set.nodes.iter().flat_map(|node| node.peers.iter().map(|peer| label(node, peer))).collect();
    if let Some(stranger) = only.unwrap_or_default().iter().find(|wanted| !all.contains(wanted)) {
        return Err(CliError::NoSuchPeer { name: stranger.clone(), known: all.join(", ") });
    }
    let chosen = |label: &String| only.is_none_or(|only| only.contains(label));
    let mut nodes = Vec::new();
    for node in &set.nodes {
        let directory = data.join(&node.name);
        let (configuration, inline) = configuration(node, &directory, base)?;
        let shared = [shared(set, node, configuration.as_deref()), tls_flags.clone()].concat();
        let started: Vec<&Peer> = node.peers.iter().filter(|peer| chosen(&label(node, peer))).collect();
        let remembered = node.peers.iter().any(|peer| {
            let deleted = fresh && started.contains(&peer);
            !deleted && directory.join(&peer.name).exists()
        });
        let is_first = !remembered || bootstrap_marker::is_on(&directory);
        let before = bootstrap_marker::flag(&directory).filter(|_| remembered && take_over.is_none());
        let first = is_first.then(|| before.unwrap_or_else(|| first_flag(node, take_over)));
        let peers = started.into_iter().map(|peer| PeerPlan {
            label: label(node, peer),
            data: directory.join(&peer.name),
            addresses: peer.clone(),
            arguments: arguments(node, peer, &directory, &shared, first.clone()),
        });
        let (name, parent) = (node.name.clone(), node.parent.clone());
        nodes.push(NodePlan {
            name,
            parent,
            peers: peers.collect(),
            directory,
            inline,
            members: node.peers.clone(),
            first,
        });
    }
    nodes.retain(|node| !node.peers.is_empty());
    Ok(Plan { nodes, certificates })
}

fn certificates(set: &NodeSet, data: &Path) -> Result<LocalSet, CliError> {
    let own = |node: &&Node| node.options.iter().any(|setting| setting.flag.starts_with("--tls"));
    if let Some(node) = set.nodes.iter().find(own) {
        let why = format!(
            "--tls creates certificates, but the `options` of node `{}` name other certificates: remove one of them",
            node.name
        );
        return Err(CliError::Flags(why));
    }
    if set.nodes.iter().any(|node| node.name == CERTIFICATES) {
        let why =
            format!("with --tls no node may have the name `{CERTIFICATES}`: the certificates are in that directory");
        return Err(CliError::Flags(why));
    }
    Ok(LocalSet::in_directory(data.join(CERTIFICATES)))
}

/// The path for `--config`, if any, and the text to write there.
type Config = (Option<PathBuf>, Option<(PathBuf, String)>);

fn configuration(node: &Node, directory: &Path, base: &Path) -> Result<Config, CliError> {
    match &node.configuration {
        Configuration::Example => Ok((None, None)),
        Configuration::File(path) => {
            let path = base.join(path);
            // Checked here once, before anything is started, and not only by each peer.
            let loaded = config::load(&path)?;
            let placed = loaded.check_templates(&path.display().to_string(), node.parent.is_some());
            placed.map_err(config::LoadError::from)?;
            Ok((Some(path), None))
        }
        Configuration::Inline(text) => {
            let path = directory.join(INLINE);
            Ok((Some(path.clone()), Some((path, text.clone()))))
        }
    }
}

/// The flags that all peers of a node share: its parent and its configuration.
fn shared(set: &NodeSet, node: &Node, config: Option<&Path>) -> Vec<String> {
    let parent = set.nodes.iter().find(|other| node.parent.as_ref() == Some(&other.name));
    let peers = |parent: &Node| parent.peers.iter().map(|peer| peer.grpc.to_string()).collect::<Vec<_>>().join(",");
    let parent = parent.map(|parent| ["--parent".to_owned(), peers(parent), "--node".to_owned(), node.name.clone()]);
    let config = config.map(|config| ["--config".to_owned(), config.display().to_string()]);
    parent.into_iter().flatten().chain(config.into_iter().flatten()).collect()
}

/// Only a root takes over: nodes below it grant nothing before it does.
fn first_flag(node: &Node, take_over: Option<TakeOverFlag>) -> String {
    match take_over.filter(|_| node.parent.is_none()) {
        Some(take_over) => format!("--take-over={take_over}"),
        None => "--bootstrap".to_owned(),
    }
}

fn arguments(node: &Node, peer: &Peer, directory: &Path, shared: &[String], first: Option<String>) -> Vec<String> {
    let peers: Vec<String> = node.peers.iter().map(|peer| format!("{}={}", peer.name, peer.peer)).collect();
    let address = |address: &SocketAddr| address.to_string();
    let mut arguments = vec!["serve".to_owned()];
    let mut give = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    give("--id", peer.name.clone());
    give("--listen", address(&peer.grpc));
    give("--http", address(&peer.http));
    give("--admin", address(&peer.admin));
    give("--peers", peers.join(","));
    give("--data", directory.join(&peer.name).display().to_string());
    arguments.extend_from_slice(shared);
    for setting in &node.options {
        arguments.push(setting.flag.clone());
        arguments.extend(setting.value.clone());
    }
    arguments.extend(first);
    arguments
}

impl NodePlan {
    /// The number of peers that must run to elect a master.
    pub(super) fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// The CA of the peers' certificates, if they have any.
    pub(super) fn ca(&self) -> Option<PathBuf> {
        let mut arguments = self.peers.first()?.arguments.iter();
        arguments.find(|word| *word == "--tls-ca")?;
        arguments.next().map(PathBuf::from)
    }
}

impl Plan {
    /// The index of the node's parent, if any of its peers is started here.
    pub(super) fn parent_of(&self, node: &NodePlan) -> Option<usize> {
        self.nodes.iter().position(|other| node.parent.as_ref() == Some(&other.name))
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &PeerPlan> {
        self.nodes.iter().flat_map(|node| &node.peers)
    }

    /// All addresses of the peers.
    pub(super) fn hosts(&self) -> BTreeSet<IpAddr> {
        let of = |peer: &PeerPlan| {
            let Peer { grpc, http, admin, peer, .. } = &peer.addresses;
            [grpc, http, admin, peer].map(SocketAddr::ip)
        };
        self.peers().flat_map(of).collect()
    }

    /// The same commands as a shell script.
    pub(super) fn as_script(&self, program: &str) -> String {
        let mut lines = Vec::new();
        if let Some(certificates) = &self.certificates {
            for words in certificates.commands(&self.hosts()) {
                let words = std::iter::once(program).chain(words.iter().map(String::as_str));
                lines.push(words.map(shell_quoted).collect::<Vec<_>>().join(" "));
            }
        }
        for (path, text) in self.nodes.iter().filter_map(|node| node.inline.as_ref()) {
            let directory = path.parent().expect("it is in its node's directory").display().to_string();
            let (directory, path) = (shell_quoted(&directory), shell_quoted(&path.display().to_string()));
            lines.push(format!("mkdir -p {directory}\ncat > {path} <<'END'\n{}\nEND", text.trim_end()));
        }
        for peer in self.peers() {
            let words = std::iter::once(program).chain(peer.arguments.iter().map(String::as_str));
            lines.push(words.map(shell_quoted).collect::<Vec<_>>().join(" ") + " &");
        }
        lines.join("\n")
    }
}
