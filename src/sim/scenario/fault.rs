//! What can go wrong, as a scenario says it.

use leaseway_core::{Amount, Load};
use serde::Deserialize;

use super::NodeSpec;
use crate::scenario::units::{Between, Part, Span};

/// What can happen. Where `node` is absent any node is meant, each as likely as the others.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case", deny_unknown_fields)]
pub(crate) enum Fault {
    /// No peer is master any more; there is an election so much later, or none if that is absent.
    LoseMaster { node: Option<String>, back: Option<Between> },
    /// Any of the peers becomes master. If it is already, nothing happens.
    Election { node: Option<String> },
    /// Clients want so much more, once.
    Spike { clients: u32, by: f64 },
    /// Clients want so much, once.
    Want { clients: u32, amount: f64 },
    /// Clients that use what they have in bursts use it this part of the time from now on.
    Use { clients: u32, part: Part },
    /// Clients die; others come in their place at once.
    Crash { clients: u32 },
    /// Clients die and forget what they had, and are started again under their names.
    Restart { clients: u32 },
    /// Clients give back what they have, and want it again later.
    Leave { clients: u32, back: Between },
    /// Clients cannot reach their node.
    CutClients { clients: u32, back: Between },
    /// A node cannot reach its parent.
    CutUplink { node: Option<String>, back: Between },
    /// No link to a node or from it works.
    Isolate { node: Option<String>, back: Between },
    /// There is another capacity at the root from now on.
    Capacity { amount: f64 },
    /// The root gives leases of another length from now on.
    Lease { length: Span },
    /// An operator sets a capacity in place of what a node has, for a time.
    Override(OverrideSpec),
    /// The streams of Envoys break; both ends notice later.
    BreakStreams { clients: u32 },
    /// Gateways die, and others begin under their ids. Their Envoys go on.
    KillGateways { clients: u32 },
    /// So many requests and releases come under names of others. With this, nodes have an access policy.
    Forge { requests: u32 },
}

/// A capacity that an operator sets.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverrideSpec {
    #[serde(default)]
    pub(crate) node: Option<String>,
    /// Either so much, or a part of what there would be.
    #[serde(default)]
    pub(crate) capacity: Option<f64>,
    #[serde(default)]
    pub(crate) factor: Option<f64>,
    #[serde(default)]
    pub(crate) above: bool,
    pub(crate) ends: Between,
}

impl OverrideSpec {
    /// As the core has it.
    pub(crate) fn load(&self) -> Result<Load, String> {
        let number = |number| Amount::new(number).map_err(|error| format!("`override` {error}"));
        match (self.capacity, self.factor) {
            (Some(capacity), None) => Ok(Load::Capacity(number(capacity)?)),
            (None, Some(factor)) => Ok(Load::Factor(number(factor)?.get())),
            _ => Err("`override` has either a `capacity` or a `factor`".into()),
        }
    }
}

impl Fault {
    /// What no type can say.
    pub(super) fn check(&self, nodes: &[NodeSpec]) -> Result<(), String> {
        let node = match self {
            Fault::LoseMaster { node, .. }
            | Fault::Election { node }
            | Fault::CutUplink { node, .. }
            | Fault::Isolate { node, .. } => node,
            Fault::Override(set) => {
                set.load()?;
                &set.node
            }
            _ => return Ok(()),
        };
        match node {
            Some(node) if !nodes.iter().any(|known| known.name == *node) => {
                let known: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
                Err(format!("there is no node `{node}` that something could happen to; known: {}", known.join(", ")))
            }
            _ => Ok(()),
        }
    }
}
