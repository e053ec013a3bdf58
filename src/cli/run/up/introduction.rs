//! What `leaseway up` says when all peers serve: where to look, and what to try first.

use std::path::Path;

use super::{
    plan::{NodePlan, Plan, quoted},
    process::Served,
    running::running,
};
use crate::{
    connect::run_file::{Running, RunningNode},
    error::address_source::Port,
    output::table,
    setup::certs::Member,
};

/// `served` says where the peers of the plan serve, in its order; those that have ended already do not.
pub(super) fn text(plan: &Plan, served: &[Option<&Served>]) -> String {
    let mut rows = vec![["PEER", "CLIENTS (gRPC)", "PAGES (HTTP)", "ADMIN"].map(str::to_owned).to_vec()];
    for (peer, at) in plan.peers().zip(served) {
        if let Some(at) = at {
            let scheme = if plan.certificates.is_some() { "https" } else { "http" };
            rows.push(vec![peer.label.clone(), at.grpc.clone(), format!("{scheme}://{}", at.http), at.admin.clone()]);
        }
    }
    let mut parts = vec![table(&rows)];
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
    format!("\n{}\n\nCtrl-C stops {stops}\n", parts.join("\n\n"))
}

/// What clients and operators must have, as variables: every command below takes them from there.
fn needed(client: &Member) -> String {
    let absolute = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        quoted(&path.display().to_string())
    };
    format!(
        "All of it speaks TLS and asks for a certificate. In another terminal, first:\n  \
         export LEASEWAY_TLS_CA={} LEASEWAY_TLS_CERT={} LEASEWAY_TLS_KEY={}",
        absolute(&client.ca),
        absolute(&client.certificate),
        absolute(&client.key)
    )
}

/// Commands that show what this is about. What is the default need not be said.
fn hints(node: &RunningNode) -> String {
    let (server, admin) = (told(node, Port::Clients), told(node, Port::Operators));
    format!(
        "  leaseway get alice mysql 40{server}\n  leaseway status{server}\n  leaseway shell{server}\n  leaseway peers list{admin}"
    )
}

/// The flag that leads to a node: all its peers, so that the command works when one of them is down.
fn told(node: &RunningNode, port: Port) -> String {
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
        // Whose parent is started elsewhere stands at the top.
        self.0.iter().filter(move |other| other.node.parent.as_deref().filter(|name| here(name)) == parent)
    }

    fn is_leaf(&self, node: &NodePlan) -> bool {
        node.parent.is_some() && self.children(Some(&node.name)).next().is_none()
    }

    /// The tree, and where the clients of its leaves ask.
    fn drawn(&self) -> String {
        let mut rows = Vec::new();
        self.draw(None, 1, &mut rows);
        format!("Capacity comes from the top; clients ask the leaves:\n{}", table(&rows))
    }

    fn draw(&self, parent: Option<&str>, depth: usize, rows: &mut Vec<Vec<String>>) {
        for NodeHere { node, at, .. } in self.children(parent) {
            let at = at.filter(|_| self.is_leaf(node)).map_or_else(String::new, |at| at.grpc.clone());
            rows.push(vec![format!("{}{}", "  ".repeat(depth), node.name), at]);
            self.draw(Some(&node.name), depth + 1, rows);
        }
    }

    /// As [`hints`], from a leaf to the top.
    fn hints(&self) -> String {
        let mut rows = Vec::new();
        let mut hint = |command: String, why: &str| rows.push((format!("  leaseway {command}"), why.to_owned()));
        let leaf = self.0.iter().find(|here| self.is_leaf(here.node) && here.at.is_some());
        if let Some(leaf) = leaf {
            let (name, server) = (&leaf.node.name, told(leaf.running, Port::Clients));
            hint(format!("get alice mysql 40{server}"), &format!("a client of {name}"));
            hint(format!("status{server}"), &format!("{name}, and its place in the tree"));
        }
        let root = self.0.iter().find(|here| here.node.parent.is_none() && here.at.is_some());
        if let Some(root) = root {
            let (server, admin) = (told(root.running, Port::Clients), told(root.running, Port::Operators));
            let name = &root.node.name;
            hint(format!("status mysql{server}"), &format!("{name}, and what its child nodes hold"));
            hint(format!("config show{admin}"), &format!("what there is; {name} alone has a configuration"));
            hint(format!("peers list{admin}"), &format!("who is master of {name}"));
        }
        let width = rows.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
        rows.iter().map(|(command, why)| format!("{command:<width$}  # {why}")).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{
        super::{file::Peer, plan::PeerPlan},
        *,
    };

    /// A node that serves at ports which begin so.
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
    fn defaults_are_not_repeated_in_hints() {
        let one = || vec![node("root", None, 1)];
        let text = introduced(one(), &served([5100]));
        assert!(!text.contains("--") && text.ends_with("  leaseway peers list\n\nCtrl-C stops it\n"), "{text}");
        let other = introduced(one(), &served([7]));
        let three = introduced(vec![node("root", None, 3)], &served([7, 8, 9]));
        assert!(three.contains("leaseway status --server 127.0.0.1:7,127.0.0.1:8,127.0.0.1:9\n"), "{three}");
        for hint in ["leaseway status --server 127.0.0.1:7\n", "leaseway peers list --admin 127.0.0.1:67\n"] {
            assert!(other.contains(hint), "{other}");
        }
    }

    #[test]
    fn a_tree_is_drawn_and_leads_from_a_leaf_to_the_top() {
        // In the order of the file, which need not be that of the tree.
        let nodes = vec![
            node("east-1", Some("east"), 1),
            node("root", None, 2),
            node("west", Some("root"), 1),
            node("east", Some("root"), 1),
        ];
        let text = introduced(nodes, &served([5400, 5100, 5101, 5300, 5200]));
        let (_, drawn) = text.split_once("\n\n").expect("below the table");
        let expected = "\
Capacity comes from the top; clients ask the leaves:
  root
    west      127.0.0.1:5300
    east
      east-1  127.0.0.1:5400

  leaseway get alice mysql 40 --server 127.0.0.1:5400  # a client of east-1
  leaseway status --server 127.0.0.1:5400              # east-1, and its place in the tree
  leaseway status mysql                                # root, and what its child nodes hold
  leaseway config show                                 # what there is; root alone has a configuration
  leaseway peers list                                  # who is master of root

Ctrl-C stops all 5
";
        assert_eq!(drawn, expected);
    }

    #[test]
    fn of_a_tree_that_is_started_in_part_only_that_part_is_shown() {
        let text = introduced(vec![node("east-1", Some("east"), 1)], &served([5400]));
        let (_, drawn) = text.split_once("\n\n").expect("below the table");
        let expected = "\
Capacity comes from the top; clients ask the leaves:
  east-1  127.0.0.1:5400

  leaseway get alice mysql 40 --server 127.0.0.1:5400  # a client of east-1
  leaseway status --server 127.0.0.1:5400              # east-1, and its place in the tree

Ctrl-C stops it
";
        assert_eq!(drawn, expected);
    }
}
