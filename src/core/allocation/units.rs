//! Whole units: a holder that is due three tenths of a permit gets a whole one three times out of ten.
//!
//! Each due is rounded down, and the left-over units rotate by request counting, the method of Apache's load balancer.
//! In each rotation, each holder is credited with its fraction of a unit. The holders with the most credit get one unit
//! each and pay for it with credit. So each holder has its due rounded down or up, the sum never exceeds the capacity,
//! and the long-run average of each holder equals its due.
//!
//! A rotation lasts many refresh intervals, because a unit can move only after its holder has asked. If demand changes
//! within a rotation, the units are dealt again from the credits at its start.
//!
//! Fractions of a unit are integers in units of 2⁻²⁰, so they do not drift.

use std::{cmp::Reverse, sync::Arc};

use crate::types::{Amount, Millis};

pub(crate) const UNIT: i64 = 1 << 20;

/// The credits of holders, and the current rotation.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    /// Indexed by ledger slot.
    credits: Vec<Credit>,
    /// The end of the current rotation; zero before the first.
    ends: Millis,
    /// The version of the claims at the last deal.
    dealt: Option<u64>,
    dealt_at: Millis,
}

#[derive(Debug, Clone, Copy, Default)]
struct Credit {
    /// Credit at the start of the current rotation, and at its end.
    before: i64,
    after: i64,
}

/// A holder whose due has a fractional part.
#[derive(Debug)]
pub(crate) struct UnitPart {
    pub(crate) slot: u32,
    pub(crate) id: Arc<str>,
    /// The fractional part of its due, in units of 2⁻²⁰.
    pub(crate) part: i64,
}

/// The minimum time between two deals while demand changes.
const DEAL_PAUSE: Millis = Millis(1000);

impl Rotation {
    pub(crate) fn ends(&self) -> Millis {
        self.ends
    }

    /// Whether units must be dealt: the rotation is over, or the claims have changed (`version`).
    pub(crate) fn is_due(&self, now: Millis, version: u64) -> bool {
        self.ends <= now || (self.dealt != Some(version) && self.dealt_at.plus(DEAL_PAUSE) <= now)
    }

    /// Deals the left-over units. Returns the holders that get one.
    pub(crate) fn deal(
        &mut self,
        now: Millis,
        period: Millis,
        version: u64,
        parts: &[UnitPart],
        units: usize,
    ) -> Vec<u32> {
        if self.ends <= now {
            self.credits.iter_mut().for_each(|credit| credit.before = credit.after);
            self.ends = now.plus(period);
        }
        (self.dealt, self.dealt_at) = (Some(version), now);
        let most = parts.iter().map(|part| part.slot as usize + 1).max().unwrap_or_default();
        self.credits.resize(self.credits.len().max(most), Credit::default());
        self.credits.iter_mut().for_each(|credit| credit.after = credit.before);
        let mut credits: Vec<i64> = parts.iter().map(|part| self.credits[part.slot as usize].before).collect();
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_unstable_by(|one, other| parts[*one].id.cmp(&parts[*other].id));
        let shares: Vec<i64> = parts.iter().map(|part| part.part).collect();
        let winners = step(&mut credits, &shares, units, UNIT, &order);
        for (part, credit) in parts.iter().zip(credits) {
            self.credits[part.slot as usize].after = credit;
        }
        winners.into_iter().map(|winner| parts[winner].slot).collect()
    }

    /// Clears a slot, so that the next holder in it starts without credit or debt.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(credit) = self.credits.get_mut(slot as usize) {
            *credit = Credit::default();
        }
    }
}

/// The whole units of a due, and the fractional part.
fn apart(due: Amount) -> (f64, i64) {
    let whole = due.get().floor();
    match ((due.get() - whole) * UNIT as f64).round() as i64 {
        UNIT => (whole + 1.0, 0),
        part => (whole, part),
    }
}

/// The fractional part of a due.
pub(crate) fn part_of(due: Amount) -> i64 {
    apart(due).1
}

/// The due in whole units. `extra`: whether this holder gets one of the remaining units.
pub(crate) fn whole(due: Amount, extra: bool) -> Amount {
    let (whole, part) = apart(due);
    Amount::clamped(whole + if extra && part > 0 { 1.0 } else { 0.0 })
}

/// The number of left-over units. Rounding makes each fraction wrong by at most half of 2⁻²⁰.
pub(crate) fn left_over(parts: &[UnitPart]) -> usize {
    let sum = parts.iter().map(|part| part.part).sum::<i64>() + parts.len() as i64;
    usize::try_from(sum / UNIT).unwrap_or_default()
}

/// One step of request counting. Each holder is credited with its share of the `units`. The holders with the most
/// credit get one unit each and pay for it. Ties go to the first in `order`.
///
/// If there are fewer units than the sum of the fractions, all credits are scaled down. Equal fractions get exactly
/// equal credits; otherwise the order of ties would change from step to step.
fn step(credits: &mut [i64], parts: &[i64], units: usize, unit: i64, order: &[usize]) -> Vec<usize> {
    let units = units.min(credits.len());
    let (sum, given) = (parts.iter().map(|part| i128::from(*part)).sum::<i128>(), units as i128 * i128::from(unit));
    if units == 0 || sum == 0 {
        return Vec::new();
    }
    for (credit, part) in credits.iter_mut().zip(parts) {
        *credit += ((i128::from(*part) * given + sum / 2) / sum) as i64;
    }
    let mut winners = order.to_vec();
    winners.sort_by_key(|holder| Reverse(credits[*holder]));
    winners.truncate(units);
    winners.iter().for_each(|winner| credits[*winner] -= unit);
    winners
}

#[cfg(test)]
mod tests;
