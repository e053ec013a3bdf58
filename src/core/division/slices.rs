//! Slices: all claims in a few groups of similar wants per subclient, for each band.
//!
//! A parent that divides over slices makes a mistake only in the slice that straddles the level: by
//! n₁n₂/(n₁+n₂)·(w₂−w₁) at most, if n₁ clients who want w₁ have been merged with n₂ who want w₂. That much is missing,
//! or too much, for all from there up together. So neighbours are merged where it is the least part of what those get.
//! Slices of equal counts put all the greedy ones of a long tail together; slices around the present level are wrong
//! after it has moved; and without regard to how many bear a mistake, and how little they have, those with little bear
//! twice as much where capacity is scarce.
//!
//! With a million claims nobody looks at each: the index is cut where a cell is widest until there are [`CELLS`], and
//! only those are merged. Up to so many different wants this is the same as merging single claims.
//!
//! A parent refuses requests that are too long, again and again. So there are never more slices than [`IN_ALL`]: of
//! many priorities each gets fewer, and of too many the lowest are told as one, by the lowest. A node never claims more
//! priority than its clients have; among them it divides what it gets by their own.

use std::{cmp::Ordering, collections::BinaryHeap};

use super::index::{Index, Key, Totals};
use crate::{Claim, Claims};

/// At most so many slices of one band.
const OF_BAND: usize = 64;
/// And so many of all bands together.
pub(crate) const IN_ALL: usize = 256;
/// So many groups of a band are told apart before they are merged.
const CELLS: usize = 512;

/// All claims, from the lowest band up, in each from the modest to the greedy.
pub(super) fn condense(index: &Index) -> Claims {
    let bands = highest_bands(index);
    let Some((lowest, above)) = bands.split_first() else { return Claims::new() };
    let most = OF_BAND.min(IN_ALL / bands.len());
    let mut condensed = match index.first_from(Key::START).map(Key::band) {
        Some(further) if further < *lowest => {
            Claims::from_iter([claim(further, &index.before(Key::band_end(*lowest)))])
        }
        _ => slices(index, *lowest, most),
    };
    condensed.extend(above.iter().flat_map(|band| slices(index, *band, most)));
    condensed
}

/// Upwards.
fn highest_bands(index: &Index) -> Vec<i16> {
    let mut bands = Vec::new();
    let mut end = Key::END;
    while bands.len() < IN_ALL
        && let Some(key) = index.last_before(end)
    {
        bands.push(key.band());
        end = Key::band_start(key.band());
    }
    bands.reverse();
    bands
}

/// Claims next to each other.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Wants per subclient of the first and of the last.
    low: f64,
    high: f64,
    totals: Totals,
    /// The sums over all that stand before them, in any band.
    before: Totals,
}

impl Cell {
    fn mean(&self) -> f64 {
        self.totals.mean()
    }

    /// The mistake that merging it with the `next` can lead to, as a part of what all get who want as much: `upwards`
    /// of them.
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

/// The claims of `band` in at most `most` slices.
pub(super) fn slices(index: &Index, band: i16, most: usize) -> Claims {
    merged(cells(index, band), most).iter().map(|cell| claim(band, &cell.totals)).collect()
}

/// Of more clients than a claim may stand for, the others count as none.
fn claim(band: i16, totals: &Totals) -> Claim {
    let subclients = u32::try_from(totals.weight).unwrap_or(u32::MAX).min(Claim::MAX_SUBCLIENTS);
    Claim { wants: totals.wants.floor(), subclients, priority: band }
}

/// In their order.
fn cells(index: &Index, band: i16) -> Vec<Cell> {
    let (start, end) = (Key::band_start(band), Key::band_end(band));
    let before = index.before(start);
    let totals = index.before(end).minus(before);
    let (Some(low), Some(high)) = (index.first_from(start), index.last_before(end)) else { return Vec::new() };
    let mut widest = BinaryHeap::from([Cell { low: Index::ratio(low), high: Index::ratio(high), totals, before }]);
    while widest.len() < CELLS
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

/// Cuts a cell of different wants at their mean.
fn cut(index: &Index, band: i16, cell: &Cell) -> (Cell, Cell) {
    // A mean may round to the highest; then nothing would be left above it.
    let border = Key::after(band, cell.mean().clamp(cell.low, cell.high.next_down()));
    let before = index.before(border);
    let below = before.minus(cell.before);
    let ratio = |key: Option<Key>| Index::ratio(key.expect("the lowest is below the border, the highest above it"));
    let lower = Cell { high: ratio(index.last_before(border)), totals: below, ..*cell };
    let upper = Cell { low: ratio(index.first_from(border)), totals: cell.totals.minus(below), before, ..*cell };
    (lower, upper)
}

/// Merges neighbours until there are at most `most`.
fn merged(mut cells: Vec<Cell>, most: usize) -> Vec<Cell> {
    // How many clients there are from each cell up.
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
    while cells.len() > most {
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
