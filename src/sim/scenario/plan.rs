//! Plans: validated scenarios, with all nodes and clients one by one.

use leaseway_core::{
    policy::settings::{AlgorithmKind, Settings},
    types::{Amount, Millis},
};

use crate::scenario::{ClientKind, Handover, NodeSpec, Scenario, UsageSpec, Wants};

/// A scenario, ready to be run with any seed.
pub struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) tree: Tree,
    pub(crate) settings: Settings,
}

impl Plan {
    /// Validates the parameters, and the algorithm of random scenarios.
    pub fn new(scenario: Scenario) -> Result<Plan, String> {
        let tree = Tree::new(&scenario);
        let settings = scenario.settings()?;
        if scenario.draws && !matches!(settings.kind, AlgorithmKind::FairShare | AlgorithmKind::ProportionalShare) {
            return Err(format!("`draws` needs FAIR_SHARE or PROPORTIONAL_SHARE, not {}", settings.kind.name()));
        }
        Ok(Plan { scenario, tree, settings })
    }

    /// The random plan of this seed, if the scenario is random.
    pub(crate) fn drawn(&self, seed: u64) -> Option<Plan> {
        self.scenario.draws.then(|| Plan::new(self.scenario.drawn(seed)).expect("a drawn scenario is valid"))
    }

    /// Rounding tolerance of the sum of all clients' capacity: one unit in the last place of each client.
    pub(crate) fn digits(&self) -> Amount {
        Amount::clamped(self.tree.clients.len() as f64 * f64::EPSILON)
    }

    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The settings of the resource at the root.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The knowledge of a new master of this node.
    pub(crate) fn handover(&self, node: usize) -> Handover {
        self.spec(node).handover.unwrap_or(self.scenario.handover)
    }

    pub(crate) fn spec(&self, node: usize) -> &NodeSpec {
        &self.scenario.nodes[self.tree.nodes[node].spec]
    }

    pub(crate) fn has_envoys(&self) -> bool {
        self.tree.clients.iter().any(|client| client.kind == ClientKind::Envoy)
    }

    pub(crate) fn has_limiters(&self) -> bool {
        self.tree.clients.iter().any(|client| client.kind == ClientKind::Limiter)
    }

    pub(crate) fn is_budget(&self) -> bool {
        self.settings.is_budget()
    }

    pub fn is_pool(&self) -> bool {
        self.settings.kind == AlgorithmKind::PriorityPool
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TreeNode {
    /// The name, with a number if there are several.
    pub(crate) name: String,
    /// The index of its specification.
    pub(crate) spec: usize,
    pub(crate) parent: Option<usize>,
    pub(crate) level: usize,
    pub(crate) peers: u8,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TreeClient {
    pub(crate) node: usize,
    pub(crate) kind: ClientKind,
    pub(crate) priority: i16,
    pub(crate) wants: Wants,
    pub(crate) assigned: Option<Amount>,
    pub(crate) uses: Option<UsageSpec>,
    pub(crate) window: Millis,
}

/// All nodes and clients. Parents come before their children.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<TreeNode>,
    pub(crate) clients: Vec<TreeClient>,
}

impl Tree {
    pub(crate) fn new(scenario: &Scenario) -> Tree {
        let mut tree = Tree::default();
        for (spec, node) in scenario.nodes.iter().enumerate() {
            let parents: Vec<Option<usize>> = match &node.parent {
                None => vec![None],
                Some(parent) => {
                    let is_parent = |place: &TreeNode| scenario.nodes[place.spec].name == *parent;
                    let places = tree.nodes.iter().enumerate().filter(|(_, place)| is_parent(place));
                    places.map(|(index, _)| Some(index)).collect()
                }
            };
            let several = parents.len() * node.times as usize > 1;
            let each = parents.into_iter().flat_map(|parent| (0..node.times).map(move |_| parent));
            for (number, parent) in (1..).zip(each) {
                let name = if several { format!("{}{number}", node.name) } else { node.name.clone() };
                let level = parent.map_or(0, |parent| tree.nodes[parent].level + 1);
                tree.nodes.push(TreeNode { name, spec, parent, level, peers: node.peers });
                let node_index = tree.nodes.len() - 1;
                for clients in &node.clients {
                    let assigned = clients.assigned.map(Amount::clamped);
                    let (priority, wants, uses) = (clients.priority, clients.wants, clients.uses);
                    let (kind, window) = (clients.kind, clients.window.0);
                    let client = TreeClient { node: node_index, kind, priority, wants, assigned, uses, window };
                    tree.clients.extend(std::iter::repeat_n(client, clients.count as usize));
                }
            }
        }
        tree
    }

    /// The nodes with this name in the file.
    pub(crate) fn named(&self, scenario: &Scenario, name: &str) -> Vec<usize> {
        let called = |place: &TreeNode| scenario.nodes[place.spec].name == name;
        (0..self.nodes.len()).filter(|node| called(&self.nodes[*node])).collect()
    }
}
