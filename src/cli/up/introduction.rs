//! What `leaseway up` says when all peers serve: where to look, and what to try first.

use std::path::Path;

use super::{
    plan::{NodePlan, Plan, quoted},
    process::Served,
};
use crate::{certs::Member, output::table};

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
    if plan.nodes.iter().any(|node| node.parent.is_some()) {
        let nodes = Nodes::new(plan, served);
        parts.push(nodes.drawn());
        parts.push(nodes.hints());
    } else if let Some(first) = served.iter().flatten().next() {
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
fn hints(at: &Served) -> String {
    let (server, admin) = (server(at), admin(at));
    format!(
        "  leaseway get alice mysql 40{server}\n  leaseway status{server}\n  leaseway shell{server}\n  leaseway peers list{admin}"
    )
}

fn server(at: &Served) -> String {
    if at.grpc == "127.0.0.1:5100" { String::new() } else { format!(" --server {}", at.grpc) }
}

fn admin(at: &Served) -> String {
    if at.admin == "127.0.0.1:5160" { String::new() } else { format!(" --admin {}", at.admin) }
}

/// The nodes of a tree that are started here, each with the first of its peers that serves.
struct Nodes<'p>(Vec<(&'p NodePlan, Option<&'p Served>)>);

impl<'p> Nodes<'p> {
    fn new(plan: &'p Plan, served: &[Option<&'p Served>]) -> Nodes<'p> {
        let mut served = served.iter();
        let first = |node: &'p NodePlan| (node, served.by_ref().take(node.peers.len()).copied().fold(None, Option::or));
        Nodes(plan.nodes.iter().map(first).collect())
    }

    fn children(&self, parent: Option<&str>) -> impl Iterator<Item = &(&'p NodePlan, Option<&'p Served>)> {
        let here = |name: &str| self.0.iter().any(|(node, _)| node.name == name);
        // Whose parent is started elsewhere stands at the top.
        self.0.iter().filter(move |(node, _)| node.parent.as_deref().filter(|name| here(name)) == parent)
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
        for (node, at) in self.children(parent) {
            let at = at.filter(|_| self.is_leaf(node)).map_or_else(String::new, |at| at.grpc.clone());
            rows.push(vec![format!("{}{}", "  ".repeat(depth), node.name), at]);
            self.draw(Some(&node.name), depth + 1, rows);
        }
    }

    /// As [`hints`], from a leaf to the top.
    fn hints(&self) -> String {
        let mut rows = Vec::new();
        let mut hint = |command: String, why: &str| rows.push((format!("  leaseway {command}"), why.to_owned()));
        let leaf = self.0.iter().find(|(node, at)| self.is_leaf(node) && at.is_some());
        if let Some((leaf, Some(at))) = leaf {
            let (name, server) = (&leaf.name, server(at));
            hint(format!("get alice mysql 40{server}"), &format!("a client of {name}"));
            hint(format!("status{server}"), &format!("{name}, and its place in the tree"));
        }
        let root = self.0.iter().find(|(node, at)| node.parent.is_none() && at.is_some());
        if let Some((root, Some(at))) = root {
            let (name, server, admin) = (&root.name, server(at), admin(at));
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
            data: name.into(),
            addresses: Peer { name: n.to_string(), grpc: nowhere, http: nowhere, admin: nowhere, peer: nowhere },
            arguments: Vec::new(),
        });
        let (peers, parent) = (peers.collect(), parent.map(str::to_owned));
        NodePlan { name: name.into(), parent, directory: name.into(), inline: None, peers, size, first: None }
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
