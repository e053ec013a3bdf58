//! A scenario that was checked and laid out: what every run of it begins with.

use leaseway_core::{Amount, Kind, Settings};

use crate::scenario::{ClientKind, Handover, NodeSpec, Scenario, tree::Tree};

/// A scenario, ready to be run with any seed.
pub struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) tree: Tree,
    pub(crate) settings: Settings,
}

impl Plan {
    /// Complains of parameters that do not fit the algorithm, and of an algorithm that nothing is drawn for.
    pub fn new(scenario: Scenario) -> Result<Plan, String> {
        let tree = Tree::new(&scenario);
        let settings = scenario.settings()?;
        if scenario.draws && !matches!(settings.kind, Kind::FairShare | Kind::ProportionalShare) {
            return Err(format!(
                "what each seed draws is for FAIR_SHARE and PROPORTIONAL_SHARE, not for {}",
                settings.kind.name()
            ));
        }
        Ok(Plan { scenario, tree, settings })
    }

    /// What this seed draws, where each draws its own.
    pub(crate) fn drawn(&self, seed: u64) -> Option<Plan> {
        self.scenario.draws.then(|| Plan::new(self.scenario.drawn(seed)).expect("what is drawn is valid"))
    }

    /// By which the sum of what clients have may be more than what is counted: each has a last digit, which sums of
    /// amounts below 1 round up, and keeps it when the lease of its node is cut by as little.
    pub(crate) fn digits(&self) -> Amount {
        Amount::clamped(self.tree.clients.len() as f64 * f64::EPSILON)
    }

    /// What it was made of.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// How the resource is run at the root.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What a new master knows at this node.
    pub(crate) fn handover(&self, node: usize) -> Handover {
        self.spec(node).handover.unwrap_or(self.scenario.handover)
    }

    /// What the file says of this node.
    pub(crate) fn spec(&self, node: usize) -> &NodeSpec {
        &self.scenario.nodes[self.tree.nodes[node].spec]
    }

    /// Whether some of the clients are Envoys.
    pub(crate) fn has_envoys(&self) -> bool {
        self.tree.clients.iter().any(|client| client.speaks == ClientKind::Envoy)
    }

    /// Whether some of the clients let callers through.
    pub(crate) fn has_limiters(&self) -> bool {
        self.tree.clients.iter().any(|client| client.speaks == ClientKind::Limiter)
    }

    /// Whether other figures than of a division say how well it does.
    pub fn is_pool(&self) -> bool {
        self.settings.kind == Kind::PriorityPool
    }
}
