//! The effects of priorities on claims.
//!
//! [`ClaimOrder`] determines the band of a claim, and its weight in the band.
//!
//! [`Priorities`] stores the priorities of claims that are divided in one band, for reports to a parent. The parent
//! decides what priorities mean, and its configuration may change. Usually all clients have the same priority, and
//! nothing else is stored. With a second priority, a second index holds all claims by priority, so that a report visits
//! only few of them.

use super::{
    index::{ClaimKey, Index},
    reserve, slices,
};
use crate::{
    policy::settings::{Priority, Settings},
    types::{Claim, Claims},
};

/// The sort order of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimOrder {
    OneBand,
    /// One band, sorted by wants per weight.
    Weighted,
    Bands,
    /// Bands that share a reserve.
    ReservedBands,
}

impl ClaimOrder {
    pub(super) fn of(settings: &Settings) -> ClaimOrder {
        match settings.priority {
            Priority::Strict if settings.reserve > 0.0 && settings.dividing_algorithm().is_indexed() => {
                ClaimOrder::ReservedBands
            }
            Priority::Strict => ClaimOrder::Bands,
            // STATIC ignores weights: every client gets the same amount, and the number of clients must stay exact.
            Priority::Weighted if settings.dividing_algorithm().is_indexed() => ClaimOrder::Weighted,
            Priority::Ignore | Priority::Weighted => ClaimOrder::OneBand,
        }
    }

    /// The band of claims of this priority.
    pub(super) fn band(self, priority: i16) -> i16 {
        match self {
            ClaimOrder::OneBand => 0,
            // The weights are already part of the number of clients, so the parent must not apply them again.
            ClaimOrder::Weighted => 1,
            ClaimOrder::Bands => priority,
            ClaimOrder::ReservedBands => priority.clamp(*reserve::BANDS.start(), *reserve::BANDS.end()),
        }
    }

    /// The key and the weight of a claim in an index.
    pub(super) fn entry(self, slot: u32, ordinal: usize, claim: &Claim) -> (ClaimKey, u32) {
        let claim = self.weighed(claim);
        let ratio = claim.wants.get() / f64::from(claim.subclients);
        (ClaimKey::new(self.band(claim.priority), ratio, slot, ordinal as u16), claim.subclients)
    }

    /// The claim with its subclients multiplied by its weight.
    pub(super) fn weighed(self, claim: &Claim) -> Claim {
        if self != ClaimOrder::Weighted {
            return *claim;
        }
        let weight = claim.priority.max(1).unsigned_abs().into();
        Claim { subclients: claim.subclients.saturating_mul(weight), ..*claim }
    }
}

/// The priorities of the claims in an index of one band.
#[derive(Default)]
pub(super) struct Priorities {
    /// The priority of all claims while there is no second index.
    only: i16,
    index: Option<Index>,
}

impl Priorities {
    /// Call it before `key` is inserted into `claims`, the index of the single band.
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
    pub(super) fn summarize(&self, claims: &Index, maximum: usize) -> Claims {
        if let Some(index) = &self.index {
            return slices::summarize(index, maximum);
        }
        let mut summary = slices::summarize(claims, maximum);
        summary.iter_mut().for_each(|claim| claim.priority = self.only);
        summary
    }

    pub(super) fn bytes(&self) -> usize {
        self.index.as_ref().map_or(0, Index::bytes)
    }
}
