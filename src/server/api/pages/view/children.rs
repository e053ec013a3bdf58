//! What child nodes hold.

use std::sync::Arc;

use super::{node::ChildRow, resources::ResourceRow};
use crate::api::pages::{Pages, text};

/// Number of resources in which child nodes are looked up: those with the most held.
const MAX_RESOURCES: usize = 20;

/// How much of a resource is held.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Use {
    pub(crate) resource: Arc<str>,
    pub(crate) held: f64,
    pub(crate) capacity: f64,
}

impl Use {
    /// The held part of the capacity; more than 1 if more is held than there is.
    pub(crate) fn part(&self) -> f64 {
        match () {
            () if self.held <= 0.0 => 0.0,
            () if self.capacity <= 0.0 => f64::MAX,
            () => self.held / self.capacity,
        }
    }

    pub(crate) fn sentence(&self) -> String {
        let (held, capacity) = (text::number(self.held), text::number(self.capacity));
        match self.capacity > 0.0 {
            true => format!("{held} of {capacity} units held ({})", text::percent(self.part())),
            false => format!("{held} units held, no capacity"),
        }
    }
}

/// The largest use of a child node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChildUse {
    pub(crate) node: String,
    /// Of the resource of which it holds the largest part. None if it holds nothing of the resources examined.
    pub(crate) most: Option<Use>,
}

/// What these child nodes hold. The cost is bounded: a look-up of each child in [`MAX_RESOURCES`] resources.
pub(crate) async fn children(pages: &Pages, children: &[ChildRow], rows: &[ResourceRow]) -> Vec<ChildUse> {
    let names: Arc<[String]> = children.iter().map(|child| child.node.clone()).collect();
    let mut found: Vec<ChildUse> = names.iter().map(|node| ChildUse { node: node.clone(), most: None }).collect();
    if found.is_empty() {
        return found;
    }
    let mut divided: Vec<&ResourceRow> = rows.iter().filter(|row| row.is_divided && row.held > 0.0).collect();
    divided.sort_by(|one, other| other.held.total_cmp(&one.held));
    for row in divided.into_iter().take(MAX_RESOURCES) {
        let Some(held) = pages.node.held_by_nodes(&row.resource, Arc::clone(&names)).await else { continue };
        for (child, held) in found.iter_mut().zip(held) {
            let used = Use { resource: Arc::clone(&row.resource), held, capacity: row.capacity };
            let is_more = child.most.as_ref().is_none_or(|most| used.part() > most.part());
            if held > 0.0 && is_more {
                child.most = Some(used);
            }
        }
    }
    found
}
