//! Plans: validated scenarios with the tree laid out.

use leaseway_core::{AlgorithmKind, Amount, Settings};

use crate::scenario::{ClientKind, Handover, NodeSpec, Scenario, tree::Tree};

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
            return Err(format!(
                "what each seed draws is for FAIR_SHARE and PROPORTIONAL_SHARE, not for {}",
                settings.kind.name()
            ));
        }
        Ok(Plan { scenario, tree, settings })
    }

    /// The random plan of this seed, if the scenario is random.
    pub(crate) fn drawn(&self, seed: u64) -> Option<Plan> {
        self.scenario.draws.then(|| Plan::new(self.scenario.drawn(seed)).expect("what is drawn is valid"))
    }

    /// Rounding tolerance of the sum of all clients' capacity: one unit in the last place of each client.
    pub(crate) fn digits(&self) -> Amount {
        Amount::clamped(self.tree.clients.len() as f64 * f64::EPSILON)
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The settings of the resource at the root.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What a new master of this node knows.
    pub(crate) fn handover(&self, node: usize) -> Handover {
        self.spec(node).handover.unwrap_or(self.scenario.handover)
    }

    /// The specification of this node.
    pub(crate) fn spec(&self, node: usize) -> &NodeSpec {
        &self.scenario.nodes[self.tree.nodes[node].spec]
    }

    /// Whether any client is an Envoy.
    pub(crate) fn has_envoys(&self) -> bool {
        self.tree.clients.iter().any(|client| client.speaks == ClientKind::Envoy)
    }

    /// Whether any client has a limiter.
    pub(crate) fn has_limiters(&self) -> bool {
        self.tree.clients.iter().any(|client| client.speaks == ClientKind::Limiter)
    }

    /// Whether the resource is a pool.
    pub fn is_pool(&self) -> bool {
        self.settings.kind == AlgorithmKind::PriorityPool
    }
}
