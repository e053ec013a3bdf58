//! Three levels of nodes as real processes: a root, a region and its leaves.

use super::{config::ConfigFile, peers::Peers};

pub(crate) struct Tree {
    _root: Peers,
    _region: Peers,
    /// Nodes of one peer each.
    pub(crate) leaves: Vec<Peers>,
}

impl Tree {
    /// Root and region have `peers` peers each.
    pub(crate) fn start(peers: usize, leaves: usize, config: ConfigFile) -> Tree {
        let root = Peers::start(peers, config, &[]);
        let region = root.child("region", peers);
        let leaves = (0..leaves).map(|n| region.child(&format!("leaf-{n}"), 1)).collect();
        Tree { _root: root, _region: region, leaves }
    }

    /// The address for clients of each leaf.
    pub(crate) fn endpoints(&self) -> Vec<Vec<String>> {
        self.leaves.iter().map(Peers::endpoints).collect()
    }
}
