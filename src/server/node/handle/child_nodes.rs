//! The child nodes that have asked this server recently, and names that two of them use, for pages and checks.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use leaseway_core::types::Millis;

/// Maximum number of recorded child nodes.
const CHILDREN: usize = 1000;
/// How long a silent child node is recorded.
const REMEMBERED: Millis = Millis(900_000);
/// How long a name counts as taken after a second node was refused.
const TAKEN: Millis = Millis(60_000);

/// The last request of a child node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Child {
    pub(crate) id: String,
    pub(crate) at: Millis,
    /// Number of resources in the request.
    pub(crate) resources: usize,
    /// When another node with its name was last refused.
    pub(crate) taken: Option<Millis>,
}

#[derive(Debug, Default)]
pub(crate) struct ChildNodes(Mutex<HashMap<String, Child>>);

impl ChildNodes {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Child>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an answered request.
    pub(crate) fn asked(&self, id: &str, resources: usize, at: Millis) {
        let mut all = self.all();
        if let Some(child) = all.get_mut(id) {
            (child.at, child.resources) = (at, resources);
            return;
        }
        if all.len() >= CHILDREN {
            all.retain(|_, child| at.since(child.at) <= REMEMBERED);
        }
        if all.len() < CHILDREN {
            all.insert(id.to_owned(), Child { id: id.to_owned(), at, resources, taken: None });
        }
    }

    /// Records a refusal because another node has this name.
    pub(crate) fn refused(&self, id: &str, at: Millis) {
        if let Some(child) = self.all().get_mut(id) {
            child.taken = Some(at);
        }
    }

    /// The names that two nodes have used at the same time recently.
    pub(crate) fn names_taken(&self, now: Millis) -> Vec<String> {
        let is_taken = |child: &Child| child.taken.is_some_and(|at| now.since(at) <= TAKEN);
        self.list(now).into_iter().filter(is_taken).map(|child| child.id).collect()
    }

    /// The child nodes that have asked recently, sorted by name.
    pub(crate) fn list(&self, now: Millis) -> Vec<Child> {
        let mut list: Vec<Child> =
            self.all().values().filter(|child| now.since(child.at) <= REMEMBERED).cloned().collect();
        list.sort_by(|one, other| one.id.cmp(&other.id));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_nodes_are_bounded_and_expire() {
        let nodes = ChildNodes::default();
        (0..2 * CHILDREN).for_each(|number| nodes.asked(&number.to_string(), 1, Millis(0)));
        assert_eq!(nodes.list(Millis(0)).len(), CHILDREN);
        let later = Millis(REMEMBERED.0 + 1);
        nodes.asked("leaf", 7, later);
        assert_eq!(nodes.list(later), [Child { id: "leaf".into(), at: later, resources: 7, taken: None }]);
        nodes.refused("leaf", later);
        assert_eq!(nodes.names_taken(later), ["leaf"]);
        assert!(nodes.names_taken(Millis(later.0 + TAKEN.0 + 1)).is_empty());
    }
}
