//! The nodes and clients of a scenario, one by one.

use leaseway_core::{Amount, Millis};

use crate::scenario::{ClientKind, Scenario, UsageSpec, Wants};

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
    pub(crate) speaks: ClientKind,
    pub(crate) priority: i16,
    pub(crate) wants: Wants,
    /// Its assignment.
    pub(crate) assigned: Option<Amount>,
    pub(crate) uses: Option<UsageSpec>,
    /// The window of its limiter.
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
                    let (speaks, window) = (clients.speaks, clients.window.0);
                    let client = TreeClient { node: node_index, speaks, priority, wants, assigned, uses, window };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::built_in;

    #[test]
    fn five_has_thirteen_nodes_on_three_levels_and_forty_five_clients() {
        let five =
            Scenario::parse("five", built_in("five").expect("it comes with the simulator")).expect("it is valid");
        let tree = Tree::new(&five);
        let levels = |level| tree.nodes.iter().filter(|node| node.level == level).count();
        assert_eq!((levels(0), levels(1), levels(2)), (1, 3, 9));
        assert_eq!(tree.clients.len(), 45);
        assert_eq!(tree.nodes[12].name, "datacenter9");
        let children = |parent| tree.nodes.iter().filter(|node| node.parent == Some(parent)).count();
        assert_eq!((0..4).map(children).collect::<Vec<_>>(), [3, 3, 3, 3]);
        assert!((4..13).all(|node| tree.clients.iter().filter(|client| client.node == node).count() == 5));
        assert_eq!(tree.named(&five, "region"), [1, 2, 3]);
    }
}
