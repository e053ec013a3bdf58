//! The text that `leaseway up` prints when all peers serve: their addresses, and commands to try.

use std::net::SocketAddr;
use std::path::Path;

use super::file::Peer;
use super::plan::{NodePlan, Plan};
use super::process::Served;
use crate::connect::run_file::{Running, RunningNode};
use crate::error::Port;
use crate::output::{shell_quoted, table, table_without_heading};
use crate::setup::certs::Member;

/// `served` has the addresses of the plan's peers in order; `None` for those that have ended.
pub(super) fn text(plan: &Plan, served: &[Option<&Served>]) -> String {
    let mut rows = Vec::new();
    for (peer, at) in plan.peers().zip(served) {
        if let Some(at) = at {
            let scheme = if plan.certificates.is_some() { "https" } else { "http" };
            rows.push(vec![peer.label.clone(), at.grpc.clone(), format!("{scheme}://{}", at.http), at.admin.clone()]);
        }
    }
    let mut parts = vec![table(&["PEER", "CLIENTS (gRPC)", "PAGES (HTTP)", "ADMIN"], rows)];
    parts.extend(plan.certificates.as_ref().map(|set| needed(&set.client())));
    let running = running(plan, served);
    if plan.nodes.iter().any(|node| node.parent.is_some()) {
        let nodes = Nodes::new(plan, served, &running);
        parts.push(nodes.drawn());
        parts.push(nodes.hints());
    } else if let Some(first) = running.nodes.first() {
        parts.push(hints(first));
    }
    let stops = if served.len() == 1 { "it".to_owned() } else { format!("all {}", served.len()) };
    format!("\n{}\n\nCtrl-C stops {stops}", parts.join("\n\n"))
}

/// The variables that connect clients and operators over TLS.
fn needed(client: &Member) -> String {
    let absolute = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        shell_quoted(&path.display().to_string())
    };
    format!(
        "TLS is on, and clients need a certificate. In another terminal, first run:\n  \
         export LEASEWAY_TLS_CA={} LEASEWAY_TLS_CERT={} LEASEWAY_TLS_KEY={}",
        absolute(&client.ca),
        absolute(&client.certificate),
        absolute(&client.key)
    )
}

/// Commands to try. Flags with default values are omitted.
fn hints(node: &RunningNode) -> String {
    let (server, admin) = (address_flag(node, Port::Clients), address_flag(node, Port::Operators));
    format!(
        "In another terminal:\n  leaseway get alice mysql 40{server}\n  leaseway status{server}\n  leaseway shell{server}\n  leaseway peers list{admin}"
    )
}

/// The flag with the addresses of all peers of a node, so that a command works when one of them is down.
fn address_flag(node: &RunningNode, port: Port) -> String {
    let addresses = node.addresses(port);
    let is_default = addresses.iter().any(|address| address == port.default_address());
    if is_default { String::new() } else { format!(" {} {}", port.flag(), addresses.join(",")) }
}

/// A node that is started here, and the first of its peers that serves.
struct NodeHere<'p> {
    node: &'p NodePlan,
    at: Option<&'p Served>,
    running: &'p RunningNode,
}

/// The nodes of a tree that are started here.
struct Nodes<'p>(Vec<NodeHere<'p>>);

impl<'p> Nodes<'p> {
    fn new(plan: &'p Plan, served: &[Option<&'p Served>], running: &'p Running) -> Nodes<'p> {
        let mut served = served.iter();
        let here = |(node, running): (&'p NodePlan, &'p RunningNode)| {
            let at = served.by_ref().take(node.peers.len()).copied().fold(None, Option::or);
            NodeHere { node, at, running }
        };
        Nodes(plan.nodes.iter().zip(&running.nodes).map(here).collect())
    }

    fn children(&self, parent: Option<&str>) -> impl Iterator<Item = &NodeHere<'p>> {
        let here = |name: &str| self.0.iter().any(|other| other.node.name == name);
        // A node whose parent is started elsewhere is drawn as a root.
        self.0.iter().filter(move |other| other.node.parent.as_deref().filter(|name| here(name)) == parent)
    }

    fn is_leaf(&self, node: &NodePlan) -> bool {
        node.parent.is_some() && self.children(Some(&node.name)).next().is_none()
    }

    /// The tree, with the addresses of its leaves.
    fn drawn(&self) -> String {
        let mut rows = Vec::new();
        self.draw(None, 1, &mut rows);
        format!(
            "Capacity flows from the root to the leaves; clients connect to the leaves:\n{}",
            table_without_heading(&rows)
        )
    }

    fn draw(&self, parent: Option<&str>, depth: usize, rows: &mut Vec<Vec<String>>) {
        for NodeHere { node, at, .. } in self.children(parent) {
            let at = at.filter(|_| self.is_leaf(node)).map_or_else(String::new, |at| at.grpc.clone());
            rows.push(vec![format!("{}{}", "  ".repeat(depth), node.name), at]);
            self.draw(Some(&node.name), depth + 1, rows);
        }
    }

    /// Commands to try, from a leaf to the root.
    fn hints(&self) -> String {
        let mut rows = Vec::new();
        let mut hint = |command: String, why: &str| rows.push((format!("  leaseway {command}"), why.to_owned()));
        let leaf = self.0.iter().find(|here| self.is_leaf(here.node) && here.at.is_some());
        if let Some(leaf) = leaf {
            let (name, server) = (&leaf.node.name, address_flag(leaf.running, Port::Clients));
            hint(format!("get alice mysql 40{server}"), &format!("a client of {name}"));
            hint(format!("status{server}"), &format!("{name}, and its place in the tree"));
        }
        let root = self.0.iter().find(|here| here.node.parent.is_none() && here.at.is_some());
        if let Some(root) = root {
            let (server, admin) =
                (address_flag(root.running, Port::Clients), address_flag(root.running, Port::Operators));
            let name = &root.node.name;
            hint(format!("status mysql{server}"), &format!("{name}, and the leases of its child nodes"));
            hint(format!("config show{admin}"), &format!("the configuration, which only {name} has"));
            hint(format!("peers list{admin}"), &format!("the peers of {name}, and which is the master"));
        }
        let width = rows.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
        rows.iter().map(|(command, why)| format!("{command:<width$}  # {why}")).collect::<Vec<_>>().join("\n")
    }
}

/// `served` has the addresses of the plan's peers in order.
pub(super) fn running(plan: &Plan, served: &[Option<&Served>]) -> Running {
    let here: Vec<_> = plan.peers().map(|peer| &peer.data).zip(served).collect();
    let address = |known: Option<String>, planned: &SocketAddr| {
        known.or_else(|| (planned.port() != 0).then(|| planned.to_string()))
    };
    let node = |node: &NodePlan| {
        let at = |peer: &Peer| here.iter().find(|(data, _)| **data == node.directory.join(&peer.name))?.1.cloned();
        let members: Vec<_> = node.members.iter().map(|peer| (peer, at(peer))).collect();
        let servers =
            members.iter().filter_map(|(peer, at)| address(at.as_ref().map(|at| at.grpc.clone()), &peer.grpc));
        let admins =
            members.iter().filter_map(|(peer, at)| address(at.as_ref().map(|at| at.admin.clone()), &peer.admin));
        RunningNode {
            name: node.name.clone(),
            is_root: node.parent.is_none(),
            servers: servers.collect(),
            admins: admins.collect(),
        }
    };
    Running { process: std::process::id(), nodes: plan.nodes.iter().map(node).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::plan::PeerPlan;
    use super::*;

    /// A planned node with `size` peers.
    fn node(name: &str, parent: Option<&str>, size: usize) -> NodePlan {
        let nowhere: SocketAddr = ([127, 0, 0, 1], 0).into();
        let peers = (0..size).map(|n| PeerPlan {
            label: format!("{name}/{n}"),
            data: Path::new(name).join(n.to_string()),
            addresses: Peer { name: n.to_string(), grpc: nowhere, http: nowhere, admin: nowhere, peer: nowhere },
            arguments: Vec::new(),
        });
        let peers: Vec<PeerPlan> = peers.collect();
        let (members, parent) = (peers.iter().map(|peer| peer.addresses.clone()).collect(), parent.map(str::to_owned));
        NodePlan { name: name.into(), parent, directory: name.into(), inline: None, peers, members, first: None }
    }

    fn served(ports: impl IntoIterator<Item = u16>) -> Vec<Served> {
        let at = |port: u16| format!("127.0.0.1:{port}");
        ports.into_iter().map(|port| Served { grpc: at(port), http: at(port + 50), admin: at(port + 60) }).collect()
    }

    fn introduced(nodes: Vec<NodePlan>, served: &[Served]) -> String {
        text(&Plan { nodes, certificates: None }, &served.iter().map(Some).collect::<Vec<_>>())
    }

    #[test]
    fn hints_omit_default_addresses() {
        let one = || vec![node("root", None, 1)];
        let text = introduced(one(), &served([5100]));
        assert!(!text.contains("--") && text.ends_with("  leaseway peers list\n\nCtrl-C stops it"), "{text}");
        let other = introduced(one(), &served([7]));
        let three = introduced(vec![node("root", None, 3)], &served([7, 8, 9]));
        assert!(three.contains("leaseway status --server 127.0.0.1:7,127.0.0.1:8,127.0.0.1:9\n"), "{three}");
        for hint in ["leaseway status --server 127.0.0.1:7\n", "leaseway peers list --admin 127.0.0.1:67\n"] {
            assert!(other.contains(hint), "{other}");
        }
    }

    #[test]
    fn a_tree_is_drawn_with_hints_from_a_leaf_to_the_root() {
        // In the order of the file, which may differ from that of the tree.
        let nodes = vec![
            node("east-1", Some("east"), 1),
            node("root", None, 2),
            node("west", Some("root"), 1),
            node("east", Some("root"), 1),
        ];
        let text = introduced(nodes, &served([5400, 5100, 5101, 5300, 5200]));
        let (_, drawn) = text.split_once("\n\n").expect("below the table");
        let expected = "\
Capacity flows from the root to the leaves; clients connect to the leaves:
  root
    west      127.0.0.1:5300
    east
      east-1  127.0.0.1:5400

  leaseway get alice mysql 40 --server 127.0.0.1:5400  # a client of east-1
  leaseway status --server 127.0.0.1:5400              # east-1, and its place in the tree
  leaseway status mysql                                # root, and the leases of its child nodes
  leaseway config show                                 # the configuration, which only root has
  leaseway peers list                                  # the peers of root, and which is the master

Ctrl-C stops all 5";
        assert_eq!(drawn, expected);
    }
}
