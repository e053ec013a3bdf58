//! Slices: the claims of one band in a few groups of similar wants per subclient.
//!
//! A parent that divides over slices makes a mistake only in the slice that straddles the level, and it is as large as that
//! slice is wide. So neighbours are merged where that widens slices least: those of least n₁n₂/(n₁+n₂)·(w₂−w₁). Slices of equal
//! counts put all the greedy ones of a long tail together, and slices around the present level are wrong after it has moved.
//!
//! With a million claims nobody looks at each: the index is cut where a cell is widest until there are [`CELLS`], and only
//! those are merged. Up to so many different wants this is the same as merging single claims.

use std::{cmp::Ordering, collections::BinaryHeap};

use super::index::{Index, Key, Totals};
use crate::{Claim, Claims};

/// So many groups are told apart before they are merged.
const CELLS: usize = 512;

/// Claims next to each other.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Wants per subclient of the first and of the last.
    low: f64,
    high: f64,
    totals: Totals,
}

impl Cell {
    fn mean(&self) -> f64 {
        self.totals.wants.get() / self.totals.weight as f64
    }

    fn cost_of_merging(&self, next: &Cell) -> f64 {
        let (one, other) = (self.totals.weight as f64, next.totals.weight as f64);
        one * other / (one + other) * (next.mean() - self.mean())
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
    let cells = merged(cells(index, band), most.max(1));
    let claim = |cell: Cell| Claim {
        wants: cell.totals.wants.floor(),
        subclients: u32::try_from(cell.totals.weight).unwrap_or(u32::MAX).min(Claim::MAX_SUBCLIENTS),
        priority: band,
    };
    cells.into_iter().map(claim).collect()
}

/// In their order.
fn cells(index: &Index, band: i16) -> Vec<Cell> {
    let (start, end) = (Key::band_start(band), Key::band_end(band));
    let totals = index.before(end).minus(index.before(start));
    let (Some(low), Some(high)) = (index.first_from(start), index.last_before(end)) else { return Vec::new() };
    if totals.weight == 0 {
        return Vec::new();
    }
    let mut widest = BinaryHeap::from([Cell { low: Index::ratio(low), high: Index::ratio(high), totals }]);
    while widest.len() < CELLS && widest.peek().is_some_and(|cell| cell.low < cell.high) {
        let Some(cell) = widest.pop() else { break };
        // A mean may round to the highest; then nothing would be left above it.
        let border = Key::after(band, cell.mean().clamp(cell.low, cell.high.next_down()));
        let below = index.before(border).minus(index.before(Key::before(band, cell.low)));
        let (Some(last), Some(first)) = (index.last_before(border), index.first_from(border)) else { break };
        widest.push(Cell { low: cell.low, high: Index::ratio(last), totals: below });
        widest.push(Cell { low: Index::ratio(first), high: cell.high, totals: cell.totals.minus(below) });
    }
    let mut cells = widest.into_vec();
    cells.sort_unstable_by(|one, other| one.low.total_cmp(&other.low));
    cells
}

/// Merges neighbours until there are at most `most`.
fn merged(mut cells: Vec<Cell>, most: usize) -> Vec<Cell> {
    let mut costs: Vec<f64> = cells.windows(2).map(|pair| pair[0].cost_of_merging(&pair[1])).collect();
    while cells.len() > most {
        let cheapest = costs.iter().enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other));
        let Some((at, _)) = cheapest else { break };
        let upper = cells.remove(at + 1);
        cells[at].totals.add(upper.totals);
        costs.remove(at);
        for pair in [at.wrapping_sub(1), at] {
            if let (Some(cost), Some(next)) = (costs.get_mut(pair), cells.get(pair.wrapping_add(1))) {
                *cost = cells[pair].cost_of_merging(next);
            }
        }
    }
    cells
}
