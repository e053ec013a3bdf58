//! What is run: nodes, and the peers of each.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What is shared as a pool.
pub(super) const POOL: &str = "pool";

/// Routes of which a gateway is asked for each request: how many requests there are of each per second, at first.
pub(super) const ROUTES: [f64; 3] = [20.0, 50.0, 100.0];

/// What the rules of the gateway call a route.
pub(super) const ROUTE_DOMAIN: &str = "asked";
pub(super) const ROUTE_KEY: &str = "route";

/// The resource of a route.
pub(super) fn route(number: usize) -> String {
    format!("{ROUTE_DOMAIN}/{ROUTE_KEY}={number}")
}

/// Which nodes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClusterShape {
    /// One node of three peers.
    Three,
    /// One node of five peers.
    Five,
    /// A root of three peers above two leaves of one peer each; clients ask all three.
    Tree,
}

/// A node. The first is the root; the others are below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeLayout {
    pub(super) name: &'static str,
    pub(super) peers: usize,
}

const fn node(name: &'static str, peers: usize) -> NodeLayout {
    NodeLayout { name, peers }
}

impl ClusterShape {
    pub(super) fn nodes(self) -> &'static [NodeLayout] {
        const TREE: [NodeLayout; 3] = [node("root", 3), node("leaf-1", 1), node("leaf-2", 1)];
        match self {
            ClusterShape::Three => const { &[node("root", 3)] },
            ClusterShape::Five => const { &[node("root", 5)] },
            ClusterShape::Tree => &TREE,
        }
    }

    /// How many leases may lie between a decision of the root and the last client that does not know it.
    pub(super) fn levels(self) -> u32 {
        if self.nodes().len() > 1 { 2 } else { 1 }
    }
}
