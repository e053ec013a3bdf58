//! What priorities mean to the order of claims: in which band a claim stands, and how much it weighs there.

use super::{Priority, reserve};
use crate::{Claim, Settings};

/// How claims have to be sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    OneBand,
    /// One band too, by what is wanted per weight.
    Weighted,
    Bands,
    /// Bands, of which each has a reserve.
    ReservedBands,
}

impl Order {
    pub(super) fn of(settings: &Settings) -> Order {
        match settings.priority {
            Priority::Strict if settings.reserve > 0.0 && settings.kind.is_indexed() => Order::ReservedBands,
            Priority::Strict => Order::Bands,
            // STATIC has the same for every client, and must know how many there are.
            Priority::Weighted if settings.kind.is_indexed() => Order::Weighted,
            Priority::Ignore | Priority::Weighted => Order::OneBand,
        }
    }

    /// The band of claims of this priority.
    pub(super) fn band(self, priority: i16) -> i16 {
        match self {
            Order::OneBand => 0,
            // Weights are in the number of clients already: a parent must not weigh them again.
            Order::Weighted => 1,
            Order::Bands => priority,
            Order::ReservedBands => priority.clamp(*reserve::BANDS.start(), *reserve::BANDS.end()),
        }
    }

    /// A claim with as many subclients as it counts for.
    pub(super) fn weighed(self, claim: &Claim) -> Claim {
        if self != Order::Weighted {
            return *claim;
        }
        let weight = claim.priority.max(1).unsigned_abs().into();
        Claim { subclients: claim.subclients.saturating_mul(weight), ..*claim }
    }
}
