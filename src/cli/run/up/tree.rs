//! Which node gets capacity from which in a file of `leaseway up`: known only when all of its nodes have been read.

use leaseway_server::config::{
    Position,
    yaml::{Findings, unknown},
};

/// What is noted while the nodes are read.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<String>,
    /// Child, parent, and where that is said.
    parents: Vec<(String, String, Position)>,
    /// Where a node's address for clients has no port of its own.
    portless: Vec<(String, Position)>,
}

impl Tree {
    pub(super) fn node(&mut self, name: &str) {
        self.nodes.push(name.to_owned());
    }

    pub(super) fn parent(&mut self, child: &str, parent: &str, at: Position) {
        self.parents.push((child.to_owned(), parent.to_owned(), at));
    }

    pub(super) fn without_port(&mut self, node: &str, at: Position) {
        self.portless.push((node.to_owned(), at));
    }

    /// What is wrong with it as a whole.
    pub(super) fn check(&self, found: &mut Findings) {
        let known: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        for (child, parent, at) in &self.parents {
            if !known.contains(&parent.as_str()) {
                found.error(*at, unknown("node", parent, &known));
            } else if let Some(circle) = self.circle(child) {
                let message = format!(
                    "`parent` goes round in a circle ({}): one of them must be without it, and have a `config` of its own",
                    circle.join(", ")
                );
                found.error(*at, message);
            }
        }
        for (node, at) in &self.portless {
            if let Some((child, ..)) = self.parents.iter().find(|(_, parent, _)| parent == node) {
                let message =
                    format!("`grpc` of `{node}` needs a port: `{child}`, whose parent it is, must know it beforehand");
                found.error(*at, message);
            }
        }
    }

    fn parent_of(&self, node: &str) -> Option<&str> {
        self.parents.iter().find(|(child, ..)| child == node).map(|(_, parent, _)| parent.as_str())
    }

    /// From this node from parent to parent back to it; only for that one of a circle which the file has first, so that
    /// every circle is told once.
    fn circle<'t>(&'t self, first: &'t str) -> Option<Vec<&'t str>> {
        let place = |node: &str| self.parents.iter().position(|(child, ..)| child == node);
        let mut way = vec![first];
        while let Some(next) = self.parent_of(way[way.len() - 1]) {
            way.push(next);
            if next == first {
                return Some(way);
            }
            // Longer than that it goes round somewhere else.
            if place(next) < place(first) || way.len() > self.parents.len() {
                return None;
            }
        }
        None
    }
}
