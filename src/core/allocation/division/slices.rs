//! Slices: the claims of each band, merged into a few groups of similar wants per subclient, as a child node reports
//! them to its parent.
//!
//! A parent that divides over slices makes an error only in the slice that straddles the level: at most
//! n₁n₂/(n₁+n₂)·(w₂−w₁), if n₁ clients that want w₁ were merged with n₂ that want w₂. Together, the clients from that
//! slice up get this much too little or too much. So neighbours are merged where the error is the smallest fraction of
//! the capacity of those clients. Rejected: slices of equal counts put the whole tail of large wants into one; slices
//! around the current level are wrong when it changes; merging that ignores how many clients bear an error, and how
//! little they have, doubles the error of small clients when capacity is scarce.
//!
//! With a million claims, not every claim is visited. The index is cut into cells, always the widest cell next, until
//! there are [`MAX_CELLS`], and only those are merged. With no more distinct wants than that, the result is the same as
//! merging single claims.
//!
//! A parent refuses a request with too many claims, so there are never more slices than
//! [`MAX_SLICES`](crate::types::MAX_SLICES). The more priorities, the fewer slices each gets. If there are too many
//! priorities, the lowest ones are merged and reported as the lowest of them, so a node never claims a higher priority
//! than its clients have. The node divides among these clients by their own priorities.

use std::{cmp::Ordering, collections::BinaryHeap};

use super::index::{ClaimKey, Index, Totals};
use crate::types::{Claim, Claims};

/// Maximum number of slices of one band.
const MAX_SLICES_OF_BAND: usize = 64;
/// The number of cells of a band before merging.
const MAX_CELLS: usize = 512;

/// The claims of all bands in at most `maximum` slices, ordered by band and then by wants.
pub(super) fn summarize(index: &Index, maximum: usize) -> Claims {
    let bands = highest_bands(index, maximum);
    let Some((lowest, above)) = bands.split_first() else { return Claims::new() };
    let maximum = MAX_SLICES_OF_BAND.min(maximum / bands.len());
    let mut summary = match index.first_from(ClaimKey::START).map(ClaimKey::band) {
        Some(further) if further < *lowest => {
            Claims::from_iter([claim(further, &index.before(ClaimKey::band_end(*lowest)))])
        }
        _ => slices(index, *lowest, maximum),
    };
    summary.extend(above.iter().flat_map(|band| slices(index, *band, maximum)));
    summary
}

/// In ascending order.
fn highest_bands(index: &Index, maximum: usize) -> Vec<i16> {
    let mut bands = Vec::new();
    let mut end = ClaimKey::END;
    while bands.len() < maximum
        && let Some(key) = index.last_before(end)
    {
        bands.push(key.band());
        end = ClaimKey::band_start(key.band());
    }
    bands.reverse();
    bands
}

/// Adjacent claims.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Wants per subclient of the first claim and of the last.
    low: f64,
    high: f64,
    totals: Totals,
    /// The sums over all earlier claims, in all bands.
    before: Totals,
}

impl Cell {
    fn mean(&self) -> f64 {
        self.totals.mean()
    }

    /// The error that merging with `next` can cause, relative to the capacity of the `upwards` clients from here up.
    fn cost_of_merging(&self, next: &Cell, upwards: f64) -> f64 {
        let (one, other) = (self.totals.weight as f64, next.totals.weight as f64);
        let mistake = one * other / (one + other) * (next.mean() - self.mean());
        mistake / (self.totals.plus(next.totals).mean() * upwards)
    }

    fn width(&self) -> f64 {
        (self.high - self.low) * self.totals.weight as f64
    }
}

impl PartialEq for Cell {
    fn eq(&self, other: &Cell) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Cell {}

impl PartialOrd for Cell {
    fn partial_cmp(&self, other: &Cell) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cell {
    fn cmp(&self, other: &Cell) -> Ordering {
        self.width().total_cmp(&other.width()).then_with(|| self.low.total_cmp(&other.low))
    }
}

/// Merges the claims of `band` into at most `maximum` slices.
pub(super) fn slices(index: &Index, band: i16, maximum: usize) -> Claims {
    merged(cells(index, band), maximum).iter().map(|cell| claim(band, &cell.totals)).collect()
}

/// Clients beyond the maximum number of a claim are ignored.
fn claim(band: i16, totals: &Totals) -> Claim {
    let subclients = u32::try_from(totals.weight).unwrap_or(u32::MAX).min(Claim::MAX_SUBCLIENTS);
    Claim::new(totals.wants.floor(), subclients, band)
}

/// Cuts a band into cells, in order.
fn cells(index: &Index, band: i16) -> Vec<Cell> {
    let (start, end) = (ClaimKey::band_start(band), ClaimKey::band_end(band));
    let before = index.before(start);
    let totals = index.before(end).minus(before);
    let (Some(low), Some(high)) = (index.first_from(start), index.last_before(end)) else { return Vec::new() };
    let mut widest = BinaryHeap::from([Cell { low: Index::ratio(low), high: Index::ratio(high), totals, before }]);
    while widest.len() < MAX_CELLS
        && widest.peek().is_some_and(|cell| cell.low < cell.high)
        && let Some(cell) = widest.pop()
    {
        let (below, above) = cut(index, band, &cell);
        widest.extend([below, above]);
    }
    let mut cells = widest.into_vec();
    cells.sort_unstable_by(|one, other| one.low.total_cmp(&other.low));
    cells
}

/// Splits a cell of different wants at its mean.
fn cut(index: &Index, band: i16, cell: &Cell) -> (Cell, Cell) {
    // A mean may round up to the highest value, which would leave the upper cell empty.
    let border = ClaimKey::after(band, cell.mean().clamp(cell.low, cell.high.next_down()));
    let before = index.before(border);
    let below = before.minus(cell.before);
    let ratio =
        |key: Option<ClaimKey>| Index::ratio(key.expect("the lowest is below the border, the highest above it"));
    let lower = Cell { high: ratio(index.last_before(border)), totals: below, ..*cell };
    let upper = Cell { low: ratio(index.first_from(border)), totals: cell.totals.minus(below), before, ..*cell };
    (lower, upper)
}

/// Merges adjacent cells until there are at most `maximum`.
fn merged(mut cells: Vec<Cell>, maximum: usize) -> Vec<Cell> {
    // The number of clients from each cell up.
    let mut upwards: Vec<f64> = cells
        .iter()
        .rev()
        .scan(0.0, |sum, cell| {
            *sum += cell.totals.weight as f64;
            Some(*sum)
        })
        .collect();
    upwards.reverse();
    let mut costs: Vec<f64> =
        cells.windows(2).zip(&upwards).map(|(pair, upwards)| pair[0].cost_of_merging(&pair[1], *upwards)).collect();
    while cells.len() > maximum {
        let cheapest = costs.iter().enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other));
        let Some((at, _)) = cheapest else { break };
        let upper = cells.remove(at + 1);
        cells[at].totals.add(upper.totals);
        upwards.remove(at + 1);
        costs.remove(at);
        for pair in [at.wrapping_sub(1), at] {
            if let (Some(cost), Some(next)) = (costs.get_mut(pair), cells.get(pair.wrapping_add(1))) {
                *cost = cells[pair].cost_of_merging(next, upwards[pair]);
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests;
