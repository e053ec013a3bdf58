//! The nodes of a run, and the names of resources.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) const POOL: &str = "pool";

/// A budget that is spent once, and one with short periods.
pub(crate) const ONCE: &str = "budget-once";
pub(crate) const OF_PERIODS: &str = "budget-of-periods";

/// The initial limits per second of the routes that Envoys ask about.
pub(crate) const ROUTES: [f64; 3] = [20.0, 50.0, 100.0];

/// The domain and key of routes in the rules of the gateway.
pub(crate) const ROUTE_DOMAIN: &str = "asked";
pub(crate) const ROUTE_KEY: &str = "route";

/// The resource of a route.
pub(crate) fn route(number: usize) -> String {
    format!("{ROUTE_DOMAIN}/{ROUTE_KEY}={number}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClusterShape {
    /// One node of three peers.
    Three,
    /// One node of five peers.
    Five,
    /// A root of three peers above two leaves of one peer each. Clients ask all three nodes.
    Tree,
}

/// A node of a run. The first node is the root; the others are its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeLayout {
    pub(crate) name: &'static str,
    pub(crate) peers: usize,
}

const fn node(name: &'static str, peers: usize) -> NodeLayout {
    NodeLayout { name, peers }
}

impl ClusterShape {
    pub(crate) fn nodes(self) -> &'static [NodeLayout] {
        const TREE: [NodeLayout; 3] = [node("root", 3), node("leaf-1", 1), node("leaf-2", 1)];
        match self {
            ClusterShape::Three => const { &[node("root", 3)] },
            ClusterShape::Five => const { &[node("root", 5)] },
            ClusterShape::Tree => &TREE,
        }
    }

    /// The number of levels of leases below the root: the time until a decision of the root has reached all clients is
    /// proportional to it.
    pub(crate) fn levels(self) -> u32 {
        if self.nodes().len() > 1 { 2 } else { 1 }
    }
}
