//! Which of all nodes that may have a name asks under it.

use std::num::NonZeroU64;

/// A node tells itself from others of its name by a number that was drawn at random when it began: its peers keep it in
/// their directories; one without a directory draws another with each start. Its masters are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeInstance {
    pub node: NonZeroU64,
    /// Which of its masters: later ones have higher numbers.
    pub reign: u64,
}

impl NodeInstance {
    /// From the wire. A node of zero is one that does not say.
    pub fn new(node: u64, reign: u64) -> Option<NodeInstance> {
        NonZeroU64::new(node).map(|node| NodeInstance { node, reign })
    }
}
