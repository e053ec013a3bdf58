//! The reserve: a fraction of the capacity that all bands share, so that strict priorities starve no band.
//!
//! The reserve is divided max-min over all claims of any priority. The sum for the claims of a band belongs to the
//! band. The rest of the capacity goes strictly from the top band down. Then every band divides its capacity by the
//! algorithm.
//!
//! The capacity of a band depends on all bands. After a change, all bands are walked once, with one index query each,
//! for any number of requests. This is why the number of [bands](BANDS) is bounded. A second index holds all claims in
//! one band, to find the level of the reserve in one walk; only resources with a reserve have it.
//!
//! Below a parent, the level of the reserve belongs to the whole tree, and a node cannot compute it. But the parent
//! sends the terms of each band. The dues of the node's own claims by these terms are the part of its lease for the
//! band, and replace the band's reserve. If the lease does not cover them, because it was cut or demand has risen, the
//! node computes a level of its own. Every band then gets at least what follows from that level, and the remainder is
//! divided in proportion. If it went strictly from the top, the rounding errors of slices would all fall on the lowest
//! bands, which have the least.

use std::{
    cell::RefCell,
    collections::{BTreeMap, btree_map::Entry},
    ops::RangeInclusive,
};

use super::{
    Terms,
    index::{ClaimKey, Index, Totals},
    level,
};
use crate::types::{Amount, Sum};

/// With a reserve, priorities outside this range are clamped to it.
pub(super) const BANDS: RangeInclusive<i16> = -128..=127;

pub(super) struct Reserve {
    /// The fraction of the capacity, from 0 to 1.
    part: f64,
    /// All claims in one band.
    all_claims: Index,
    /// The sums over the claims of each band.
    bands: BTreeMap<i16, Totals>,
    /// The capacity of each band, and of all. Empty if it has to be recomputed.
    shares: RefCell<(Amount, Vec<Share>)>,
}

/// A band and the capacity that it divides.
#[derive(Clone, Copy)]
pub(super) struct Share {
    band: i16,
    /// The sums over all bands below it.
    pub(super) below: Totals,
    pub(super) members: Totals,
    pub(super) capacity: Sum,
}

/// A band while the capacity is divided among bands.
struct Claimant {
    band: i16,
    below: Totals,
    members: Totals,
    /// Its share of the reserve that this node computes.
    reserved: f64,
    /// Its due by the parent's terms; without such terms, its share of the reserve.
    promised: f64,
}

impl Reserve {
    pub(super) fn new(part: f64) -> Reserve {
        Reserve { part, all_claims: Index::new(), bands: BTreeMap::new(), shares: RefCell::default() }
    }

    pub(super) fn set_part(&mut self, part: f64) {
        self.part = part;
        self.reset();
    }

    /// Invalidates the cached shares.
    pub(super) fn reset(&mut self) {
        self.shares.get_mut().1.clear();
    }

    pub(super) fn insert(&mut self, key: ClaimKey, weight: u32) {
        self.all_claims.insert(key.in_band(0), weight);
        self.bands.entry(key.band()).or_default().add(Totals::of(key, weight));
        self.reset();
    }

    pub(super) fn remove(&mut self, key: ClaimKey, weight: u32) {
        self.all_claims.remove(key.in_band(0), weight);
        if let Entry::Occupied(mut band) = self.bands.entry(key.band()) {
            let left = band.get().minus(Totals::of(key, weight));
            if left.weight > 0 {
                band.insert(left);
            } else {
                band.remove();
            }
        }
        self.reset();
    }

    /// The capacity of `band`. `index` has the claims by band; `parent_terms` returns the parent's terms of a band.
    pub(super) fn share(
        &self,
        band: i16,
        index: &Index,
        capacity: Amount,
        parent_terms: impl Fn(i16) -> Option<Terms>,
    ) -> Option<Share> {
        let (of, shares) = &mut *self.shares.borrow_mut();
        if shares.is_empty() || *of != capacity {
            (*of, *shares) = (capacity, shared(self.claimants(index, capacity, parent_terms), capacity.get()));
        }
        shares.iter().find(|share| share.band == band).copied()
    }

    /// All bands, from the highest down.
    fn claimants(&self, index: &Index, capacity: Amount, parent_terms: impl Fn(i16) -> Option<Terms>) -> Vec<Claimant> {
        let own = self.own_terms(capacity);
        let mut below = index.totals();
        let claimant = |(band, members): (&i16, &Totals)| {
            let (band, members) = (*band, *members);
            below = below.minus(members);
            let reserved = due_together(&own, index, band, below, members);
            let promised =
                parent_terms(band).map_or(reserved, |terms| due_together(&terms, index, band, below, members));
            Claimant { band, below, members, reserved, promised }
        };
        self.bands.iter().rev().map(claimant).collect()
    }

    /// The terms of the reserve.
    fn own_terms(&self, capacity: Amount) -> Terms {
        let reserve = Sum::from(Amount::clamped(capacity.get() * self.part));
        let all = self.all_claims.totals();
        if all.wants <= reserve { Terms::Wants } else { level(&self.all_claims, 0, Totals::default(), all, reserve) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.all_claims.bytes()
    }
}

/// The total due of a band's claims by these terms.
fn due_together(terms: &Terms, index: &Index, band: i16, below: Totals, members: Totals) -> f64 {
    let (each, top_up) = match *terms {
        Terms::Wants | Terms::Each(_) | Terms::Minimums(_) => return members.wants.get(),
        Terms::Level(level) => (level, 0.0),
        Terms::Share { equal, top_up } => (equal, top_up),
    };
    let modest = index.before(ClaimKey::after(band, each)).minus(below);
    let greedy = members.minus(modest);
    let shares = each * greedy.weight as f64;
    let beyond = greedy.wants.get() - shares;
    (modest.wants.get() + shares + beyond * top_up).clamp(0.0, members.wants.get())
}

/// The capacity of each band, the highest first.
fn shared(claimants: Vec<Claimant>, capacity: f64) -> Vec<Share> {
    let promised: f64 = claimants.iter().map(|claimant| claimant.promised).sum();
    let shares = if promised > capacity {
        cut(&claimants, promised, capacity)
    } else {
        from_the_top(&claimants, capacity - promised)
    };
    let share = |(Claimant { band, below, members, .. }, capacity)| Share { band, below, members, capacity };
    claimants.into_iter().zip(shares).map(share).collect()
}

/// Every band gets its promised capacity. `left` is the rest of the capacity, and goes from the top band down.
fn from_the_top(claimants: &[Claimant], mut left: f64) -> Vec<Sum> {
    let share = |claimant: &Claimant| {
        let missing = claimant.members.wants.get() - claimant.promised;
        let extra = missing.min(left);
        left -= extra;
        // Exact if all wants are covered.
        if extra < missing { Sum::from(Amount::clamped(claimant.promised + extra)) } else { claimant.members.wants }
    };
    claimants.iter().map(share).collect()
}

/// More is promised than available: every band keeps its share of the node's own reserve, and gets the same fraction of
/// the rest.
fn cut(claimants: &[Claimant], promised: f64, capacity: f64) -> Vec<Sum> {
    let kept = |claimant: &Claimant| claimant.promised.min(claimant.reserved);
    let all_kept: f64 = claimants.iter().map(kept).sum();
    let part = ((capacity - all_kept) / (promised - all_kept)).clamp(0.0, 1.0);
    let share = |claimant: &Claimant| kept(claimant) + (claimant.promised - kept(claimant)) * part;
    claimants.iter().map(|claimant| Sum::from(Amount::clamped(share(claimant)))).collect()
}
