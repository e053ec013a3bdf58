//! Claims by their priorities, to be told to a parent, where the division itself does not look at them.
//!
//! What priorities mean is for the parent to say, and it may say something else tomorrow: so they go up whatever they
//! mean here. Mostly all clients have the same, and then there is nothing to keep but that. From the second priority on
//! a second index has all claims by priority, so that telling the parent never looks at each of them.

use super::{
    index::{Index, Key},
    slices,
};
use crate::Claims;

/// What priorities the claims of an index in one band have.
#[derive(Default)]
pub(super) struct Priorities {
    /// All have this one, if there is no index.
    only: i16,
    index: Option<Index>,
}

impl Priorities {
    /// To be called before `key` is inserted into `claims`, the index in one band.
    pub(super) fn insert(&mut self, priority: i16, key: Key, weight: u32, claims: &Index) {
        if self.index.is_none() && priority != self.only {
            if claims.totals().weight == 0 {
                self.only = priority;
            } else {
                self.index = Some(claims.in_band(self.only));
            }
        }
        if let Some(index) = &mut self.index {
            index.insert(key.in_band(priority), weight);
        }
    }

    pub(super) fn remove(&mut self, priority: i16, key: Key, weight: u32) {
        if let Some(index) = &mut self.index {
            index.remove(key.in_band(priority), weight);
        }
    }

    /// See [`slices`].
    pub(super) fn condense(&self, claims: &Index) -> Claims {
        if let Some(index) = &self.index {
            return slices::condense(index);
        }
        let mut condensed = slices::condense(claims);
        condensed.iter_mut().for_each(|claim| claim.priority = self.only);
        condensed
    }

    pub(super) fn bytes(&self) -> usize {
        self.index.as_ref().map_or(0, Index::bytes)
    }
}
