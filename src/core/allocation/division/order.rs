//! The effect of priorities on the order of claims: the band of a claim, and its weight there.

use super::{index::ClaimKey, reserve};
use crate::{
    policy::settings::{Priority, Settings},
    types::claim::Claim,
};

/// How claims have to be sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimOrder {
    OneBand,
    /// One band too, by wants per weight.
    Weighted,
    Bands,
    /// Bands that share a reserve.
    ReservedBands,
}

impl ClaimOrder {
    pub(super) fn of(settings: &Settings) -> ClaimOrder {
        match settings.priority {
            Priority::Strict if settings.reserve > 0.0 && settings.kind.is_indexed() => ClaimOrder::ReservedBands,
            Priority::Strict => ClaimOrder::Bands,
            // STATIC gives every client the same, and has to know the number of clients.
            Priority::Weighted if settings.kind.is_indexed() => ClaimOrder::Weighted,
            Priority::Ignore | Priority::Weighted => ClaimOrder::OneBand,
        }
    }

    /// The band of claims of this priority.
    pub(super) fn band(self, priority: i16) -> i16 {
        match self {
            ClaimOrder::OneBand => 0,
            // Weights are part of the number of clients already: a parent must not weight them again.
            ClaimOrder::Weighted => 1,
            ClaimOrder::Bands => priority,
            ClaimOrder::ReservedBands => priority.clamp(*reserve::BANDS.start(), *reserve::BANDS.end()),
        }
    }

    /// Where a claim stands in an index, and how much it counts there.
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
