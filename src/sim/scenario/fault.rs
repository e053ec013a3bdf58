//! The faults that a scenario can inject.

use leaseway_core::{policy::overrides::Load, types::Amount};
use serde::Deserialize;

use super::NodeSpec;
use crate::units::{Between, Part, Span};

/// A fault or event. If `node` is absent, a random node is chosen.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case", deny_unknown_fields)]
pub(crate) enum Fault {
    /// The node loses its master. Another one is elected after `back`. Without `back` there is no election.
    LoseMaster { node: Option<String>, back: Option<Between> },
    /// A random peer becomes master. Nothing happens if it is master already.
    Election { node: Option<String> },
    /// Adds `by` to the wants of random clients, once.
    Spike { clients: u32, by: f64 },
    /// Sets the wants of random clients, once.
    Want { clients: u32, amount: f64 },
    /// Changes the fraction of time in which random clients use their capacity.
    Use { clients: u32, part: Part },
    /// Replaces random clients by new ones.
    Crash { clients: u32 },
    /// Restarts clients under the same names; they forget their leases.
    Restart { clients: u32 },
    /// Clients release their leases and return later.
    Leave { clients: u32, back: Between },
    /// Cuts clients off from their node.
    CutClients { clients: u32, back: Between },
    /// Cuts a node off from its parent.
    CutUplink { node: Option<String>, back: Between },
    /// Cuts all links of a node.
    Isolate { node: Option<String>, back: Between },
    /// Changes the capacity at the root.
    Capacity { amount: f64 },
    /// Changes the lease length at the root.
    Lease { length: Span },
    /// An operator overrides the capacity of a node for a time.
    Override(OverrideSpec),
    /// Breaks the streams of Envoys. Both ends notice later.
    BreakStreams { clients: u32 },
    /// Replaces gateways by new ones with the same ids. Their Envoys continue.
    KillGateways { clients: u32 },
    /// Sends forged requests and releases under the names of others. Enables the access policy of nodes.
    Forge { requests: u32 },
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverrideSpec {
    #[serde(default)]
    pub(crate) node: Option<String>,
    /// Either a capacity or a factor of the configured one.
    #[serde(default)]
    pub(crate) capacity: Option<f64>,
    #[serde(default)]
    pub(crate) factor: Option<f64>,
    #[serde(default)]
    pub(crate) above: bool,
    pub(crate) ends: Between,
}

impl OverrideSpec {
    pub(crate) fn load(&self) -> Result<Load, String> {
        let number = |number| Amount::new(number).map_err(|error| format!("`override` {error}"));
        match (self.capacity, self.factor) {
            (Some(capacity), None) => Ok(Load::Capacity(number(capacity)?)),
            (None, Some(factor)) => Ok(Load::Factor(number(factor)?.get())),
            _ => Err("`override` needs either a `capacity` or a `factor`".into()),
        }
    }
}

impl Fault {
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
                Err(format!("there is no node `{node}` for this fault; known: {}", known.join(", ")))
            }
            _ => Ok(()),
        }
    }
}
