//! Minimums: what some claims are due at least, at any level.
//!
//! A claim with a minimum is due max(minimum, min(wants, level·weight)), and a minimum is no more than what is wanted.
//! So all claims of a band together are due what they would be without minimums, and for each minimum what the level
//! leaves of it: Σ min(wants, level·weight) + Σ minimum − Σ min(minimum, level·weight). Both sums over a prefix come
//! from an index, one of what is wanted and one of the minimums, and the level is found in two walks, down each of the
//! two. A child node reports its minimums as slices of their own, and its parent computes the same.

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

    /// The sum of what these minimums exceed `level` for each weight by.
    pub(super) fn beyond(&self, level: f64) -> f64 {
        (self.all.wants.get() - self.due(level)).max(0.0)
    }

    /// The sums over those up to which `fits(ratio, sums before)` holds.
    fn prefix_where(&self, fits: impl Fn(f64, Totals) -> bool) -> Totals {
        let (start, end) = (ClaimKey::band_start(self.band), ClaimKey::band_end(self.band));
        let prefix = self
            .index
            .prefix_where(|key, before| key < start || key < end && fits(Index::ratio(key), before.minus(self.below)));
        prefix.minus(self.below)
    }
}

/// The level at which claims are due the whole capacity, each no less than its minimum. All minimums fit in.
pub(super) fn level_above(claims: Members<'_>, minimums: Members<'_>, capacity: Sum) -> Terms {
    let left = (capacity - minimums.all.wants).get();
    // The highest level that was seen to fit: where all that want more have minimums above it, the sums say no more.
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
    // The slices of a child node need not have a claim for each minimum.
    let shared = above.saturating_sub(minimums.all.weight - passed.weight);
    let rest = left - satisfied.wants.get() + passed.wants.get();
    Terms::Level(if shared == 0 { reached.get() } else { reached.get().max(rest / shared as f64) })
}
