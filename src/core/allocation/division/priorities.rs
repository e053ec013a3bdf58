//! Claims by priority for reports to a parent, where the division itself ignores priorities.
//!
//! The parent decides how priorities take effect, and its configuration may change: so they are reported even if they
//! mean nothing here. Mostly all clients have the same priority, and then nothing else is kept. From the second
//! priority on a second index has all claims by priority, so that a report to the parent never visits each of them.

use super::{
    index::{ClaimKey, Index},
    slices,
};
use crate::types::claim::Claims;

/// The priorities of the claims in an index of one band.
#[derive(Default)]
pub(super) struct Priorities {
    /// The priority of all claims, if there is no index.
    only: i16,
    index: Option<Index>,
}

impl Priorities {
    /// To be called before `key` is inserted into `claims`, the index in one band.
    pub(super) fn insert(&mut self, priority: i16, key: ClaimKey, weight: u32, claims: &Index) {
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

    pub(super) fn remove(&mut self, priority: i16, key: ClaimKey, weight: u32) {
        if let Some(index) = &mut self.index {
            index.remove(key.in_band(priority), weight);
        }
    }

    /// See [`slices`].
    pub(super) fn summarize(&self, claims: &Index) -> Claims {
        if let Some(index) = &self.index {
            return slices::summarize(index);
        }
        let mut summary = slices::summarize(claims);
        summary.iter_mut().for_each(|claim| claim.priority = self.only);
        summary
    }

    pub(super) fn bytes(&self) -> usize {
        self.index.as_ref().map_or(0, Index::bytes)
    }
}
