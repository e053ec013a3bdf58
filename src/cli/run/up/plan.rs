//! What `leaseway up` starts: for each peer one `leaseway serve` with everything it needs to be told.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use leaseway_server::config;

use super::{
    file::{Configuration, Node, NodeSet, Peer},
    founding,
};
use crate::{error::CliError, run::serve::TakeOverFlag, setup::certs::LocalSet};

/// Where certificates are kept, beside the directories of the nodes.
const CERTIFICATES: &str = "certs";

/// Where a node's own configuration is written to when it has none in a file.
const INLINE: &str = "config.yaml";

/// Everything that is to be started, and what must be there before.
pub(super) struct Plan {
    pub(super) nodes: Vec<NodePlan>,
    /// With which all of it runs over TLS.
    pub(super) certificates: Option<LocalSet>,
}

pub(super) struct NodePlan {
    pub(super) name: String,
    /// The node that its capacity comes from.
    pub(super) parent: Option<String>,
    /// What its peers have their data in.
    pub(super) directory: PathBuf,
    /// What is written there first.
    pub(super) inline: Option<(PathBuf, String)>,
    pub(super) peers: Vec<PeerPlan>,
    /// All its peers, started here or not.
    pub(super) members: Vec<Peer>,
    /// Its peers have promised nothing yet: what they are told for that.
    pub(super) first: Option<String>,
}

pub(super) struct PeerPlan {
    /// Its name, with its node's if there are several.
    pub(super) label: String,
    pub(super) data: PathBuf,
    pub(super) addresses: Peer,
    pub(super) arguments: Vec<String>,
}

/// How it is started.
#[derive(Default)]
pub(super) struct Start<'a> {
    /// No others than these peers.
    pub(super) only: Option<&'a [String]>,
    /// What the peers that are started remember will have been deleted.
    pub(super) fresh: bool,
    /// In place of another server, if it is a first start.
    pub(super) take_over: Option<TakeOverFlag>,
    /// With certificates of its own.
    pub(super) tls: bool,
}

/// `data` is the directory of all; relative paths of configurations start from `base`.
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
        let is_first = !remembered || founding::is_on(&directory);
        let before = founding::flag(&directory).filter(|_| remembered && take_over.is_none());
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
        let why =
            format!("--tls makes certificates, and the `options` of node `{}` name others: one of them", node.name);
        return Err(CliError::Flags(why));
    }
    if set.nodes.iter().any(|node| node.name == CERTIFICATES) {
        let why = format!("with --tls no node can be called `{CERTIFICATES}`: the directory is that of certificates");
        return Err(CliError::Flags(why));
    }
    Ok(LocalSet::in_directory(data.join(CERTIFICATES)))
}

/// The file that `--config` names, if any, and what is written there.
type Config = (Option<PathBuf>, Option<(PathBuf, String)>);

fn configuration(node: &Node, directory: &Path, base: &Path) -> Result<Config, CliError> {
    match &node.configuration {
        Configuration::Example => Ok((None, None)),
        Configuration::File(path) => {
            let path = base.join(path);
            // Once, before anything is started, rather than by every peer.
            let loaded = config::load(&path)?;
            let placed = loaded.check_place(&path.display().to_string(), node.parent.is_some());
            placed.map_err(config::LoadError::from)?;
            Ok((Some(path), None))
        }
        Configuration::Inline(text) => {
            let path = directory.join(INLINE);
            Ok((Some(path.clone()), Some((path, text.clone()))))
        }
    }
}

/// The flags that say what a node shares, or whom to ask, and who may do what.
fn shared(set: &NodeSet, node: &Node, config: Option<&Path>) -> Vec<String> {
    let parent = set.nodes.iter().find(|other| node.parent.as_ref() == Some(&other.name));
    let peers = |parent: &Node| parent.peers.iter().map(|peer| peer.grpc.to_string()).collect::<Vec<_>>().join(",");
    let parent = parent.map(|parent| ["--parent".to_owned(), peers(parent), "--node".to_owned(), node.name.clone()]);
    let config = config.map(|config| ["--config".to_owned(), config.display().to_string()]);
    parent.into_iter().flatten().chain(config.into_iter().flatten()).collect()
}

/// Below a parent nothing is given out before the root has it to give.
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
    /// How many peers must run for one of them to be master.
    pub(super) fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// The CA of its peers' certificates, if they have any.
    pub(super) fn ca(&self) -> Option<PathBuf> {
        let mut arguments = self.peers.first()?.arguments.iter();
        arguments.find(|word| *word == "--tls-ca")?;
        arguments.next().map(PathBuf::from)
    }
}

impl Plan {
    /// The node whose capacity this one gets, if any of its peers is started here.
    pub(super) fn parent_of(&self, node: &NodePlan) -> Option<usize> {
        self.nodes.iter().position(|other| node.parent.as_ref() == Some(&other.name))
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &PeerPlan> {
        self.nodes.iter().flat_map(|node| &node.peers)
    }

    /// Where all of its peers can be reached.
    pub(super) fn hosts(&self) -> BTreeSet<IpAddr> {
        let of = |peer: &PeerPlan| {
            let Peer { grpc, http, admin, peer, .. } = &peer.addresses;
            [grpc, http, admin, peer].map(SocketAddr::ip)
        };
        self.peers().flat_map(of).collect()
    }

    /// The same by hand, as lines for a shell.
    pub(super) fn as_script(&self, program: &str) -> String {
        let mut lines = Vec::new();
        if let Some(certificates) = &self.certificates {
            for words in certificates.commands(&self.hosts()) {
                let words = std::iter::once(program).chain(words.iter().map(String::as_str));
                lines.push(words.map(quoted).collect::<Vec<_>>().join(" "));
            }
        }
        for (path, text) in self.nodes.iter().filter_map(|node| node.inline.as_ref()) {
            let directory = path.parent().expect("it is in its node's directory").display().to_string();
            let (directory, path) = (quoted(&directory), quoted(&path.display().to_string()));
            lines.push(format!("mkdir -p {directory}\ncat > {path} <<'END'\n{}\nEND", text.trim_end()));
        }
        for peer in self.peers() {
            let words = std::iter::once(program).chain(peer.arguments.iter().map(String::as_str));
            lines.push(words.map(quoted).collect::<Vec<_>>().join(" ") + " &");
        }
        lines.join("\n")
    }
}

/// As a shell takes it for one word. What no shell can be told (a NUL) is shown as it is.
pub(super) fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), |quoted| quoted.into_owned())
}
