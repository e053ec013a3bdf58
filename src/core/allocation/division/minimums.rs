//! Minimums: lower bounds of dues, at any level.
//!
//! The due of a claim with a minimum is max(minimum, min(wants, level·weight)), where the minimum is at most the wants.
//! Summed over a band, this is the sum without minimums, plus the part of each minimum above the level: Σ min(wants,
//! level·weight) + Σ minimum − Σ min(minimum, level·weight). Both sums over prefixes come from an index, one of wants
//! and one of minimums, and the level is found in one walk of each. A child node reports its minimums as separate
//! slices, and its parent computes the same.

use std::cell::Cell;

use super::{
    Terms,
    index::{ClaimKey, Index, Totals},
};
use crate::types::Sum;

/// The claims, or the minimums, of one band.
#[derive(Clone, Copy)]
pub(super) struct Members<'a> {
    pub(super) index: &'a Index,
    pub(super) band: i16,
    /// The sums over all bands below.
    pub(super) below: Totals,
    pub(super) all: Totals,
}

impl Members<'_> {
    pub(super) fn of(index: &Index, band: i16) -> Members<'_> {
        let below = index.before(ClaimKey::band_start(band));
        Members { index, band, below, all: index.before(ClaimKey::band_end(band)).minus(below) }
    }

    /// Their total due up to `level` per weight.
    fn due(&self, level: f64) -> f64 {
        let modest = self.index.before(ClaimKey::after(self.band, level)).minus(self.below);
        modest.wants.get() + level * (self.all.weight - modest.weight) as f64
    }

    /// The sum of the amounts by which these minimums exceed `level` per weight.
    pub(super) fn beyond(&self, level: f64) -> f64 {
        (self.all.wants.get() - self.due(level)).max(0.0)
    }

    /// The sums over the longest prefix for which `fits(ratio, sums before)` holds.
    fn prefix_where(&self, fits: impl Fn(f64, Totals) -> bool) -> Totals {
        let (start, end) = (ClaimKey::band_start(self.band), ClaimKey::band_end(self.band));
        let prefix = self
            .index
            .prefix_where(|key, before| key < start || key < end && fits(Index::ratio(key), before.minus(self.below)));
        prefix.minus(self.below)
    }
}

/// The level at which the dues, each at least its minimum, add up to the capacity. The capacity covers all minimums.
pub(super) fn level_above(claims: Members<'_>, minimums: Members<'_>, capacity: Sum) -> Terms {
    let left = (capacity - minimums.all.wants).get();
    // The highest level known to fit. If all claims that want more have minimums above it, the sums yield no higher
    // level.
    let reached = Cell::new(0.0f64);
    let fits = |ratio: f64, wanted: f64, secured: f64| {
        let fits = wanted - secured <= left;
        if fits {
            reached.set(reached.get().max(ratio));
        }
        fits
    };
    let up_to = |members: &Members<'_>, ratio: f64, before: Totals| {
        before.wants.get() + ratio * (members.all.weight - before.weight) as f64
    };
    let satisfied =
        claims.prefix_where(|ratio, before| fits(ratio, up_to(&claims, ratio, before), minimums.due(ratio)));
    let passed = minimums.prefix_where(|ratio, before| fits(ratio, claims.due(ratio), up_to(&minimums, ratio, before)));
    let above = claims.all.weight - satisfied.weight;
    if above == 0 {
        // The wants exceed the capacity by less than a float resolves; settlement absorbs the difference.
        return Terms::Wants;
    }
    // A child node's slices need not have a claim for each minimum.
    let shared = above.saturating_sub(minimums.all.weight - passed.weight);
    let rest = left - satisfied.wants.get() + passed.wants.get();
    Terms::Level(if shared == 0 { reached.get() } else { reached.get().max(rest / shared as f64) })
}
